"""`strandline recover`: what is asked for, what is printed, what is refused before anybody is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.client.admin import RecoveredPartition
from strandline.client.errors import error_for
from strandline.client.metadata import PartitionView
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ReplicaStanding
from strandline.protocol.types import TopicPartition

T0 = TopicPartition("t", 0)
FOUND = RecoveredPartition(T0, 3, (ReplicaStanding(1, False, True), ReplicaStanding(3, True, False, 40, 2)))


@pytest.fixture
def waiting(shell: Any) -> Any:
    """Broker 1, which has everything, is away."""
    shell.cluster.recovered = {T0: FOUND}
    return shell


def test_it_says_what_would_be_lost_and_how_to_accept_that(waiting: Any) -> None:
    ran = waiting("recover", "t:0")
    assert ran.code == 0
    assert "Broker 3 would lead t:0. What only broker 1 has (broker 1 has everything that was acknowledged)" in ran.out
    assert "strandline recover t:0 --accept-loss" in ran.out
    assert waiting.cluster.settings["recovered"] == [(T0, False)]


def test_with_the_loss_accepted_it_says_who_leads(waiting: Any) -> None:
    ran = waiting("recover", "t:0", "--accept-loss")
    assert (ran.code, waiting.cluster.settings["recovered"]) == (0, [(T0, True)])
    assert "Broker 3 leads t:0." in ran.out


def test_json_names_each_replica(waiting: Any) -> None:
    shown = json.loads(waiting("recover", "t:0", "--output", "json").out)
    assert (shown["_command"], shown["_version"]) == ("recover", 1)
    [partition] = shown["partitions"]
    assert (partition["leader"], partition["recovered"], partition["error"]) == (3, False, None)
    assert partition["replicas"][0] == {
        "broker": 1,
        "alive": False,
        "has_everything": True,
        "end_offset": None,
        "leader_epoch": None,
    }


@pytest.mark.parametrize("arguments", [[], ["t:x"], ["t:-1"], ["a b:0"], ["t:0", "t:x"]])
def test_partitions_or_topics_are_wanted(waiting: Any, arguments: list[str]) -> None:
    assert waiting("recover", *arguments).code == 2
    assert "recovered" not in waiting.cluster.settings


def test_of_a_topic_all_partitions_that_nobody_leads_are_recovered(waiting: Any) -> None:
    views = {0: PartitionView(-1, 4), 1: PartitionView(2, 4), 2: PartitionView(-1, 4)}
    waiting.cluster.add_topic("t", views)
    other = TopicPartition("t", 2)
    waiting.cluster.recovered[other] = FOUND._replace(partition=other, leader=2)
    ran = waiting("recover", "t", "t:0", "--accept-loss")
    assert (ran.code, waiting.cluster.settings["recovered"]) == (0, [(T0, True), (other, True)])
    assert "Broker 3 leads t:0." in ran.out and "Broker 2 leads t:2." in ran.out
    waiting.cluster.add_topic("led", {0: PartitionView(2, 4)})
    assert "Every partition of led is led" in waiting("recover", "led").out


@pytest.mark.parametrize(
    ("code", "exit_code"), [(ErrorCode.ELECTION_NOT_NEEDED, 0), (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, 1)]
)
def test_that_somebody_leads_already_is_no_failure_and_a_failure_ends_nothing(
    waiting: Any, code: ErrorCode, exit_code: int
) -> None:
    refused = TopicPartition("t", 1)
    waiting.cluster.recovered[refused] = error_for(code, "recovering t-1", detail="what the controller says")
    ran = waiting("recover", "t:1", "t:0", "--accept-loss")
    assert ran.code == exit_code
    assert "what the controller says" in (ran.err if exit_code else ran.out)
    assert "Broker 3 leads t:0." in ran.out
    shown = json.loads(waiting("recover", "t:1", "--accept-loss", "--output", "json").out)
    assert (shown["partitions"][0]["error"], shown["partitions"][0]["recovered"]) == (code.name, False)
