"""`strandline audit`: what is asked for, shown and refused; the pipeline is a fake."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.cli import audit as command
from strandline.client.replicas.audit import (
    STATES,
    AuditedPartition,
    AuditedReplica,
    AuditOptions,
    AuditSummary,
)
from strandline.client.replicas.comparison import Finding
from strandline.spark_connector.errors import UnknownTopic
from strandline.spark_connector.pipelines import audit as auditing


def replica(broker: int, state: str = "equal", *, lag: int = 0, findings: tuple[Finding, ...] = ()) -> AuditedReplica:
    return AuditedReplica(broker, broker == 1, not lag, state, 5, 900 - lag, lag, 9, 895, 1024, findings)


FLIPPED = Finding("damaged", 410, 411, 1, "its bytes do not have the CRC-32C 0x1 of its header", is_confirmed=True)
GONE = Finding("offline", 0, 0, 1, "broker 3 is not running", is_confirmed=True)
MANY = tuple(Finding("missing", offset, offset + 1, 7, "broker 1 has a batch", True) for offset in range(0, 50, 2))
DOUBTFUL = Finding("different", 8, 9, 1, "the batch is another", is_confirmed=False)
EQUAL = (replica(1), replica(2))
DAMAGED = (replica(1), replica(2, "different", findings=(FLIPPED,)), replica(3, "offline", findings=(GONE,)))
LAGGING = (replica(1), replica(2, "different", findings=MANY), replica(3, "behind", lag=40))


def summary_of(*partitions: tuple[AuditedReplica, ...]) -> AuditSummary:
    replicas = [each for replicas in partitions for each in replicas]
    audited = tuple(
        AuditedPartition("clicks", number, 1, False, max((each.state for each in replicas), key=STATES.index), replicas)
        for number, replicas in enumerate(partitions)
    )
    states = {state: sum(each.state == state for each in replicas) for state in STATES}
    batches, size_bytes = sum(each.batches for each in replicas), sum(each.size_bytes for each in replicas)
    is_equal = not states["different"] and not states["offline"]
    return AuditSummary(is_equal, 1, len(replicas), states, batches, 0, size_bytes, 2, ("__consumer_offsets",), audited)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that the pipeline was given, after the summary that it gives; no Spark starts."""
    given: list[Any] = [summary_of(EQUAL)]

    @contextmanager
    def pipeline(name: str, output: str) -> Iterator[tuple[object, object]]:
        yield None, print

    def audit(spark: object, options: AuditOptions, **told: Any) -> AuditSummary:
        given.append(options)
        told["warn"]("topic 'gone' was deleted while it was audited")
        summary = given[0]
        assert isinstance(summary, AuditSummary)
        return summary

    monkeypatch.setattr(command, "pipeline", pipeline)
    monkeypatch.setattr(auditing, "audit", audit)
    return given


def test_equal_replicas_are_a_line_per_partition_and_success(shell: Any, asked: list[Any]) -> None:
    ran = shell("audit", "-b", "there:1", "-X", "request.timeout.ms=5")
    assert (ran.code, ran.err) == (0, "strandline: warning: topic 'gone' was deleted while it was audited\n")
    assert ran.out.splitlines() == [
        "PARTITION LEADER REPLICAS FROM-OFFSET TO-OFFSET BATCHES DATA    RESULT",
        "clicks-0  1      1,2      5           900       18      2.0 KiB equal",
        "1 partition, 2 replicas: 2 equal; 18 batches, 2.0 KiB compared",
        "internal topics were left out (--internal compares them): __consumer_offsets",
    ]
    assert asked[1:] == [AuditOptions("there:1", client_settings={"request.timeout.ms": 5})]


def test_each_finding_is_a_line_and_the_exit_code_says_that_there_are_some(shell: Any, asked: list[Any]) -> None:
    asked[0] = summary_of(EQUAL, DAMAGED, LAGGING)
    ran = shell("audit")
    lines = ran.out.splitlines()
    assert ran.code == 3
    assert [line.split()[-1] for line in lines[1:4]] == ["equal", "different", "different"]
    assert lines[4:7] == [
        "clicks-1 on broker 2: damaged [410, 411): its bytes do not have the CRC-32C 0x1 of its header",
        "clicks-2 on broker 2: missing [0, 1): broker 1 has a batch (the first of 7)",
        "clicks-2 on broker 2: missing [2, 3): broker 1 has a batch (the first of 7)",
    ]
    assert lines[-5:-1] == [
        "clicks-2 on broker 2: 5 more findings (--output json and --page have them)",
        "clicks-2 on broker 3: behind: 40 offsets from 860 on could not be compared, not in sync",
        "1 replica: broker 3 is not running",
        "3 partitions, 8 replicas: 4 equal, 1 behind, 1 offline, 2 different; 72 batches, 8.0 KiB compared",
    ]


