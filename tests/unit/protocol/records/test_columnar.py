"""Records decoded column by column: equal to the compiled codec's, record by record, and typed errors for damage."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.records import (
    HEADER_BYTES,
    InvalidBatch,
    Record,
    assign_offset,
    build_batch,
    decode_records,
    read_header,
    scan,
)
from strandline.protocol.records.columnar import BatchDecoder, Depth, RecordColumns, Spans, header_columns, varints
from support.compacted import batches_of, compacted_log
from unit.protocol.records.test_codec import CODECS, every_codec, record_lists

same_sizes = st.builds(
    lambda count, size, key: [Record(0, 1000, 0, key, b"v" * size, []) for _ in range(count)],
    st.integers(1, 700),
    st.sampled_from([0, 1, 50, 57, 58, 59, 60, 8100, 8200]),
    st.none() | st.just(b"k"),
)
"""Runs of equal lengths, of varints of one, two and three bytes."""


def columns_of(data: bytes, **limits: Any) -> RecordColumns:
    decoder = BatchDecoder(data, **limits)
    for position, header in scan(data):
        decoder.add(position, header)
    return decoder.take()


def strings(columns: RecordColumns, spans: Spans) -> list[bytes | None]:
    buffer = bytes(columns.buffer)
    assert ((spans.starts >= 0) & (spans.starts <= spans.ends) & (spans.ends <= len(buffer))).all()
    return [
        None if is_null else buffer[start:end]
        for start, end, is_null in zip(*(each.tolist() for each in spans), strict=True)
    ]


def records_of(columns: RecordColumns) -> list[Record]:
    names, contents = (strings(columns, spans) for spans in header_columns(columns))
    pairs = iter(zip([name.decode() for name in names], contents, strict=True))
    return [
        Record(offset, timestamp_ms, kind, key, value, [next(pairs) for _ in range(count)])
        for offset, timestamp_ms, kind, key, value, count in zip(
            columns.offsets.tolist(),
            columns.timestamps_ms.tolist(),
            columns.timestamp_types.tolist(),
            strings(columns, columns.keys),
            strings(columns, columns.values),
            columns.header_counts.tolist(),
            strict=True,
        )
    ]


def batch_at(offset: int, records: list[Record], codec: str, attributes: int = 0) -> bytes:
    batch = bytearray(build_batch(records, codec))
    assign_offset(batch, offset, 0)
    batch[22] |= attributes
    return sealed(batch)


def sealed(batch: bytearray) -> bytes:
    """With the CRC that it should have."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(
        st.tuples(
            record_lists | same_sizes, st.sampled_from(CODECS), st.sampled_from([0, 0, 8, 0x20]), st.integers(0, 9)
        ),
        max_size=5,
    )
)
def test_columns_are_what_the_compiled_codec_reads(batches: list[tuple[list[Record], str, int, int]]) -> None:
    """Codecs mixed, gaps between batches, some stamped with LogAppendTime, some control batches."""
    data, offset = b"", 7
    for records, codec, attributes, gap in batches:
        data += batch_at(offset, records, codec, attributes)
        offset += len(records) + gap
    assert records_of(columns_of(data)) == decode_records(data)


@settings(max_examples=60, deadline=None)
@given(kinds=st.lists(record_lists | same_sizes, min_size=1, max_size=4), data=st.data())
def test_many_batches_of_different_counts(kinds: list[list[Record]], data: Any) -> None:
    """They are walked in step as long as there are enough of them."""
    numbers = data.draw(st.lists(st.integers(0, len(kinds) - 1), min_size=10, max_size=80))
    codecs = st.sampled_from(["none"]) if data.draw(st.booleans()) else st.sampled_from(["none", "none", "zstd"])
    whole = b"".join(batch_at(place * 1000, kinds[number], data.draw(codecs)) for place, number in enumerate(numbers))
    assert records_of(columns_of(whole)) == decode_records(whole)


@every_codec
def test_a_compacted_log_comes_with_its_gaps_empty_batches_and_delete_horizons(codec: str) -> None:
    _, log, kept = compacted_log(codec)
    data = b"".join(batches_of(log))
    assert records_of(columns_of(data)) == decode_records(data)
    assert len(decode_records(data)) == len(kept)


def test_a_decoder_goes_on_behind_what_was_taken() -> None:
    data = batch_at(0, [Record(0, 5, 0, b"a", b"b", [])], "none") + batch_at(
        1, [Record(0, 5, 0, None, b"c", [])], "gzip"
    )
    decoder, found = BatchDecoder(data), []
    for position, header in scan(data):
        decoder.add(position, header)
        assert decoder.records_count == 1
        found += records_of(decoder.take())
    assert found == decode_records(data)


