"""`poll_columns`: the records, positions and errors of `poll`, as columns."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from strandline.client import ConsumerRecord, TrioConsumer
from strandline.client.assignment import Assigned, Chunk
from strandline.client.errors import CorruptRecords
from strandline.protocol.records import Record, assign_offset, assign_producer, build_batch, scan
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MS = 1_700_000_000_000

byte_strings = st.none() | st.binary(max_size=300)
a_record = st.builds(
    Record,
    st.just(0),
    st.integers(MS, MS + 100_000),
    st.just(0),
    byte_strings,
    byte_strings,
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
)
batches = st.lists(
    st.tuples(st.sampled_from(["none", "gzip", "lz4"]), st.lists(a_record, min_size=1, max_size=20)),
    min_size=1,
    max_size=25,
)


def log_of(given_batches: list[tuple[str, list[Record]]]) -> bytes:
    data, offset = b"", 0
    for codec, records in given_batches:
        batch = bytearray(build_batch(records, codec))
        assign_offset(batch, offset, 0)
        data, offset = data + batch, offset + len(records)
    return data


def assigned_at(position: int, log: bytes) -> Assigned:
    state = Assigned(T0)
    state.set_position(position)
    end = [header.next_offset for _, header in scan(log)][-1]
    state.add(Chunk.cut(memoryview(log), position, end))
    return state


def rows(state: Assigned) -> list[ConsumerRecord]:
    """What `take_columns` hands out, in the form of `take_records`."""
    found: list[ConsumerRecord] = []
    while (columns := state.take_columns(check_crcs=True)) is not None:
        found += [
            ConsumerRecord(columns.topic, columns.partition, *row)
            for row in zip(
                columns.offsets.tolist(),
                columns.timestamps_ms.tolist(),
                columns.timestamp_types.tolist(),
                columns.keys,
                columns.values,
                columns.headers(),
                strict=True,
            )
        ]
    return found


@given(batches, st.data())
def test_columns_have_what_records_have(given_batches: list[tuple[str, list[Record]]], data: st.DataObject) -> None:
    log = log_of(given_batches)
    count = sum(len(records) for _, records in given_batches)
    position = data.draw(st.integers(0, count - 1))
    first = next(place for place, header in scan(log) if header.next_offset > position)
    polled, by_columns = assigned_at(position, log[first:]), assigned_at(position, log[first:])
    assert rows(by_columns) == polled.take_records(count, check_crcs=True)
    assert by_columns.position == polled.position == count
    assert not by_columns.has_records and by_columns.buffered_bytes == 0


def test_byte_strings_are_a_sequence() -> None:
    values = [b"a", None, b"", b"long" * 50, b"z"]
    state = assigned_at(0, build_batch([(MS, None, value) for value in values]))
    columns = state.take_columns(check_crcs=True)
    assert columns is not None
    assert list(columns.values) == values
    assert [columns.values[place] for place in range(-5, 5)] == values + values
    assert list(columns.values[1:4]) == values[1:4]
    assert b"z" in columns.values and columns.values.index(None) == 1
    assert list(columns.keys) == [None] * 5
    with pytest.raises(IndexError):
        columns.values[5]


def damaged(log: bytes, number: int, *, crc_too: bool) -> bytes:
    """The log, with the records of one batch damaged, and its CRC as if that had been so when it was built."""
    place, header = list(scan(log))[number]
    batch = bytearray(log[place : place + header.size_bytes])
    batch[61] ^= 0x3E  # the length of its first record
    if crc_too:
        assign_producer(batch, -1, -1, -1)
    return log[:place] + bytes(batch) + log[place + header.size_bytes :]


@pytest.mark.parametrize("crc_too", [False, True])
def test_what_stands_before_a_damaged_batch_is_handed_out(crc_too: bool) -> None:
    log = damaged(
        log_of([("none", [Record(0, MS, 0, None, b"%d" % n, [])] * 2) for n in range(40)]), 30, crc_too=crc_too
    )
    state = assigned_at(0, log)
    columns = state.take_columns(check_crcs=True)
    assert columns is not None
    assert columns.offsets.tolist() == list(range(60))
    for _ in range(2):
        with pytest.raises(CorruptRecords, match=r"t-0 at offset 60 .*seek to 62"):
            state.take_columns(check_crcs=True)
    assert state.position == 60


def test_a_wrong_crc_is_not_looked_at_where_that_is_not_wanted() -> None:
    log = bytearray(build_batch([(MS, None, b"value")]))
    log[-2] ^= 0xFF
    columns = assigned_at(0, bytes(log)).take_columns(check_crcs=False)
    assert columns is not None and columns.records_count == 1


def test_columns_outlive_what_they_were_cut_from() -> None:
    received = bytearray(log_of([("none", [Record(0, MS, 0, b"k", b"v", [("h", b"x")])])]))
    state = Assigned(T0)
    state.set_position(0)
    state.add(Chunk.cut(memoryview(received), 0, 1))
    columns = state.take_columns(check_crcs=True)
    received[:] = bytes(len(received))
    del state
    gc.collect()
    assert columns is not None
    assert (list(columns.keys), list(columns.values), columns.headers()) == ([b"k"], [b"v"], [[("h", b"x")]])


async def test_positions_pauses_and_seeks_are_those_of_poll(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    for partition in (T0, T1):
        cluster.fill(partition, [b"%d" % i for i in range(10)])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        client = TrioConsumer(cluster.bootstrap, environment=cluster.environment(), auto_offset_reset="earliest")
        async with client:
            await client.assign([T0, T1])
            client.pause(T1)
            client.seek(T0, 3)
            (columns,) = await client.poll_columns(timeout_ms=1000)
            assert (columns.topic, columns.partition, columns.position) == ("t", 0, 3)
            assert columns.offsets.dtype == np.int64 and columns.offsets.tolist() == list(range(3, 10))
            assert list(columns.values) == [b"%d" % i for i in range(3, 10)]
            assert columns.high_watermark == 10
            assert await client.position(T0) == 10
            assert await client.poll_columns(timeout_ms=100) == []
            client.resume(T1)
            first = await client.poll(timeout_ms=1000, max_records=4)
            assert [record.offset for record in first[T1]] == [0, 1, 2, 3]
            rest: list[int] = []
            while len(rest) < 6:
                for columns in await client.poll_columns(timeout_ms=1000):
                    rest += columns.offsets.tolist()
            assert rest == [4, 5, 6, 7, 8, 9], "both ways of reading can be mixed"
        nursery.cancel_scope.cancel()


async def test_damage_is_raised_by_poll_columns_as_by_poll(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    for value in (b"a", b"bad", b"c"):
        cluster.fill(T0, [value])
    spoiled = bytearray(cluster.logs[T0].batches[1])
    spoiled[-2] ^= 0xFF
    cluster.logs[T0].batches[1] = bytes(spoiled)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        client = TrioConsumer(cluster.bootstrap, environment=cluster.environment(), auto_offset_reset="earliest")
        async with client:
            await client.assign([T0])
            (columns,) = await client.poll_columns(timeout_ms=1000)
            assert list(columns.values) == [b"a"]
            with pytest.raises(CorruptRecords, match=r"t-0 at offset 1 .*seek to 2"):
                await client.poll_columns(timeout_ms=1000)
            client.seek(T0, 2)
            (columns,) = await client.poll_columns(timeout_ms=1000)
            assert list(columns.values) == [b"c"]
        nursery.cancel_scope.cancel()


async def test_a_damaged_partition_does_not_starve_those_behind_it(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    for partition in (T0, T1):
        cluster.fill(partition, [b"%d" % offset for offset in range(5)])
    log = cluster.logs[T0]
    log.batches[0] = log.batches[0][:-1] + bytes([log.batches[0][-1] ^ 0xFF])
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        client = TrioConsumer(cluster.bootstrap, environment=cluster.environment(), auto_offset_reset="earliest")
        async with client:
            await client.assign([T0, T1])
            await trio.sleep(5)
            [columns] = await client.poll_columns(timeout_ms=10_000)
            assert (columns.partition, columns.records_count) == (1, 5)
            cluster.fill(T1, [b"more"])
            await trio.sleep(5)
            [columns] = await client.poll_columns(timeout_ms=10_000)
            assert (columns.partition, columns.records_count) == (1, 1)
            with pytest.raises(CorruptRecords):
                await client.poll_columns(timeout_ms=10_000)
        nursery.cancel_scope.cancel()
