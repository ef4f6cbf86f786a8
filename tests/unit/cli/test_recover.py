"""`strandline recover`: what is asked for, what is printed, what is refused before anybody is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.client.admin import RecoveredPartition
from strandline.protocol.messages import ReplicaStanding
from strandline.protocol.types import TopicPartition

T0 = TopicPartition("t", 0)
FOUND = RecoveredPartition(T0, 3, (ReplicaStanding(1, False, True), ReplicaStanding(3, True, False, 40, 2)))


@pytest.fixture
def waiting(shell: Any) -> Any:
    """Broker 1, which has everything, is away."""
    shell.cluster.recovered = FOUND
    return shell


def test_it_says_what_would_be_lost_and_how_to_accept_that(waiting: Any) -> None:
    ran = waiting("recover", "t:0")
    assert ran.code == 0
    assert "Broker 3 would lead t:0. What only broker 1 has (broker 1 has everything that was acknowledged)" in ran.out
    assert "strandline recover t:0 --accept-loss" in ran.out
    assert waiting.cluster.settings["recovered"] == (T0, False)


def test_with_the_loss_accepted_it_says_who_leads(waiting: Any) -> None:
    ran = waiting("recover", "t:0", "--accept-loss")
    assert (ran.code, waiting.cluster.settings["recovered"]) == (0, (T0, True))
    assert "Broker 3 leads t:0." in ran.out


def test_json_names_each_replica(waiting: Any) -> None:
    shown = json.loads(waiting("recover", "t:0", "--output", "json").out)
    assert (shown["_command"], shown["_version"], shown["leader"], shown["recovered"]) == ("recover", 1, 3, False)
    assert shown["replicas"][0] == {
        "broker": 1,
        "alive": False,
        "has_everything": True,
        "end_offset": None,
        "leader_epoch": None,
    }


@pytest.mark.parametrize("argument", ["t", "t:x", "t:-1", "a b:0"])
def test_one_partition_is_wanted(waiting: Any, argument: str) -> None:
    assert waiting("recover", argument).code == 2
    assert "recovered" not in waiting.cluster.settings
