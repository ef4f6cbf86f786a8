"""The consumer against scripted brokers: positions, leader changes, truncation, errors, flow."""

from __future__ import annotations

import itertools

import pytest
import trio

from strandline.client import TrioConsumer
from strandline.client.errors import (
    ClientClosed,
    CorruptRecords,
    LogTruncated,
    NotAssigned,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
)
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import FetchRequest, OffsetForLeaderEpochRequest
from strandline.protocol.records import decode_columns
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def consumer(cluster: FakeCluster, **settings: object) -> TrioConsumer:
    defaults: dict[str, object] = {"auto_offset_reset": "earliest"}
    return TrioConsumer(cluster.bootstrap, environment=cluster.environment(), **{**defaults, **settings})


async def read(client: TrioConsumer, count: int, timeout_ms: float = 30_000) -> list[bytes | None]:
    """At least `count` values, or what came within the time."""
    values: list[bytes | None] = []
    deadline = trio.current_time() + timeout_ms / 1000
    while len(values) < count and trio.current_time() < deadline:
        polled = await client.poll(timeout_ms=(deadline - trio.current_time()) * 1000)
        values += [record.value for records in polled.values() for record in records]
    return values


async def test_everything_is_read_in_order_with_offsets_and_positions(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t", 2)
    for part in range(20):
        for partition in (T0, T1):
            cluster.fill(partition, [b"%d-%d" % (part, i) for i in range(30)])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, max_poll_records=17, max_partition_fetch_bytes=2000) as client:
            await client.assign([T0, T1])
            seen: dict[TopicPartition, list[int]] = {T0: [], T1: []}
            while sum(map(len, seen.values())) < 1200:
                polled = await client.poll(timeout_ms=10_000)
                assert 0 < sum(map(len, polled.values())) <= 17
                for partition, records in polled.items():
                    seen[partition] += [record.offset for record in records]
                    assert await client.position(partition) == records[-1].offset + 1
                    assert {(record.topic, record.partition) for record in records} == {partition}
            assert seen == {T0: list(range(600)), T1: list(range(600))}
            assert client.high_watermark(T0) == 600
            assert await client.poll(timeout_ms=1500) == {}
        nursery.cancel_scope.cancel()


async def test_seek_reset_and_offset_lookups(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.fill(T0, [b"%d" % i for i in range(10)])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, auto_offset_reset="latest") as client:
            assert await client.partitions_for_topic("t") == [0]
            assert await client.beginning_offsets([T0]) == {T0: 0}
            assert await client.end_offsets([T0]) == {T0: 10}
            found = await client.offsets_for_times({T0: 1004})
            assert found[T0] is not None
            assert found[T0][:2] == (4, 1004)
            assert await client.offsets_for_times({T0: 99_999}) == {T0: None}
            await client.assign([T0])
            assert await client.position(T0) == 10
            client.seek(T0, 7)
            assert await read(client, 3) == [b"7", b"8", b"9"]
            client.seek_to_beginning()
            assert (await read(client, 10))[:2] == [b"0", b"1"]
            client.seek_to_end(T0)
            assert await client.position(T0) == 10
            with pytest.raises(NotAssigned, match="assign first"):
                client.seek(T1, 0)
            with pytest.raises(ValueError, match="negative"):
                client.seek(T0, -2)
        nursery.cancel_scope.cancel()


