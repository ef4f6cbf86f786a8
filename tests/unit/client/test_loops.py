"""Loops over a consumer, in trio, asyncio and threads; and what deserializers make of records."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from strandline import ClientClosed, Consumer, DeserializationFailed, InvalidClientConfig, OffsetOutOfRange
from strandline.aio import AioConsumer
from strandline.client.assignment import Assigned
from strandline.client.loans import Reader
from strandline.client.record import ConsumerRecord, Loan
from strandline.client.settings import ConsumerSettings
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster, FakeLog
from unit.client.test_consumer import consumer
from unit.client.test_sync import cluster

__all__ = ["cluster"]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@asynccontextmanager
async def filled(*counts: int, **settings: Any) -> AsyncIterator[Any]:
    """A consumer of a topic that has so many records in each of its partitions, in batches of seven."""
    fake = FakeCluster(1)
    fake.add_topic("t", len(counts))
    for number, count in enumerate(counts):
        for begin in range(0, count, 7):
            fake.fill(TopicPartition("t", number), [b"%d" % offset for offset in range(begin, min(count, begin + 7))])
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with consumer(fake, **settings) as client:
            await client.assign([TopicPartition("t", number) for number in range(len(counts))])
            yield client
        nursery.cancel_scope.cancel()


async def test_a_loop_gives_each_record_once_and_ends_when_none_has_come_for_so_long(autojump_clock) -> None:
    async with filled(50, 30, max_poll_records=20, consumer_timeout_ms=2_000) as client:
        seen: dict[int, list[int]] = {0: [], 1: []}
        began = trio.current_time()
        async for record in client:
            seen[record.partition].append(record.offset)
            assert await client.position(record.topic_partition) == record.offset + 1
        assert seen == {0: list(range(50)), 1: list(range(30))}
        assert trio.current_time() - began >= 2.0


async def test_without_a_limit_a_loop_waits_for_as_long_as_the_program_does(autojump_clock) -> None:
    async with filled(3) as client:
        seen = []
        with trio.move_on_after(3_600) as hour:
            async for record in client:
                seen.append(record.offset)
        assert hour.cancelled_caught and seen == [0, 1, 2]


async def test_what_a_loop_that_ended_has_not_handed_out_comes_next(autojump_clock) -> None:
    async with filled(100, consumer_timeout_ms=1_000) as client:

        async def up_to(last: int) -> list[int]:
            seen = []
            async for record in client:
                seen.append(record.offset)
                if record.offset == last:
                    break
            return seen

        assert await up_to(9) == list(range(10))
        assert await client.position(T0) == 10
        assert await up_to(20) == list(range(10, 21))
        [records] = (await client.poll(timeout_ms=1_000, max_records=5)).values()
        assert [record.offset for record in records] == list(range(21, 26)), "polls and loops go on where the other was"
        assert await up_to(30) == list(range(26, 31))
        [batches] = await client.fetch_batches(timeout_ms=1_000)
        assert batches.position == 31
        client.seek(T0, 50)
        assert await up_to(60) == list(range(50, 61))
        client.seek(T0, 5)
        assert await up_to(7) == [5, 6, 7]
        client.pause(T0)
        assert await up_to(100) == []
        client.resume(T0)
        assert await up_to(99) == list(range(8, 100))


async def test_a_partition_that_is_no_longer_assigned_is_left_out_at_once(autojump_clock) -> None:
    async with filled(20, 20, consumer_timeout_ms=1_000) as client:
        first = await client.__anext__()
        other = T1 if first.partition == 0 else T0
        await client.assign([other])
        seen = {record.partition async for record in client}
        assert seen == {other.partition}


async def test_records_from_before_a_reset_are_handed_out_first(autojump_clock) -> None:
    async with filled(20, auto_offset_reset="none", consumer_timeout_ms=1_000) as client:
        client.seek(T0, 10)
        assert (await client.__anext__()).offset == 10
        state = client._assigned[T0]
        state.fetch_offset, state.out_of_range = 500, True
        state.generation += 1
        client._fetcher.reset_when_drained(state)
        seen = []
        with pytest.raises(OffsetOutOfRange):
            async for record in client:
                seen.append(record.offset)
        assert seen == list(range(11, 20))


async def stop_behind(client: Any, last: int) -> None:
    async for record in client:
        if record.offset == last:
            return


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_a_loop_does_not_go_on_where_it_was_in_a_topic_that_was_made_anew(autojump_clock, policy: str) -> None:
    fake = FakeCluster(1)
    fake.add_topic("t")
    fake.topic_ids["t"] = b"o" * 16
    fake.fill(T0, [b"old"] * 200)
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with consumer(fake, metadata_max_age_ms=500, auto_offset_reset=policy) as client:
            await client.assign([T0])
            client.seek(T0, 0)
            await stop_behind(client, 109)
            fake.logs[T0] = FakeLog()
            fake.topic_ids["t"] = b"n" * 16
            fake.fill(T0, [b"new"] * 200)
            await trio.sleep(5)
            if policy == "none":
                for what in (client.position(T0), client.__anext__()):
                    with pytest.raises(OffsetOutOfRange, match="made anew"):
                        await what
                client.seek(T0, 0)
            assert await client.position(T0) == 0
            [records] = (await client.poll(timeout_ms=10_000)).values()
            assert (records[0].offset, records[0].value) == (0, b"new")
        nursery.cancel_scope.cancel()


def test_what_is_taken_back_comes_before_the_rest_of_its_batch() -> None:
    state = Assigned(T0)
    state.set_position(0)
    records = [ConsumerRecord("t", 0, offset, 0, 0, None, None, []) for offset in range(10)]
    state._records = records
    loan = state.lend(state.take_records(6, True))
    assert (state.position, state.read_position) == (6, 0)
    loan.taken = 2
    assert (state.read_position, state.read_epoch) == (2, -1)
    state.take_back()
    assert loan.is_over and state.position == 2
    assert state.take_records(100, True) == records[2:]
    loan = state.lend(records[9:])
    loan.taken = 1
    assert state.read_position == 10
    state.take_back()
    assert state.position == 10, "there was nothing left of it"
    state.lend(records[8:])
    state.ask_reset(-1)
    state.take_back()
    assert (state.position, state.reset_to) == (8, None), "not where the reset leads: they have not been read"


def test_a_loop_in_a_thread_can_be_left_and_gone_on_with(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    cluster.fill(T0, [b"%d" % offset for offset in range(100)])
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=200) as client:
        client.assign([T0])
        for record in client:
            if record.offset == 10:
                break
        assert client.position(T0) == 11
        assert next(client).offset == 11
        [records] = client.poll(timeout_ms=10_000, max_records=3).values()
        assert [record.offset for record in records] == [12, 13, 14]
        assert [record.offset for record in client] == list(range(15, 100))
    with pytest.raises(ClientClosed):
        next(client)


def test_a_loop_of_a_client_that_was_closed_hands_out_nothing_more(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    cluster.fill(T0, [b"x"] * 10)
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as client:
        client.assign([T0])
        assert next(client).offset == 0
        client.close()
        with pytest.raises(ClientClosed):
            next(client)


def test_a_loop_that_another_thread_ends_in_the_middle_of_a_step_has_no_record_left() -> None:
    class Ending(list[ConsumerRecord]):
        def __len__(self) -> int:
            reader.end()
            return 0

    reader = Reader(ConsumerSettings(bootstrap_servers=("here:1",)))
    reader.add([Loan(Ending(), 0)], 0.0)
    assert reader.next() is None


def test_a_loop_in_asyncio(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    cluster.fill(T0, [b"%d" % offset for offset in range(100)])
    seen: list[int] = []
    threads: set[int] = set()

    def parsed(value: bytes) -> int:
        threads.add(threading.get_ident())
        return int(value)

    async def main() -> None:
        settings = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 200, "value_deserializer": parsed}
        async with AioConsumer(cluster.bootstrap, **settings) as client:
            await client.assign([T0])
            async for record in client:
                seen.append(record.value)
                if record.offset == 10:
                    break
            assert await client.position(T0) == 11
            async for record in client:
                seen.append(record.value)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert seen == list(range(100))
    assert threads == {threading.get_ident()}, "not in the thread of the clients"


async def test_keys_and_values_are_what_the_deserializers_make_of_them(autojump_clock) -> None:
    fake = FakeCluster(1)
    fake.add_topic("t")
    fake.fill(T0, [b'{"a": 1}'], key=b"ann")
    fake.fill(T0, [b'{"a": 2}'])
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        async with consumer(fake, key_deserializer=bytes.decode, value_deserializer=json.loads) as client:
            await client.assign([T0])
            [records] = (await client.poll(timeout_ms=10_000)).values()
            assert [(record.key, record.value) for record in records] == [("ann", {"a": 1}), (None, {"a": 2})]
            client.seek(T0, 1)
            assert (await client.__anext__()).value == {"a": 2}
        nursery.cancel_scope.cancel()


async def test_a_record_that_cannot_be_deserialized_is_told_after_those_before_it(autojump_clock) -> None:
    def small(value: bytes) -> int:
        if value == b"5":
            raise ZeroDivisionError
        return int(value)

    async with filled(10, 10, value_deserializer=small, consumer_timeout_ms=1_000) as client:
        seen = {0: [], 1: []}
        failed: list[DeserializationFailed] = []
        while len(failed) < 3:
            try:
                for partition, records in (await client.poll(timeout_ms=1_000)).items():
                    seen[partition.partition] += [record.value for record in records]
            except DeserializationFailed as failure:
                failed.append(failure)
                if len(failed) != 2:  # the same again where nobody seeks
                    client.seek(failure.topic_partition, failure.offset + 1)
        first, again, other = failed
        assert (again.topic_partition, again.offset) == (other.topic_partition, other.offset) != first.topic_partition
        assert isinstance(first.__cause__, ZeroDivisionError) and first.record.value == b"5"
        assert str(first) == (
            f"the value of {first.topic_partition} at offset 5 cannot be deserialized: ZeroDivisionError(); seek to 6 "
            f"to go on behind it"
        )
        for records in (await client.poll(timeout_ms=1_000)).values():
            seen[records[0].partition] += [record.value for record in records]
        assert seen == {number: [0, 1, 2, 3, 4, 6, 7, 8, 9] for number in (0, 1)}


async def test_a_failure_is_not_told_once_the_program_has_gone_elsewhere(autojump_clock) -> None:
    async with filled(10, value_deserializer=lambda value: 1 // (int(value) - 5)) as client:
        assert [len(records) for records in (await client.poll(timeout_ms=1_000)).values()] == [5]
        client.seek(T0, 6)
        [records] = (await client.poll(timeout_ms=1_000)).values()
        assert records[0].offset == 6


async def test_a_loop_stays_before_a_record_that_cannot_be_deserialized(autojump_clock) -> None:
    async with filled(10, value_deserializer=lambda value: 1 // (int(value) - 5), consumer_timeout_ms=1_000) as client:
        seen = []
        for _ in range(2):
            with pytest.raises(DeserializationFailed):
                async for record in client:
                    seen.append(record.offset)
            assert await client.position(T0) == 5
        client.seek(T0, 6)
        async for record in client:
            seen.append(record.offset)
        assert seen == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_deserializer_that_fails_in_a_thread_keeps_the_records_before_it(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    cluster.fill(T0, [b"%d" % offset for offset in range(10)])
    with Consumer(
        cluster.bootstrap, auto_offset_reset="earliest", value_deserializer=lambda value: 1 // (int(value) - 5)
    ) as client:
        client.assign([T0])
        [records] = client.poll(timeout_ms=10_000).values()
        assert (len(records), client.position(T0)) == (5, 5)
        for _ in range(2):
            with pytest.raises(DeserializationFailed):
                client.poll(timeout_ms=10_000)
        client.seek(T0, 6)
        [records] = client.poll(timeout_ms=10_000).values()
        assert [record.offset for record in records] == [6, 7, 8, 9]


@dataclass
class _InterruptedOnce:
    """At the fifth value."""

    values: int = 0

    def __call__(self, value: bytes) -> int:
        self.values += 1
        if self.values == 5:
            raise KeyboardInterrupt
        return int(value)


async def test_what_a_poll_was_deserializing_when_it_was_interrupted_comes_again(autojump_clock) -> None:
    async with filled(7, value_deserializer=_InterruptedOnce()) as client:
        with pytest.raises(KeyboardInterrupt):
            await client.poll(timeout_ms=1_000)
        assert await client.position(T0) == 0
        [records] = (await client.poll(timeout_ms=1_000)).values()
        assert [record.value for record in records] == list(range(7))


def test_a_deserializer_is_a_function() -> None:
    wrong: Any = "json"
    with pytest.raises(InvalidClientConfig, match="value_deserializer='json' is not a function"):
        Consumer("127.0.0.1:1", value_deserializer=wrong)


def test_a_record_tells_its_place_its_time_and_its_headers() -> None:
    record = ConsumerRecord("t", 1, 5, 1_700_000_000_000, 0, None, b"v", [("a", b"1"), ("b", None), ("a", b"2")])
    assert record.topic_partition == T1
    assert record.timestamp == record.timestamp_ms
    assert (record.header("a"), record.header("b"), record.header("c")) == (b"2", None, None)
