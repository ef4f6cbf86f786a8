"""A bit flips in the committed middle of a leader: it is not served, leadership moves, it is fetched again."""

from __future__ import annotations

import pytest

from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

LEADER, FOLLOWER, NEWCOMER = 2, 3, 4
PAYLOAD_BYTE, EPOCH_BYTE = 70, 14


@pytest.mark.parametrize("byte", [PAYLOAD_BYTE, EPOCH_BYTE])
async def test_r20_what_a_newcomer_cannot_fetch_makes_the_leader_give_up_and_heal(autojump_clock, byte: int) -> None:
    replicas = [LEADER, FOLLOWER, NEWCOMER]
    async with cluster_with_topic(replicas, brokers=4) as (cluster, producer, ledger):
        cluster.crash(NEWCOMER)
        cluster.expire_session(NEWCOMER)
        await cluster.until(lambda: cluster.isr(T0) == [LEADER, FOLLOWER], "the one that is down has left the ISR")
        for record in numbered("m", 20):
            await ledger.produce(producer, T0, [record])
        disk = cluster.nodes[LEADER].disk
        path = f"/data/{T0}/{0:020d}.log"
        data = bytearray(disk.read(path))
        data[_start_of_batch(bytes(data), 7) + byte] ^= 0x20
        disk.write(path, bytes(data))
        await cluster.start_broker(NEWCOMER)
        await cluster.until(lambda: cluster.leads(FOLLOWER, T0), "the other in-sync replica leads")
        assert cluster.partition(LEADER, T0).failed
        await cluster.until(lambda: cluster.partition(NEWCOMER, T0).log.log_end_offset >= 20, "the newcomer has it all")
        await cluster.until(lambda: LEADER not in cluster.isr(T0), "the damaged replica is out of sync")
        cluster.crash(LEADER)
        await cluster.start_broker(LEADER)
        await check_at_the_end(cluster, ledger, replicas)


def _start_of_batch(data: bytes, number: int) -> int:
    position = 0
    for _ in range(number):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return position


async def test_f22_a_base_offset_that_no_crc_covers_makes_the_leader_give_up_and_heal(autojump_clock) -> None:
    replicas = [LEADER, FOLLOWER, 1]
    configs = {"segment.bytes": "2000", "index.interval.bytes": "150"}
    async with cluster_with_topic(replicas, configs=configs) as (cluster, producer, ledger):
        for record in numbered("m", 60):
            await ledger.produce(producer, T0, [record])
        log = cluster.partition(LEADER, T0).log
        cluster.broker(LEADER).log_manager.rebuilds.on_the_spot_bytes = 0
        (segment, *_) = log.segments
        index = segment.indexes.offset
        damaged, behind = index.positions[2], index.base_offset + index.relative_offsets[2] + 1
        segment.indexes.evict()
        disk = cluster.nodes[LEADER].disk
        data = bytearray(disk.read(f"{segment.path}.log"))
        data[damaged + 7] ^= 0x40
        disk.write(f"{segment.path}.log", bytes(data))
        async with cluster.consumer() as consumer:
            await consumer.assign([T0])
            consumer.seek(T0, behind)
            while await consumer.position(T0) < 60:
                await consumer.poll(timeout_ms=1000)
        await cluster.until(lambda: LEADER not in cluster.isr(T0), "the damaged replica is out of sync")
        cluster.crash(LEADER)
        await cluster.start_broker(LEADER)
        await check_at_the_end(cluster, ledger, replicas)


async def test_f22_a_damaged_index_is_built_anew_while_the_log_is_served_and_every_record_is_read(
    autojump_clock,
) -> None:
    async with cluster_with_topic([LEADER, FOLLOWER, 1], configs={"segment.bytes": "500"}) as (
        cluster,
        producer,
        ledger,
    ):
        for record in numbered("m", 40):
            await ledger.produce(producer, T0, [record])
        log = cluster.partition(LEADER, T0).log
        assert len(log.segments) > 4
        for segment in list(log.segments)[1:4]:
            segment.indexes.evict()
            cluster.nodes[LEADER].disk.write(f"{segment.path}.index", b"nonsense")
        damaged = list(log.segments)[1:4]
        cluster.broker(LEADER).log_manager.rebuilds.on_the_spot_bytes = 0
        await check_at_the_end(cluster, ledger, [LEADER, FOLLOWER, 1])
        assert all(segment.indexes.are_built for segment in damaged)
        assert cluster.broker(LEADER).log_manager.rebuilds.is_elsewhere, "not on the event loop"
