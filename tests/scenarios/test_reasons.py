"""Whoever uses a partition is told in one line why a live broker does not serve its replica, and what helps."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import Any

import pytest

from strandline.client.errors import DeliveryTimeout, LeaderNotAvailable
from strandline.storage.disk.checkpoints import decode_topic_id, encode_topic_id
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.inspection import Ledger
from support.foreign import as_of_transaction, kafka_starts, kafka_stops, old_messages
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

FOLDER = f"/data/{T0}"
SMALL = {"log.segment.bytes": "300", "log.dirs": "/data,/more"}


def segments(disk: MemoryDisk) -> list[str]:
    return [f"{FOLDER}/{name}" for name in disk.listdir(FOLDER) if name.endswith(".log")]


def by_kafka(disk: MemoryDisk, path: str, content: bytes) -> None:
    for directory in ("/data", "/more"):
        kafka_starts(disk, directory)
    disk.write(path, content)
    for directory in ("/data", "/more"):
        kafka_stops(disk, directory)


def transactions(disk: MemoryDisk) -> None:
    path = segments(disk)[-1]
    by_kafka(disk, path, as_of_transaction(disk.read(path)))


def old_format(disk: MemoryDisk) -> None:
    first, second = segments(disk)[:2]
    by_kafka(disk, first, old_messages(0, int(second.rpartition("/")[2][:20]), 1))


def missing_segment(disk: MemoryDisk) -> None:
    disk.unlink(segments(disk)[1])


def two_directories(disk: MemoryDisk) -> None:
    disk.makedirs(f"/more/{T0}")
    for name in disk.listdir(FOLDER):
        disk.write(f"/more/{T0}/{name}", disk.read(f"{FOLDER}/{name}"))


def other_topic_id(disk: MemoryDisk) -> None:
    path = f"{FOLDER}/partition.metadata"
    head, _, text = disk.read(path).decode().partition("topic_id: ")
    topic_id = bytearray(decode_topic_id(text.strip()))
    topic_id[3] ^= 0x10
    disk.write(path, f"{head}topic_id: {encode_topic_id(bytes(topic_id))}\n".encode())


REFUSALS: dict[str, tuple[Callable[[MemoryDisk], None], str]] = {
    "transactions": (transactions, rf"{FOLDER} has a batch of a transaction at offset \d+.* move it out of log.dirs"),
    "an old format": (old_format, rf"{FOLDER} has a message of format 1 at offset 0.* move the folder out of log.dirs"),
    "a segment is missing": (missing_segment, rf"{FOLDER} was not loaded: .*; put the missing files back"),
    "two directories": (two_directories, f"{T0} lies in /data and in /more; move the outdated copy away"),
    "another topic id": (other_topic_id, rf"{FOLDER} has topic id .*: it was put aside as .* put it back as {FOLDER}"),
}


def refusals(cluster: MemoryCluster) -> dict[int, dict[int, str]]:
    """Live broker → what it tells of the partition's replicas."""
    found = {}
    for number, node in cluster.nodes.items():
        if node.is_up:
            state = cluster.broker(number).data.metadata.partition(*T0)
            found[number] = {} if state is None else {item.broker_id: item.why for item in state.refused_replicas}
    return found


def everybody_tells(cluster: MemoryCluster, brokers: list[int]) -> Callable[[], bool]:
    return lambda: all(list(told) == brokers for told in refusals(cluster).values())


async def restart_with(cluster: MemoryCluster, broker_id: int, refusal: Callable[[MemoryDisk], None]) -> None:
    await cluster.stop(broker_id)
    refusal(cluster.nodes[broker_id].disk)
    await cluster.start_broker(broker_id)


async def fill(producer: Any, ledger: Ledger) -> None:
    for record in numbered("before", 30):
        await ledger.produce(producer, T0, [record])


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_producer_and_consumer_of_a_partition_without_a_leader_learn_why(
    autojump_clock: Any, refusal: str
) -> None:
    refuse, words = REFUSALS[refusal]
    words = f"partition {T0} has no leader; broker 2 does not serve its replica: {words}"
    async with cluster_with_topic([2], min_insync_replicas=1, properties=SMALL) as (cluster, producer, ledger):
        await fill(producer, ledger)
        await restart_with(cluster, 2, refuse)
        await cluster.until(everybody_tells(cluster, [2]), "every broker knows")
        waits = cluster.broker(cluster.controller_id).controller.term.duties.waits
        assert "broker 2 does not serve its replica: " in waits.why(T0)
        async with cluster.producer(linger_ms=0, delivery_timeout_ms=3000, request_timeout_ms=1000) as client:
            delivery = await client.send(T0.topic, b"x", partition=0)
            with pytest.raises(DeliveryTimeout, match=words) as failed:
                await delivery
            assert isinstance(failed.value.cause, LeaderNotAvailable)
        async with cluster.consumer(default_api_timeout_ms=3000) as client:
            with pytest.raises(LeaderNotAvailable, match=words):
                await client.end_offsets([T0])
            await client.assign([T0])
            with pytest.raises(LeaderNotAvailable, match=words):
                await client.position(T0)
        async with cluster.admin() as admin:
            [deleted] = (await admin.delete_records({T0: -1}, timeout_ms=3000)).values()
            assert "does not serve its replica" in str(deleted)


