"""`strandline broker-decommission`: everything goes off the broker, the rest stays, and what keeps it is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.client.errors import error_for
from strandline.client.metadata import PartitionView
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from unit.cli.conftest import FakeAdmin

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def view(*replicas: int, leader: int | None = None) -> PartitionView:
    return PartitionView(replicas[0] if leader is None else leader, 4, replicas, replicas)


@pytest.fixture
def full(shell: Any) -> Any:
    """Four brokers; two of the partitions lie on broker 3."""
    shell.cluster.moves.racks = dict.fromkeys((1, 2, 3, 4))
    shell.cluster.add_topic("t", {0: view(3, 1), 1: view(1, 2), 2: view(2, 3)})
    shell.cluster.moves.size_bytes = dict.fromkeys((T0, T1, T2), 2**20)
    return shell


def holders(shell: Any) -> dict[int, tuple[int, ...]]:
    return {number: each.replicas for number, each in shell.cluster.topics["t"].partitions.items()}


def test_everything_goes_off_it_and_the_rest_stays(full: Any) -> None:
    ran = full("broker-decommission", "3")
    assert ran.code == 0 and "Broker 3 holds nothing and leads nothing: it may be stopped." in ran.out
    [asked] = full.cluster.moves.asked
    assert list(asked) == [T0, T2]
    assert {tp: set(replicas) for tp, replicas in asked.items()} == {T0: {1, 4}, T2: {2, 4}}
    assert holders(full)[1] == (1, 2)
    assert "Topics that are created before that may choose it" in ran.out


def test_a_dry_run_shows_where_it_would_go(full: Any) -> None:
    ran = full("broker-decommission", "3", "--dry-run")
    assert ran.code == 0 and "2 replicas to copy: 2.0 MiB" in ran.out
    [third] = [line for line in ran.out.splitlines() if line.startswith("3 ")]
    assert "2 -> 0" in third
    assert full.cluster.moves.asked == []
    shown = json.loads(full("broker-decommission", "3", "--dry-run", "--output", "json").out)
    assert (shown["broker"], shown["done"], shown["bytes_to_move"]) == (3, False, 2 * 2**20)


def test_a_dead_broker_is_emptied_too(full: Any) -> None:
    del full.cluster.moves.racks[3]
    ran = full("broker-decommission", "3")
    assert ran.code == 0 and "Broker 3 holds nothing, and does not run." in ran.out
    assert full("broker-decommission", "9").out == "Broker 9 holds nothing, and does not run.\n"


def test_what_another_dead_broker_has_stays_there(full: Any) -> None:
    """It comes back; nothing new is put on it."""
    del full.cluster.moves.racks[2]
    full("broker-decommission", "3")
    [asked] = full.cluster.moves.asked
    assert set(asked[T2]) == {2, 4} or set(asked[T2]) == {2, 1}
    assert set(asked[T0]) == {1, 4}


def test_too_few_brokers_are_refused_with_the_topics_that_need_them(full: Any) -> None:
    full.cluster.add_topic("wide", {0: view(1, 2, 3, 4)})
    ran = full("broker-decommission", "3")
    assert ran.code == 1 and "without broker 3 there are too few brokers, 3, for wide (4 replicas)" in ran.err
    assert full.cluster.moves.asked == []


def test_it_goes_on_where_another_one_was_ended(full: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    full.cluster.moves.looks = None
    full.cluster.moves.on_look = [lambda: None] * 4 + [interrupt]
    ran = full("broker-decommission", "3")
    assert ran.code == 130 and "strandline broker-decommission 3" in ran.err
    full.cluster.moves.looks = 4
    ran = full("broker-decommission", "3")
    assert ran.code == 0 and "it may be stopped" in ran.out
    assert len(full.cluster.moves.asked) == 1, "what is under way is waited for, not asked for anew"


def test_a_topic_that_chose_it_meanwhile_is_moved_as_well(full: Any) -> None:
    full.cluster.moves.on_look = [lambda: None] * 4 + [lambda: full.cluster.add_topic("late", {0: view(3, 4)})]
    ran = full("broker-decommission", "3")
    assert ran.code == 0
    assert [list(asked) for asked in full.cluster.moves.asked] == [[T0, T2], [TopicPartition("late", 0)]]


def test_what_keeps_it_is_named(full: Any) -> None:
    full.cluster.moves.refused = {T2: error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "reassigning t-2", detail="why")}
    ran = full("broker-decommission", "3")
    assert ran.code == 1
    assert "broker 3 cannot go yet, it has 1 partition: t-2; reassigning t-2: UNKNOWN_SERVER_ERROR: why" in ran.err
    shown = json.loads(full("broker-decommission", "3", "--output", "json").out)
    assert (shown["done"], shown["kept"]) == (False, [{"topic": "t", "partition": 2}])


def test_a_partition_that_nobody_leads_is_waited_for_and_then_named(full: Any) -> None:
    """Its data is on the dead broker only."""
    full.cluster.add_topic("t", {0: view(3, leader=-1)})
    full.cluster.moves.size_bytes = {}
    del full.cluster.moves.racks[3]
    full.cluster.moves.looks = None
    ran = full("broker-decommission", "3")
    assert ran.code == 1 and "nobody leads t-0, so nothing can be copied from there" in ran.err
    assert full.session.clock >= 60, "a broker that is restarted has time to come back"


def test_who_waits_for_one_partition_does_not_give_up_on_another(full: Any) -> None:
    late = TopicPartition("late", 0)
    full.cluster.add_topic("t", {0: view(3, leader=-1)})
    full.cluster.add_topic("late", {0: view(3, 1, leader=1)})
    full.cluster.moves.size_bytes = {}
    del full.cluster.moves.racks[3]
    full.cluster.moves.looks = None
    admin = FakeAdmin(full.cluster)
    full.cluster.moves.on_look = [*[lambda: None] * 90, lambda: admin.finish(late)]
    ran = full("broker-decommission", "3")
    assert ran.code == 1 and "it has 1 partition: t-0;" in ran.err


def test_brokers_hear_later_than_the_controller_that_it_is_done(full: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile their replicas, old and new ones, must not be taken for what there is to be."""
    admin = FakeAdmin(full.cluster)
    done: dict[TopicPartition, OngoingReassignment] = {}

    def end() -> None:
        done.update(full.cluster.moves.ongoing)
        full.cluster.moves.ongoing.clear()

    def sleep(seconds: float) -> None:
        full.session.clock += seconds
        if done and seconds < 1:
            full.cluster.moves.ongoing.update(done)
            done.clear()
            admin.finish()

    monkeypatch.setattr(full.session, "sleep", sleep)
    full.cluster.moves.looks = None
    full.cluster.moves.on_look = [*[lambda: None] * 5, end]
    ran = full("broker-decommission", "3")
    assert ran.code == 0 and len(full.cluster.moves.asked) == 1
    assert all(len(replicas) == 2 for replicas in holders(full).values())


