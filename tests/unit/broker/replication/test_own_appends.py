"""What a broker appends itself: one batch of a burst, and everybody is told once, however that ends."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.replication.partition import Partition
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import Codec, decode_records, scan
from support.replica_site import T0, T1, ReplicaSite, batch

NONE = ErrorCode.NONE


class Writer:
    """Appends to the group log, and keeps what it is told."""

    def __init__(self, site: ReplicaSite) -> None:
        self.site = site
        self.told: list[tuple[str, ErrorCode]] = []

    def append(self, *names: str, partition: Partition | None = None, size_bytes: int = 1) -> None:
        for name in names:
            records = [(name.encode(), b"v" * size_bytes)]
            self.site.data.group_log.append(partition or self.site.partition(), records, self.done(name))

    def done(self, name: str) -> Callable[[ErrorCode], None]:
        return lambda code: self.told.append((name, code))

    def flush(self) -> None:
        self.site.data.burst.end()

    def codes(self) -> list[ErrorCode]:
        return [code for _, code in self.told]


@pytest.fixture
def writer(site: ReplicaSite) -> Writer:
    return Writer(site)


def content(site: ReplicaSite, partition: Partition | None = None) -> bytes:
    log = (partition or site.partition()).log
    region = log.read(0, 2**30, log.log_end_offset)
    return region.file.pread(region.length, region.position) if region else b""


def batches(site: ReplicaSite) -> list[list[bytes | None]]:
    """The keys of each."""
    data = content(site)
    return [
        [record.key for record in decode_records(data[position : position + header.size_bytes])]
        for position, header in scan(data)
    ]


async def test_what_a_burst_appends_is_one_batch_and_counts_once_all_in_sync_have_it(
    site: ReplicaSite, writer: Writer, autojump_clock: MockClock
) -> None:
    await site.lead()
    writer.append("a", "b")
    writer.append("c")
    assert site.partition().log.log_end_offset == 0
    writer.flush()
    assert batches(site) == [[b"a", b"b", b"c"]] and writer.told == []
    site.follow(2, 3)
    assert writer.told == []
    site.follow(3, 3)
    assert writer.told == [("a", NONE), ("b", NONE), ("c", NONE)]


async def test_each_partition_has_its_own_batch_and_tombstones_and_the_time_stand_in_it(
    site: ReplicaSite, writer: Writer, autojump_clock: MockClock
) -> None:
    await site.lead()
    other = await site.lead(T1)
    site.data.group_log.append(site.partition(), [(b"k", None), (b"l", b"v")], writer.done("x"))
    writer.append("y", partition=other)
    writer.flush()
    records = decode_records(content(site))
    assert [(each.key, each.value) for each in records] == [(b"k", None), (b"l", b"v")]
    assert 0 <= site.environment.wall_clock.now_ms() - records[0].timestamp_ms < 1000
    assert [each.key for each in decode_records(content(site, other))] == [b"y"]


async def test_they_go_with_the_wave_of_producers(site: ReplicaSite, writer: Writer, autojump_clock: MockClock) -> None:
    await site.lead()
    writer.append("a")
    produced = site.produce((T0, batch()), acks=-1)
    site.follow(2, 2)
    site.follow(3, 2)
    assert writer.told == [("a", NONE)] and produced.outcomes[0].base_offset in (0, 1)


async def test_a_call_is_never_split_and_batches_are_bounded(
    site: ReplicaSite, writer: Writer, autojump_clock: MockClock
) -> None:
    site.topic["max.message.bytes"] = "1000"
    await site.lead(isr=(1, 2))
    writer.append("a", "b", "c", size_bytes=400)
    writer.append("much", size_bytes=5000)
    writer.append("d")
    writer.flush()
    assert batches(site) == [[b"a", b"b"], [b"c"], [b"d"]]
    assert writer.told == [("much", ErrorCode.MESSAGE_TOO_LARGE)]
    site.follow(2, 3)
    assert writer.told[1:] == [("a", NONE), ("b", NONE), ("c", NONE)]


async def test_the_codec_is_the_one_of_the_topic(autojump_clock: MockClock) -> None:
    site = ReplicaSite(config={"offsets.topic.compression.codec": "3"})
    await site.lead()
    writer = Writer(site)
    writer.append("a", size_bytes=1000)
    writer.flush()
    data = content(site)
    assert [header.codec for _, header in scan(data)] == [Codec.LZ4] and len(data) < 500


async def test_the_loss_of_leadership_ends_it(site: ReplicaSite, writer: Writer, autojump_clock: MockClock) -> None:
    await site.lead()
    writer.append("a")
    writer.flush()
    await site.follow_leader(epoch=1)
    assert writer.told == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def test_the_timeout_ends_it_and_a_later_commit_tells_nobody_again(
    site: ReplicaSite, writer: Writer, autojump_clock: MockClock
) -> None:
    await site.lead()
    writer.append("a")
    writer.flush()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        await trio.sleep(4.5)
        assert writer.told == []
        await trio.sleep(1)
        assert writer.told == [("a", ErrorCode.REQUEST_TIMED_OUT)]
        nursery.cancel_scope.cancel()
    site.follow(2, 1)
    site.follow(3, 1)
    assert len(writer.told) == 1


@pytest.mark.parametrize("is_led_on", [True, False])
async def test_who_wants_to_know_is_told_how_a_time_out_went_on(
    is_led_on: bool, site: ReplicaSite, writer: Writer, autojump_clock: MockClock
) -> None:
    await site.lead()
    partition = site.partition()
    site.data.group_log.append(partition, [(b"a", b"")], writer.done("a"), late=writer.done("a, late"))
    writer.append("b")
    writer.flush()
    site.data.deadlines.expire(trio.current_time() + 10)
    site.data.deadlines.expire(trio.current_time() + 100)
    assert writer.told == [("a", ErrorCode.REQUEST_TIMED_OUT), ("b", ErrorCode.REQUEST_TIMED_OUT)]
    writer.append("c")
    writer.flush()
    if is_led_on:
        site.follow(2, 3)
        site.follow(3, 3)
    else:
        await site.follow_leader(epoch=1)
    code = NONE if is_led_on else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert writer.told[2:] == [("a, late", code), ("c", code)]
    site.data.deadlines.expire(trio.current_time() + 1000)
    assert len(writer.told) == 4 and not partition.waiters.waiting


async def test_nothing_is_appended_by_who_does_not_lead_or_has_too_few_in_sync(
    site: ReplicaSite, writer: Writer, autojump_clock: MockClock
) -> None:
    await site.follow_leader()
    writer.append("a")
    writer.flush()
    await site.lead(epoch=1, isr=(1,))
    writer.append("b")
    writer.flush()
    assert writer.codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert site.partition().log.log_end_offset == 0


async def test_what_was_gathered_under_one_leadership_is_not_appended_under_the_next(
    site: ReplicaSite, writer: Writer, autojump_clock: MockClock
) -> None:
    partition = await site.lead()
    writer.append("a")
    partition.become_leader(site.state(epoch=1), 10.0, trio.current_time())
    writer.append("b")
    writer.flush()
    assert batches(site) == [[b"b"]]
    assert writer.told == [("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def test_a_disk_that_fails_ends_it(site: ReplicaSite, writer: Writer, autojump_clock: MockClock) -> None:
    await site.lead()
    site.disk.fail("pwritev", "*.log", errno.EIO)
    writer.append("a")
    writer.flush()
    assert writer.codes() == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_who_has_nothing_to_append_is_told_so_too(
    site: ReplicaSite, writer: Writer, autojump_clock: MockClock
) -> None:
    await site.lead()
    site.data.group_log.append(site.partition(), [], writer.done("nothing"))
    writer.flush()
    assert writer.told == [("nothing", NONE)] and batches(site) == []


async def test_who_is_told_may_append_again(site: ReplicaSite, writer: Writer, autojump_clock: MockClock) -> None:
    await site.lead()
    site.data.group_log.append(site.partition(), [(b"a", b"")], lambda _: writer.append("b"))
    writer.flush()
    site.follow(2, 1)
    site.follow(3, 1)
    writer.flush()
    assert batches(site) == [[b"a"], [b"b"]]


async def test_who_listens_hears_of_each_role_that_begins_or_ends(site: ReplicaSite, autojump_clock: MockClock) -> None:
    heard: list[bool | None] = []
    site.replicas.on_role_change(lambda each: heard.append(None if each.failed else each.leadership is not None))
    await site.lead()
    await site.follow_leader(epoch=1)
    await site.lead(epoch=2)
    site.replicas.partition_failed(site.partition(), OSError("broken"))
    assert heard == [True, False, True, None]
