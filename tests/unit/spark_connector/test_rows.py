"""Rows by columns become the batches that records one by one would have become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.client.accumulator import EncodedBatch, ToSend
from strandline.client.settings import ProducerSettings
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import (
    Record,
    assign_producer,
    build_batch,
    decode_batch,
    read_header,
    validate_produced,
)
from strandline.protocol.records.validation import MAX_TIMESTAMP_MS
from strandline.protocol.types import NO_PARTITION, TopicPartition
from strandline.spark_connector.writing.rows import MANY, RecordRows, send
from support.sink_rows import HEADERS, record_rows

STRINGS = st.none() | st.binary(max_size=40) | st.integers(50, 20_000).map(lambda size: b"x" * size)
PAIRS = st.lists(st.tuples(STRINGS, STRINGS), max_size=150)
NAMES = st.text(max_size=5) | st.just("n" * 200)
FULL = st.lists(
    st.tuples(
        STRINGS,
        STRINGS,
        st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=5) | st.just(b"v" * 300)), max_size=70),
        st.integers(0, 2**31) | st.integers(-1, MAX_TIMESTAMP_MS),
    ),
    max_size=40,
)
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def as_records(records: list[ToSend]) -> list[Record]:
    """As `build_batch` takes them; `record_rows` gives pairs the time 7."""
    full = [record if len(record) == 4 else (*record, (), 7) for record in records]
    return [Record(0, stamp, 0, key, value, list(headers)) for key, value, headers, stamp in full]


def checked(batch: EncodedBatch) -> bytes:
    """With numbers and a CRC, as a leader lets it pass."""
    assign_producer(batch.data, 5, 1, 0)
    data = bytearray(batch.data)
    validate_produced(memoryview(data), max_batch_bytes=2**31 - 1)
    return bytes(data)


@given(
    records=PAIRS | FULL, limit_bytes=st.sampled_from([0, 100, 700, 5_000, 2**31 - 1]), codec=st.sampled_from(CODECS)
)
@example(records=[(None, b"a", [], -1), (None, b"b", [], 0)], limit_bytes=5_000, codec="none")
@settings(max_examples=150, deadline=None)
def test_they_are_those_that_the_record_codec_builds(records: list[ToSend], limit_bytes: int, codec: str) -> None:
    start = 0
    for batch in record_rows(records).batches(codec, limit_bytes):
        own = as_records(records[start : start + batch.records_count])
        data = checked(batch)
        plain = build_batch(own, producer=(5, 1, 0))
        if read_header(data).codec == 0:
            assert data == plain
        assert [record[1:] for record in decode_batch(data)] == [record[1:] for record in own]
        assert len(plain) <= limit_bytes or batch.records_count == 1
        start += batch.records_count
    assert start == len(records)


@given(records=FULL)
def test_parts_and_chosen_rows_are_those_of_the_list(records: list[ToSend]) -> None:
    rows = record_rows(records)
    middle = rows.part(len(records) // 3, len(records))
    assert middle.records() == records[len(records) // 3 :]
    backwards = middle.at(pa.array(range(len(middle) - 1, -1, -1), pa.int64()).to_numpy())
    assert backwards.records() == records[len(records) // 3 :][::-1]
    for given_rows in (middle, backwards):
        built = [record for batch in given_rows.batches("none", 1_000) for record in decode_batch(checked(batch))]
        assert [record[1:] for record in built] == [record[1:] for record in as_records(given_rows.records())]


def test_batches_are_as_full_as_the_limit_lets_them_be() -> None:
    rows = record_rows([(b"k%d" % (number % 10), b"v" * 100) for number in range(10_000)])
    batches = list(rows.batches("none", 16_384))
    assert all(len(batch.data) > 16_000 for batch in batches[:-1])


def test_a_batch_is_compressed_where_that_pays() -> None:
    rows = record_rows([(b"k", b"v" * 1_000)] * 100)
    for codec in CODECS[1:]:
        [batch] = rows.batches(codec, 2**20)
        assert read_header(batch.data).compression_type == codec
        assert len(batch.data) < 10_000
    [batch] = record_rows([(None, b"\xff")]).batches("gzip", 2**20)
    assert read_header(batch.data).compression_type == "none"


@pytest.mark.parametrize("headers", [[None, [], [{"key": "a", "value": None}]], [None, None, None]])
def test_null_headers_are_none(headers: list[Any]) -> None:
    rows = RecordRows(pa.nulls(3, pa.binary()), pa.array([b"1", b"2", b"3"]), pa.array(headers, HEADERS), 7)
    [batch] = rows.batches("none", 1_000)
    found = [record.headers for record in decode_batch(checked(batch))]
    assert found == [[(each["key"], each["value"]) for each in of_one or []] for of_one in headers]


def test_damage_is_noticed() -> None:
    """By `checked`, which the tests above rest on."""
    [batch] = record_rows([(b"k", b"v")]).batches("none", 1_000)
    batch.data[61] += 2
    with pytest.raises(Exception) as failure:
        checked(batch)
    assert getattr(failure.value, "code", None) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


class _Producer:
    """Told of what is sent."""

    settings = ProducerSettings(bootstrap_servers="b:1")

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.batches: list[EncodedBatch] = []

    def send_many(self, topic: str, records: Any, partition: int | None, timestamp_ms: int | None) -> None:
        self.records += [(topic, partition, timestamp_ms, *record) for record in records]

    def send_encoded(self, topic: str, batches: list[EncodedBatch], partition: int | None) -> None:
        self.batches += batches


def test_few_rows_for_a_partition_are_put_together_with_others_by_the_producer() -> None:
    producer: Any = _Producer()
    send(producer, TopicPartition("t", NO_PARTITION), record_rows([(b"k", b"v")]), None)
    send(producer, TopicPartition("t", 2), record_rows([(b"k", b"v", [("h", b"x")], 9)]), 10**9)
    send(producer, TopicPartition("t", 2), record_rows([(b"k", b"v")] * MANY), None)
    assert producer.records == [("t", None, 7, b"k", b"v"), ("t", 2, None, b"k", b"v", [("h", b"x")], 9)]
    assert [batch.records_count for batch in producer.batches] == [MANY]


@pytest.mark.parametrize("count", [2, MANY - 1, MANY])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_no_batch_is_larger_than_its_topic_takes_unless_one_row_is(count: int, codec: str) -> None:
    """The producer would put few rows together with those that follow, up to its own limit."""
    producer: Any = _Producer()
    producer.settings = ProducerSettings(bootstrap_servers="b:1", batch_size=100_000, compression_type=codec)
    records: list[ToSend] = [(None, b"%d" % number * 30) for number in range(count - 1)]
    send(producer, TopicPartition("t", 2), record_rows([*records, (None, b"x" * 5_000)]), 1_000)
    *small, last = producer.batches
    assert not producer.records
    assert sum(batch.records_count for batch in small) == count - 1
    assert all(len(batch.data) <= 1_000 for batch in small)
    assert last.records_count == 1
