"""Full disks under whole brokers: appends are refused, everything else goes on, and nothing is lost either way."""

from __future__ import annotations

import errno
from contextlib import suppress
from itertools import count

import pytest
import trio

from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster, StartFailed
from strandline.testkit.disk.model import NoRoom
from strandline.testkit.inspection import Ledger, read_all
from support.at_once import at_once
from support.scenario import LAG_TIME_MAX_S, T0, check_at_the_end, cluster_with_topic, numbered

ALL = (1, 2, 3)
ROOM_BYTES = 2**30


def fill(cluster: MemoryCluster, broker_id: int, free_bytes: int = 300) -> None:
    """Leave so little that a batch is taken in part."""
    disk = cluster.nodes[broker_id].disk
    disk.capacity_bytes += free_bytes - disk.free_bytes


def free(cluster: MemoryCluster, broker_id: int) -> None:
    cluster.nodes[broker_id].disk.capacity_bytes += ROOM_BYTES


def full_paths(cluster: MemoryCluster, broker_id: int) -> list[str]:
    status = at_once(cluster.broker(broker_id).health.status())["full_log_dirs"]
    assert isinstance(status, list)
    return status


def told(cluster: MemoryCluster, what: str) -> int:
    return sum(f'"event":"{what}"' in line for line in cluster.history)


@pytest.mark.parametrize("ends", ["goes on", "kill", "orderly"])
@pytest.mark.parametrize("full", [(1,), (2,), (2, 3), ALL], ids=["leader", "follower", "followers", "all"])
async def test_who_is_full_refuses_appends_and_serves_the_rest_until_there_is_room(
    full: tuple[int, ...], ends: str, autojump_clock
) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 20))
        for broker_id in full:  # of all, the others have room left for their checkpoints when the leader has none
            fill(cluster, broker_id, free_bytes=300 if broker_id == full[0] else 900)
        meanwhile = numbered("meanwhile", 20)
        with trio.move_on_after(3 * LAG_TIME_MAX_S):
            for value in meanwhile:
                await ledger.produce(producer, T0, [value])
        assert all(cluster.nodes[broker_id].is_up for broker_id in ALL), "no broker ends"
        found_full = [n for n in ALL if full_paths(cluster, n)]
        assert found_full == ([1] if 1 in full else list(full)), "where a leader takes nothing, followers need not"
        assert not any(cluster.broker(n).log_manager.directories.offline_paths for n in ALL)
        assert cluster.leads(1, T0), "a leader goes on leading"
        if full == (2,):
            assert cluster.isr(T0) == [1, 3], "it left, so the others commit without it"
            assert len(ledger.acked[T0]) > 30
        async with cluster.consumer() as consumer:
            ledger.assert_kept(T0, await read_all(consumer, T0))
        assert told(cluster, "log-dir-full") == len(found_full), "each says so once"
        for broker_id in full:
            if ends == "kill":
                cluster.crash(broker_id)
            elif ends == "orderly":
                await cluster.stop(broker_id)
            free(cluster, broker_id)
            if ends != "goes on":
                await cluster.start_broker(broker_id)
        await cluster.until(
            lambda: cluster.isr(T0) == [1, 2, 3] and not any(full_paths(cluster, n) for n in ALL), "room everywhere"
        )
        if ends == "goes on":
            assert told(cluster, "log directory has room again") == len(found_full)
        expected = len(ledger.acked[T0])
        await ledger.produce(producer, T0, numbered("after", 20))
        assert len(ledger.acked[T0]) == expected + 20
        await check_at_the_end(cluster, ledger)


NEW = TopicPartition("new", 0)


async def test_a_new_topic_is_led_by_who_has_room(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger), cluster.admin() as admin:
        fill(cluster, 2, free_bytes=0)
        await admin.create_topic(NEW.topic, assignments={0: [2, 1, 3]}, timeout_ms=5000)
        assert cluster.leads(1, NEW), "that is what the answer says"
        await trio.sleep(30)
        assert told(cluster, "role change put off") == told(cluster, "broker refused a role") == 1
        await ledger.produce(producer, NEW, numbered("m", 5))
        free(cluster, 2)
        await cluster.until(lambda: cluster.isr(NEW) == [1, 2, 3], "it has a log now, too")
        async with cluster.consumer() as consumer:
            ledger.assert_kept(NEW, await read_all(consumer, NEW))


async def test_nothing_is_left_of_a_topic_that_went_before_there_was_room_for_it(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, _, _), cluster.admin() as admin:
        fill(cluster, 2, free_bytes=0)
        await admin.create_topic(NEW.topic, assignments={0: [1, 2, 3]}, timeout_ms=5000)
        await cluster.until(lambda: told(cluster, "role change put off") > 0, "its log was begun")
        await admin.delete_topics([NEW.topic])
        assert not [name for name in cluster.nodes[2].disk.listdir("/data") if name.startswith(f"{NEW.topic}-")]
        free(cluster, 2)
        await cluster.until(lambda: not full_paths(cluster, 2), "room")
        assert not [name for name in cluster.nodes[2].disk.listdir("/data") if name.startswith(f"{NEW.topic}-")]


