"""A broker that is told to stop before it serves obeys at once, whatever it waits for, and the next start finds nothing
in its way. One whose session ends before it serves goes on."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
import trio

from strandline.broker.server import Broker
from strandline.runtime.coordination import SessionState
from strandline.testkit.cluster import SESSION_TIMEOUT_MS, MemoryCluster, StartFailed
from strandline.testkit.disk.model import lose_everything
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

SOON_S = 5.0
"""Far below what a start waits for ZooKeeper."""


async def start_and_stop(cluster: MemoryCluster, broker_id: int, moment_ms: int) -> bool:
    """It is told to stop so long after its start began. Whether it served by then."""
    served = False

    async def start() -> None:
        nonlocal served
        with suppress(StartFailed):
            await cluster.start_broker(broker_id)
            served = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await trio.sleep(moment_ms / 1000)
        with trio.fail_after(SOON_S):
            await cluster.stop(broker_id)
    return served


async def start_in_vain(cluster: MemoryCluster, broker_id: int) -> None:
    with pytest.raises(StartFailed):
        await cluster.start_broker(broker_id)


async def give_up_a_start_and_lose_power(cluster: MemoryCluster, broker_id: int) -> None:
    cluster.zookeeper.stop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_in_vain, cluster, broker_id)
        await trio.sleep(3)
        await cluster.stop(broker_id)
    cluster.zookeeper.start()
    cluster.nodes[broker_id].disk.crash(lose_everything)


async def test_a_start_without_zookeeper_is_given_up(autojump_clock) -> None:
    cluster = MemoryCluster(brokers=1)
    async with cluster.running(start=False), trio.open_nursery() as nursery:
        cluster.zookeeper.stop()
        nursery.start_soon(start_in_vain, cluster, 1)
        await trio.sleep(3)
        with trio.fail_after(SOON_S):
            await cluster.stop(1)
        assert any("stopped before it served" in line for line in cluster.history)
        cluster.zookeeper.start()
        await cluster.start_broker(1)


async def test_a_start_whose_zookeeper_fell_silent_is_given_up(autojump_clock) -> None:
    cluster = MemoryCluster(brokers=1)
    async with cluster.running(start=False), trio.open_nursery() as nursery:
        nursery.start_soon(start_in_vain, cluster, 1)
        await trio.sleep(0.001)
        await cluster.until(lambda: cluster.coordination(1).state is SessionState.CONNECTED, "a session")
        cluster.cut_from_zookeeper(1)
        await trio.sleep(20)
        with trio.fail_after(SOON_S):
            await cluster.stop(1)
        await cluster.start_broker(1)


async def test_a_start_given_up_without_zookeeper_leaves_the_orderly_stop_before_it_as_it_was(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 10))
        await cluster.stop(3)
        await give_up_a_start_and_lose_power(cluster, 3)
        await cluster.start_broker(3)
        logs = cluster.broker(3).log_manager
        assert logs.was_clean and not logs.may_have_lost_data
        await check_at_the_end(cluster, ledger)


async def test_a_start_given_up_after_a_power_failure_vouches_for_nothing(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 10))
        cluster.lose_power(3)
        await give_up_a_start_and_lose_power(cluster, 3)
        await cluster.start_broker(3)
        logs = cluster.broker(3).log_manager
        assert not logs.was_clean and logs.may_have_lost_data
        await check_at_the_end(cluster, ledger)


async def test_who_is_told_to_stop_at_the_last_moment_of_its_start_does_not_say_that_it_serves(
    autojump_clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = MemoryCluster(brokers=1)
    open_for_business = Broker._open_for_business

    async def opened_and_told_to_stop(broker: Broker, nursery: trio.Nursery) -> None:
        await open_for_business(broker, nursery)
        broker.shut_down()

    async with cluster.running(start=False):
        with monkeypatch.context() as patched:
            patched.setattr(Broker, "_open_for_business", opened_and_told_to_stop)
            await start_in_vain(cluster, 1)
        await cluster.start_broker(1)


async def test_a_start_can_be_given_up_at_any_moment(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        for moment_ms in range(1, 80, 4):  # at 0 the new life may not have begun: the stop would be the old one's
            await cluster.stop(3)
            await ledger.produce(producer, T0, numbered(f"at-{moment_ms}", 2))
            await start_and_stop(cluster, 3, moment_ms)
            assert 3 not in cluster.registered()
            await cluster.start_broker(3)
            await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "in sync again")
        given_up = sum("stopped before it served" in line for line in cluster.history)
        assert 5 < given_up < 20, "some before, some after the end of the start"
        await check_at_the_end(cluster, ledger)


async def test_a_start_given_up_on_an_old_backup_does_not_make_it_a_new_one(autojump_clock) -> None:
    """It was stopped in order when the backup was made, and notes its starts: the next one must not go by either."""
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        given_up = 0
        for moment_ms in range(1, 90, 4):
            await cluster.stop(3)
            backup = cluster.nodes[3].disk.copy()
            await cluster.start_broker(3)
            await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "in sync again")
            await ledger.produce(producer, T0, numbered(f"at-{moment_ms}", 2))
            await cluster.stop(3)
            cluster.replace_disk(3, backup)
            served = await start_and_stop(cluster, 3, moment_ms)
            await cluster.start_broker(3)
            if not served:
                given_up += 1
                assert cluster.broker(3).log_manager.may_have_lost_data, moment_ms
            await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "in sync again")
        assert 5 < given_up < 22
        await check_at_the_end(cluster, ledger)


async def test_a_start_goes_on_whenever_its_session_ends(autojump_clock) -> None:
    """It has one from before the logs are loaded, which may take longer than a session lives."""
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        for moment_ms in range(5, 80, 5):
            await cluster.stop(3)
            await ledger.produce(producer, T0, numbered(f"at-{moment_ms}", 2))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cluster.start_broker, 3)
                await trio.sleep(moment_ms / 1000)
                cluster.expire_session(3)
            await cluster.until(lambda: 3 in cluster.registered() and cluster.isr(T0) == [1, 2, 3], "in sync again")
        await check_at_the_end(cluster, ledger)


async def test_who_is_killed_while_it_ends_by_itself_is_started_again_and_stays(autojump_clock) -> None:
    """Its disk fails, it begins to end, an operator has no patience. What ends then is the life that was killed."""
    async with MemoryCluster(2, zookeeper_latency_s=0.5).running() as cluster, cluster.admin() as admin:
        await admin.create_topic(T0.topic, assignments={0: [2, 1]})
        await cluster.until(lambda: cluster.leads(2, T0), "it leads")
        broken = cluster.nodes[2].disk.fail("pwritev", "/data/*", errno.EIO)
        async with cluster.producer(linger_ms=0) as producer:
            waiting = await producer.send(T0.topic, b"value", partition=0)
            await cluster.until(lambda: any("log directory offline" in line for line in cluster.history), "it ends")
            assert cluster.nodes[2].is_up, "its good-bye to ZooKeeper takes a while"
            cluster.crash(2)
            broken.cancel()
            await cluster.start_broker(2)
            await waiting
        await trio.sleep(2 * SESSION_TIMEOUT_MS / 1000)
        assert cluster.registered() == [1, 2]
        assert sorted(cluster.isr(T0)) == [1, 2]
