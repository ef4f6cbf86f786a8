"""What `strandline status` advises fits what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.cli.status_report import what_witness_says
from strandline.cli.status_text import MOST_LINES, verdict
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.messages import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    RefusedReplica,
    UnfinishedDeletion,
)
from strandline.protocol.types import TopicPartition


def report_of(*states: str, zookeeper: str = "up") -> dict[str, Any]:
    brokers = [{"id": number, "state": state, "pid": 100 + number} for number, state in enumerate(states, start=1)]
    counts = {"topics": 1, "partitions": 6, "without_leader": 0, "under_replicated": 0}
    reasons: dict[str, Any] = {"refused_replicas": [], "unfinished_deletions": []}
    return {"controller_id": 1, "brokers": brokers, "zookeeper": {"state": zookeeper, "pid": 100}, **counts, **reasons}


def test_a_dead_member_is_started_by_up() -> None:
    text = verdict(report_of("up", "dead", zookeeper="dead"))
    assert text == "broker 2 is dead, ZooKeeper is dead; strandline up starts what is dead; the logs say why"


def test_a_silent_broker_runs_so_up_is_no_remedy() -> None:
    text = verdict(report_of("up", "silent", "silent"))
    assert "strandline up" not in text
    assert "kill -CONT 102 103" in text


def test_one_of_each_gets_both_remedies() -> None:
    text = verdict(report_of("silent", "dead"))
    assert "strandline up starts what is dead" in text
    assert "kill -CONT 101;" in text


def test_a_silent_zookeeper_is_told_from_a_dead_one() -> None:
    text = verdict(report_of("up", zookeeper="silent"))
    assert text.startswith("ZooKeeper is silent; a silent one runs without answering: if it is paused, kill -CONT 100;")


def test_partitions_that_lack_something_are_shown_besides_dead_members() -> None:
    members, partitions = verdict({**report_of("up", "dead"), "under_replicated": 4}).splitlines()
    assert members.startswith("broker 2 is dead")
    assert partitions == "0 partitions without a leader, 4 under-replicated of 6; strandline topics describe shows them"


def test_when_no_broker_answers_nothing_is_said_of_partitions() -> None:
    counts = ("topics", "partitions", "without_leader", "under_replicated")
    unknown = dict.fromkeys((*counts, "refused_replicas", "unfinished_deletions"))
    text = verdict({**report_of("dead"), **unknown})
    assert text.splitlines()[1:] == ["no broker answers: nobody knows how the partitions are"]


def test_one_is_not_counted_as_many() -> None:
    healthy = {**report_of("up"), "healthy": True}
    assert verdict({**healthy, "topics": 1, "partitions": 1}) == "healthy: 1 topic, 1 partition"
    assert verdict({**healthy, "topics": 2, "partitions": 0}) == "healthy: 2 topics, 0 partitions"
    lacking = {**healthy, "healthy": False, "without_leader": 1, "partitions": 6}
    assert verdict(lacking).startswith("1 partition without a leader, 0 under-replicated of 6")


def test_as_in_kafka_a_replica_that_is_only_being_added_is_not_one_that_lacks() -> None:
    partitions = [MetadataPartition(0, number, 1, 1, [1, 2, 3, 4], [1, 2]) for number in range(4)]
    witness = MetadataResponse([], [MetadataTopic(0, "t", partitions)], 1, "c")
    moving = {
        TopicPartition("t", 0): OngoingReassignment((1, 2, 3, 4), (3, 4), ()),
        TopicPartition("t", 1): OngoingReassignment((3, 4, 1, 2), (3, 4), (1, 2)),
        TopicPartition("t", 2): OngoingReassignment((1, 4, 2, 3), (4,), (2, 3)),
    }
    assert what_witness_says(witness, moving)["under_replicated"] == 2
    assert what_witness_says(witness, {})["under_replicated"] == 4


def refused(count: int) -> MetadataResponse:
    """A topic of which broker 2 serves no replica."""
    partitions = [
        MetadataPartition(5, index, -1, 1, [2], [2], [], [RefusedReplica(2, f"/data/t-{index} is damaged; mend it")])
        for index in range(count)
    ]
    brokers = [MetadataBroker(1, "localhost", 1), MetadataBroker(2, "localhost", 2)]
    return MetadataResponse(brokers, [MetadataTopic(0, "t", partitions), MetadataTopic(0, "u", [])], 1, "c")


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (MOST_LINES, MOST_LINES), (MOST_LINES + 2, MOST_LINES)])
def test_each_replica_that_is_refused_is_shown_with_its_reason_up_to_some(count: int, shown: int) -> None:
    reasons = what_witness_says(refused(count), {})
    assert reasons["refused_replicas"] == [
        {"topic": "t", "partition": index, "broker": 2, "why": f"/data/t-{index} is damaged; mend it"}
        for index in range(count)
    ]
    lines = verdict({**report_of("up", "up"), **reasons}).splitlines()
    expected = [
        f"broker 2 does not serve its replica of t-{index}: /data/t-{index} is damaged; mend it"
        for index in range(shown)
    ]
    more = [f"and {count - shown} more; strandline status --output json shows them"] if count > shown else []
    assert lines[1:] == expected + more
    assert lines[0].startswith(f"{count} partition")


def test_a_deletion_that_is_held_up_is_shown_with_its_reason_and_nothing_is_healthy() -> None:
    why = "broker 2 cannot delete gone-0: its log is not deleted"
    witness = MetadataResponse([], [], 1, "c", unfinished_deletions=[UnfinishedDeletion("gone", why)])
    report = {**report_of("up"), **what_witness_says(witness, {})}
    assert report["unfinished_deletions"] == [{"topic": "gone", "why": why}]
    assert verdict(report) == f"topic gone is being deleted and goes as soon as it can: {why}"


def test_a_refused_replica_of_which_its_broker_tells_is_not_told_again() -> None:
    report = {**report_of("up", "up"), **what_witness_says(refused(1), {}), "problems_untold": []}
    log = {"broker": 2, "kind": "log", "subject": "t-0", "level": "error", "where": "t-0", "what": "is damaged"}
    elsewhere = {**log, "broker": 1}
    assert "does not serve its replica" in verdict({**report, "problems": [elsewhere]})
    assert "does not serve its replica" not in verdict({**report, "problems": [log]})
