"""Preferred elections of a real controller over scripted brokers: asked for over the wire, in a znode, or by itself."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.partitions import preferred_elections
from strandline.protocol import znodes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    PREFERRED,
    UNCLEAN,
    ControlledShutdownRequest,
    ElectLeadersRequest,
    ElectLeadersTopic,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    PartitionError,
)
from strandline.protocol.types import TopicPartition

TP = TopicPartition("t", 0)
ELECTION = znodes.PreferredReplicaElectionZnode
NOT_NEEDED, NOT_AVAILABLE = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


async def led_elsewhere(cluster: Any, partitions: int = 3, **config: Any) -> Any:
    """Brokers 1 to 3; all partitions of t prefer broker 2 and are led by broker 3, in sync with all. Broker 1 is
    controller."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1, **config)
    await cluster.create(controller, "t", [[2, 3, 1]] * partitions)
    await bounce(cluster, 2)
    for partition in range(partitions):
        assert (await cluster.state("t", partition)).leader == 3
    return controller


async def bounce(cluster: Any, broker_id: int) -> None:
    """It dies and comes back, and everything is in sync with it again."""
    cluster.kill(broker_id)
    await cluster.come_to_rest()
    await cluster.brokers[broker_id].start()
    await cluster.come_to_rest()
    for name in await cluster.admin.children(znodes.TOPICS_PATH):
        for partition in await cluster.admin.children(f"{znodes.TopicZnode.path(name)}/partitions"):
            await cluster.leader_writes_isr(name, int(partition), [1, 2, 3])
    await cluster.come_to_rest()


