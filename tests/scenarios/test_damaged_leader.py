"""A leader's file is damaged where no CRC covers it, or its indexes are: every record is read all the same."""

from __future__ import annotations

from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

LEADER, FOLLOWER = 2, 3


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
