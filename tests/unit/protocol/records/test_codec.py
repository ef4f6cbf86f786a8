"""Batches built, scanned and decoded: round trips, golden bytes, and damage that always has a typed end."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import (
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchBuilder,
    InvalidBatch,
    Record,
    assign_offset,
    build_batch,
    compiled_codec,
    decode_batch,
    decode_columns,
    decode_records,
    read_header,
    scan,
    validate_produced,
)
from strandline.protocol.records.codec import CodecNotCompiled, assign_producer

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
every_codec = pytest.mark.parametrize("codec", CODECS)

header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
record_lists = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 2**43),
        timestamp_type=st.just(CREATE_TIME),
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        headers=header_lists,
    ),
    min_size=1,
    max_size=20,
)


@every_codec
@settings(max_examples=40)
@given(records=record_lists)
def test_records_come_back_as_they_went_in(codec: str, records: list[Record]) -> None:
    batch = bytearray(build_batch(records, codec))
    (produced,) = validate_produced(memoryview(batch), max_batch_bytes=2**31 - 1)
    assign_offset(produced.view, 1000, 3)
    decoded = decode_batch(batch)
    assert decoded == [r._replace(offset=1000 + i) for i, r in enumerate(records)]
    header = read_header(batch)
    assert (header.base_offset, header.next_offset, header.partition_leader_epoch) == (1000, 1000 + len(records), 3)
    assert header.max_timestamp_ms == max(r.timestamp_ms for r in records) == produced.max_timestamp_ms
    columns = decode_columns(batch)
    assert [*zip(*columns, strict=True)] == [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in decoded]


def test_the_bytes_of_a_batch_are_those_of_kafkas_format() -> None:
    batch = build_batch([(1_500_000_000_000, b"k", b"v"), Record(0, 1_500_000_000_007, 0, None, b"", [("h", None)])])
    assert batch.hex(" ") == (
        "00 00 00 00 00 00 00 00 "  # base offset
        "00 00 00 44 "  # length
        "ff ff ff ff "  # partition leader epoch
        "02 "  # magic
        "34 b9 c4 ee "  # CRC-32C (a bitwise implementation agrees)
        "00 00 "  # attributes
        "00 00 00 01 "  # last offset delta
        "00 00 01 5d 3e f7 98 00 "  # base timestamp
        "00 00 01 5d 3e f7 98 07 "  # max timestamp
        "ff ff ff ff ff ff ff ff "  # producer id
        "ff ff "  # producer epoch
        "ff ff ff ff "  # base sequence
        "00 00 00 02 "  # records count
        "10 00 00 00 02 6b 02 76 00 "  # length 8, attributes, +0 ms, +0, key "k", value "v", no headers
        "12 00 0e 02 01 00 02 02 68 01"  # length 9, attributes, +7 ms, +1, null key, empty value, header "h" null
    )


def test_a_batch_says_what_its_attributes_mean() -> None:
    batch = bytearray(build_batch([(1, None, b"x" * 100)], "zstd"))
    header = read_header(batch)
    assert (header.compression_type, header.timestamp_type, header.is_control) == ("zstd", CREATE_TIME, False)
    odd = header._replace(attributes=0x3F)
    assert (odd.codec, odd.compression_type, odd.timestamp_type) == (7, "reserved-7", LOG_APPEND_TIME)
    assert odd.is_control and odd.is_transactional
    assert (header.size_bytes, header.last_offset) == (len(batch), 0)


def test_with_log_append_time_every_record_has_the_time_of_its_batch() -> None:
    batch = bytearray(build_batch([(5, None, b"a"), (6, None, b"b")]))
    batch[22] |= 0x08
    assert [(r.timestamp_ms, r.timestamp_type) for r in decode_batch(batch, check_crc=False)] == [(6, 1), (6, 1)]


def test_control_batches_hold_nothing_for_readers() -> None:
    batch = bytearray(build_batch([(5, b"\x00\x00\x00\x01", b"commit")]))
    batch[22] |= 0x20
    assert decode_batch(batch, check_crc=False) == []


def test_a_batch_is_full_at_its_size_and_the_first_record_always_fits() -> None:
    builder = BatchBuilder(batch_size_bytes=200)
    assert builder.append(1, None, b"x" * 500)
    assert not builder.append(2, None, b"y")
    assert (builder.records_count, builder.size_bytes) == (1, len(builder.build()))
    assert BatchBuilder().size_bytes == HEADER_BYTES


STAMPS = [(-1, 0), (-1, 5), (-1, -1, 7, 3), (-1, -1), (0, -1), (7, -1, 9)]


@pytest.mark.parametrize("stamps", STAMPS, ids=str)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_record_without_a_timestamp_has_none_whichever_come_behind_it(stamps: tuple[int, ...], codec: str) -> None:
    """The base timestamp is the first record's, and `max_timestamp_ms` −1 where none has a time, as in Kafka."""
    one_by_one, all_at_once, in_two = (BatchBuilder(codec) for _ in range(3))
    for stamp in stamps:
        assert one_by_one.append(stamp, None, b"x" * 100)
    all_at_once.append_full((None, b"x" * 100, [], stamp) for stamp in stamps)
    in_two.append_pairs(stamps[0], [(None, b"x" * 100)])
    in_two.append_full((None, b"x" * 100, [], stamp) for stamp in stamps[1:])
    batch = bytes(one_by_one.build())
    header = read_header(batch)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (stamps[0], max(stamps))
    assert tuple(record.timestamp_ms for record in decode_batch(batch)) == stamps
    assert batch == all_at_once.build() == in_two.build()