@pytest.mark.parametrize("refusal", [name for name in REFUSALS if name != "another topic id"])
async def test_a_refused_follower_is_told_of_and_the_partition_goes_on(autojump_clock: Any, refusal: str) -> None:
    refuse, _ = REFUSALS[refusal]
    async with cluster_with_topic(properties=SMALL) as (cluster, producer, ledger):
        await fill(producer, ledger)
        await restart_with(cluster, 3, refuse)
        await cluster.until(everybody_tells(cluster, [3]), "every broker knows")
        for record in numbered("after", 10):
            await ledger.produce(producer, T0, [record])
        assert cluster.isr(T0) == [1, 2]
        async with cluster.admin() as admin:
            view = (await admin.describe_topics([T0.topic]))[T0.topic].partitions[0]
        assert view.leader == 1 and view.offline_replicas == ()
        assert list(view.refused_replicas) == [3]


async def test_a_disk_that_failed_is_a_reason_too(autojump_clock: Any) -> None:
    async with cluster_with_topic(properties=SMALL) as (cluster, producer, ledger):
        await fill(producer, ledger)
        cluster.nodes[1].disk.fail("pwritev", f"*/{T0}/*", errno.EIO)
        for record in numbered("after", 10):
            await ledger.produce(producer, T0, [record])
        await cluster.until(everybody_tells(cluster, [1]), "every broker knows")
        assert cluster.leader(T0) in (2, 3)
        for told in refusals(cluster).values():
            assert re.search(r"is offline: .*; free or replace the disk, then restart the broker", told[1])


async def test_a_reason_goes_with_the_broker_the_refusal_and_the_topic_and_a_new_controller_learns_it(
    autojump_clock: Any,
) -> None:
    async with cluster_with_topic(properties=SMALL) as (cluster, producer, ledger):
        await fill(producer, ledger)
        await restart_with(cluster, 3, missing_segment)
        await cluster.until(everybody_tells(cluster, [3]), "every broker knows")
        cluster.crash(1)
        cluster.expire_session(1)
        await cluster.until(lambda: cluster.controller_id in (2, 3), "a new controller")
        context = cluster.broker(cluster.controller_id).controller.term.context
        await cluster.until(lambda: (3, T0) in context.offline_replicas, "it knows")
        await cluster.until(everybody_tells(cluster, [3]), "every broker knows")
        await cluster.start_broker(1)
        await cluster.until(everybody_tells(cluster, [3]), "who was away, too")
        cluster.crash(3)
        cluster.expire_session(3)
        await cluster.until(everybody_tells(cluster, []), "of a broker that is gone nothing is known")
        disk = cluster.nodes[3].disk
        disk.rename(FOLDER, "/data/kept-by-the-operator")
        await cluster.start_broker(3)
        await check_at_the_end(cluster, ledger)
        assert not any(refusals(cluster).values())
        await restart_with(cluster, 3, missing_segment)
        await cluster.until(everybody_tells(cluster, [3]), "refused again")
        cluster.nodes[3].disk.rename(FOLDER, "/data/kept-once-more")
        async with cluster.admin() as admin:
            await cluster.stop(3)
            await cluster.start_broker(3)
            await admin.delete_topic(T0.topic)
        context = cluster.broker(cluster.controller_id).controller.term.context
        assert not context.offline_replicas


async def test_a_replica_that_is_well_again_counts_again(autojump_clock: Any) -> None:
    """Of another topic id, and the last one in the ISR: once nobody rests on it any more, it begins anew."""
    async with cluster_with_topic() as (cluster, producer, ledger):
        await fill(producer, ledger)
        for broker_id in (1, 2, 3):
            await cluster.stop(broker_id)
        other_topic_id(cluster.nodes[3].disk)
        await cluster.start_broker(3)
        await cluster.until(everybody_tells(cluster, [3]), "it is refused")
        for broker_id in (1, 2):
            await cluster.start_broker(broker_id)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2] and not cluster.state(T0).elr, "nobody rests on it")
        context = cluster.broker(cluster.controller_id).controller.term.context
        await cluster.until(lambda: sorted(context.states[T0].isr) == [1, 2], "the controller knows")
        assert everybody_tells(cluster, [3])()
        cluster.crash(1)
        cluster.expire_session(1)
        await cluster.until(lambda: cluster.isr(T0) == [2, 3], "it fetches and joins")
        assert not any(refusals(cluster).values())
        await cluster.start_broker(1)
        await check_at_the_end(cluster, ledger)