def test_rows_are_chosen_with_all_that_belongs_to_them() -> None:
    records = [Record(0, 5 + number, 0, b"%d" % number, None, [("h", b"%d" % number)] * number) for number in range(5)]
    data = batch_at(0, records, "none")
    chosen = np.array([False, True, False, True, False])
    assert records_of(columns_of(data).rows(chosen)) == decode_records(data)[1:4:2]


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("depth", list(Depth))
def test_only_the_fields_that_are_wanted_are_read_and_the_same_rows_are_chosen(depth: Depth, codec: str) -> None:
    records = [Record(0, 5 + number, 0, b"k%d" % number, b"v", [("h", b"1")]) for number in range(5)]
    data = batch_at(7, records, codec)
    decoder = BatchDecoder(data)
    for position, header in scan(data):
        decoder.add(position, header)
    chosen = np.array([False, True, False, True, False])
    found = decoder.take(depth).rows(chosen)
    assert found.offsets.tolist() == [8, 10]
    assert found.timestamps_ms.tolist() == [6, 8]
    assert strings(found, found.keys) == ([b"k1", b"k3"] if depth >= Depth.KEYS else [])
    assert strings(found, found.values) == ([b"v", b"v"] if depth >= Depth.VALUES else [])
    assert found.header_counts.tolist() == ([1, 1] if depth >= Depth.HEADERS else [])


def test_damage_is_found_as_far_as_records_are_read() -> None:
    batch = bytearray(batch_at(0, [Record(0, 5, 0, b"key", b"value", [])], "none"))
    key_length, value_length = batch.index(b"key") - 1, batch.index(b"value") - 1
    batch[value_length] = 126
    for depth in Depth:
        decoder = BatchDecoder(sealed(batch))
        decoder.add(*next(scan(sealed(batch))))
        if depth >= Depth.VALUES:
            with pytest.raises(InvalidBatch):
                decoder.take(depth)
        else:
            assert decoder.take(depth).offsets.tolist() == [0]
    batch[key_length - 1 :] = b"\xff" * len(
        batch[key_length - 1 :]
    )  # the offset's varint does not end within its record
    decoder = BatchDecoder(sealed(batch))
    decoder.add(*next(scan(sealed(batch))))
    with pytest.raises(InvalidBatch):
        decoder.take(Depth.OFFSETS)


@pytest.mark.parametrize("count", [1, 1000])
def test_a_record_with_many_headers_among_others(count: int) -> None:
    records = [Record(0, 5, 0, None, b"v", [("n", None)] * (count if number % 9 else 3)) for number in range(18)]
    data = batch_at(0, records, "zstd")
    assert records_of(columns_of(data)) == decode_records(data)


@settings(max_examples=200, deadline=None)
@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), data=st.data())
def test_varints_of_every_length(numbers: list[int], data: Any) -> None:
    encoded, positions = b"", []
    for number in numbers:
        positions.append(len(encoded))
        raw = number << 1 ^ number >> 63
        raw &= 2**64 - 1
        while raw > 127:
            encoded += bytes((raw & 127 | 128,))
            raw >>= 7
        encoded += bytes((raw,))
    found, behind = varints(np.frombuffer(encoded, np.uint8), np.array(positions))
    assert found.tolist() == numbers
    assert behind.tolist() == [*positions[1:], len(encoded)]


def test_a_varint_without_an_end_ends_beyond_every_bound() -> None:
    array = np.frombuffer(b"\xff" * 30, np.uint8)
    _, behind = varints(array, np.array([0, 25, 2**62, 2**62 + 5]))
    assert (behind >= 2**62).all()


# --- damage ------------------------------------------------------------------------------------------------------


class Reference:
    """Reads one uncompressed batch by the letter of the format, byte by byte. ValueError, IndexError: it is damaged."""

    def __init__(self, batch: bytes) -> None:
        self.data, self.position = batch, HEADER_BYTES

    def varint(self) -> int:
        raw = 0
        for shift in range(0, 70, 7):
            byte = self.data[self.position]
            self.position += 1
            raw |= (byte & 127) << shift
            if byte < 128:
                raw &= 2**64 - 1
                return raw >> 1 ^ -(raw & 1)
        raise ValueError

    def string(self, end: int) -> bytes | None:
        length = self.varint()
        if not -1 <= length <= end - self.position:
            raise ValueError
        self.position += max(length, 0)
        return None if length < 0 else self.data[self.position - length : self.position]

    def record(self, header: Any) -> Record:
        length = self.varint()
        end = self.position + length
        if not 0 <= length <= len(self.data) - self.position:
            raise ValueError
        self.position += 1
        delta_ms, delta = self.varint(), self.varint()
        key, value = self.string(end), self.string(end)
        headers = [(self.string(end).decode(), self.string(end)) for _ in range(self.count(end))]
        if self.position != end:
            raise ValueError
        wrapped = (header.base_timestamp_ms + delta_ms + 2**63) % 2**64 - 2**63
        return Record((header.base_offset + delta + 2**63) % 2**64 - 2**63, wrapped, 0, key, value, headers)

    def count(self, end: int) -> int:
        count = self.varint()
        if not 0 <= count <= end - self.position:
            raise ValueError
        return count

    def records(self) -> list[Record]:
        header = read_header(self.data)
        found = [self.record(header) for _ in range(header.records_count)]
        if header.records_count < 0 or self.position != len(self.data):
            raise ValueError
        return found


