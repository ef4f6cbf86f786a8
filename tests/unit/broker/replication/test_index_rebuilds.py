"""A damaged index of a log that is served: nobody waits for it on the event loop, and who asked gets what is there."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.broker.replication.index_rebuilds import IDLE_S, WAIT_S
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.protocol.records.batch import scan
from strandline.protocol.types import TopicPartition
from strandline.runtime.environment import NO_WORKER, ComputingFailed
from strandline.storage.errors import CorruptIndex
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.rebuilding import Rebuild
from strandline.storage.segments.segment import Segment
from support.replica_site import T0, T1, Hand, ReplicaSite, batch, in_hand

ALONE = {"replicas": (1,), "isr": (1,)}
FIRST_MS = 1000
RECORDS = 60
BUILD_S = 5.0


async def site_with(topic: dict[str, str] | None = None, **fields: Any) -> ReplicaSite:
    """Two partitions in two log directories that this broker leads alone, several segments each."""
    small = {"min.insync.replicas": "1", "segment.bytes": "1600", "index.interval.bytes": "200", **(topic or {})}
    site = ReplicaSite(config={"log.dirs": "/logs,/more"}, topic=small)
    states = {**ALONE, **fields}
    await site.order(site.state(T0, **states), site.state(T1, **states))
    for place in range(RECORDS):
        data = batch(timestamp_ms=FIRST_MS + place)
        site.produce((T0, data), (T1, data), acks=1)
    site.slow_computing(BUILD_S)
    site.logs.rebuilds.on_the_spot_bytes = 0
    return site


def damage(site: ReplicaSite, tp: TopicPartition = T0) -> tuple[Segment, int]:
    """Of a sealed segment; and an offset for which the wrong entry is used."""
    segment = list(site.partition(tp).log.segments)[1]
    segment.indexes.evict()
    path = f"{segment.path}.index"
    index = bytearray(site.disk.read(path))
    index[8 + 7] ^= 1
    site.disk.write(path, bytes(index))
    return segment, segment.base_offset + int.from_bytes(index[8:12], "big") + 1


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


def is_empty(hand: Hand) -> bool:
    return [(data.error_code, data.records_size) for data in hand.fetched] == [(0, -1)] and not hand.sent


async def test_a_fetch_waits_for_the_index_while_the_loop_serves_others_and_then_gets_its_records(
    autojump_clock: MockClock,
) -> None:
    site = await site_with()
    _, offset = damage(site)
    async with rebuilding(site):
        waiting = site.fetch((T0, offset), wait_ms=60_000)
        impatient = site.fetch((T0, offset))
        assert not waiting.is_answered and is_empty(impatient)
        other, tail = site.fetch((T1, offset)), site.fetch((T0, RECORDS - 1))
        assert first_offset(other) == offset and first_offset(tail) == RECORDS - 1
        site.produce((T0, batch()), acks=1)
        assert not waiting.is_answered
        await trio.sleep(BUILD_S + 0.1)
        assert first_offset(waiting) == offset
        assert first_offset(site.fetch((T0, offset))) == offset
        await trio.sleep(5 * BUILD_S)
    assert site.environment.computing.calls == 1  # type: ignore[attr-defined]


async def test_a_fetch_whose_time_is_over_first_is_answered_with_nothing(autojump_clock: MockClock) -> None:
    site = await site_with()
    _, offset = damage(site)
    async with rebuilding(site), trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        hand = site.fetch((T0, offset), wait_ms=1000)
        await trio.sleep(1.5)
        assert is_empty(hand)
        await trio.sleep(BUILD_S)
        assert first_offset(site.fetch((T0, offset))) == offset
        nursery.cancel_scope.cancel()


async def test_a_fetch_of_several_partitions_gets_what_the_others_have(autojump_clock: MockClock) -> None:
    site = await site_with()
    _, offset = damage(site)
    async with rebuilding(site):
        hand = site.fetch((T0, offset), (T1, offset), wait_ms=60_000)
        assert [(data.error_code, data.records_size > 0) for data in hand.fetched] == [(0, False), (0, True)]
        assert first_offset(hand) == offset


async def test_a_follower_waits_as_well_and_nobody_becomes_suspicious(autojump_clock: MockClock) -> None:
    site = await site_with(replicas=(1, 2), isr=(1, 2))
    _, offset = damage(site)
    async with rebuilding(site):
        for _ in range(9):
            assert is_empty(site.follow(2, offset))
            await site.run_submitted()
        hand = site.follow(2, offset, wait_ms=60_000)
        await trio.sleep(BUILD_S + 0.1)
        assert first_offset(hand) == offset
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


def ruin(site: ReplicaSite, *segments: Segment) -> None:
    """Their indexes cannot be loaded."""
    for segment in segments:
        segment.indexes.evict()
        segment.sealed_timestamp_ms = None
        for suffix in (".index", ".timeindex"):
            site.disk.write(segment.path + suffix, b"nonsense")


async def test_list_offsets_by_time_waits_for_one_index_after_the_other(autojump_clock: MockClock) -> None:
    site = await site_with()
    ruined = list(site.partition(T0).log.segments)[:3]
    ruin(site, *ruined)
    site.slow_computing(WAIT_S / 4)
    wanted = ruined[-1].base_offset + 1
    async with rebuilding(site):
        assert await by_time(site, FIRST_MS + wanted) == (0, wanted)
    assert trio.current_time() == pytest.approx(3 * WAIT_S / 4)


async def test_but_not_for_ever_and_is_told_to_ask_again(autojump_clock: MockClock) -> None:
    site = await site_with()
    (_, ruined, *_) = site.partition(T0).log.segments
    ruin(site, ruined)
    site.slow_computing(WAIT_S + 1)
    wanted = ruined.base_offset + 1
    async with rebuilding(site):
        assert await by_time(site, FIRST_MS + wanted) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert trio.current_time() == pytest.approx(WAIT_S)
        assert await by_time(site, FIRST_MS + wanted) == (0, wanted)


async def test_one_worker_does_all_that_comes_at_once_or_one_after_the_other(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await site_with()
    site.slow_computing(WAIT_S / 10)
    for place in range(RECORDS, 2 * RECORDS):
        site.produce((T0, batch(timestamp_ms=FIRST_MS + place)), acks=1)
    *ruined, _ = site.partition(T0).log.segments
    assert len(ruined) > 5
    ruin(site, *ruined)
    sessions: list[object] = []
    session = site.environment.computing.session
    monkeypatch.setattr(site.environment.computing, "session", lambda: sessions.append(0) or session())
    async with rebuilding(site):
        hands = [site.fetch((T0, segment.base_offset), wait_ms=60_000) for segment in ruined[:3]]
        await trio.sleep(WAIT_S)
        assert [first_offset(hand) for hand in hands] == [segment.base_offset for segment in ruined[:3]]
        wanted = ruined[-1].base_offset + 1
        assert await by_time(site, FIRST_MS + wanted) == (0, wanted)
        assert len(sessions) == 1
        await trio.sleep(IDLE_S + 0.1)
        ruin(site, ruined[0])
        site.fetch((T0, 0))
        await wait_all_tasks_blocked()
        assert len(sessions) == 2


async def test_an_index_of_a_small_segment_is_built_on_the_spot(autojump_clock: MockClock) -> None:
    site = await site_with()
    segment, offset = damage(site)
    site.logs.rebuilds.on_the_spot_bytes = segment.size_bytes
    async with rebuilding(site):
        assert first_offset(site.fetch((T0, offset))) == offset


async def test_who_asks_while_an_index_is_built_reads_nothing(autojump_clock: MockClock) -> None:
    """Each produce wakes the fetch, which would load and check the damaged index again."""
    site = await site_with()
    (_, ruined, *_) = site.partition(T0).log.segments
    ruin(site, ruined)
    async with rebuilding(site):
        hand = site.fetch((T0, ruined.base_offset), wait_ms=60_000)
        opened: list[str] = []
        site.disk.on_operation = lambda _, path: opened.append(path) if path.startswith(ruined.path) else None
        for _ in range(20):
            site.produce((T0, batch()), acks=1)
        assert opened == [] and not hand.is_answered
        site.disk.on_operation = None
        await trio.sleep(BUILD_S + 0.1)
        assert first_offset(hand) == ruined.base_offset


async def test_retention_leaves_the_log_out_until_the_next_round(autojump_clock: MockClock) -> None:
    site = await site_with({"retention.ms": "1000"})
    await trio.sleep(10)
    (_, segment, *_) = site.partition(T0).log.segments
    ruin(site, segment)
    checks = site.retention_checks()
    async with rebuilding(site):
        await checks.check_all()
        assert site.partition(T0).log.log_start_offset == segment.base_offset, "the first segment went"
        assert site.partition(T1).log.log_start_offset == RECORDS
        await trio.sleep(BUILD_S + 0.1)
        await checks.check_all()
        assert site.partition(T0).log.log_start_offset == RECORDS


async def test_compaction_leaves_the_log_out_until_then(autojump_clock: MockClock) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "1"}
    site = await site_with(compacted)
    site.logs.flush_all()  # nothing above a recovery point is compacted
    await trio.sleep(10)
    for tp in (T0, T1):
        segment, _ = damage(site, tp)
        segment.sealed_timestamp_ms = None
    first = site.partition(T0).log.segments.holding(0)
    second = site.partition(T0).log.segments.after(first)
    assert second is not None
    for suffix in (".index", ".timeindex"):
        site.disk.write(second.path + suffix, b"nonsense")
    cleaning = site.cleaning()
    async with rebuilding(site):
        chosen = await cleaning._choose(claim=False)
        assert chosen is not None and chosen.partition is site.partition(T1)
        await trio.sleep(BUILD_S + 0.1)
        assert second.sealed_timestamp_ms is None and second.indexes.are_built
    assert site.event_names().count("replica failed") == 0


async def test_each_directory_has_a_worker_of_its_own(autojump_clock: MockClock) -> None:
    site = await site_with()
    _, offset = damage(site, T0)
    damage(site, T1)
    delays = iter([10_000.0, 1.0])
    site.slow_computing(lambda: next(delays))
    async with rebuilding(site):
        stuck = site.fetch((T0, offset), wait_ms=60_000)
        await wait_all_tasks_blocked()
        served = site.fetch((T1, offset), wait_ms=60_000)
        await trio.sleep(1.1)
        assert first_offset(served) == offset and not stuck.is_answered


@pytest.mark.parametrize("happens", ["deleted", "follows", "disk fails", "head goes"])
async def test_what_happens_to_the_partition_meanwhile_comes_first(happens: str, autojump_clock: MockClock) -> None:
    site = await site_with()
    segment, offset = damage(site)
    index = site.disk.read(f"{segment.path}.index")
    async with rebuilding(site):
        hand = site.fetch((T0, offset), wait_ms=60_000)
        await trio.sleep(1)
        partition = site.partition()
        if happens == "deleted":
            site.stop(T0, delete=True)
            await site.lead(T0, is_new=True, epoch=1, **ALONE)
        elif happens == "follows":
            await site.follow_leader(T0, epoch=1)
        elif happens == "head goes":
            site.delete_records((T0, RECORDS))
            await site.retention_checks().check_all()
            assert site.fetch((T0, offset)).fetched[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            await trio.sleep(BUILD_S)
        else:
            site.replicas.partition_failed(partition, partition.log.fail("flushing failed", OSError(errno.EIO, "")))
            site.data.burst.end()
        (answer,) = hand.fetched
        assert answer.error_code and not hand.sent
        await trio.sleep(BUILD_S)
        if happens == "deleted":
            assert not site.disk.exists(f"{segment.path}.index") and not site.partition().failed
        elif happens == "head goes":
            assert not site.partition().failed and not site.disk.exists(f"{segment.path}.index")
        elif happens == "follows":
            assert segment.indexes.are_built
        else:
            assert site.disk.read(f"{segment.path}.index") == index


async def test_a_log_that_is_damaged_itself_is_given_up(autojump_clock: MockClock) -> None:
    site = await site_with()
    segment, offset = damage(site)
    data = bytearray(site.disk.read(f"{segment.path}.log"))
    data[8] ^= 0x40
    site.disk.write(f"{segment.path}.log", bytes(data))
    async with rebuilding(site):
        hand = site.fetch((T0, offset), wait_ms=60_000)
        await trio.sleep(BUILD_S + 0.1)
        assert [data.error_code for data in hand.fetched] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert site.partition().failed and not site.partition(T1).failed


@pytest.mark.parametrize("delta", [-3, 5])
async def test_a_log_with_a_damaged_base_offset_is_given_up_and_nothing_else(
    delta: int, autojump_clock: MockClock
) -> None:
    """No CRC covers it, and an index of such offsets would not rise."""
    site = await site_with()
    (_, segment, *_) = site.partition(T0).log.segments
    index = segment.indexes.offset
    position, behind = index.positions[1], index.base_offset + index.relative_offsets[1] + 1
    data = bytearray(site.disk.read(f"{segment.path}.log"))
    base_offset = int.from_bytes(data[position : position + 8], "big")
    data[position : position + 8] = (base_offset + delta).to_bytes(8, "big")
    site.disk.write(f"{segment.path}.log", bytes(data))
    segment.indexes.evict()
    _, offset = damage(site, T1)
    async with rebuilding(site):
        hand = site.fetch((T0, behind), wait_ms=60_000)
        other = site.fetch((T1, offset), wait_ms=60_000)
        await trio.sleep(2 * BUILD_S + 0.1)
        assert [data.error_code for data in hand.fetched] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert site.partition(T0).failed and not site.partition(T1).failed
        assert first_offset(other) == offset


@pytest.mark.parametrize("where", ["worker", "event loop"])
async def test_a_log_of_which_no_index_can_be_made_is_given_up_at_once(
    where: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await site_with()
    segment, offset = damage(site)
    index = site.disk.read(f"{segment.path}.index")

    def refuse(*_: object) -> None:
        raise CorruptIndex("the entries do not rise")

    monkeypatch.setattr(*((OffsetIndex, "check") if where == "worker" else (Rebuild, "take_over")), refuse)
    segment.indexes.evict()
    async with rebuilding(site):
        hand = site.fetch((T0, offset), wait_ms=60_000)
        await trio.sleep(BUILD_S + 0.1)
        assert [data.error_code for data in hand.fetched] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert site.partition().failed and "the entries do not rise" in str(site.partition().log.failure)
        await trio.sleep(10 * BUILD_S)
    assert site.environment.computing.calls == 1  # type: ignore[attr-defined]
    assert site.disk.read(f"{segment.path}.index") == index


async def test_a_disk_that_cannot_be_read_is_given_up(autojump_clock: MockClock) -> None:
    site = await site_with()
    segment, offset = damage(site)
    async with rebuilding(site):
        hand = site.fetch((T0, offset), wait_ms=60_000)
        site.disk.fail("pread", f"{segment.path}.log", errno.EIO)
        await trio.sleep(BUILD_S + 0.1)
        assert [data.error_code for data in hand.fetched] == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert site.partition().failed


async def test_a_worker_that_cannot_be_started_is_tried_again_a_second_later(autojump_clock: MockClock) -> None:
    site = await site_with()
    _, offset = damage(site)
    failures = [ComputingFailed("build", NO_WORKER, "no memory")] * 2

    def delay_s() -> float:
        if failures:
            raise failures.pop()
        return 0.5

    site.slow_computing(delay_s)
    async with rebuilding(site):
        hand = site.fetch((T0, offset), wait_ms=60_000)
        await trio.sleep(1.9)
        assert not hand.is_answered and not site.partition().failed
        await trio.sleep(1.9)
        assert first_offset(hand) == offset


async def test_lacking_descriptors_fail_nothing(autojump_clock: MockClock) -> None:
    site = await site_with()
    segment, offset = damage(site)
    async with rebuilding(site):
        hand = site.fetch((T0, offset), wait_ms=60_000)
        site.disk.fail("open", f"{segment.path}.log", errno.EMFILE, times=1)
        await trio.sleep(2 * BUILD_S + 2)
        assert first_offset(hand) == offset and not site.partition().failed


async def test_where_nobody_runs_them_an_index_is_built_on_the_spot(autojump_clock: MockClock) -> None:
    site = await site_with()
    _, offset = damage(site)
    async with rebuilding(site):
        pass
    assert first_offset(site.fetch((T0, offset))) == offset
