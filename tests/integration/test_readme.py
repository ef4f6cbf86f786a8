"""What the README tells a new user to type works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.readme import block, blocks, rows, run, shell

COMMANDS, PIPES = (
    [line.partition("  #")[0].strip() for line in text.splitlines() if line.startswith(("strandline ", "printf "))]
    for text in blocks("A cluster of one's own", "")
)
OPERATING, ASKING = (
    [line.partition("  #")[0].strip() for line in block("Operating it", language).splitlines() if line]
    for language in ("", "sh")
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    subprocess.run([sys.executable, "-m", "strandline.cli", "down"], cwd=tmp_path, capture_output=True, check=False)


def test_the_quick_start_works_as_it_is_written(folder: Path) -> None:
    *before, status, down = COMMANDS
    assert (status, down) == ("strandline status", "strandline down")
    shown = {command.split()[1]: shell(command, folder) for command in before}
    assert sorted(shown["consume"].splitlines()) == ["ann\tlogin", "ann\tlogout", "bob\tlogin"]
    assert "readers: lag 0 in 12 partitions" in shown["groups"]
    assert "healthy: 2 topics, 62 partitions" in shell(status, folder)

    from strandline.cli.cluster import running_bootstrap

    bootstrap = running_bootstrap(folder / "strandline-data")
    assert bootstrap is not None
    program = block("From Python", "python").replace("localhost:9092", bootstrap).replace("(9404)", "(0)")
    said = run([sys.executable, "-c", program], folder)
    assert "b'ann', b'login')]" in said
    assert "[True, True]" in said, "in asyncio"
    assert "read of eve: [b'log" in said
    assert "committed, before others read on: 12" in said, "by an async function, in asyncio's loop"
    assert ": [b'login'" in said, "what a group is given"
    assert "others read on: [TopicPartition(" in said
    written, copied, _ = [shell(command, folder) for command in PIPES]
    assert "ann=login\n" in written and copied == ""
    assert shell("strandline consume -t clicks-copy -o :end", folder).count("\n") == written.count("\n")
    shell(down, folder)


def test_what_operators_type_works_as_it_is_written(folder: Path) -> None:
    uneven = " || [ $? = 1 ]"  # how even the load is depends on the machine
    shown = {command: shell(command + uneven * command.startswith("strandline load"), folder) for command in OPERATING}
    assert "9 partitions now" in shown["strandline topics --alter --topic orders --partitions 9"]
    [moved] = [said for command, said in shown.items() if "--wait" in command]
    assert "lie as planned" in moved and "Removed the throttle of topic orders" in moved
    assert "0 replicas to copy" not in moved
    assert "it may be stopped" in shown["strandline broker-decommission 4"]


def test_quotas_and_figures_are_told_as_it_is_written(folder: Path) -> None:
    said = shell("strandline up --brokers 1", folder)
    # Where 9644 is taken, `up` names another one.
    [port] = re.findall(r"broker 1 .* 127\.0\.0\.1:(\d+) ", said)
    shown = {command: shell(command.replace(":9644", f":{port}"), folder) for command in ASKING}
    assert (
        "alice" in shown["strandline quotas describe"] and "producer_byte_rate" in shown["strandline quotas describe"]
    )
    [figures] = [said for command, said in shown.items() if command.startswith("curl")]
    assert "kafka_server_kafkaserver_brokerstate 3.0" in figures


def test_the_simulator_is_run_as_it_is_written(folder: Path) -> None:
    commands = [line.partition("  #")[0].strip() for line in block("In a simulator", "").splitlines()]
    drawn, told, scripted, several, listed = (shell(command, folder) for command in commands)
    digest = r"\ndigest [0-9a-f]{16}\n"
    assert re.findall(digest, drawn) == re.findall(digest, told) != []
    assert (folder / "run.html").stat().st_size > 10_000
    assert "STRUCK kill 2 for 4" in scripted and "undone cut 1>3 for 5" in scripted
    assert "\n4 seeds, 0 with findings; " in several
    assert "SIGSTOP" in listed


def test_what_users_of_other_tools_type_here_works_as_it_is_written(folder: Path) -> None:
    commands = [ours.strip("`") for _, ours in rows("Coming from Kafka, kcat or rpk")]
    assert len(commands) > 20 and all("strandline " in command for command in commands)
    shown = {command: shell(command, folder) for command in commands}
    assert "9 partitions now" in shown["strandline topics alter t --partitions 9"]
    lines = shown["strandline consume -t t --from-beginning -e"].splitlines()
    assert sorted(lines) == sorted([*map(str, [*range(1, 101), *range(1, 11)]), "login", "logout"])
    [formatted] = [said for command, said in shown.items() if "%o %k=%s" in command]
    assert sum("ann=log" in line for line in formatted.splitlines()) == 2
    assert shown["strandline consume -t t -p 0 -n 5 --from-beginning"].count("\n") == 5
    assert "lag 0" in shown["strandline groups describe g"]
    assert "retention.ms" in shown["strandline configs alter -t t --add retention.ms=86400000"]
    [sent] = [said for command, said in shown.items() if "bench produce" in command]
    assert sent.splitlines()[-1].startswith("50000 records sent, ")