def check_damaged(data: bytes) -> None:
    """Alone, and together with others, which are walked in step."""
    check_alone(data)
    among = GOOD + data + GOOD
    try:
        expected = GOOD_RECORDS + records_of(columns_of(data)) + GOOD_RECORDS
    except (InvalidBatch, UnicodeDecodeError):
        with pytest.raises((InvalidBatch, UnicodeDecodeError)):
            records_of(columns_of(among))
    else:
        assert records_of(columns_of(among)) == expected


GOOD = build_batch([Record(0, 5, 0, b"k", b"v" * size, []) for size in (9, 99, 9999)]) * 10
GOOD_RECORDS = decode_records(GOOD)


def check_alone(data: bytes) -> None:
    try:
        expected = Reference(data).records()
    except (ValueError, IndexError, AttributeError):
        expected = None
    try:
        found = records_of(columns_of(data))
    except (InvalidBatch, UnicodeDecodeError):
        found = None
    assert found == expected


@settings(max_examples=300, deadline=None)
@given(
    records=record_lists | same_sizes,
    blows=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_under_a_good_crc_is_refused_or_read_by_the_letter_of_the_format(
    records: list[Record], blows: list[tuple[int, int]]
) -> None:
    batch = bytearray(build_batch(records))
    for place, byte in blows:
        batch[HEADER_BYTES + place % (len(batch) - HEADER_BYTES)] = byte
    check_damaged(sealed(batch))


def test_every_byte_of_a_batch_set_to_what_may_hurt() -> None:
    records = [Record(0, 5 + n, 0, b"k" * n, b"v" * 60, [("head", b"x"), ("y", None)][: n % 3]) for n in range(6)]
    batch = build_batch(records)
    for place in range(57, len(batch)):
        for byte in (0, 1, 2, 127, 128, 255):
            damaged = bytearray(batch)
            damaged[place] = byte
            (check_alone if place % 7 else check_damaged)(sealed(damaged))


def test_cut_and_random_bytes_have_a_typed_end() -> None:
    check_many(check_damaged, "none")


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damaged_compressed_bytes_have_a_typed_end(codec: str) -> None:
    def check(batch: bytes) -> None:
        try:
            records_of(columns_of(batch))
        except (InvalidBatch, UnicodeDecodeError):
            pass

    check_many(check, codec)


def check_many(check: Callable[[bytes], None], codec: str) -> None:
    batch = build_batch([Record(0, 5, 0, b"key", b"value" * 9, [("h", b"x")])] * 30, codec)
    rng = random.Random(3)
    for _ in range(300):
        damaged = bytearray(batch[: rng.randrange(HEADER_BYTES, len(batch))])
        for _ in range(rng.randrange(4)):
            damaged[rng.randrange(HEADER_BYTES - 4, len(damaged))] = rng.randrange(256)
        struct.pack_into(">i", damaged, 8, len(damaged) - 12)
        check(sealed(damaged))


def test_a_wrong_crc_is_refused() -> None:
    damaged = bytearray(build_batch([Record(0, 5, 0, b"key", b"value", [])]))
    damaged[-2] ^= 1
    with pytest.raises(InvalidBatch, match="CRC-32C of the batch at offset 0 does not match"):
        columns_of(bytes(damaged))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_no_more_is_decoded_than_allowed(codec: str) -> None:
    data = build_batch([Record(0, 5, 0, None, bytes(100_000), [])], codec)
    with pytest.raises(InvalidBatch, match="99999"):
        columns_of(data, max_decompressed_bytes=99_999)


def test_records_without_room_are_refused_before_they_fill_the_memory() -> None:
    batch = bytearray(build_batch([Record(0, 5, 0, None, bytes(100), [])]))
    batch[HEADER_BYTES:] = bytes(len(batch) - HEADER_BYTES)
    struct.pack_into(">i", batch, 57, len(batch) - HEADER_BYTES)
    with pytest.raises(InvalidBatch, match="have no room for"):
        columns_of(sealed(batch))
    struct.pack_into(">i", batch, 57, 3)
    with pytest.raises(InvalidBatch, match="no room for its fields"):
        columns_of(sealed(batch))


@pytest.mark.parametrize("count", [0, 2, -1])
def test_a_count_that_is_not_the_batches_is_refused(count: int) -> None:
    batch = bytearray(build_batch([Record(0, 5, 0, b"key", b"value", [])]))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(InvalidBatch, match=f"{count} records (do not )?end|have no room for {count}"):
        columns_of(sealed(batch))
