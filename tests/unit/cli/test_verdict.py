"""What `strandline status` advises fits what is wrong."""

from __future__ import annotations

from typing import Any

from strandline.cli.cluster_commands import verdict


def report_of(*states: str, zookeeper: str = "up") -> dict[str, Any]:
    brokers = [{"id": number, "state": state, "pid": 100 + number} for number, state in enumerate(states, start=1)]
    counts = {"topics": 1, "partitions": 6, "without_leader": 0, "under_replicated": 0}
    return {"brokers": brokers, "zookeeper": {"state": zookeeper, "pid": 100}, **counts}


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
    unknown = dict.fromkeys(("topics", "partitions", "without_leader", "under_replicated"))
    text = verdict({**report_of("dead"), **unknown})
    assert text.splitlines()[1:] == ["no broker answers: nobody knows how the partitions are"]


def test_one_is_not_counted_as_many() -> None:
    healthy = {**report_of("up"), "healthy": True}
    assert verdict({**healthy, "topics": 1, "partitions": 1}) == "healthy: 1 topic, 1 partition"
    assert verdict({**healthy, "topics": 2, "partitions": 0}) == "healthy: 2 topics, 0 partitions"
    lacking = {**healthy, "healthy": False, "without_leader": 1, "partitions": 6}
    assert verdict(lacking).startswith("1 partition without a leader, 0 under-replicated of 6")
