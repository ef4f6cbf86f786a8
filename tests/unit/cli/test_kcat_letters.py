"""Letters of kcat, typed from memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("letters", [("-u",), ("-C",), ("-Cu",), ("-Cue",)])
def test_letters_that_say_what_consume_does_anyhow_change_nothing(shell: Any, letters: tuple[str, ...]) -> None:
    shell.cluster.fill("t", 0, [b"a"])
    ran = shell("consume", *letters, "-t", "t", "-o", "start", "--timeout-ms", "1000", "-q")
    assert (ran.code, ran.out, ran.err) == (0, "a\n", "")


def test_the_letter_of_producing_changes_nothing(shell: Any, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"a\n")
    assert shell("produce", "-P", "-t", "t", "-l", str(source)).code == 0
    assert [each[2] for each in shell.cluster.produced] == [b"a"]


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        (("consume", "-G", "g", "t"), "a group is --group NAME here"),
        (("consume", "-P", "-t", "t"), "'strandline produce'"),
        (("produce", "-C", "-t", "t"), "'strandline consume'"),
        (("produce", "-G", "g", "t"), "'strandline consume --group NAME"),
    ],
)
def test_letters_that_say_something_else_are_answered_with_how_to_say_it(
    shell: Any, args: tuple[str, ...], advice: str
) -> None:
    ran = shell(*args)
    assert (ran.code, ran.out, ran.err.count("\n"), shell.cluster.bootstrap) == (2, "", 1, "")
    assert f"{args[1]} is kcat's: " in ran.err
    assert advice in ran.err


@pytest.mark.parametrize("command", ["consume", "produce"])
def test_the_help_leaves_them_out(shell: Any, command: str) -> None:
    lines = [line.strip() for line in shell(command, "--help").out.splitlines()]
    assert any(line.startswith("-t, --topic") for line in lines)
    assert not [line for line in lines if line.startswith(("-u", "-C", "-P", "-G"))]
