"""What must come right although a step in the middle failed once: a broken connection, a disk error, a slow client."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network.processor import Processor
from strandline.client.errors import ClientError
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.store import ClusterStore
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import PartitionStateZnode
from strandline.runtime.coordination import ConnectionLost
from strandline.testkit.inspection import read_all
from support.scenario import T0, cluster_with_topic, crash_after_a_loss, numbered

U0 = TopicPartition("u", 0)


async def test_what_was_settled_is_announced_although_the_event_broke_off(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 3 comes back within its session and takes itself out of an ISR, since its past life had noted a loss; the
    controller's connection breaks before it told the leader, which would then be frozen for ever."""
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        async with cluster.admin() as admin:
            await admin.create_topic("u", assignments={0: [3, 1, 2]})
        await cluster.until(lambda: cluster.hosts(3, U0), "the second topic")
        moved_seen: list[bool] = []
        read_again, write_states = Settlement.read_again, ClusterStore.write_states

        async def note_moved(self: Settlement, partitions: Any) -> list[TopicPartition]:
            moved = await read_again(self, partitions)
            if moved and not moved_seen:
                moved_seen.append(True)
            return moved

        async def break_once(self: ClusterStore, changes: Any) -> Any:
            if moved_seen == [True]:
                moved_seen.append(False)
                raise ConnectionLost("the connection broke")
            return await write_states(self, changes)

        monkeypatch.setattr(Settlement, "read_again", note_moved)
        monkeypatch.setattr(ClusterStore, "write_states", break_once)
        crash_after_a_loss(cluster, 3)
        await cluster.start_broker(3)
        await cluster.until(lambda: sorted(cluster.isr(T0)) == [1, 2, 3], "the ISR whole again")
        assert moved_seen == [True, False], "the connection never broke: nothing was tested"
        await ledger.produce(producer, T0, numbered("after", 3))
        assert not ledger.unknown


async def test_a_deletion_goes_on_although_the_event_of_a_returning_broker_broke_off(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, _):
        cluster.crash(3)
        await trio.sleep(20)
        async with cluster.admin() as admin:
            with pytest.raises(ClientError):  # it waits for the dead broker; the deletion itself goes on
                await admin.delete_topic("t", timeout_ms=2000)
        broken: list[bool] = []
        settle_and_announce = Settlement.settle_and_announce

        async def break_once(
            self: Settlement, partitions: Sequence[TopicPartition] = (), planner: Any = None, builder: Any = None
        ) -> None:
            if not broken and partitions and builder is None and 3 in cluster.registered():
                broken.append(True)
                raise ConnectionLost("the connection broke")
            await settle_and_announce(self, partitions, planner, builder)

        monkeypatch.setattr(Settlement, "settle_and_announce", break_once)
        await cluster.start_broker(3)
        await cluster.until(lambda: cluster.zookeeper.tree.exists("/brokers/topics/t") is None, "the topic gone")
        assert broken


async def test_a_topic_created_again_is_empty_although_a_folder_could_not_be_renamed(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("old", 3))
        cluster.nodes[2].disk.fail("rename", "/data/t-0*", errno.EIO, times=1)
        async with cluster.admin() as admin, trio.open_nursery() as nursery:
            nursery.start_soon(partial(admin.delete_topic, "t", timeout_ms=60_000))
            await cluster.until(lambda: not cluster.nodes[2].is_up, "the broker ended: its only disk failed")
            await cluster.start_broker(2)
        async with cluster.admin() as admin:
            await admin.create_topic("t", assignments={0: [2, 3, 1]}, timeout_ms=20_000)
        await cluster.until(lambda: all(cluster.hosts(broker, T0) for broker in (1, 2, 3)), "hosted again")
        async with cluster.consumer() as consumer:
            assert not await read_all(consumer, T0)


