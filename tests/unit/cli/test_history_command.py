"""`strandline history`: what is asked for, shown and refused; the pipeline is a fake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.cli import history as command
from strandline.protocol.history.summary import (
    Absence,
    BrokerSummary,
    Controller,
    HistorySummary,
    PartitionOutage,
    PartitionSummary,
    State,
    Totals,
)
from strandline.spark_connector.pipelines import history as telling
from strandline.spark_connector.pipelines.history import HistoryOptions

STATE = State(0, None, 1, 3, 7, (1, 2), (1, 2, 3), 2)
SUMMARY = HistorySummary(
    since_ms=0,
    until_ms=60_000,
    files=2,
    lines=1200,
    unreadable_lines=1,
    lines_too_long=3,
    cut_files=("/logs/state-change.log.2.gz",),
    totals=Totals(4, 5, 4, 3, 2, 25, 9_000, 6_000, 65_000, 0, 1, 12, 0, 0),
    controllers=(Controller(1, 1, 0, 20, 30_000, "the broker was gone"), Controller(2, 2, 31_000, 31_500, None, "")),
    brokers=(
        BrokerSummary(1, 1200, 0, 60_000, 60_000, 5, 1, 0, 6_000, (Absence(30_000, 36_000, False),)),
        BrokerSummary(2, 0, None, None, 0, 0, 0, 0, 0, ()),
    ),
    outages=tuple(
        PartitionOutage("clicks", "id", number, 30_000, None if number else 36_000, "broker 1 was gone", 1, 2, 6_000)
        for number in range(22)
    ),
    partitions=(PartitionSummary("clicks", "id", 0, 1, 1, 1, 1, 1, 6_000, 6_000, 9, 0, 1, 12, 0, 0, 1, (STATE,), ()),),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that the pipeline was given; no Spark starts."""
    given: list[Any] = []

    @contextmanager
    def pipeline(name: str, output: str) -> Iterator[tuple[object, object]]:
        yield None, print

    def history(spark: object, options: HistoryOptions, disk: object, **told: Any) -> HistorySummary:
        given.append(options)
        told["warn"]("a line is cut")
        return SUMMARY

    monkeypatch.setattr(command, "pipeline", pipeline)
    monkeypatch.setattr(telling, "history", history)
    return given


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in ("state-change.log", "controller.log"):
        (tmp_path / "broker-1").mkdir(exist_ok=True)
        (tmp_path / "broker-1" / name).touch()
    return tmp_path


def test_a_history_is_told_as_tables(shell: Any, asked: list[Any], logs: Path) -> None:
    ran = shell("history", str(logs))
    assert ran.code == 0 and ran.err == "strandline: warning: a line is cut\n"
    lines = ran.out.splitlines()
    assert lines[:9] == [
        "1970-01-01 00:00:00.000 to 1970-01-01 00:01:00.000 UTC, 1,200 lines of 2 files (1 cut, 3 lines too long)",
        "CONTROLLER EPOCH FROM                    UNTIL                   ENDED",
        "1          1     1970-01-01 00:00:00.000 1970-01-01 00:00:30.000 the broker was gone",
        "2          2     1970-01-01 00:00:31.000 still                   -",
        "BROKER LED   ELECTIONS-WON LEFT-ISRS JOINED-ISRS AWAY AWAY-FOR LINES",
        "1      1 min 5             1         0           1    6.0 s    1200",
        "2      0 ms  0             0         0           0    0 ms     none",
        "OUTAGE-OF FROM                    UNTIL                   LENGTH WHY",
        "clicks-0  1970-01-01 00:00:30.000 1970-01-01 00:00:36.000 6.0 s  broker 1 was gone",
    ]
    assert lines[-3:] == [
        "… and 5 shorter ones",
        "4 partitions: 5 elections, ISRs shrank 3 times and grew 2 times, 25 outages",
        "partition time without a leader 9.0 s, under-replicated 1 min 5 s, under min ISR 0 ms; "
        "1 hand-over, the longest 12 ms",
    ]


