"""`strandline elect-leaders`: whose leaders are asked for, what changed, what is lost only with consent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.client.errors import error_for
from strandline.client.metadata import PartitionView
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOT_NEEDED = error_for(ErrorCode.ELECTION_NOT_NEEDED, "electing a leader of t-1")


@pytest.fixture
def uneven(shell: Any) -> Any:
    """Broker 2 leads t-0, which prefers 1; nobody leads u-0."""
    shell.cluster.add_topic("t", {0: PartitionView(2, 4, (1, 2), (1, 2)), 1: PartitionView(2, 4, (2, 1), (1, 2))})
    shell.cluster.add_topic("u", {0: PartitionView(-1, 4, (1,), (1,))})
    shell.cluster.moves.election = {T0: 1, T1: NOT_NEEDED}
    return shell


def test_all_are_asked_for_at_once_and_what_changed_is_shown(uneven: Any) -> None:
    ran = uneven("elect-leaders", "--all")
    assert (ran.code, ran.err) == (0, "")
    assert uneven.cluster.moves.elected == [(None, False)]
    assert ran.out.splitlines() == ["TOPIC PARTITION LED-BY NOW", "t     0         2      1", "Elected 1 leader."]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("t",), [T0, T1]),
        (("t:1", "t:0"), [T1, T0]),
        (("--topic", "t"), [T0, T1]),
        (("--topic", "t", "--partition", "1", "--election-type", "PREFERRED"), [T1]),
        (("--all-topic-partitions", "--preferred"), None),
    ],
)
def test_some_are_asked_for_by_name(uneven: Any, arguments: tuple[str, ...], asked: object) -> None:
    assert uneven("elect-leaders", *arguments).code == 0
    assert uneven.cluster.moves.elected == [(asked, False)]


def test_partitions_come_from_kafkas_file(uneven: Any, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('{"partitions":[{"topic":"t","partition":0}]}')
    assert uneven("elect-leaders", "--path-to-json-file", str(path)).code == 0
    assert uneven.cluster.moves.elected == [([T0], False)]
    path.write_text('{"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}')
    ran = uneven("elect-leaders", "--path-to-json-file", str(path))
    assert ran.code == 2 and "unknown field" in ran.err


def test_what_cannot_be_elected_is_a_failure_and_what_need_not_is_none(uneven: Any) -> None:
    why = "electing a leader of t-0: PREFERRED_LEADER_NOT_AVAILABLE: broker 1 is not in sync"
    gone = error_for(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "electing a leader of t-0", detail="broker 1 is not in sync"
    )
    uneven.cluster.moves.election[T0] = gone
    ran = uneven("elect-leaders", "t")
    assert ran.code == 1 and why in ran.err
    shown = json.loads(uneven("elect-leaders", "t", "--output", "json").out)
    assert [each["error"] for each in shown["partitions"]] == ["PREFERRED_LEADER_NOT_AVAILABLE", None]
    uneven.cluster.moves.election = {T1: NOT_NEEDED}
    ran = uneven("elect-leaders", "t:1")
    assert ran.code == 0 and "Nothing to do: every partition is led by its preferred replica." in ran.out


def test_of_many_failures_the_first_are_shown(uneven: Any) -> None:
    away = error_for(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "electing a leader", detail="broker 2 is away")
    uneven.cluster.moves.election = {TopicPartition("t", number): away for number in range(300)}
    ran = uneven("elect-leaders", "--all")
    assert ran.code == 1 and ran.err.count("broker 2 is away") == 10 and "and 290 more like these" in ran.err


def test_a_loss_is_accepted_only_when_asked_for(uneven: Any) -> None:
    uneven.cluster.moves.election = {U0: 1}
    ran = uneven("elect-leaders", "u", "--unclean")
    assert ran.code == 2 and "this loses what only replicas have that do not live, of u-0 (" in ran.err
    assert uneven.cluster.moves.elected == []
    ran = uneven("elect-leaders", "u", "--unclean", "--yes")
    assert ran.code == 0 and ran.out.splitlines()[1].split() == ["u", "0", "none", "1"]
    assert uneven.cluster.moves.elected == [([U0], True)]
    assert uneven("elect-leaders", "t", "--unclean").code == 0, "where somebody leads nothing can be lost"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("t", "--all"),
        ("--partition", "0"),
        ("--topic", "t", "--topic", "u", "--partition", "0"),
        ("t", "--preferred", "--unclean"),
        ("--all", "--unclean", "--election-type", "preferred"),
        ("absent",),
        ("t:x",),
    ],
)
def test_wrong_command_lines_ask_for_nothing(uneven: Any, arguments: tuple[str, ...]) -> None:
    ran = uneven("elect-leaders", *arguments)
    assert ran.code == 2 and ran.err.count("\n") == 1
    assert uneven.cluster.moves.elected == []
