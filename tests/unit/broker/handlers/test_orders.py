"""Orders of the controller: fencing by broker epoch, topic configurations, many at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.admin.topic_configs import TopicConfigs
from strandline.broker.handlers.orders import REMOVALS_PER_STEP, OrderHandlers
from strandline.broker.membership.registration import Registration
from strandline.broker.replication.role_changes import LOGS_PER_STEP
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import ConfigZnode
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.values import INT_MAX
from strandline.runtime.coordination import ConnectionLost
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from support.replica_site import TOPIC_ID, Hand, ReplicaSite, in_hand

MY_EPOCH = 77


class Broker:
    def __init__(self, client: MemoryCoordination) -> None:
        self.client = client
        self.site = ReplicaSite()
        self.registration = SimpleNamespace(broker_epoch=MY_EPOCH)
        self.topic_configs = TopicConfigs(CurrentConfig(self.site.config), client, self.site.log)
        self.orders = OrderHandlers(
            self.topic_configs,
            self.site.replicas,
            self.site.roles,
            cast(Registration, self.registration),
            self.site.log,
        )

    async def lead(
        self,
        *,
        broker_epoch: int = MY_EPOCH,
        controller_epoch: int = 1,
        topic_id: bytes = TOPIC_ID,
        epoch: int = 0,
        told_at_us: int = 0,
    ) -> Any:
        topic = LeaderAndIsrTopicState("t", topic_id, [self.site.state(epoch=epoch)])
        request = LeaderAndIsrRequest(9, controller_epoch, broker_epoch, [topic], [], told_at_us)
        return await self.orders.leader_and_isr(in_hand(Hand(request)))

    async def stop(
        self, partition: int = 0, *, broker_epoch: int = MY_EPOCH, epoch: int = 0, told_at_us: int = 0
    ) -> Any:
        state = StopReplicaPartitionState("t", TOPIC_ID, partition, epoch, True)
        request = StopReplicaRequest(9, 1, broker_epoch, [state], told_at_us)
        return await self.orders.stop_replica(in_hand(Hand(request)))

    async def update(
        self, *, broker_epoch: int = MY_EPOCH, controller_epoch: int = 1, broker_id: int = 9, told_at_us: int = 0
    ) -> Any:
        brokers = [UpdateMetadataBroker(broker_id, [UpdateMetadataEndpoint("PLAINTEXT", "broker", 9092)])]
        request = UpdateMetadataRequest(9, controller_epoch, broker_epoch, [], brokers, told_at_us=told_at_us)
        return await self.orders.update_metadata(in_hand(Hand(request)))


@pytest.fixture
async def broker(autojump_clock, nursery) -> AsyncIterator[Broker]:
    zookeeper = MemoryZooKeeper()
    client = zookeeper.client()
    await client.start()
    yield Broker(client)


# --- orders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine", [MY_EPOCH, -1], ids=["registered", "between two sessions"])
async def test_orders_for_another_life_of_this_broker_are_refused(
    mine: int, broker: Broker, autojump_clock: MockClock
) -> None:
    await broker.update()
    broker.registration.broker_epoch = mine
    version = broker.site.metadata.version
    for epoch in (MY_EPOCH - 1, MY_EPOCH + 1, -1):
        for response in (await broker.lead(broker_epoch=epoch), await broker.update(broker_epoch=epoch)):
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert (await broker.stop(broker_epoch=epoch)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not broker.site.replicas.partitions
    assert broker.site.metadata.version == version


async def test_metadata_of_a_past_controller_is_refused(broker: Broker, autojump_clock: MockClock) -> None:
    assert (await broker.update(controller_epoch=5)).error_code == 0
    assert (await broker.update(controller_epoch=4)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_what_a_controller_told_before_is_not_obeyed_when_it_arrives_late(
    broker: Broker, autojump_clock: MockClock
) -> None:
    """It was sent on a connection that was given up, and TCP brought it behind what followed on the next one."""
    await broker.lead(epoch=5, told_at_us=1_000)
    await broker.stop(epoch=5, told_at_us=3_000)
    assert not broker.site.replicas.partitions
    await broker.update(told_at_us=3_000)
    for late in (
        await broker.lead(epoch=4, told_at_us=2_000),
        await broker.update(broker_id=8, told_at_us=2_000),
        await broker.stop(told_at_us=2_000),
    ):
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT, "if anybody reads it, he says it again"
    assert not broker.site.replicas.partitions, "or it would lead in a log that has nothing"
    assert sorted(broker.site.metadata.brokers) == [9]
    await broker.update(broker_id=7, told_at_us=3_000)
    assert sorted(broker.site.metadata.brokers) == [7], "another part of the last word"


async def test_a_new_controller_has_a_clock_of_its_own(broker: Broker, autojump_clock: MockClock) -> None:
    await broker.update(told_at_us=2_000)
    assert (await broker.lead(controller_epoch=2, told_at_us=10)).error_code == ErrorCode.NONE
    assert (await broker.lead(told_at_us=3_000)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_who_has_registered_anew_hears_a_controller_of_an_epoch_that_comes_again(
    broker: Broker, autojump_clock: MockClock
) -> None:
    """An old copy of ZooKeeper was put back: another broker is controller in an epoch that was there before."""
    await broker.update(told_at_us=2_000)
    broker.registration.broker_epoch = MY_EPOCH - 5
    assert (await broker.update(broker_epoch=MY_EPOCH - 5, told_at_us=10)).error_code == ErrorCode.NONE


async def test_a_session_that_ended_while_topic_configurations_were_read_makes_the_order_stale(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def read_slowly(paths: list[str]) -> list[None]:
        broker.registration.broker_epoch = -1
        return [None for _ in paths]

    monkeypatch.setattr(broker.client, "get_each", read_slowly)
    assert (await broker.lead()).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not broker.site.replicas.partitions


async def test_a_replica_starts_with_the_configuration_that_zookeeper_has(
    broker: Broker, autojump_clock: MockClock
) -> None:
    config = ConfigZnode(config={"min.insync.replicas": "3"})
    await broker.client.create(ConfigZnode.path("t"), config.encode(), parents=True)
    await broker.lead()
    assert broker.site.partition().leadership.required_isr_size == 3


@pytest.mark.parametrize(
    ("data", "told", "minimum"),
    [
        (b"junk", "nothing of this topic is deleted or compacted until its configuration is mended", INT_MAX),
        (
            b'{"version":1,"config":{"min.insync.replicas":"many"}}',
            "nothing of this topic is deleted or compacted until its configuration is mended",
            INT_MAX,
        ),
        (b'{"version":1,"config":{"compression.zstd.level":"3"}}', "topic keys without effect", 1),
        (b'{"version":1,"config":{"message.downconversion.enable":"false"}}', "topic keys without effect", 1),
    ],
)
async def test_a_configuration_that_is_not_understood_is_told_and_read_as_the_one_that_loses_nothing(
    data: bytes, told: str, minimum: int, broker: Broker, autojump_clock: MockClock
) -> None:
    await broker.client.create(ConfigZnode.path("t"), data, parents=True)
    assert (await broker.lead()).partition_errors[0].error_code == 0
    assert told in broker.site.event_names()
    config = broker.site.partition().config
    assert config.min_insync_replicas == minimum
    assert (config.retention_ms == -1) == (minimum == INT_MAX)


async def test_no_replica_starts_while_its_configuration_cannot_be_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def lost(paths: list[str]) -> None:
        raise ConnectionLost("get_each")

    with monkeypatch.context() as patch:
        patch.setattr(broker.client, "get_each", lost)
        assert (await broker.lead()).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert not broker.site.replicas.partitions
    assert (await broker.lead()).partition_errors[0].error_code == 0, "the same order again is carried out"


async def test_a_topic_created_anew_has_its_own_configuration(broker: Broker, autojump_clock: MockClock) -> None:
    await broker.lead()
    await broker.stop()
    config = ConfigZnode(config={"min.insync.replicas": "3"})
    await broker.client.create(ConfigZnode.path("t"), config.encode(), parents=True)
    await broker.lead(topic_id=b"\x07" * 16)
    assert broker.site.partition().config.min_insync_replicas == 3


async def test_a_topic_keeps_its_configuration_here_until_its_last_replica_is_deleted(
    broker: Broker, autojump_clock: MockClock
) -> None:
    states = [broker.site.state(TopicPartition("t", number), is_new=True) for number in range(2)]
    topic = LeaderAndIsrTopicState("t", TOPIC_ID, states)
    await broker.orders.leader_and_isr(in_hand(Hand(LeaderAndIsrRequest(9, 1, MY_EPOCH, [topic], []))))
    await broker.stop()
    assert list(broker.site.replicas.partitions) == [("t", 1)]
    await broker.client.create(ConfigZnode.path("t"), ConfigZnode({"retention.ms": "7"}).encode(), parents=True)
    await broker.topic_configs.read_again({"t"})
    known = broker.topic_configs.current("t", TOPIC_ID)
    assert known is not None and known.retention_ms == 7, "the other replica goes by it"
    await broker.stop(partition=1)
    assert broker.topic_configs.current("t", TOPIC_ID) is None


def largest_gap(seen: list[int]) -> int:
    ordered = sorted(set(seen))
    return max(after - before for before, after in pairwise(ordered))


async def test_orders_for_many_replicas_let_others_run_between_some_of_them(
    broker: Broker, autojump_clock: MockClock
) -> None:
    site, count = broker.site, 50
    seen: list[int] = []

    async def others() -> None:
        while True:
            seen.append(len(site.replicas.partitions))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await site.order(*(site.state(TopicPartition("t", number), is_new=True) for number in range(count)))
        # The order of two tasks within a turn is random: at most one step is missed.
        assert largest_gap([*seen, count]) <= 2 * LOGS_PER_STEP, "new logs are made a few at a time"
        seen.clear()
        states = [StopReplicaPartitionState("t", TOPIC_ID, number, 0, True) for number in range(count)]
        response: Any = await broker.orders.stop_replica(in_hand(Hand(StopReplicaRequest(9, 1, MY_EPOCH, states))))
        assert largest_gap([0, *seen, count]) <= 2 * REMOVALS_PER_STEP
        nursery.cancel_scope.cancel()
    assert [error.error_code for error in response.partition_errors] == [0] * count
    assert not site.replicas.partitions


@pytest.mark.parametrize(("deleted_every", "at_most"), [(0, 20), (10, 120)], ids=["none deleted", "every tenth"])
async def test_stops_without_a_deletion_take_few_steps(
    deleted_every: int, at_most: int, broker: Broker, autojump_clock: MockClock
) -> None:
    """Under load each step waits for a whole turn of the loop."""
    count, turns = 10 * PARTITIONS_PER_STEP, 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    deleted = [deleted_every > 0 and number % deleted_every == 0 for number in range(count)]
    states = [StopReplicaPartitionState("t", TOPIC_ID, number, 0, gone) for number, gone in enumerate(deleted)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        response: Any = await broker.orders.stop_replica(in_hand(Hand(StopReplicaRequest(9, 1, MY_EPOCH, states))))
        nursery.cancel_scope.cancel()
    assert [error.partition_index for error in response.partition_errors] == list(range(count))
    assert 3 <= turns <= at_most


async def test_a_session_that_ends_between_two_stops_makes_the_rest_stale(
    broker: Broker, autojump_clock: MockClock
) -> None:
    site, count = broker.site, 50
    await site.order(*(site.state(TopicPartition("t", number), is_new=True) for number in range(count)))

    async def new_session() -> None:
        broker.registration.broker_epoch = MY_EPOCH + 1

    states = [StopReplicaPartitionState("t", TOPIC_ID, number, 0, True) for number in range(count)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(new_session)
        response: Any = await broker.orders.stop_replica(in_hand(Hand(StopReplicaRequest(9, 1, MY_EPOCH, states))))
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert 0 < len(site.replicas.partitions) < count