def test_its_throttle_is_removed_at_the_end(full: Any) -> None:
    ran = full("broker-decommission", "3", "--throttle", "5000")
    assert ran.code == 0 and "Removed the throttle of topic t" in ran.out
    assert len(full.cluster.moves.configs) == 5 and not any(full.cluster.moves.configs.values())


def test_a_throttle_is_removed_by_whoever_ends_it(full: Any) -> None:
    """A run before set it, and some of its topics are done."""
    admin = FakeAdmin(full.cluster)

    def interrupt() -> None:
        raise KeyboardInterrupt

    full.cluster.add_topic("u", {0: view(3, 1)})
    full.cluster.moves.looks = None
    full.cluster.moves.on_look = [lambda: None] * 4 + [interrupt]
    assert full("broker-decommission", "3", "--throttle", "5000").code == 130
    admin.finish(TopicPartition("u", 0))
    dry = full("broker-decommission", "3", "--dry-run")
    assert dry.out == "Under way already: t-0, t-2.\n"
    full.cluster.moves.looks = 3
    ran = full("broker-decommission", "3")
    assert ran.code == 0 and "Under way already: t-0, t-2." in ran.out and "Removed the throttle" in ran.out
    assert not any(full.cluster.moves.configs.values())


def test_another_throttle_counts_for_what_is_under_way_already(full: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    full.cluster.moves.looks = None
    for rate in ("5000", "7000"):
        full.cluster.moves.on_look = [lambda: None] * 4 + [interrupt]
        assert full("broker-decommission", "3", "--throttle", rate).code == 130
        rates = full.cluster.moves.configs[ConfigResource.BROKER, "3"]
        assert set(rates.values()) == {rate}
    assert len(full.cluster.moves.asked) == 1


@pytest.mark.parametrize("arguments", [(), ("x",), ("-1",), ("3", "--throttle", "0")])
def test_a_broker_is_wanted(full: Any, arguments: tuple[str, ...]) -> None:
    assert full("broker-decommission", *arguments).code == 2
