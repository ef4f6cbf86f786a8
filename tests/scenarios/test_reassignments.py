"""Partitions that move to other brokers, on whole brokers with clients at work and brokers that die meanwhile."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from strandline.client.errors import ClientError
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import PartitionStateZnode, ReassignPartitionsZnode, TopicZnode
from strandline.runtime.coordination import SetData
from strandline.testkit.cluster import LOG_DIR
from strandline.testkit.inspection import Ledger
from support.at_once import at_once
from support.reassigning import TOPIC, Moves, moves
from support.scenario import T0, die, numbered

OLD, NEW = [1, 2, 3], [4, 5, 6]


async def test_everything_moves_while_clients_produce(autojump_clock: MockClock) -> None:
    async with moves(OLD, [2, 3, 1], [3, 1, 2]) as moving:
        async with moving.under_load():
            await trio.sleep(1)
            assert await moving.ask({0: NEW, 1: [5, 6, 4], 2: [6, 2, 3]}) == {0: 0, 1: 0, 2: 0}
            await trio.sleep(5)
        assert moving.ledger.unknown == [], "no producer was refused anything"
        await moving.check({0: NEW, 1: [5, 6, 4], 2: [6, 2, 3]})


@pytest.mark.parametrize("target", [[2, 1, 4], [4, 1, 5], [1], [3], [1, 2, 3, 4, 5, 6], [3, 2, 1]])
async def test_the_leader_stays_or_not_and_replicas_become_more_or_fewer(
    target: list[int], autojump_clock: MockClock
) -> None:
    async with moves(OLD) as moving:
        async with moving.under_load():
            await moving.ask({0: target})
            await trio.sleep(3)
        assert moving.ledger.unknown == []
        await moving.check({0: target})


async def test_one_replica_and_three_again_with_a_minimum_of_two_refuse_nobody(autojump_clock: MockClock) -> None:
    async with moves(OLD) as moving, moving.under_load():
        for target in ([1], OLD, [3], NEW):
            await moving.ask({0: target})
            await moving.cluster.until(lambda to=target: moving.has_arrived(0, to), "moved")
            await trio.sleep(0.5)
        assert moving.ledger.unknown == []


async def test_producers_go_on_while_the_first_replica_of_a_minimum_of_two_is_copied(
    autojump_clock: MockClock,
) -> None:
    async with moves([2], brokers=4) as moving:
        cluster = moving.cluster
        for broker_id in (3, 4):
            cluster.cut_both(2, broker_id)
        async with moving.under_load():
            await moving.ask({0: [2, 3, 4]})
            await trio.sleep(1)
            assert cluster.isr(T0) == [2]
            assert at_once(cluster.broker(2).health.status())["partitions"]["under_replicated"] == 0, "nobody lacks"
            before = len(moving.ledger.acked[T0])
            await trio.sleep(3)
            assert len(moving.ledger.acked[T0]) > before + 20
            for broker_id in (3, 4):
                cluster.heal(2, broker_id)
            await trio.sleep(3)
        assert moving.ledger.unknown == []
        await moving.check({0: [2, 3, 4]})


@pytest.mark.parametrize("moment_ms", [0, 5, 10, 15, 20, 30, 50, 100, 200, 300, 400, 1000])
async def test_it_is_cancelled_at_any_moment(moment_ms: int, autojump_clock: MockClock) -> None:
    async with moves(OLD) as moving:
        async with moving.under_load():
            await trio.sleep(1)
            await moving.ask({0: NEW})
            await trio.sleep(moment_ms / 1000)
            code = (await moving.ask({0: None}))[0]
            await trio.sleep(3)
        assert moving.ledger.unknown == []
        await moving.check({0: OLD if code == 0 else NEW})
        assert code in (0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


@pytest.mark.parametrize("moment_ms", [0, 10, 30, 100, 300])
async def test_another_target_comes_at_any_moment(moment_ms: int, autojump_clock: MockClock) -> None:
    async with moves(OLD) as moving:
        async with moving.under_load():
            await trio.sleep(1)
            await moving.ask({0: [4, 5, 2]})
            await trio.sleep(moment_ms / 1000)
            assert await moving.ask({0: [6, 5, 1]}) == {0: 0}
            await trio.sleep(3)
        assert moving.ledger.unknown == []
        await moving.check({0: [6, 5, 1]})


# --- brokers that die ------------------------------------------------------------------------------------------------


async def stuck(moving: Moves, target: list[int], *dead: int) -> None:
    """It cannot end while these are away."""
    await moving.ask({0: target})
    die(moving.cluster, *dead)
    await trio.sleep(5)
    assert moving.is_moving()


async def test_a_target_that_dies_holds_it_up_until_it_is_back(autojump_clock: MockClock) -> None:
    async with moves([2, 3], brokers=5) as moving:
        async with moving.under_load():
            await moving.ledger.produce(moving.producer, T0, numbered("m", 50))
            moving.cluster.cut_both(5, 2)
            await stuck(moving, [4, 5], 5)
            assert set(moving.cluster.isr(T0)) == {2, 3, 4}
            await moving.cluster.start_broker(5)
            moving.cluster.heal(5, 2)
            await trio.sleep(3)
        await moving.check({0: [4, 5]})


async def test_the_leader_dies_while_it_is_copied(autojump_clock: MockClock) -> None:
    async with moves([2, 3], brokers=5) as moving:
        async with moving.under_load():
            moving.cluster.cut_both(5, 2)
            await moving.ask({0: [4, 5]})
            await moving.cluster.until(lambda: moving.cluster.isr(T0) == [2, 3, 4], "one of the target is in sync")
            die(moving.cluster, 2)
            await trio.sleep(5)
        await moving.check({0: [4, 5]}, away=[2])
        await moving.cluster.start_broker(2)
        await moving.check({0: [4, 5]})


async def test_an_old_replica_that_was_away_at_the_end_removes_its_log_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    async with moves([2, 3, 4], brokers=6) as moving:
        async with moving.under_load():
            await trio.sleep(1)
            die(moving.cluster, 3)
            await trio.sleep(1)
            await moving.ask({0: [5, 6, 4]})
            await trio.sleep(3)
        await moving.check({0: [5, 6, 4]}, away=[3])
        assert 3 in moving.folders()
        await moving.cluster.start_broker(3)
        await moving.check({0: [5, 6, 4]})


async def test_what_is_cancelled_while_nobody_leads_leaves_a_log_until_somebody_does(
    autojump_clock: MockClock,
) -> None:
    async with moves([2], brokers=4, min_insync_replicas=1) as moving:
        cluster = moving.cluster
        await moving.ledger.produce(moving.producer, T0, numbered("m", 50))
        cluster.cut_both(3, 2)
        await moving.ask({0: [3]})
        die(cluster, 2)
        await cluster.until(lambda: cluster.leader(T0) == NO_BROKER, "nobody leads", within_s=60)
        assert await moving.ask({0: None}) == {0: 0}
        assert moving.has_arrived(0, [2])
        await trio.sleep(20)
        assert moving.folders() == [2, 3]
        cluster.heal(3, 2)
        await cluster.start_broker(2)
        await moving.check({0: [2]})


async def test_a_log_that_was_left_goes_with_its_topic_on_brokers_that_hear_of_the_deletion(
    autojump_clock: MockClock,
) -> None:
    """Broker 2 holds the topic and comes back last; 3 and 4 have logs that were left, 4 while it was away."""
    async with moves([4], brokers=5, min_insync_replicas=1) as moving:
        cluster = moving.cluster
        await moving.ledger.produce(moving.producer, T0, numbered("m", 50))
        await moving.ask({0: [2, 4]})
        await moving.check({0: [2, 4]})
        die(cluster, 4)
        await moving.ask({0: [2]})
        await moving.check({0: [2]}, away=[4])
        cluster.cut_both(3, 2)
        await moving.ask({0: [3]})
        die(cluster, 2)
        await cluster.until(lambda: cluster.leader(T0) == NO_BROKER, "nobody leads", within_s=60)
        await moving.ask({0: None})
        assert moving.folders() == [2, 3, 4]
        async with cluster.admin() as admin:
            with suppress(ClientError):  # it is held up
                await admin.delete_topic(TOPIC, timeout_ms=1_000)
        await cluster.until(lambda: moving.folders() == [2, 4], "the log of one that lives is gone", within_s=60)
        await cluster.start_broker(4)
        await cluster.until(lambda: moving.folders() == [2], "of one that comes back, too", within_s=60)
        await cluster.start_broker(2)
        await cluster.until(lambda: moving.folders() == [], "everything is gone", within_s=60)
        await cluster.until(lambda: cluster.zookeeper.tree.exists(TopicZnode.path(TOPIC)) is None, "deleted")


async def test_everything_stops_in_the_middle_and_starts_again(autojump_clock: MockClock) -> None:
    async with moves([2, 3], brokers=5) as moving:
        cluster = moving.cluster
        await moving.ledger.produce(moving.producer, T0, numbered("m", 50))
        cluster.cut_both(5, 2)
        await moving.ask({0: [4, 5]})
        await cluster.until(lambda: cluster.isr(T0) == [2, 3, 4], "one of the target is in sync")
        cluster.heal(5, 2)
        die(cluster, *cluster.nodes)
        for broker_id in cluster.nodes:
            await cluster.start_broker(broker_id)
        await moving.ledger.produce(moving.producer, T0, numbered("n", 50))
        await moving.check({0: [4, 5]})


async def test_the_disk_of_an_old_replica_that_refuses_holds_nothing_up(autojump_clock: MockClock) -> None:
    async with moves([2, 3], brokers=5) as moving:
        await moving.ledger.produce(moving.producer, T0, numbered("m", 10))
        full = moving.cluster.nodes[3].disk.fail("rename", f"{LOG_DIR}/{TOPIC}-0*", errno.ENOSPC)
        await moving.ask({0: [4, 5]})
        await moving.check({0: [4, 5]}, away=[3])
        assert moving.folders() == [3, 4, 5]
        full.cancel()
        await moving.check({0: [4, 5]})


async def test_an_old_copy_of_zookeeper_deletes_nothing(autojump_clock: MockClock) -> None:
    """By which the replicas are those that have given their logs up meanwhile."""
    async with moves([2, 3], brokers=5) as moving:
        cluster = moving.cluster
        await moving.ledger.produce(moving.producer, T0, numbered("m", 20))

        async def stop_all() -> None:
            for broker_id in cluster.nodes:
                await cluster.stop(broker_id)

        await stop_all()
        old_copy = cluster.zookeeper.tree.snapshot()
        for broker_id in cluster.nodes:
            await cluster.start_broker(broker_id)
        await moving.ask({0: [4, 5]})
        await moving.check({0: [4, 5]})
        await stop_all()
        cluster.zookeeper.tree = old_copy
        for broker_id in cluster.nodes:
            await cluster.start_broker(broker_id)
        await trio.sleep(120)
        assert moving.znode().partitions == {0: [2, 3]}
        for broker_id in (4, 5):
            disk = cluster.nodes[broker_id].disk
            assert disk.read(f"{LOG_DIR}/{TOPIC}-0/{0:020d}.log"), "it may be the last copy"
            assert not cluster.hosts(broker_id, T0)


async def test_an_old_copy_of_zookeeper_removes_no_log_once_its_epochs_have_caught_up(
    autojump_clock: MockClock,
) -> None:
    """By the copy the replicas are those of before the move, who have nothing any more, and begin anew."""
    async with moves(OLD) as moving:
        cluster, tree = moving.cluster, moving.cluster.zookeeper.tree
        await moving.ledger.produce(moving.producer, T0, numbered("m", 20))
        copy = {path: tree.get(path).data for path in (TopicZnode.path(TOPIC), PartitionStateZnode.path(*T0))}
        await moving.ask({0: NEW})
        await moving.check({0: NEW})
        await moving.ledger.produce(moving.producer, T0, numbered("n", 20))
        for broker_id in cluster.nodes:
            await cluster.stop(broker_id)
        for path, data in copy.items():
            tree.apply_one(SetData(path, data, -1), 0)
        for broker_id in cluster.nodes:
            await cluster.start_broker(broker_id)
        async with cluster.producer(linger_ms=0) as producer:
            for _ in range(3):
                await Ledger().produce(producer, T0, numbered("anew", 40))
                for broker_id in cluster.nodes:
                    await cluster.stop(broker_id)
                    await cluster.start_broker(broker_id)
                    await trio.sleep(2)
        latest = max(cluster.broker(broker_id).log_manager.logs[T0].last_epoch for broker_id in NEW)
        assert latest < cluster.state(T0).leader_epoch
        await trio.sleep(20)
        assert moving.folders() == [*OLD, *NEW]


# --- with other changes ----------------------------------------------------------------------------------------------


async def test_a_topic_that_is_deleted_meanwhile_goes_from_all_disks(autojump_clock: MockClock) -> None:
    async with moves([2, 3], brokers=5) as moving, moving.cluster.admin() as admin:
        cluster = moving.cluster
        await moving.ledger.produce(moving.producer, T0, numbered("m", 50))
        cluster.cut_both(5, 2)
        await moving.ask({0: [4, 5]})
        await cluster.until(lambda: cluster.hosts(5, T0), "it begins to be copied")
        await admin.delete_topic(TOPIC)
        await cluster.until(lambda: moving.folders() == [], "nothing is left over", within_s=120)
        assert cluster.zookeeper.tree.exists(TopicZnode.path(TOPIC)) is None


async def test_what_tools_write_into_the_znode_is_done(autojump_clock: MockClock) -> None:
    async with moves([2, 3], [3, 2], brokers=5) as moving:
        async with moving.under_load():
            client = moving.cluster.coordination(2).client
            asked = {T0: [4, 5], TopicPartition(TOPIC, 1): [9], TopicPartition("nowhere", 0): [4]}
            await client.create(ReassignPartitionsZnode.PATH, ReassignPartitionsZnode(asked).encode())
            await trio.sleep(3)
        await moving.check({0: [4, 5], 1: [3, 2]})


async def test_it_goes_there_and_back_again_and_again(autojump_clock: MockClock) -> None:
    """Brokers that take up what they have just given up."""
    async with moves(OLD) as moving:
        async with moving.under_load():
            for _ in range(3):
                for target in (NEW, OLD):
                    await moving.ask({0: target})
                    await moving.cluster.until(lambda to=target: moving.has_arrived(0, to), "moved")
        assert moving.ledger.unknown == []
        await moving.check({0: OLD})
