"""What an answer at a question leads to, of every command that asks one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.cli import prompts
from strandline.client.groups.administration import GroupOffset, GroupView
from strandline.client.metadata import PartitionView
from strandline.protocol.types import TopicPartition

ASKING = {
    "topics delete": (("topics", "delete", "t"), "not deleted"),
    "delete-records": (("delete-records", "t", "--all"), "not deleted"),
    "groups delete": (("groups", "delete", "g"), "not deleted"),
    "groups delete-offsets": (("groups", "delete-offsets", "g", "-t", "t"), "not deleted"),
    "elect-leaders": (("elect-leaders", "t", "--unclean"), "nothing was changed"),
}


class Terminal:
    """Somebody who answers every question in the same way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: str | BaseException = ""
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        monkeypatch.setattr("click.termui.visible_prompt_func", self._answer)

    def _answer(self, prompt: str) -> str:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


@pytest.fixture
def asked(shell: Any) -> Any:
    """A shell whose cluster has something of everything to lose."""
    shell.cluster.add_topic("t", {0: PartitionView(-1, 1, (1, 2))})
    shell.cluster.groups["g"] = GroupView("g", "Empty", "consumer", "", 1, [])
    shell.cluster.committed["g"] = {TopicPartition("t", 0): GroupOffset(1)}
    return shell


def is_whole(shell: Any) -> bool:
    changed = shell.cluster.settings.keys() & {"deleted", "forgotten"} or shell.cluster.moves.elected
    return "t" in shell.cluster.topics and "g" in shell.cluster.groups and not changed


@pytest.mark.parametrize("answer", ["n", "no", ""])
@pytest.mark.parametrize("command", ASKING)
def test_an_answer_of_no_does_nothing_and_is_no_interruption(
    asked: Any, terminal: Terminal, command: str, answer: str
) -> None:
    args, said = ASKING[command]
    terminal.answer = answer
    ran = asked(*args)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith(f"strandline: {said}\n") and "interrupted" not in ran.err
    assert is_whole(asked)


@pytest.mark.parametrize("command", ASKING)
def test_ctrl_c_at_a_question_is_an_interruption(asked: Any, terminal: Terminal, command: str) -> None:
    terminal.answer = KeyboardInterrupt()
    ran = asked(*ASKING[command][0])
    assert ran.code == 130
    assert ran.err.endswith("strandline: interrupted\n")
    assert is_whole(asked)


@pytest.mark.parametrize("command", ASKING)
def test_an_input_that_ends_at_a_question_is_an_error_that_names_the_option(
    asked: Any, terminal: Terminal, command: str
) -> None:
    terminal.answer = EOFError()
    ran = asked(*ASKING[command][0])
    assert ran.code == 1
    assert ran.err.splitlines()[-1].startswith(f"strandline: {ASKING[command][1]}: the input ended")
    assert "--yes" in ran.err
    assert is_whole(asked)


@pytest.mark.parametrize("command", ASKING)
def test_without_a_terminal_nobody_is_asked(asked: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    ran = asked(*ASKING[command][0])
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--yes" in ran.err
    assert is_whole(asked)


@pytest.mark.parametrize("command", ASKING)
def test_an_answer_of_yes_does_it(asked: Any, terminal: Terminal, command: str) -> None:
    terminal.answer = "y"
    assert asked(*ASKING[command][0]).code == 0
    assert not is_whole(asked)


def test_no_command_asks_in_another_way() -> None:
    """click's own way takes a no for Ctrl-C."""
    folder = Path(prompts.__file__).parent
    asking = [path.name for path in folder.glob("*.py") if "click.confirm" in path.read_text()]
    assert asking == ["prompts.py"]
