"""`strandline offsets`: what partitions hold, by time too, and what cannot be told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.client.errors import NotEnoughReplicas, RequestTimedOut
from strandline.client.metadata import PartitionView, TopicView
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from unit.cli.conftest import FakeRecord

HOUR_MS = 3_600_000


@pytest.fixture
def filled(shell: Any) -> Any:
    """t-0 has records 5 to 9, the last two of the last hour, and is led by broker 1; t-1 is empty, led by broker 2."""
    now_ms = shell.session.now_ms()
    times = [now_ms - 3 * HOUR_MS] * 3 + [now_ms - 60_000] * 2
    shell.cluster.records = {
        TopicPartition("t", 0): [FakeRecord("t", 0, 5 + n, timestamp_ms=each) for n, each in enumerate(times)],
        TopicPartition("t", 1): [],
        TopicPartition("__own", 0): [],
    }
    shell.cluster.add_topic("t", {0: PartitionView(1, 1, (1, 2)), 1: PartitionView(2, 1, (2, 1))})
    own = TopicView("__own", bytes(16), {0: PartitionView(1, 1, (1,))}, is_internal=True)
    shell.cluster.topics["__own"] = own
    shell.cluster.moves.size_bytes = {TopicPartition("t", 0): 1234, TopicPartition("t", 1): 0}
    return shell


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def test_every_partition_is_shown_with_its_offsets_size_and_leader(filled: Any) -> None:
    ran = filled("offsets")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].split() == ["TOPIC", "PARTITION", "LEADER", "EARLIEST", "LATEST", "RECORDS", "SIZE"]
    assert rows(ran.out) == [["t", "0", "1", "5", "10", "5", "1234"], ["t", "1", "2", "0", "0", "0", "0"]]


@pytest.mark.parametrize(
    ("at", "part"),
    [
        ("@-1h", ["8", "10", "2"]),
        ("@-4h:-2h", ["5", "8", "3"]),
        ("@2099-01-01", ["10", "10", "0"]),
        ("-3", ["7", "10", "3"]),
        ("6:8", ["6", "8", "2"]),
        ("0:99", ["5", "10", "5"]),
        ("7:", ["7", "10", "3"]),
    ],
)
def test_a_part_is_chosen_as_consume_chooses_it(filled: Any, at: str, part: list[str]) -> None:
    ran = filled("offsets", "t:0", "--at", at)
    assert (ran.code, rows(ran.out)) == (0, [["t", "0", "1", "5", "10", *part, "1234"]])


def test_json_has_the_same_and_one_shape_for_what_failed(filled: Any) -> None:
    ran = filled("offsets", "t:0,7", "gone", "--at", "@-1h", "--output", "json")
    told = json.loads(ran.out)
    assert (ran.code, told["_command"], told["_version"], told["failures"]) == (1, "offsets", 1, [])
    whole, *missing = told["partitions"]
    assert whole == {
        "topic": "t",
        "partition": 0,
        "leader": 1,
        "earliest": 5,
        "latest": 10,
        "from": 8,
        "to": 10,
        "records": 2,
        "size_bytes": 1234,
        "error": None,
        "message": "",
    }
    assert [(each["topic"], each["partition"], each["error"]) for each in missing] == [
        ("t", 7, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("gone", None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert all(each.keys() == whole.keys() for each in missing)


def test_topics_are_chosen_by_a_pattern_and_internal_ones_only_when_asked_for(filled: Any) -> None:
    filled.cluster.add_topic("tt", {0: PartitionView(1, 1, (1,))})
    filled.cluster.records[TopicPartition("tt", 0)] = []
    assert [row[0] for row in rows(filled("offsets", "--include", "t").out)] == ["t", "t"]
    assert [row[0] for row in rows(filled("offsets", "--internal").out)] == ["__own", "t", "t", "tt"]
    ran = filled("offsets", "--include", ".*own")
    assert ran.code == 1 and "no topic's whole name matches '.*own'" in ran.err


@pytest.mark.parametrize(
    "error", [RequestTimedOut("silence"), NotEnoughReplicas(ErrorCode.NOT_ENOUGH_REPLICAS, "refused")]
)
def test_a_partition_that_cannot_be_asked_hides_nothing_of_the_others(filled: Any, error: Exception) -> None:
    filled.cluster.unanswered[TopicPartition("t", 1)] = error
    ran = filled("offsets")
    assert ran.code == 1
    assert [row[:2] for row in rows(ran.out)] == [["t", "0"]]
    assert ran.err == f"strandline: t-1: {error}\n"


def test_a_leader_that_refuses_one_partition_is_asked_for_the_others(filled: Any) -> None:
    filled.cluster.add_topic("t", {0: PartitionView(1, 1, (1, 2)), 1: PartitionView(1, 1, (2, 1))})
    refusal = NotEnoughReplicas(ErrorCode.NOT_ENOUGH_REPLICAS, "refused")
    filled.cluster.unanswered[TopicPartition("t", 1)] = refusal
    assert [row[:2] for row in rows(filled("offsets").out)] == [["t", "0"]]


def test_a_partition_that_nobody_leads_is_named_with_the_remedy(filled: Any) -> None:
    filled.cluster.add_topic("t", {0: PartitionView(-1, 1, (1, 2))})
    ran = filled("offsets")
    assert ran.code == 1
    assert ran.err == "strandline: nobody leads t-0; strandline recover t:0 shows who could\n"


def test_sizes_that_nobody_tells_are_left_out(filled: Any) -> None:
    filled.cluster.moves.unheard[1] = RequestTimedOut("silence")
    ran = filled("offsets", "t:0")
    assert (ran.code, rows(ran.out)) == (1, [["t", "0", "1", "5", "10", "5", "-"]])
    assert "broker 1 does not say how large its logs are: silence" in ran.err


@pytest.mark.parametrize(
    "args",
    [("t", "--include", "t"), ("t", "--internal"), ("--include", "("), ("--at", "@x"), ("t:x",), ("a/b",)],
    ids=" ".join,
)
def test_a_wrong_command_line_is_told_in_one_line(filled: Any, args: tuple[str, ...]) -> None:
    ran = filled("offsets", *args)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
