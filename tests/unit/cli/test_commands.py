"""The commands over a fake cluster: what they print, how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.cli import main as cli_main
from strandline.client.metadata import PartitionView

# --- topics ------------------------------------------------------------------------------------------------------


def described(shell: Any) -> None:
    shell.cluster.add_topic("t", {1: PartitionView(-1, 6, (2, 3), (2,)), 0: PartitionView(1, 5, (1, 2), (1, 2))})


def test_describe_prints_kafkas_lines(shell: Any) -> None:
    described(shell)
    expected = (
        "Topic: t\tTopicId: AAECAwQFBgcICQoLDA0ODw\tPartitionCount: 2\tReplicationFactor: 2"
        "\tConfigs: retention.ms=7,secret=(not shown)\n"
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\n"
        "\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 2,3\tIsr: 2\n"
    )
    assert shell("topics", "--describe", "--topic", "t").out == expected
    assert shell("topics", "describe", "t").out == expected


def test_describe_says_which_replicas_are_refused_and_why(shell: Any) -> None:
    reasons = {3: "/data/t-0 is damaged; mend it", 4: "its disk failed"}
    shell.cluster.add_topic("t", {0: PartitionView(2, 6, (2, 3, 4), (2,), refused_replicas=reasons)})
    line = "\tTopic: t\tPartition: 0\tLeader: 2\tReplicas: 2,3,4\tIsr: 2"
    line += "\tRefused: broker 3: /data/t-0 is damaged; mend it; broker 4: its disk failed\n"
    assert shell("topics", "--describe", "--topic", "t").out.endswith(line)
    shown = json.loads(shell("topics", "describe", "t", "--output", "json").out)["topics"][0]["partitions"][0]
    assert shown["refused_replicas"] == [{"broker": number, "why": why} for number, why in reasons.items()]


def test_filters_show_only_partitions_in_trouble(shell: Any) -> None:
    described(shell)
    line = "\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 2,3\tIsr: 2\n"
    assert shell("topics", "--describe", "--under-replicated-partitions").out == line
    assert shell("topics", "--describe", "--unavailable-partitions").out == line


def test_json_is_one_object_with_its_errors(shell: Any) -> None:
    described(shell)
    ran = shell("topics", "--describe", "--topic", "t,missing", "--output", "json")
    shown = json.loads(ran.out)
    assert ran.code == 1
    assert shown["_command"] == "topics.describe"
    assert [entry["error"] for entry in shown["topics"]] == [None, "UNKNOWN_TOPIC_OR_PARTITION"]
    assert shown["topics"][0]["partitions"][1]["leader"] is None


def test_create_passes_what_was_asked_and_leaves_the_rest_to_the_brokers(shell: Any) -> None:
    ran = shell("topics", "--create", "--topic", "n", "--partitions", "6", "-r", "3", "-c", "min.insync.replicas=2")
    assert (ran.code, ran.out) == (0, "Created topic n.\n")
    assert shell.cluster.settings["created"] == ("n", 6, 3, {"min.insync.replicas": "2"})
    shell("topics", "create", "m")
    assert shell.cluster.settings["created"] == ("m", -1, -1, {})


def test_creating_a_topic_twice_fails_unless_that_is_fine(shell: Any) -> None:
    described(shell)
    ran = shell("topics", "--create", "--topic", "t")
    assert ran.code == 1
    assert ran.err.startswith("strandline: ")
    assert shell("topics", "--create", "--topic", "t", "--if-not-exists").code == 0


def test_delete_asks_for_yes_when_nobody_can_be_asked(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    described(shell)
    with open("/dev/null") as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        ran = shell("topics", "--delete", "--topic", "t")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert "t" in shell.cluster.topics
    assert shell("topics", "--delete", "--topic", "t", "--yes").out == "Deleted topic t.\n"
    assert shell("topics", "--delete", "--topic", "t", "--yes").code == 1
    assert shell("topics", "--delete", "--topic", "t", "--yes", "--if-exists").code == 0


def test_list_prints_one_name_a_line(shell: Any) -> None:
    shell.cluster.add_topic("b", {})
    shell.cluster.add_topic("a", {})
    assert shell("topics", "--list").out == "a\nb\n"


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["--nonsense"],
        ["prodce"],
        ["produce"],
        ["produce", "-t"],
        ["produce", "-t", "t", "--acks", "7"],
        ["produce", "-t", "\udcff"],
        ["consume", "-t", "a/b"],
        ["topics", "--create", "--topic", "."],
        ["produce", "-t", "t", "-f", "/nonexistent"],
        ["produce", "-t", "t", "-k", "a", "-K", ":"],
        ["produce", "-t", "t", "-b", "nohost"],
        ["produce", "-t", "t", "-b", "host:99999"],
        ["produce", "-t", "t", "-H", "novalue"],
        ["produce", "-t", "t", "-H", "\udcff=value"],
        ["produce", "-t", "t", "-X", "novalue"],
        ["produce", "-t", "t", "-X", "linger.ms=1", "-X", "linger_ms=2"],
        ["produce", "-t", "t", "-X", "on.batch=print"],
        ["consume", "-t", "t", "-o", "x"],
        ["consume", "-t", "t", "-o", "5:3"],
        ["consume", "-t", "t", "-o", "1", "--from-beginning"],
        ["consume", "-t", "t", "-o", "1:2", "-e"],
        ["consume", "-t", "t", "-f", "%q"],
        ["consume", "-t", "t", "-f", "%v", "-J"],
        ["consume", "-t", "t", "-p", "-1"],
        ["topics"],
        ["topics", "--create"],
        ["topics", "--list", "--describe"],
        ["topics", "--list", "--topic", "t"],
        ["topics", "--describe", "--partitions", "3"],
        ["topics", "destroy", "t"],
        ["broker"],
        ["broker", "--override", "novalue"],
        ["\udcff"],
    ],
    ids=lambda args: ascii(" ".join(args)),
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(shell: Any, args: list[str]) -> None:
    ran = shell(*args)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("strandline: ")
    assert ran.out == "" or "-J" in args


def test_an_unknown_topic_is_one_line_and_exit_code_1(shell: Any) -> None:
    ran = shell("consume", "-t", "nothere")
    assert ran.code == 1
    assert ran.err.startswith("strandline: topic 'nothere' does not exist")
    assert ran.err.count("\n") == 1


def test_the_bootstrap_address_comes_from_the_option_then_the_environment_then_the_embedded_cluster(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("topics", "--list")
    assert shell.cluster.bootstrap == "127.0.0.1:19092"
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", "env:1")
    shell("topics", "--list")
    assert shell.cluster.bootstrap == "env:1"
    shell("topics", "--list", "-b", "a:1,[::1]:2")
    assert shell.cluster.bootstrap == "a:1,[::1]:2"


def test_a_surprise_is_one_line_too(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_DEBUG", raising=False)
    for error in (ValueError("a\nb\x1b[31m"), BaseExceptionGroup("group", [KeyError("x")]), RuntimeError()):
        assert cli_main.report(error) == 1
        shown = capfd.readouterr().err
        assert shown.count("\n") == 1
        assert "\x1b" not in shown
    assert cli_main.report(BaseExceptionGroup("group", [KeyboardInterrupt()])) == 130


def test_help_is_there_for_every_command_with_an_example(shell: Any) -> None:
    ran = shell("--help")
    assert all(name in ran.out for name in cli_main.COMMANDS)
    for name in ("produce", "consume", "topics", "dump-log", "broker"):
        assert "Example" in shell(name, "--help").out


def test_examples_stand_on_lines_of_their_own_however_narrow_the_terminal_is(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = shell("offsets", "--help").out.splitlines()
    assert lines[lines.index("  Examples:") + 1 :] == [
        "    strandline offsets",
        "    strandline offsets clicks:0,1 --at @-1h",
        "    strandline offsets --include 'clicks-.*' --at @2024-02-14:1h",
    ]


def test_help_and_the_readme_have_the_same_exit_codes(shell: Any) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    shown = " ".join(shell("--help").out.split())
    for code, meaning in cli_main.EXIT_CODES.items():
        assert f"| {code} | {meaning} |\n" in readme and f"{code} {meaning}" in shown


def test_help_imports_neither_trio_nor_rich_nor_the_clients() -> None:
    program = (
        "import sys; from strandline.cli.main import run; run(['--help']); run(['consume', '--help']); "
        "sys.exit(','.join(m for m in ('trio', 'rich', 'strandline.client', 'asyncio') if m in sys.modules) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.strip()) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_was_closed_before_the_start_is_no_fault(closed: str) -> None:
    program = "from strandline.cli.main import main; main(['consume', '--help'])"
    ran = subprocess.run(
        ["bash", "-c", f'"$0" -c "{program}" {closed}', sys.executable], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_closed_pipe_ends_the_command_quietly() -> None:
    program = "from strandline.cli.main import main; main(['consume', '--help'])"
    ran = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$0" -c "{program}" | (exec 0<&-)', sys.executable],
        capture_output=True,
        text=True,
    )
    assert ran.returncode in (0, 1)
    assert ran.stderr == ""