def test_options_say_what_of_the_history_is_told(shell: Any, asked: list[Any], logs: Path) -> None:
    options = (
        "--since",
        "1970-01-01T00:00:05Z",
        "--until",
        "9000",
        "-t",
        "cl.*",
        "--partitions",
        "0,3-5",
        "--limit",
        "7",
    )
    assert shell("history", str(logs / "broker-1"), str(logs), *options).code == 0
    files = tuple(str(logs / "broker-1" / name) for name in ("controller.log", "state-change.log"))
    assert asked == [HistoryOptions(files, 5_000, 9_000_000, "cl.*", frozenset({0, 3, 4, 5}), 7)]


def test_times_may_count_back_from_now(shell: Any, asked: list[Any], logs: Path) -> None:
    assert shell("history", str(logs), "--since", "-2h").code == 0
    assert asked[0].until_ms is None and asked[0].since_ms == shell.session.now_ms() - 7_200_000


def test_without_a_path_the_embedded_cluster_is_meant(
    shell: Any, asked: list[Any], logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DATA", str(logs))
    assert shell("history").code == 0
    assert shell("history", "--data", str(logs)).code == 0
    assert asked[0] == asked[1] and len(asked[0].files) == 2


def test_json_has_the_whole_summary(shell: Any, asked: list[Any], logs: Path) -> None:
    shown = json.loads(shell("history", str(logs), "--output", "json").out)
    assert (shown["lines_too_long"], shown["cut_files"]) == (3, ["/logs/state-change.log.2.gz"])
    assert (shown["_command"], shown["_version"], len(shown["outages"])) == ("history", 1, 22)
    assert shown["controllers"][0]["controller_epoch"] == 1 and shown["brokers"][0]["away"][0]["to_ms"] == 36_000
    assert shown["partitions"][0]["intervals"] == [
        {
            "from_ms": 0,
            "to_ms": None,
            "leader": 1,
            "leader_epoch": 3,
            "zk_version": 7,
            "isr": [1, 2],
            "replicas": [1, 2, 3],
            "min_isr": 2,
        }
    ]


def test_a_page_is_written_where_it_is_asked_for(shell: Any, asked: list[Any], logs: Path) -> None:
    ran = shell("history", str(logs), "--page", str(logs / "p.html"))
    assert f"page: {logs / 'p.html'}" in ran.out and "History of the cluster" in (logs / "p.html").read_text()


def test_what_a_link_leads_to_is_read_once(shell: Any, asked: list[Any], logs: Path) -> None:
    (logs / "broker-1" / "controller.log").rename(logs / "elsewhere")
    (logs / "broker-1" / "controller.log").symlink_to(logs / "elsewhere")
    (logs / "broker-1" / "controller.log.1").symlink_to(logs / "elsewhere")
    assert shell("history", str(logs)).code == 0
    assert sorted(asked[0].files) == [str(logs / "broker-1" / "state-change.log"), str(logs / "elsewhere")]


def test_a_log_that_is_missing_is_told(shell: Any, asked: list[Any], logs: Path) -> None:
    (logs / "broker-1" / "controller.log").unlink()
    assert f"{logs / 'broker-1' / 'controller.log'} is missing" in shell("history", str(logs)).err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((), 1, "[NO_CHANGE_LOGS]"),
        (("-t", "("), 2, "--topics '(' is no pattern"),
        (("--since", "2000", "--until", "1000"), 2, "ends before it begins; give an earlier --since"),
    ],
)
def test_what_cannot_be_told_is_known_before_spark_starts(
    shell: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    logs: Path,
    arguments: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    monkeypatch.setattr(command, "pipeline", lambda name, output: pytest.fail("Spark starts"))
    (tmp_path / "empty").mkdir()
    ran = shell("history", str(logs if arguments else tmp_path / "empty"), *arguments)
    assert (ran.code, ran.err.count("\n")) == (code, 1) and told in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("/nowhere/at/all",), "does not exist"),
        (("--data", "/nowhere/at/all"), "name the folders of the brokers' logs"),
        ((".", "--since", "soon"), "--since: time 'soon' is not understood"),
        ((".", "--until", "end"), "--until: time 'end' is not understood"),
        ((".", "--since", "2h"), "write -2h for 2h ago"),
        ((".", "--partitions", "0-x"), "give for example 0,3-5"),
        ((".", "--limit", "0"), "--limit"),
        ((".", "--page", "/nowhere/p.html"), "there is no folder /nowhere"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(shell: Any, arguments: tuple[str, ...], told: str) -> None:
    ran = shell("history", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1) and told in ran.err