async def test_a_partition_whose_role_cannot_change_does_not_block_the_orders_for_others(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        log = cluster.partition(2, T0).log
        log.epochs.assign(99, log.log_end_offset)  # above anything that ZooKeeper will say
        cluster.crash(3)
        await trio.sleep(20)
        async with cluster.admin() as admin:
            await admin.create_topic("u", assignments={0: [2]}, timeout_ms=20_000)
        await cluster.until(lambda: cluster.leads(2, U0), "the other topic led by that broker")


async def test_a_broker_that_is_leaving_is_not_taken_back_into_an_isr(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Processor.stop

    async def stop_slowly(self: Processor, deadline_s: float) -> None:
        await trio.sleep(2)  # clients that are slow to take their last answers
        await stop(self, deadline_s)

    monkeypatch.setattr(Processor, "stop", stop_slowly)
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        seen: list[tuple[int, tuple[int, ...]]] = []

        async def watch() -> None:
            while True:
                state = (cluster.leader(T0), tuple(cluster.isr(T0)))
                if not seen or seen[-1] != state:
                    seen.append(state)
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await cluster.stop(2)
            nursery.cancel_scope.cancel()
        assert seen[-1][0] != 2
        assert all(2 not in isr for leader, isr in seen if leader != 2)


async def test_a_batch_larger_than_the_brokers_own_limit_replicates_where_the_topic_allows_it(
    autojump_clock: MockClock,
) -> None:
    async with cluster_with_topic([2, 1, 3], configs={"max.message.bytes": "30000000"}) as (cluster, _, _):
        settings = {"linger_ms": 0, "max_request_size": 40_000_000, "delivery_timeout_ms": 60_000}
        async with cluster.producer(**settings) as producer:
            await (await producer.send("t", b"x" * 14_000_000, partition=0))
        assert {cluster.partition(broker, T0).log.log_end_offset for broker in (1, 2, 3)} == {1}


async def test_leadership_moves_away_from_a_broker_whose_log_failed(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        cluster.nodes[2].disk.fail("pwritev", "*.log", errno.EIO, times=1)
        await ledger.produce(producer, T0, numbered("after", 3))
        await cluster.until(lambda: cluster.leader(T0) in (1, 3), "another leader")
        await cluster.until(lambda: 2 not in cluster.isr(T0), "the broken replica out of the ISR")
        assert not ledger.unknown


async def test_a_topic_that_was_removed_from_zookeeper_by_hand_can_be_created_again(autojump_clock: MockClock) -> None:
    """Nobody told the brokers to stop their replicas: what they host is of another topic than what they are ordered."""
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("old", 3))
        operator = cluster.zookeeper.client()
        await operator.start()
        folder = "/brokers/topics/t"
        [topic_id] = [f"/{name}" for name in await operator.children(folder) if name != "partitions"]
        for path in ("/partitions/0/state", "/partitions/0", "/partitions", topic_id, ""):
            await operator.delete(folder + path)
        await trio.sleep(1)
        assert cluster.hosts(2, T0), "nobody told it: else nothing is tested"
        async with cluster.admin() as admin:
            await admin.create_topic("t", assignments={0: [2, 3, 1]}, timeout_ms=20_000)
        await cluster.until(lambda: cluster.leads(2, T0) and cluster.isr(T0) == [1, 2, 3], "led")
        async with cluster.producer(linger_ms=0) as fresh:
            found = await (await fresh.send("t", b"new", partition=0))
        assert found.offset == 0, "nothing of the old topic is in the new one"
        cluster.assert_replicas_equal(T0)


async def test_a_leader_goes_on_with_its_isr_once_its_unreadable_state_was_mended(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        operator = cluster.zookeeper.client()
        await operator.start()
        path = PartitionStateZnode.path(*T0)
        sound = await operator.get(path)
        await operator.set(path, b"{", sound.stat.version)
        cluster.crash(3)
        async with cluster.producer(linger_ms=0, acks=1) as careless:
            await (await careless.send("t", b"what broker 3 lacks", partition=0))
        await trio.sleep(20)
        leadership = cluster.partition(2, T0).leadership
        assert leadership is not None and leadership.frozen
        await cluster.start_broker(3)
        await operator.set(path, sound.data, sound.stat.version + 1)
        await trio.sleep(40)
        leadership = cluster.partition(2, T0).leadership
        assert leadership is not None and not leadership.frozen
        cluster.crash(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "who died left the ISR")
        await ledger.produce(producer, T0, numbered("after", 3))
        assert not ledger.unknown