def test_an_idempotent_producers_batch_carries_its_fields() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"x")
    builder.set_producer(9, 2, 77)
    header = read_header(builder.build())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 77)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@given(numbers=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)))
@settings(max_examples=20)
def test_a_built_batch_becomes_one_of_an_idempotent_producer(codec: str, numbers: tuple[int, int, int]) -> None:
    records = [(1000, b"k", b"v" * 300), (1001, None, b"")]
    batch = bytearray(build_batch(records, codec))
    assign_producer(batch, *numbers)
    assert read_header(batch)[-4:-1] == numbers
    assert batch == build_batch(records, codec, producer=numbers)
    assign_producer(batch, -1, -1, -1)
    assert batch == build_batch(records, codec)


def test_a_codec_that_does_not_exist_is_an_error_of_the_caller() -> None:
    with pytest.raises(KeyError):
        BatchBuilder("brotli")


# --- buffers of many batches -------------------------------------------------------------------------------------


def three_batches() -> bytes:
    batches = []
    for offset, count in ((0, 2), (2, 1), (3, 3)):
        batch = bytearray(build_batch([(100 + offset + i, None, b"%d" % (offset + i)) for i in range(count)]))
        assign_offset(batch, offset, 0)
        batches.append(bytes(batch))
    return b"".join(batches)


def test_a_scan_stops_before_a_partial_batch_wherever_it_is_cut() -> None:
    data = three_batches()
    ends = [position + header.size_bytes for position, header in scan(data)]
    assert ends[-1] == len(data)
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends)
        assert len(list(scan(data[:cut]))) == whole
        assert [r.offset for r in decode_records(data[:cut])] == list(range([0, 2, 3, 6][whole]))
        assert decode_columns(memoryview(data)[:cut]).values == [b"%d" % i for i in range([0, 2, 3, 6][whole])]


def test_a_scan_may_begin_in_the_middle_and_refuses_what_is_no_batch() -> None:
    data = three_batches()
    (_, first), (position, _), _ = scan(data)
    assert [h.base_offset for _, h in scan(data, position)] == [2, 3]
    for nonsense in (bytes(HEADER_BYTES), b"\xff" * 100):
        with pytest.raises(InvalidBatch) as caught:
            list(scan(data[: first.size_bytes] + nonsense))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_decoded_records_do_not_hang_on_the_buffer_that_they_came_from() -> None:
    buffer = bytearray(three_batches())
    records = decode_records(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert records[0].value == b"0"


# --- damage ------------------------------------------------------------------------------------------------------


@every_codec
@pytest.mark.parametrize("check_crc", [True, False])
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_batch_is_decoded_or_refused_and_nothing_else(codec: str, check_crc: bool, seed: int) -> None:
    rng = random.Random(seed)
    batch = bytearray(build_batch([(1000 + i, b"key", b"value" * 20, [("h", b"x")]) for i in range(4)], codec))
    if rng.random() < 0.3:
        del batch[rng.randrange(len(batch)) :]
    for _ in range(rng.randrange(1, 4)):
        if batch:
            batch[rng.randrange(len(batch))] = rng.choice((0x00, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    try:
        decode_batch(batch, check_crc=check_crc, max_decompressed_bytes=100_000)
    except InvalidBatch as error:
        assert error.code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )


def test_the_crc_is_checked_unless_the_caller_did() -> None:
    batch = bytearray(build_batch([(1, None, b"value")]))
    batch[-2] ^= 1
    with pytest.raises(InvalidBatch, match="CRC-32C"):
        decode_batch(batch)
    assert decode_batch(batch, check_crc=False)[0].value == b"valud"


def test_the_codec_in_use_is_compiled_and_its_absence_would_be_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_crecords" in compiled_codec()
    monkeypatch.setattr("strandline.protocol.records.codec.DefaultRecordBatch", BatchBuilder)
    with pytest.raises(CodecNotCompiled, match="reinstall aiokafka"):
        compiled_codec()