async def test_a_new_topic_without_room_anywhere_is_not_reported_as_created(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger), cluster.admin() as admin:
        for broker_id in ALL:
            fill(cluster, broker_id, free_bytes=0)
        with pytest.raises(
            Exception, match=f"is being created, but {NEW}: broker 2: .*free space, and it goes on by itself"
        ):
            await admin.create_topic(NEW.topic, assignments={0: [2, 1]}, timeout_ms=5000)
        free(cluster, 1)
        await cluster.until(lambda: cluster.leads(1, NEW), "it has room")
        free(cluster, 2)
        await cluster.until(lambda: cluster.isr(NEW) == [1, 2], "so has the other")
        await ledger.produce(producer, NEW, numbered("m", 5))


@pytest.mark.parametrize("full", [1, 2], ids=["leader", "follower"])
async def test_retention_makes_room_on_a_full_disk(full: int, autojump_clock) -> None:
    configs = {"segment.bytes": "2000", "retention.bytes": "4000", "file.delete.delay.ms": "1000"}
    properties = {"log.retention.check.interval.ms": "30000"}
    async with cluster_with_topic(configs=configs, properties=properties) as (cluster, producer, ledger):
        for number in range(60):
            await ledger.produce(producer, T0, numbered(f"before-{number}", 20))
        fill(cluster, full)
        disk = cluster.nodes[full].disk
        disk.capacity_bytes += 10_000  # it is taken by hand and by nobody's records, and what retention gives is less
        disk.write("/ballast", bytes(10_000 + 2**20))
        disk.capacity_bytes += 2**20
        with trio.move_on_after(20):
            while not full_paths(cluster, full):
                await ledger.produce(producer, T0, numbered(f"until-{trio.current_time()}", 20))
        segments = len(cluster.partition(full, T0).log.segments)
        await trio.sleep(32)
        assert len(cluster.partition(full, T0).log.segments) < segments, "the head goes all the same"
        assert not [path for path in disk.listdir("/data/t-0") if path.endswith(".deleted")]
        disk.unlink("/ballast")
        await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3] and not full_paths(cluster, full), "room")


async def test_an_fsync_that_says_the_disk_is_full_is_a_failure_as_any_other(autojump_clock) -> None:
    """Where blocks are allocated late, a write that was taken fails at its fsync, and its pages count as clean then."""
    async with cluster_with_topic(configs={"flush.messages": "1"}) as (cluster, producer, ledger):
        cluster.nodes[1].disk.fail("fsync", "/data/t-0/*.log", errno.ENOSPC, times=1)
        await ledger.produce(producer, T0, numbered("m", 5))
        await cluster.until(lambda: not cluster.nodes[1].is_up, "its only directory is offline, so it ends")
        await cluster.start_broker(1)
        await check_at_the_end(cluster, ledger)


async def test_a_leader_that_is_full_says_so_and_is_asked_again(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, _, ledger):
        async with cluster.producer(linger_ms=0, retries=0) as producer:
            await ledger.produce(producer, T0, numbered("before", 5))
            fill(cluster, 1)
            await Ledger().produce(producer, T0, numbered("refused", 50))
            delivery = await producer.send(T0.topic, b"refused", partition=0)
            with pytest.raises(Exception, match=ErrorCode.KAFKA_STORAGE_ERROR.name):
                await delivery
        async with cluster.producer(linger_ms=0) as producer:
            delivery = await producer.send(T0.topic, b"patient", partition=0)
            await trio.sleep(2)
            free(cluster, 1)
            assert (await delivery).offset >= 5
        await check_at_the_end(cluster, ledger)


@pytest.mark.parametrize(
    ("victim", "stop", "times"),
    [
        pytest.param(victim, stop, times, id=f"{'leader' if victim == 1 else 'follower'} {stop} {how}")
        for times, how in ((1, "once"), (2**40, "until there is room"))
        for victim, stop in ((1, "kill"), (2, "kill"), (1, "orderly"), (1, "power loss"))
        if times > 1 or stop == "kill"
    ],
)
async def test_a_start_without_room_for_its_nth_write_serves_or_says_why(
    victim: int, stop: str, times: int, autojump_clock
) -> None:
    """The next start, or this one once there is room, has every record and is in sync. What it finds is torn."""
    async with cluster_with_topic(configs={"segment.bytes": "1000"}) as (cluster, producer, ledger):
        disk = cluster.nodes[victim].disk
        await trio.sleep(6)  # a log that no checkpoint names is not known to be ours: its torn end would be a loss
        ends = {"refused": 0, "served": 0}
        for number in count():
            await ledger.produce(producer, T0, numbered(f"before-{number}", 10))
            if stop == "orderly":
                await cluster.stop(victim)
            else:
                cluster.crash(victim) if stop == "kill" else cluster.lose_power(victim)
                paths = sorted(p for p in disk.content() if p.startswith("/data/t-0/") and p.endswith(".log"))
                for path in paths[-1:]:  # a loss of power may take all of them
                    disk.write(path, disk.read(path) + b"torn")
            told_before = len(cluster.history)
            full = disk.on_growth = NoRoom(number, times)
            with suppress(StartFailed):
                await cluster.start_broker(victim)
            if cluster.nodes[victim].is_up:
                ends["served"] += 1
                await trio.sleep(1)
                full.end()
            else:
                ends["refused"] += 1
                [why] = [line for line in cluster.history[told_before:] if f"broker-{victim} ended: " in line]
                assert "/data" in why and "space" in why
                full.end()
                await cluster.start_broker(victim)
            await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], f"{number} in sync")
            assert cluster.broker(victim).log_manager.may_have_lost_data == (stop == "power loss")
            if not full.refused:
                break
        assert min(ends.values()) > 0, ends
        await check_at_the_end(cluster, ledger)
