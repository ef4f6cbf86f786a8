"""Whole brokers stop in order, again and again: what they leave is what their checksums say, so that damage, and only
damage, is noticed at the next start."""

from __future__ import annotations

import random

import pytest
import trio

from strandline.controller.partitions.waits import GRACE_S
from strandline.storage.inspection.log_check import check_directories
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.inspection import read_all
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered
from support.storage_site import FixedClock, SmallLogConfig

DAMAGED = 2


def found_on(cluster: MemoryCluster, broker: int) -> list[tuple[str, str]]:
    disk = cluster.nodes[broker].disk
    found = check_directories(disk, [LOG_DIR], SmallLogConfig(), FixedClock(), random.Random(1), quick=True)
    return [(each.event, each.where) for each in found]


async def test_what_a_broker_leaves_in_order_it_finds_as_it_was(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        for life in range(3):
            await ledger.produce(producer, T0, numbered(f"life-{life}", 10))
            async with cluster.admin() as admin:
                await admin.delete_records({T0: life * 10 + 3})
            for broker in (1, 2, 3):  # each leads for a while
                await cluster.stop(broker)
                assert cluster.nodes[broker].disk.exists(f"{LOG_DIR}/{CLEAN_MARKER}")
                assert found_on(cluster, broker) == []
                await cluster.start_broker(broker)
                await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "the ISR is whole again")


async def test_an_ordinary_start_of_all_is_no_alarm_and_who_stays_away_is_named(autojump_clock) -> None:
    """Until one of the last that stopped is back nobody has everything, and an operator has nothing to do but wait."""
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 4))
        for absent in (False, True):
            for broker in (1, 2, 3):
                await cluster.stop(broker)
            cluster.history.clear()
            await cluster.start_broker(1)
            await trio.sleep(2 * GRACE_S if absent else GRACE_S / 2)
            alarms = [line for line in cluster.history if '"partitions stay offline"' in line]
            assert len(alarms) == absent
            assert all('"t-0":"one of the brokers 3, 2 must come back' in line for line in alarms)
            for broker in (2, 3):
                await cluster.start_broker(broker)
            await check_at_the_end(cluster, ledger)


async def test_when_a_broker_has_stopped_everybody_names_the_new_leader(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        assert cluster.controller_id == cluster.leader(T0) == 1
        await ledger.produce(producer, T0, numbered("before", 10))
        for other in (2, 3):
            cluster.network.link("broker-1", f"broker-{other}").latency_s = 0.3
        await cluster.stop(1)
        named = [cluster.broker(other).data.metadata.topics[T0.topic].partitions[0].leader for other in (2, 3)]
        assert named == [2, 2]


async def test_a_broker_that_hears_nothing_keeps_nobody_from_stopping(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, _, _):
        cluster.cut_both(1, 3)
        with trio.fail_after(5):
            await cluster.stop(1)
        assert cluster.leader(T0) == 2


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "paused"])
async def test_who_stops_hands_over_to_one_that_answers(is_dead: bool, autojump_clock) -> None:
    """The next replica in line is registered, and in sync, until its session ends: nobody would lead until then."""
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 10))
        cluster.crash(3) if is_dead else cluster.pause(3)
        await cluster.stop(2)
        assert 3 in cluster.registered()
        assert cluster.leader(T0) == 1
        await cluster.start_broker(2)
        if is_dead:
            await cluster.start_broker(3)
        else:
            cluster.resume(3)
        await check_at_the_end(cluster, ledger)


@pytest.mark.parametrize("is_short", [True, False], ids=["for a moment", "for good"])
async def test_where_the_only_successor_is_silent_the_stop_tries_again_and_says_how_it_ended(
    is_short: bool, autojump_clock
) -> None:
    async with cluster_with_topic([3, 2], min_insync_replicas=1) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 4))
        cluster.cut_both(1, 2)  # from the controller
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.stop, 3)
            await trio.sleep(1.3)
            if is_short:
                cluster.heal(1, 2)
        assert any("controlled shutdown done" in line for line in cluster.history) == is_short
        assert any("stops without handing everything over" in line for line in cluster.history) != is_short
        assert any("controlled shutdown of broker 3" in line for line in cluster.history) == is_short
        cluster.heal(1, 2)
        await cluster.start_broker(3)
        await check_at_the_end(cluster, ledger, [2, 3])


