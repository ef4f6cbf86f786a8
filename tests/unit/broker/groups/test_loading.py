"""Loading groups from the log of a partition: what is found, when it counts, and that it always ends."""

from __future__ import annotations

import errno

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.broker.groups.loading import HERE_BYTES, LoadedGroups
from strandline.protocol.group_records import (
    CommittedOffset,
    GroupMember,
    GroupMetadata,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from strandline.protocol.records import assign_offset, build_batch
from strandline.runtime.environment import NO_WORKER, ComputingFailed
from strandline.testkit.environment import InlineBlocking, InlineComputing
from support.replica_site import T0, T1, ReplicaSite

GROUP = GroupMetadata("g", "consumer", 3, "range", "m", 1000, [GroupMember("m", None, "c", "/h", 1, 2, b"sub", b"ass")])


def commit(offset: int, partition: int = 0, group: str = "g", note: str = "") -> tuple[bytes, bytes | None]:
    return offset_key(group, "t", partition), offset_value(CommittedOffset(offset, -1, note, 1000))


def add(site: ReplicaSite, *records: tuple[bytes, bytes | None], codec: str = "none") -> None:
    """One batch, in all replicas."""
    site.produce((T0, build_batch([(1000, key, value) for key, value in records], codec)), acks=1)
    follow(site)


def follow(site: ReplicaSite) -> None:
    end = site.partition().log.log_end_offset
    site.follow(2, end)
    site.follow(3, end)


async def load(site: ReplicaSite) -> LoadedGroups | None:
    return await site.data.group_loader.load(site.partition())


def offsets_of(groups: LoadedGroups | None, group: str = "g") -> dict[int, int]:
    assert groups is not None
    return {partition: committed.offset for partition, committed in groups[group].offsets.get("t", {}).items()}


async def test_groups_and_offsets_are_found_over_many_regions(autojump_clock: MockClock) -> None:
    site = ReplicaSite(config={"offsets.load.buffer.size": "100"}, topic={"segment.bytes": "1000"})
    await site.lead()
    for number in range(30):
        add(site, commit(number, number % 3), codec=("none", "gzip", "lz4")[number % 3])
    add(site, (group_key("g"), group_value(GROUP)), (offset_key("g", "t", 1), None))
    add(site, commit(7, group="simple"))
    groups = await load(site)
    assert groups is not None and list(groups) == ["g", "simple"]
    assert offsets_of(groups) == {0: 27, 2: 29} and groups["g"].metadata == GROUP
    assert offsets_of(groups, "simple") == {0: 7} and groups["simple"].metadata is None


async def test_what_was_removed_is_not_there(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    add(site, commit(1), (group_key("g"), group_value(GROUP)), commit(1, group="h"))
    add(site, (offset_key("g", "t", 0), None), (group_key("g"), None), (group_key("h"), None))
    groups = await load(site)
    assert groups is not None and list(groups) == ["h"]


async def test_an_empty_log_is_loaded_at_once(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    assert await load(site) == {}


async def test_a_handful_of_groups_needs_no_worker_and_much_does(site: ReplicaSite, autojump_clock: MockClock) -> None:
    computing = site.environment.computing
    assert isinstance(computing, InlineComputing)
    await site.lead()
    add(site, commit(1))
    assert offsets_of(await load(site)) == {0: 1} and computing.calls == 0
    add(site, *[commit(2, number, note="x" * 100) for number in range(HERE_BYTES // 100)])
    assert len(offsets_of(await load(site))) == HERE_BYTES // 100 and computing.calls == 1


async def test_a_record_larger_than_the_buffer_is_read(autojump_clock: MockClock) -> None:
    site = ReplicaSite(config={"offsets.load.buffer.size": "1"})
    await site.lead()
    add(site, commit(1, note="x" * 30_000))
    add(site, commit(2, 1))
    assert offsets_of(await load(site)) == {0: 1, 1: 2}


async def test_records_that_cannot_be_read_are_reported_and_the_others_count(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    add(site, commit(1), (b"", b""), commit(2, 1), (offset_key("g", "t", 0), b"\0\3"))
    assert offsets_of(await load(site)) == {0: 1, 1: 2}
    (entry,) = [each for each in site.events.entries if each["event"] == "records of groups skipped"]
    assert entry["records"] == 2 and entry["partition"] == "t-0" and "offset 1" in entry["why"]


# --- when it counts --------------------------------------------------------------------------------------------------


async def loading(site: ReplicaSite, results: list[LoadedGroups | None]) -> None:
    results.append(await load(site))


async def test_it_counts_once_the_high_watermark_is_where_the_log_ended(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    site.produce((T0, build_batch([(1000, *commit(1))])), acks=1)
    results: list[LoadedGroups | None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loading, site, results)
        await wait_all_tasks_blocked()
        site.follow(2, 1)
        await wait_all_tasks_blocked()
        assert not results
        site.follow(3, 1)
    assert offsets_of(results[0]) == {0: 1}


async def test_a_leadership_that_ends_meanwhile_gives_nothing(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    site.produce((T0, build_batch([(1000, *commit(1))])), acks=1)
    results: list[LoadedGroups | None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loading, site, results)
        await wait_all_tasks_blocked()
        await site.follow_leader(epoch=1)
        await wait_all_tasks_blocked()
        assert results == [None]
        assert await load(site) is None
        await site.lead(epoch=2)
        nursery.start_soon(loading, site, results)
        await wait_all_tasks_blocked()
        follow(site)
    assert offsets_of(results[1]) == {0: 1}


async def test_it_ends_where_the_leadership_ends_while_it_reads(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    add(site, commit(1))
    assert isinstance(site.environment.blocking, InlineBlocking)
    site.environment.blocking.delay_s = 5.0
    results: list[LoadedGroups | None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loading, site, results)
        await wait_all_tasks_blocked()
        await site.follow_leader(epoch=1)
        site.partition().restart_at(0)
    assert results == [None]


async def test_what_is_appended_meanwhile_is_not_waited_for(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    add(site, commit(1))
    assert isinstance(site.environment.blocking, InlineBlocking)
    site.environment.blocking.delay_s = 5.0
    results: list[LoadedGroups | None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loading, site, results)
        await wait_all_tasks_blocked()
        site.produce((T0, build_batch([(1000, *commit(2))])), acks=1)
    assert offsets_of(results[0]) == {0: 1}


# --- when something is wrong -----------------------------------------------------------------------------------------


def damage(site: ReplicaSite, position: int) -> None:
    file = site.partition().log.segments.active.file.get()
    byte = file.pread(1, position)[0]
    file.pwritev([bytes([byte ^ 0x55])], position)


@pytest.mark.parametrize("position", [8, 30, 65])
async def test_a_damaged_batch_makes_the_log_go_offline(
    site: ReplicaSite, position: int, autojump_clock: MockClock
) -> None:
    await site.lead()
    add(site, commit(1))
    start = site.partition().log.size_bytes
    add(site, commit(2))
    damage(site, start + position)
    assert await load(site) is None
    assert site.partition().failed


async def test_a_disk_that_cannot_be_read_ends_it(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    add(site, commit(1))
    site.disk.fail("pread", "*.log", errno.EIO)
    assert await load(site) is None
    assert site.partition().failed


async def test_it_waits_for_a_worker_where_none_can_be_started(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    add(site, *[commit(2, number, note="x" * 100) for number in range(HERE_BYTES // 100)])
    failures = [ComputingFailed("job", NO_WORKER, "no memory")] * 3

    def fail() -> float:
        if failures:
            raise failures.pop()
        return 0.0

    site.slow_computing(fail)
    before = trio.current_time()
    assert len(offsets_of(await load(site))) == HERE_BYTES // 100
    assert trio.current_time() - before >= 3 and not failures


async def test_a_log_start_that_rises_meanwhile_is_where_it_goes_on(autojump_clock: MockClock) -> None:
    site = ReplicaSite(config={"offsets.load.buffer.size": "1"}, topic={"segment.bytes": "200"})
    await site.lead()
    for number in range(10):
        add(site, commit(number, number, note="x" * 100))
    assert isinstance(site.environment.blocking, InlineBlocking)
    site.environment.blocking.delay_s = 1.0
    results: list[LoadedGroups | None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loading, site, results)
        await wait_all_tasks_blocked()
        site.delete_records((T0, 8))
    assert {8, 9} <= offsets_of(results[0]).keys() and 5 not in offsets_of(results[0])


async def test_gaps_that_compaction_left_are_passed_over(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.follow_leader()
    for offset, first in ((1, 3), (2, 10), (3, 50)):
        batch = bytearray(build_batch([(1000, *commit(offset, offset))]))
        assign_offset(batch, first, 0)
        partition.append_fetched(memoryview(batch), 0)
    await site.lead(epoch=1)
    results: list[LoadedGroups | None] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loading, site, results)
        await wait_all_tasks_blocked()
        follow(site)
    assert offsets_of(results[0]) == {1: 1, 2: 2, 3: 3}


async def test_a_disk_that_does_not_answer_keeps_no_other_waiting(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    await site.lead()
    await site.lead(T1)
    add(site, commit(1))
    site.produce((T1, build_batch([(1000, *commit(2))])), acks=1)
    site.follow(2, 1, T1)
    site.follow(3, 1, T1)
    site.hang_disk("/logs")
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(loading, site, [])
        await wait_all_tasks_blocked()
        assert offsets_of(await site.data.group_loader.load(site.partition(T1))) == {0: 2}
        nursery.cancel_scope.cancel()
