"""The consumer on a log that was compacted: empty batches, gaps, tombstones, delete horizons."""

from __future__ import annotations

import pytest
import trio

from strandline.client import TrioConsumer
from strandline.protocol.records import decode_records
from strandline.protocol.records.batch import read_header
from strandline.protocol.types import TopicPartition
from support.compacted import batches_of, compacted_log
from unit.client.fake_broker import FakeCluster

T0 = TopicPartition("t", 0)


def served(codec: str) -> tuple[FakeCluster, list[tuple[int, int, bytes | None, bytes | None]], int]:
    """(a cluster that has the log, its records, its end)."""
    _, log, kept = compacted_log(codec)
    cluster = FakeCluster()
    cluster.add_topic("t")
    for batch in batches_of(log):
        cluster.logs[T0].batches.append(batch)
        cluster.logs[T0].next_offsets.append(read_header(batch).next_offset)
    return cluster, [(each.offset, each.timestamp_ms, each.key, each.value) for each in kept], log.log_end_offset


def consumer(cluster: FakeCluster, fetch_bytes: int) -> TrioConsumer:
    return TrioConsumer(
        cluster.bootstrap,
        environment=cluster.environment(),
        auto_offset_reset="earliest",
        max_poll_records=3,
        max_partition_fetch_bytes=fetch_bytes,
    )


@pytest.mark.parametrize("fetch_bytes", [1, 400, 10**6])
@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_every_record_comes_once_and_the_position_reaches_the_end(
    codec: str, fetch_bytes: int, autojump_clock: object
) -> None:
    cluster, wanted, end = served(codec)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, fetch_bytes) as client:
            await client.assign([T0])
            began = trio.current_time()
            seen: list[tuple[int, int, bytes | None, bytes | None]] = []
            while await client.position(T0) < end:
                for records in (await client.poll(timeout_ms=1000)).values():
                    seen += [(each.offset, each.timestamp_ms, each.key, each.value) for each in records]
            assert seen == wanted
            assert trio.current_time() - began < 1, "it waited for something although there was more"
        nursery.cancel_scope.cancel()


async def test_from_any_offset_the_next_record_that_is_left_comes_first(autojump_clock: object) -> None:
    cluster, wanted, end = served("none")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, 1) as client:
            await client.assign([T0])
            for offset in range(0, end, 3):
                client.seek(T0, offset)
                first: list[int] = []
                while not first and await client.position(T0) < end:
                    first = [each.offset for each in (await client.poll(timeout_ms=1000)).get(T0, [])]
                assert first[:1] == [each[0] for each in wanted if each[0] >= offset][:1]
        nursery.cancel_scope.cancel()


async def test_undecoded_batches_go_on_over_empty_ones(autojump_clock: object) -> None:
    cluster, wanted, end = served("none")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, 1) as client:
            await client.assign([T0])
            seen: list[int] = []
            while await client.position(T0) < end:
                for fetched in await client.fetch_batches(timeout_ms=1000):
                    seen += [each.offset for each in decode_records(fetched.records) if each.offset >= fetched.position]
            assert seen == [each[0] for each in wanted]
        nursery.cancel_scope.cancel()