def test_json_has_the_whole_summary(shell: Any, asked: list[Any]) -> None:
    asked[0] = summary_of(DAMAGED)
    ran = shell("audit", "--output", "json")
    shown = json.loads(ran.out)
    assert ran.code == 3
    assert (shown["_command"], shown["is_equal"], shown["replicas_by_state"]["offline"]) == ("audit", False, 1)
    assert shown["partitions"][0]["replicas"][1]["findings"] == [
        {
            "kind": "damaged",
            "start": 410,
            "end": 411,
            "count": 1,
            "text": "its bytes do not have the CRC-32C 0x1 of its header",
            "is_confirmed": True,
        }
    ]
    assert shown["internal_left_out"] == ["__consumer_offsets"]


def test_what_no_second_look_found_is_told_as_such(shell: Any, asked: list[Any]) -> None:
    asked[0] = summary_of((replica(1), replica(2, "different", findings=(DOUBTFUL,))))
    ran = shell("audit")
    line = (
        "clicks-0 on broker 2: different [8, 9): the batch is another (not confirmed: the look before did not find it)"
    )
    assert ran.code == 3 and line in ran.out.splitlines()


def test_what_is_audited_can_be_chosen(shell: Any, asked: list[Any], tmp_path: Path) -> None:
    shell("audit", "clicks", "orders:0,3", "--allow-offline", "--page", str(tmp_path / "p.html"), "-b", "there:1")
    shell("audit", "--topics", "c.*s", "--internal", "-b", "there:1")
    assert asked[1:] == [
        AuditOptions("there:1", {"clicks": None, "orders": (0, 3)}, allow_offline=True),
        AuditOptions("there:1", {}, "c.*s", True),
    ]
    page = (tmp_path / "p.html").read_text()
    assert "Audit of replicas" in page and "there:1" in page and "all equal" in page


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("a/b",), "may only have letters"),
        (("clicks:x",), "is not TOPIC or TOPIC:PARTITION"),
        (("clicks", "clicks:1"), "topic clicks is named twice"),
        (("clicks", "--topics", "x"), "not both"),
        (("clicks", "--internal"), "not both"),
        (("-X", "nonsense=1"), "unknown setting 'nonsense'"),
        (("--topics", "("), "--topics '(' is no regular expression"),
        (("--page", "/nowhere/p.html"), "there is no folder /nowhere"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(shell: Any, arguments: tuple[str, ...], told: str) -> None:
    ran = shell("audit", *arguments, "-b", "there:1")
    assert (ran.code, ran.err.count("\n")) == (2, 1) and told in ran.err


@pytest.mark.parametrize("package", ["pyspark.sql", "pyarrow"])
def test_what_is_not_installed_is_told_in_one_line(shell: Any, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    ran = shell("audit", "-b", "there:1")
    assert (ran.code, ran.err.count("\n")) == (1, 1) and "pip install '.[spark]'" in ran.err


def test_an_audit_that_could_not_be_run_is_told_from_one_that_found_something(
    shell: Any, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def audit(spark: object, options: AuditOptions, **told: Any) -> AuditSummary:
        raise UnknownTopic("Topic 'click' does not exist")

    monkeypatch.setattr(auditing, "audit", audit)
    ran = shell("audit", "click")
    assert (ran.code, ran.out, ran.err) == (
        1,
        "",
        "strandline: [UNKNOWN_TOPIC_OR_PARTITION] Topic 'click' does not exist\n",
    )


def test_a_cluster_that_does_not_answer_is_told_before_spark_starts(
    shell: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "pipeline", lambda name, output: pytest.fail("Spark starts"))
    cluster.is_reachable = False
    ran = shell("audit", "-b", "there:1", "-X", "default.api.timeout.ms=77")
    assert (ran.code, ran.out, ran.err) == (1, "", "strandline: no broker answers\n")
    assert cluster.settings == {"default_api_timeout_ms": 77}
