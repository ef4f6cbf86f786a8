"""An index that cannot be loaded while its log is served: who needs it asks again, and nobody else notices."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.protocol.records.batch import scan
from strandline.protocol.types import TopicPartition
from strandline.storage.segments import indexes
from strandline.storage.segments.segment import Segment
from strandline.testkit.environment import InlineBlocking
from support.replica_site import T0, T1, Hand, ReplicaSite, batch, in_hand

ALONE = {"replicas": (1,), "isr": (1,)}
FIRST_MS = 1000
RECORDS = 60
SLICE_S = 1.0
"""So long a slice takes to come from the disk."""


async def site_with(topic: dict[str, str] | None = None, **fields: Any) -> ReplicaSite:
    """Two partitions in two log directories that this broker leads alone, several segments each."""
    small = {"min.insync.replicas": "1", "segment.bytes": "1600", "index.interval.bytes": "200", **(topic or {})}
    site = ReplicaSite(config={"log.dirs": "/logs,/more"}, topic=small)
    states = {**ALONE, **fields}
    await site.order(site.state(T0, **states), site.state(T1, **states))
    for place in range(RECORDS):
        data = batch(timestamp_ms=FIRST_MS + place)
        site.produce((T0, data), (T1, data), acks=1)
    site.logs.rebuilds.on_the_spot_bytes = 0
    assert isinstance(site.environment.blocking, InlineBlocking)
    site.environment.blocking.delay_s = SLICE_S
    return site


def ruin(site: ReplicaSite, tp: TopicPartition = T0, number: int = 1) -> Segment:
    """The indexes of this sealed segment cannot be loaded."""
    segment = list(site.partition(tp).log.segments)[number]
    segment.indexes.evict()
    segment.sealed_timestamp_ms = None
    for suffix in (".index", ".timeindex"):
        site.disk.write(segment.path + suffix, b"nonsense")
    return segment


@asynccontextmanager
async def rebuilding(site: ReplicaSite) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.rebuilds.run)
        await wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


def first_offset(hand: Hand) -> int:
    (data,) = hand.sent
    return next(scan(data))[1].base_offset


def is_told_to_retry(hand: Hand) -> bool:
    return [data.error_code for data in hand.fetched] == [ErrorCode.KAFKA_STORAGE_ERROR] and not hand.sent


async def test_a_fetch_is_to_be_tried_again_and_gets_its_records_once_the_index_is_built(
    autojump_clock: MockClock,
) -> None:
    site = await site_with()
    segment = ruin(site)
    offset = segment.base_offset
    async with rebuilding(site):
        for _ in range(3):
            assert is_told_to_retry(site.fetch((T0, offset), wait_ms=60_000))
        assert [site.disk.exists(path) for path in segment.file_paths()] == [True, False, False], "nobody believes them"
        assert first_offset(site.fetch((T1, offset))) == offset and first_offset(site.fetch((T0, 0))) == 0
        assert first_offset(site.fetch((T0, RECORDS - 1))) == RECORDS - 1
        await trio.sleep(SLICE_S + 0.1)
        assert first_offset(site.fetch((T0, offset))) == offset
    assert site.environment.blocking.calls == 1  # type: ignore[attr-defined]
    assert not site.partition().failed and all(map(site.disk.exists, segment.file_paths()))


async def test_between_the_slices_the_loop_serves_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "SLICE_BYTES", 300)
    site = await site_with()
    offset = ruin(site).base_offset
    async with rebuilding(site):
        for _ in range(4):
            assert is_told_to_retry(site.fetch((T0, offset)))
            assert first_offset(site.fetch((T1, offset))) == offset
            await trio.sleep(SLICE_S)
        await trio.sleep(10 * SLICE_S)
        assert first_offset(site.fetch((T0, offset))) == offset


async def test_one_is_built_at_a_time_in_each_log_directory(autojump_clock: MockClock) -> None:
    site = await site_with()
    lost = {number: ruin(site, T0, number) for number in (1, 2)}
    elsewhere = ruin(site, T1)
    async with rebuilding(site):
        for tp, segment in ((T0, lost[1]), (T0, lost[2]), (T1, elsewhere)):
            assert is_told_to_retry(site.fetch((tp, segment.base_offset)))
        await trio.sleep(SLICE_S + 0.1)
        built = [site.disk.exists(segment.file_paths()[1]) for segment in lost.values()]
        assert sorted(built) == [False, True] and site.disk.exists(elsewhere.file_paths()[1])
        await trio.sleep(SLICE_S)
        assert all(site.disk.exists(segment.file_paths()[1]) for segment in lost.values())


async def test_a_fetch_of_several_partitions_gets_what_the_others_have(autojump_clock: MockClock) -> None:
    site = await site_with()
    offset = ruin(site).base_offset
    async with rebuilding(site):
        hand = site.fetch((T0, offset), (T1, offset), wait_ms=60_000)
        assert [bool(data.error_code) for data in hand.fetched] == [True, False]
        assert first_offset(hand) == offset


async def test_a_follower_tries_again_as_well_and_nobody_becomes_suspicious(autojump_clock: MockClock) -> None:
    site = await site_with(replicas=(1, 2), isr=(1, 2))
    offset = ruin(site).base_offset
    async with rebuilding(site):
        for _ in range(9):
            assert is_told_to_retry(site.follow(2, offset))
            await site.run_submitted()
        await trio.sleep(SLICE_S + 0.1)
        assert first_offset(site.follow(2, offset, wait_ms=60_000)) == offset
    assert not site.partition().failed and "replica failed" not in site.event_names()


async def by_time(site: ReplicaSite, timestamp_ms: int) -> tuple[int, int]:
    """(error, offset)."""
    queries = site.queries()
    hand = Hand(ListOffsetsRequest([ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp_ms)])]))
    remainder = queries.list_offsets(in_hand(hand))
    assert remainder is not None
    await remainder()
    ((answer,),) = [topic.partitions for topic in hand.answer.topics]
    return answer.error_code, answer.offset


async def test_list_offsets_by_time_is_to_be_tried_again(autojump_clock: MockClock) -> None:
    site = await site_with()
    wanted = ruin(site).base_offset + 1
    async with rebuilding(site):
        assert await by_time(site, FIRST_MS + wanted) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        await trio.sleep(SLICE_S + 0.1)
        assert await by_time(site, FIRST_MS + wanted) == (0, wanted)


async def test_retention_leaves_the_log_out_until_the_next_round(autojump_clock: MockClock) -> None:
    site = await site_with({"retention.ms": "1000"})
    await trio.sleep(10)
    segment = ruin(site)
    checks = site.retention_checks()
    async with rebuilding(site):
        await checks.check_all()
        assert site.partition(T0).log.log_start_offset == segment.base_offset, "the first segment went"
        assert site.partition(T1).log.log_start_offset == RECORDS
        await trio.sleep(SLICE_S + 0.1)
        await checks.check_all()
        assert site.partition(T0).log.log_start_offset == RECORDS


async def test_compaction_leaves_the_log_out_until_then(autojump_clock: MockClock) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "1"}
    site = await site_with(compacted)
    site.logs.flush_all()  # nothing above a recovery point is compacted
    await trio.sleep(10)
    segment = ruin(site)
    cleaning = site.cleaning()
    async with rebuilding(site):
        chosen = await cleaning._choose(claim=False)
        assert chosen is not None and chosen.partition is site.partition(T1)
        await trio.sleep(SLICE_S + 0.1)
        assert segment.indexes.are_built
    assert site.event_names().count("replica failed") == 0


async def test_a_disk_that_does_not_answer_holds_up_its_own_indexes_only(autojump_clock: MockClock) -> None:
    site = await site_with()
    ruin(site, T0)
    offset = ruin(site, T1).base_offset
    site.hang_disk("/logs")
    async with rebuilding(site):
        assert is_told_to_retry(site.fetch((T0, offset))) and is_told_to_retry(site.fetch((T1, offset)))
        await trio.sleep(SLICE_S + 0.1)
        assert is_told_to_retry(site.fetch((T0, offset))) and first_offset(site.fetch((T1, offset))) == offset


@pytest.mark.parametrize("happens", ["deleted", "follows", "disk fails", "head goes"])
async def test_what_happens_to_the_partition_meanwhile_comes_first(happens: str, autojump_clock: MockClock) -> None:
    site = await site_with()
    segment = ruin(site)
    async with rebuilding(site):
        assert is_told_to_retry(site.fetch((T0, segment.base_offset)))
        if happens == "deleted":
            site.stop(T0, delete=True)
            await site.lead(T0, is_new=True, epoch=1, **ALONE)
        elif happens == "follows":
            await site.follow_leader(T0, epoch=1)
        elif happens == "head goes":
            site.delete_records((T0, RECORDS))
            await site.retention_checks().check_all()
        else:
            failure = site.partition().log.fail("flushing failed", OSError(errno.EIO, ""))
            site.replicas.partition_failed(site.partition(), failure)
        await trio.sleep(SLICE_S + 0.1)
        assert site.partition().failed == (happens == "disk fails")
        assert site.disk.exists(f"{segment.path}.index") == segment.indexes.are_built == (happens == "follows")


async def test_a_log_that_is_damaged_itself_is_given_up_and_nothing_else(autojump_clock: MockClock) -> None:
    site = await site_with()
    segment = ruin(site)
    data = bytearray(site.disk.read(f"{segment.path}.log"))
    data[8] ^= 0x40
    site.disk.write(f"{segment.path}.log", bytes(data))
    async with rebuilding(site):
        site.fetch((T0, segment.base_offset))
        waiting = site.fetch((T0, RECORDS), wait_ms=60_000)
        await trio.sleep(SLICE_S + 0.1)
        assert is_told_to_retry(waiting)
        assert site.partition().failed and not site.partition(T1).failed


async def test_a_disk_that_cannot_be_read_is_given_up(autojump_clock: MockClock) -> None:
    site = await site_with()
    segment = ruin(site)
    async with rebuilding(site):
        site.fetch((T0, segment.base_offset))
        site.disk.fail("pread", f"{segment.path}.log", errno.EIO)
        await trio.sleep(SLICE_S + 0.1)
        assert site.partition().failed


async def test_lacking_descriptors_fail_nothing(autojump_clock: MockClock) -> None:
    site = await site_with()
    segment = ruin(site)
    offset = segment.base_offset
    async with rebuilding(site):
        site.fetch((T0, offset))
        segment.file.evict()
        site.disk.fail("open", f"{segment.path}.index", errno.EMFILE, times=1)
        await trio.sleep(SLICE_S + 0.1)
        assert not site.partition().failed
        site.fetch((T0, offset))
        await trio.sleep(SLICE_S + 0.1)
        assert first_offset(site.fetch((T0, offset))) == offset


async def test_an_index_of_a_small_segment_is_built_on_the_spot(autojump_clock: MockClock) -> None:
    site = await site_with()
    segment = ruin(site)
    site.logs.rebuilds.on_the_spot_bytes = segment.size_bytes
    async with rebuilding(site):
        assert first_offset(site.fetch((T0, segment.base_offset))) == segment.base_offset


async def test_where_nobody_runs_them_an_index_is_built_on_the_spot(autojump_clock: MockClock) -> None:
    site = await site_with()
    offset = ruin(site).base_offset
    async with rebuilding(site):
        pass
    assert first_offset(site.fetch((T0, offset))) == offset