async def test_a_seek_in_the_middle_of_a_batch_hands_out_the_rest_of_it_only(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.fill(T0, [b"a", b"b", b"c"])
    cluster.fill(T0, [b"d"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign([T0])
            client.seek(T0, 2)
            assert await read(client, 2) == [b"c", b"d"]
            client.seek(T0, 1)
            chunk = (await client.fetch_batches(timeout_ms=1000))[0]
            assert (chunk.position, chunk.next_offset, chunk.high_watermark) == (1, 4, 4)
            assert decode_columns(chunk.records).offsets == [0, 1, 2, 3]
            assert await client.position(T0) == 4
        nursery.cancel_scope.cancel()


async def test_nothing_at_or_above_the_high_watermark_is_handed_out(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.fill(T0, [b"committed"])
    cluster.fill(T0, [b"not yet"])
    cluster.logs[T0].high_watermark = 1
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign([T0])
            assert await read(client, 2, timeout_ms=3000) == [b"committed"]
            cluster.logs[T0].high_watermark = 2
            assert await read(client, 1) == [b"not yet"]
            cluster.logs[T0].high_watermark = 1
            await client.poll(timeout_ms=2000)
            assert client.high_watermark(T0) == 2, "it never goes back"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Fault(error=ErrorCode.FENCED_LEADER_EPOCH),
        Fault(error=ErrorCode.UNKNOWN_LEADER_EPOCH),
        Fault(error=ErrorCode.OFFSET_NOT_AVAILABLE),
        Fault(error=ErrorCode.KAFKA_STORAGE_ERROR),
        Fault(close=True),
        Fault(hang=True),
    ],
)
async def test_passing_trouble_only_costs_time(autojump_clock: object, fault: Fault) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    for i in range(5):
        cluster.fill(T0, [b"%d" % i])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            cluster.brokers[0].faults[api].extend([fault, fault])
        async with consumer(cluster, request_timeout_ms=1000) as client:
            await client.assign([T0])
            assert await read(client, 5) == [b"%d" % i for i in range(5)]
        nursery.cancel_scope.cancel()


async def test_a_leader_change_is_followed_after_the_epoch_was_checked(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    cluster.fill(T0, [b"a"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign([T0])
            assert await read(client, 1) == [b"a"]
            cluster.brokers[0].kill()
            cluster.move(T0, -1)
            assert await client.poll(timeout_ms=2000) == {}
            cluster.move(T0, 1)
            cluster.fill(T0, [b"b"])
            assert await read(client, 1) == [b"b"]
            checks = cluster.brokers[1].seen(OffsetForLeaderEpochRequest)
            assert len(checks) == 1
        nursery.cancel_scope.cancel()


async def test_a_leader_that_stands_still_is_left_once_another_one_leads(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    cluster.fill(T0, [b"a"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign([T0])
            assert await read(client, 1) == [b"a"]
            cluster.brokers[0].faults[ApiKey.FETCH].append(Fault(hang=True))
            await trio.sleep(2)
            cluster.move(T0, 1)
            cluster.fill(T0, [b"b"])
            started = trio.current_time()
            assert await read(client, 1) == [b"b"]
            assert trio.current_time() - started < 6
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("policy", ["none", "earliest"])
async def test_a_truncated_log_is_noticed(autojump_clock: object, policy: str) -> None:
    """An unclean election: the new leader lacks what was read, and has other records in its place."""
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    cluster.fill(T0, [b"a"])
    cluster.fill(T0, [b"b"])
    cluster.fill(T0, [b"lost"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, auto_offset_reset=policy) as client:
            await client.assign([T0])
            client.seek(T0, 0)
            assert await read(client, 3) == [b"a", b"b", b"lost"]
            cluster.logs[T0].truncate(2)
            cluster.move(T0, 1)
            cluster.fill(T0, [b"other"])
            cluster.fill(T0, [b"more"])
            if policy == "none":
                for _ in range(2):
                    with pytest.raises(LogTruncated, match="unclean") as truncated:
                        await read(client, 1)
                assert truncated.value.diverging_offset == 2
                client.seek(T0, truncated.value.diverging_offset)
            assert await read(client, 2) == [b"other", b"more"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("policy", "goes_on_at"), [("earliest", 50), ("latest", 100)])
async def test_batches_tell_where_a_log_that_lost_its_head_goes_on(
    autojump_clock: object, policy: str, goes_on_at: int
) -> None:
    """Each begins where the one before ended, but there: so a program knows what it will never read."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    for i in range(100):
        cluster.fill(T0, [b"x%d" % i])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, auto_offset_reset=policy, max_partition_fetch_bytes=200) as client:
            await client.assign([T0])
            client.seek(T0, 0)
            fetched = await client.fetch_batches(timeout_ms=500)
            log = cluster.logs[T0]
            log.log_start = 50
            del log.batches[:50], log.next_offsets[:50]
            for _ in range(40):
                fetched += await client.fetch_batches(timeout_ms=500)
            if policy == "latest":
                cluster.fill(T0, [b"new"])
                fetched += await client.fetch_batches(timeout_ms=1000)
            pairs = itertools.pairwise(fetched)
            gaps = [(one.next_offset, other.position) for one, other in pairs if one.next_offset != other.position]
            assert [position for _, position in gaps] == [goes_on_at]
            assert gaps[0][0] < 50
            assert await client.position(T0, timeout_ms=0) == fetched[-1].next_offset
        nursery.cancel_scope.cancel()


async def test_an_offset_outside_the_log_follows_the_reset_policy(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    for i in range(6):
        cluster.fill(T0, [b"%d" % i])
    log = cluster.logs[T0]
    log.log_start = 4
    del log.batches[:4], log.next_offsets[:4]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign([T0])
            client.seek(T0, 1)
            assert await read(client, 2) == [b"4", b"5"]
            client.seek(T0, 1000)
            assert await read(client, 2) == [b"4", b"5"]
        async with consumer(cluster, auto_offset_reset="none") as client:
            await client.assign([T0])
            with pytest.raises(OffsetOutOfRange, match="seek"):
                await client.poll(timeout_ms=1000)
            client.seek(T0, 1)
            for _ in range(2):
                with pytest.raises(
                    OffsetOutOfRange, match=r"^offset 1 of t-0 is gone from the log, which holds \[4, 6\); seek"
                ):
                    await client.poll(timeout_ms=1000)
            client.seek(T0, 1000)
            with pytest.raises(
                OffsetOutOfRange, match=r"^offset 1000 of t-0 is beyond the end of the log, which holds \[4, 6\); seek"
            ):
                await client.poll(timeout_ms=1000)
            client.seek(T0, 5)
            assert await read(client, 1) == [b"5"]
        nursery.cancel_scope.cancel()


async def test_damaged_records_are_raised_and_can_be_stepped_over(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    for value in (b"a", b"bad", b"c"):
        cluster.fill(T0, [value])
    damaged = bytearray(cluster.logs[T0].batches[1])
    damaged[-2] ^= 0xFF
    cluster.logs[T0].batches[1] = bytes(damaged)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign([T0])
            assert await read(client, 1) == [b"a"]
            for _ in range(2):
                with pytest.raises(CorruptRecords, match=r"t-0 at offset 1 .*seek to 2"):
                    await client.poll(timeout_ms=1000)
            client.seek(T0, 2)
            assert await read(client, 1) == [b"c"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_buffer_full", [False, True])
@pytest.mark.parametrize("way", ["records", "columns"])
async def test_records_that_were_damaged_are_asked_for_anew(
    way: str, is_buffer_full: bool, autojump_clock: object
) -> None:
    """Another replica leads by then, or they were damaged on their way. No broker is asked for anything while the
    buffer is full."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    for value in (b"a", b"b", b"c"):
        cluster.fill(T0, [value])
    sound = cluster.logs[T0].batches[1]
    cluster.logs[T0].batches[1] = sound[:-2] + bytes([sound[-2] ^ 0xFF]) + sound[-1:]
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, max_partition_fetch_bytes=200 if is_buffer_full else 2**20) as client:
            await client.assign([T0])
            poll = client.poll if way == "records" else client.poll_columns
            await poll(timeout_ms=1000)
            if is_buffer_full:
                await trio.sleep(5)
            with pytest.raises(CorruptRecords):
                await poll(timeout_ms=1000)
            cluster.logs[T0].batches[1] = sound
            assert await read(client, 2, timeout_ms=2000) == [b"b", b"c"]
        nursery.cancel_scope.cancel()


async def test_paused_partitions_hold_nobody_up(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    for i in range(50):
        cluster.fill(T0, [b"x" * 100])
        cluster.fill(T1, [b"%d" % i])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, max_partition_fetch_bytes=500) as client:
            await client.assign([T0, T1])
            await client.poll(timeout_ms=1000, max_records=1)
            client.pause(T0)
            polled = [await client.poll(timeout_ms=1000) for _ in range(30)]
            values = [record.value for part in polled for record in part.get(T1, [])]
            assert values[-1] == b"49"
            assert not any(T0 in part for part in polled)
            client.resume(T0)
            assert T0 in await client.poll(timeout_ms=1000)
        nursery.cancel_scope.cancel()


async def test_prefetch_is_bounded_when_nobody_polls(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    for _ in range(100):
        cluster.fill(T0, [b"x" * 1000])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, max_partition_fetch_bytes=5000) as client:
            await client.assign([T0])
            await trio.sleep(60)
            assert client._assigned[T0].buffered_bytes <= 10_000
            assert len(cluster.brokers[0].seen(FetchRequest)) <= 3
            assert len(await read(client, 100)) == 100
        nursery.cancel_scope.cancel()


async def test_a_seek_does_not_wait_for_a_long_poll(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    cluster.fill(T0, [b"a"])
    cluster.fill(T1, [b"b"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, fetch_max_wait_ms=30_000) as client:
            await client.assign([T0, T1])
            assert sorted(await read(client, 2)) == [b"a", b"b"]
            await trio.sleep(5)
            for _ in range(3):
                started = trio.current_time()
                client.seek(T0, 0)
                assert await read(client, 1) == [b"a"]
                assert trio.current_time() - started < 1
            client.pause(T1)
            await trio.sleep(40)
            cluster.fill(T1, [b"c"])
            started = trio.current_time()
            client.resume(T1)
            assert await read(client, 1) == [b"c"]
            assert trio.current_time() - started < 1
        nursery.cancel_scope.cancel()


async def test_an_answer_to_a_fetch_before_a_seek_is_dropped(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    for i in range(10):
        cluster.fill(T0, [b"%d" % i])
    cluster.memory.link("broker-0", "client").latency_s = 0.2
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign([T0])
            await client.position(T0)
            await trio.sleep(0.1)
            client.seek(T0, 8)
            assert await read(client, 2) == [b"8", b"9"]
        nursery.cancel_scope.cancel()


async def test_who_leads_is_told_per_partition(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 3)
    cluster.leaders[T1] = (-1, 0)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            expected = {each.partition: leader for each, (leader, _) in cluster.leaders.items()}
            assert await client.leaders_for_topic("t") == expected
            assert expected[1] == -1
            with pytest.raises(UnknownTopic):
                await client.leaders_for_topic("absent", timeout_ms=200)
        nursery.cancel_scope.cancel()


async def test_calls_end_in_time_and_name_the_cause(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, default_api_timeout_ms=2000) as client:
            await client.assign([T0])
            cluster.brokers[0].faults[ApiKey.LIST_OFFSETS].extend([Fault(hang=True)] * 9)
            with pytest.raises(RequestTimedOut, match="t-0 within 2000 ms"):
                await client.end_offsets([T0])
            with pytest.raises(UnknownTopic, match=r"'absent'.*2000 ms"):
                await client.partitions_for_topic("absent")
        with pytest.raises(ClientClosed):
            await client.poll()
        nursery.cancel_scope.cancel()


async def test_a_topic_that_is_gone_is_told(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.fill(T0, [b"a"])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster, default_api_timeout_ms=10_000) as client:
            await client.assign([T0])
            assert await read(client, 1) == [b"a"]
            del cluster.topics["t"], cluster.leaders[T0]
            with pytest.raises(UnknownTopic, match=r"'t'.*gone"):
                await client.poll(timeout_ms=60_000)
        nursery.cancel_scope.cancel()


async def test_a_poll_that_waits_ends_when_the_consumer_is_closed(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with consumer(cluster) as client:
            await client.assign([T0])
            nursery.start_soon(_close_soon, client)
            with pytest.raises(ClientClosed):
                await client.poll(timeout_ms=60_000)
            assert trio.current_time() < 30
        nursery.cancel_scope.cancel()


async def _close_soon(client: TrioConsumer) -> None:
    await trio.sleep(1)
    client.close()