@pytest.mark.parametrize("min_insync_replicas", [2, 3])
async def test_what_a_leader_wrote_while_it_was_alone_is_there_after_it_stopped_in_order(
    min_insync_replicas: int, autojump_clock
) -> None:
    """Nothing of it is committed, and yet nobody who lacks it may be handed the leadership."""
    async with cluster_with_topic([1, 2, 3], min_insync_replicas=min_insync_replicas) as (cluster, _, ledger):
        async with cluster.producer(acks=1) as producer:
            await ledger.produce(producer, T0, numbered("together", 3))
            await cluster.until(
                lambda: all(log.log_end_offset == 3 for log in cluster.logs(T0).values()), "all have it"
            )
            for other in (2, 3):
                cluster.cut_both(1, other)
                cluster.network.link("broker-1", f"broker-{other}").bytes_per_s = 50_000
            await trio.sleep(1)
            await ledger.produce(producer, T0, numbered("alone", 3000))
            await cluster.until(lambda: cluster.isr(T0) == [1], "the leader is alone")
        for other in (2, 3):
            cluster.heal(1, other)
        await trio.sleep(0.3)
        await cluster.stop(1)
        await cluster.start_broker(1)
        await check_at_the_end(cluster, ledger)


async def test_over_a_slow_link_a_follower_does_not_leave_and_join_again_and_again(autojump_clock) -> None:
    """It may join where it keeps up, not wherever the high watermark happens to stand."""
    async with cluster_with_topic([1, 2]) as (cluster, producer, ledger), trio.open_nursery() as nursery:
        cluster.network.link("broker-1", "broker-2").bytes_per_s = 10_000

        async def load() -> None:
            async with cluster.producer(acks=1, linger_ms=10) as unacknowledged:
                for number in range(540):
                    for value in numbered(f"fast-{number}", 10):
                        await unacknowledged.send(T0.topic, value * 20, partition=0)
                    await trio.sleep(0.1)

        nursery.start_soon(load)
        await trio.sleep(54)
        changes = [line for line in cluster.history if '"isr changed"' in line]
        assert len(changes) <= 2, changes
        cluster.network.link("broker-1", "broker-2").bytes_per_s = None
        await ledger.produce(producer, T0, numbered("after", 8))
        await check_at_the_end(cluster, ledger, [1, 2])


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "replication-offset-checkpoint"])
async def test_a_digit_that_changes_while_a_broker_is_down_hides_no_record(name: str, autojump_clock) -> None:
    async with cluster_with_topic([1, DAMAGED], min_insync_replicas=1) as (cluster, producer, ledger):
        values = numbered("acked", 40)
        await ledger.produce(producer, T0, values, one_by_one=True)
        async with cluster.admin() as admin:
            await admin.delete_records({T0: 5})
        await cluster.until(lambda: cluster.logs(T0)[DAMAGED].log_start_offset == 5, "the follower has heard of it")
        await cluster.stop(DAMAGED)
        disk, path = cluster.nodes[DAMAGED].disk, f"{LOG_DIR}/{name}"
        content = disk.read(path)
        assert content.splitlines()[2] in (b"t 0 5", b"t 0 40")
        disk.write(path, content.replace(b"t 0 5", b"t 0 25").replace(b"t 0 40", b"t 0 10"))
        assert ("checkpoint-not-as-written", path) in found_on(cluster, DAMAGED)
        await cluster.start_broker(DAMAGED)
        await cluster.until(lambda: cluster.isr(T0) == [1, DAMAGED], "it is in sync")
        await cluster.stop(1)
        await cluster.until(lambda: cluster.leads(DAMAGED, T0), "it leads")
        async with cluster.consumer() as consumer:
            found = await read_all(consumer, T0)
        assert {offset: found.get(offset) for offset in range(5, 40)} == dict(enumerate(values[5:], 5))