async def elect(
    controller: Any, partitions: list[TopicPartition] | None, kind: int = PREFERRED
) -> dict[TopicPartition, ErrorCode]:
    named = None if partitions is None else [ElectLeadersTopic(tp.topic, [tp.partition]) for tp in partitions]
    answer = await controller.ask(ElectLeadersRequest(kind, named))
    assert not answer.error_code, answer
    return {
        TopicPartition(topic.topic, each.partition_id): ErrorCode(each.error_code)
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


# --- ElectLeaders ----------------------------------------------------------------------------------------------------


async def test_the_preferred_replica_leads_again_for_one_epoch_and_all_brokers_know(
    autojump_clock: MockClock, cluster: Any
) -> None:
    controller = await led_elsewhere(cluster)
    before = await cluster.state("t")
    assert await elect(controller, [TP]) == {TP: ErrorCode.NONE}
    after = await cluster.state("t")
    assert (after.leader, after.leader_epoch) == (2, before.leader_epoch + 1)
    assert sorted(after.isr) == [1, 2, 3]
    for broker in cluster.brokers.values():  # at once: the answer waited for it
        assert broker.metadata[TP].leader == broker.roles[TP].leader == 2
    assert (await cluster.state("t", 1)).leader == 3, "nobody asked for that one"


async def test_all_are_elected_and_the_answer_leaves_out_where_there_was_nothing_to_do(
    autojump_clock: MockClock, cluster: Any
) -> None:
    controller = await led_elsewhere(cluster)
    await cluster.create(controller, "other", [[1, 2, 3]])
    await cluster.leader_writes_isr("t", 2, [3, 1])
    await cluster.come_to_rest()
    expected = {TP: ErrorCode.NONE, TopicPartition("t", 1): ErrorCode.NONE, TopicPartition("t", 2): NOT_AVAILABLE}
    assert await elect(controller, None) == expected
    assert await elect(controller, None) == {TopicPartition("t", 2): NOT_AVAILABLE}
    assert await elect(controller, None, UNCLEAN) == {}, "everything is led"


async def test_who_asks_for_some_is_told_of_each(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await led_elsewhere(cluster)
    await cluster.create(controller, "other", [[1, 2, 3]])
    other, absent = TopicPartition("other", 0), TopicPartition("absent", 3)
    expected = {absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, other: NOT_NEEDED, TP: ErrorCode.NONE}
    assert await elect(controller, [absent, other, TP, TP]) == expected


async def test_an_unknown_kind_of_election_is_refused(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await led_elsewhere(cluster)
    for request in (ElectLeadersRequest(2, None), ElectLeadersRequest(PREFERRED, None, validate_only=True)):
        answer = await controller.ask(request)
        assert (answer.error_code, answer.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])


async def test_who_has_died_and_is_still_registered_gets_nothing(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await led_elsewhere(cluster)
    cluster.kill(2, noticed=False)
    assert await elect(controller, [TP]) == {TP: NOT_AVAILABLE}
    assert (await cluster.state("t")).leader == 3


async def test_who_stops_gets_nothing(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await led_elsewhere(cluster)
    await controller.ask(ControlledShutdownRequest(2, cluster.brokers[2].epoch))
    assert await elect(controller, [TP]) == {TP: NOT_AVAILABLE}


async def test_who_refuses_the_role_is_not_reported_as_elected(autojump_clock: MockClock, cluster: Any) -> None:
    controller = await led_elsewhere(cluster)

    def refuse(request: Any) -> Any:
        if not isinstance(request, LeaderAndIsrRequest):
            return None
        errors = [PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, "its disk failed")]
        return LeaderAndIsrResponse(0, errors)

    cluster.brokers[2].script = refuse
    assert await elect(controller, [TP]) == {TP: NOT_AVAILABLE}
    assert (await cluster.state("t")).leader == 3


@pytest.mark.parametrize("what", ["drop_next_request", "drop_next_reply"])
async def test_an_election_whose_write_was_upset_is_reported_as_done(
    what: str, autojump_clock: MockClock, cluster: Any
) -> None:
    controller = await led_elsewhere(cluster)
    epoch = (await cluster.state("t")).leader_epoch
    getattr(cluster.zookeeper, what)(znodes.CONTROLLER_EPOCH_PATH)
    assert await elect(controller, [TP]) == {TP: ErrorCode.NONE}
    await cluster.come_to_rest()
    state = await cluster.state("t")
    assert (state.leader, state.leader_epoch) == (2, epoch + 1)
    assert all(broker.metadata[TP].leader == 2 for broker in cluster.brokers.values())


async def test_many_are_elected_in_waves_and_others_take_their_turn(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preferred_elections, "PARTITIONS_AT_ONCE", 2)
    controller = await led_elsewhere(cluster, partitions=7)
    standing: list[int] = []

    async def count() -> None:
        states = controller.term.context.states.values()
        standing.append(sum(state.leader == 2 for state in states))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(elect, controller, None)
        while not standing or standing[-1] < 7:
            await controller.term.agenda.in_turn(count)
    assert set(standing) == {0, 2, 4, 6, 7}


# --- /admin/preferred_replica_election -------------------------------------------------------------------------------


async def ask_in_znode(cluster: Any, *partitions: TopicPartition) -> None:
    await cluster.admin.create(ELECTION.PATH, ELECTION(list(partitions)).encode())


async def has_gone(cluster: Any) -> bool:
    return await cluster.admin.exists(ELECTION.PATH) is None


async def test_what_a_znode_asks_for_is_done_again_and_again(autojump_clock: MockClock, cluster: Any) -> None:
    await led_elsewhere(cluster)
    for partition in (0, 1):
        await ask_in_znode(cluster, TopicPartition("t", partition))
        await cluster.until_async(lambda: has_gone(cluster))
        assert (await cluster.state("t", partition)).leader == 2
    assert (await cluster.state("t", 2)).leader == 3


async def test_what_nobody_knows_or_understands_is_named_and_does_not_stay(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await led_elsewhere(cluster)
    await cluster.admin.create(ELECTION.PATH, b"{}")
    await cluster.until_async(lambda: has_gone(cluster))
    [line] = cluster.logged("what is asked for cannot be read, and is removed")
    assert line["path"] == ELECTION.PATH
    await ask_in_znode(cluster, TopicPartition("absent", 1), TP)
    await cluster.until_async(lambda: has_gone(cluster))
    assert (await cluster.state("t")).leader == 2
    [line] = cluster.logged("preferred leaders were not elected")
    assert line["first"] == {"absent-1": "there is no partition absent:1"}
    assert not cluster.logged("event failed")


async def test_what_replaces_it_meanwhile_is_done_too(autojump_clock: MockClock, cluster: Any) -> None:
    """The broker that is asked first whether it lives answers late."""
    await led_elsewhere(cluster)
    cluster.brokers[2].gate = trio.Event()
    await ask_in_znode(cluster, TP)
    await trio.sleep(0.1)
    await cluster.admin.set(ELECTION.PATH, ELECTION([TopicPartition("t", 1)]).encode(), 0)
    await trio.sleep(0.1)
    cluster.brokers[2].gate.set()
    await cluster.until_async(lambda: has_gone(cluster))
    assert [(await cluster.state("t", p)).leader for p in range(3)] == [2, 2, 3]


async def test_the_next_controller_goes_on(autojump_clock: MockClock, cluster: Any) -> None:
    await led_elsewhere(cluster)
    cluster.brokers[2].gate = trio.Event()
    await ask_in_znode(cluster, TP)
    await trio.sleep(0.1)
    cluster.kill(1)
    cluster.brokers[2].gate.set()
    assert not await has_gone(cluster)
    await cluster.controller_on(3)
    await cluster.until_async(lambda: has_gone(cluster))
    assert (await cluster.state("t")).leader == 2


@pytest.mark.parametrize("what", ["drop_next_request", "drop_next_reply"])
async def test_it_goes_although_the_connection_broke(what: str, autojump_clock: MockClock, cluster: Any) -> None:
    controller = await led_elsewhere(cluster)
    assert await elect(controller, [TP]) == {TP: ErrorCode.NONE}
    getattr(cluster.zookeeper, what)(znodes.CONTROLLER_EPOCH_PATH)  # the next write is its removal
    await ask_in_znode(cluster, TP)
    await cluster.until_async(lambda: has_gone(cluster))
    await ask_in_znode(cluster, TopicPartition("t", 1))
    await cluster.until_async(lambda: has_gone(cluster))
    assert (await cluster.state("t", 1)).leader == 2


# --- automatic rebalance ---------------------------------------------------------------------------------------------


INTERVAL_S = 100.0


async def led_by(cluster: Any) -> list[int]:
    names = await cluster.admin.children(f"{znodes.TopicZnode.path('t')}/partitions")
    return [(await cluster.state("t", int(name))).leader for name in sorted(names)]


async def test_leaderships_come_back_to_a_broker_that_lived_for_an_interval(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await led_elsewhere(cluster, leader_imbalance_check_interval_seconds=INTERVAL_S)
    await trio.sleep(INTERVAL_S)
    assert await led_by(cluster) == [3, 3, 3], "it came after the look before"
    await trio.sleep(INTERVAL_S)
    assert await led_by(cluster) == [2, 2, 2]
    [line] = cluster.logged("leaders rebalanced")
    assert (line["elected"], line["not_elected"]) == (3, 0)


async def test_a_broker_that_comes_and_goes_gets_none(autojump_clock: MockClock, cluster: Any) -> None:
    await led_elsewhere(cluster, leader_imbalance_check_interval_seconds=INTERVAL_S)
    for _ in range(8):
        await bounce(cluster, 2)
        await trio.sleep(INTERVAL_S * 0.7)
        assert await led_by(cluster) == [3, 3, 3]


async def test_it_can_be_switched_off(autojump_clock: MockClock, cluster: Any) -> None:
    config = {"leader_imbalance_check_interval_seconds": INTERVAL_S, "auto_leader_rebalance_enable": False}
    await led_elsewhere(cluster, **config)
    await trio.sleep(INTERVAL_S * 4)
    assert await led_by(cluster) == [3, 3, 3]


async def test_up_to_the_percentage_nothing_comes_back(autojump_clock: MockClock, cluster: Any) -> None:
    config = {"leader_imbalance_check_interval_seconds": INTERVAL_S, "leader_imbalance_per_broker_percentage": 67}
    controller = await led_elsewhere(cluster, **config)
    await elect(controller, [TP])
    await trio.sleep(INTERVAL_S * 4)
    assert await led_by(cluster) == [2, 3, 3]


async def test_a_failure_of_the_rebalance_ends_nothing(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = await led_elsewhere(cluster, leader_imbalance_check_interval_seconds=INTERVAL_S)
    elections = controller.term.duties.rebalance._elections
    elect_them = elections.elect

    async def fails(*_: Any) -> Any:
        monkeypatch.setattr(elections, "elect", elect_them)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(elections, "elect", fails)
    await trio.sleep(INTERVAL_S * 3)
    assert len(cluster.logged("rebalance failed")) == 1
    assert await led_by(cluster) == [2, 2, 2]
    assert controller.is_active
