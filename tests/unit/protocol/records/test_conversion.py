"""What a worker makes of a batch: the records stay, the codec changes, and what breaks the topic's rules is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import (
    HEADER_BYTES,
    MAX_AT_FAULT,
    BatchBuilder,
    Codec,
    InvalidBatch,
    Record,
    decode_batch,
    read_header,
    validate_produced,
)
from strandline.protocol.records.batch import TIMESTAMP_TYPE_BIT
from strandline.protocol.records.conversion import convert, convert_all, stamp, take_over
from strandline.protocol.records.rules import CODEC_NUMBERS, UNBOUNDED_MS, BatchRules, batch_rules

NOW_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE = 2**30


def build(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: str = "none",
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    builder = BatchBuilder(codec, LARGE)
    for timestamp_ms, key, value, headers in records:
        builder.append(timestamp_ms, key, value, headers)
    if producer[0] >= 0:
        builder.set_producer(*producer)
    return builder.build()


def batch(codec: str = "none", count: int = 20, key: bytes | None = b"k", offset_ms: int = 0, size: int = 100) -> bytes:
    return build([(NOW_MS + offset_ms + place, key, b"v" * size, []) for place in range(count)], codec)


def converted(data: bytes, rules: BatchRules, max_batch_bytes: int = LARGE, cap: int = LARGE) -> bytes | None:
    return convert(memoryview(data), rules, NOW_MS, max_batch_bytes, cap)[0]


def refusal(data: bytes, rules: BatchRules, **limits: int) -> InvalidBatch:
    with pytest.raises(InvalidBatch) as caught:
        converted(data, rules, **limits)
    return caught.value


def plain(records: list[Record]) -> list[tuple[object, ...]]:
    return [tuple(record) for record in records]


# --- recompression -----------------------------------------------------------------------------------------------

RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**42),
        st.none() | st.binary(max_size=30),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=150)
@given(
    records=RECORDS,
    source=st.sampled_from(CODECS),
    target=st.sampled_from(range(5)),
    producer=st.just((-1, -1, -1)) | st.tuples(st.integers(0, 2**60), st.integers(0, 2**15 - 1), st.integers(0, 2**30)),
)
def test_another_codec_changes_nothing_that_a_reader_or_the_producer_sees(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    source: str,
    target: int,
    producer: tuple[int, int, int],
) -> None:
    data = build(records, source, producer)
    before = read_header(data)
    result = converted(data, BatchRules(codec=target))
    if before.codec == target:
        assert result is None
        return
    assert result is not None
    after = read_header(result)
    assert after.codec == target and after.size_bytes == len(result)
    same = ("base_offset", "magic", "last_offset_delta", "base_timestamp_ms", "max_timestamp_ms", "records_count")
    same += ("producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch")
    assert {name: getattr(after, name) for name in same} == {name: getattr(before, name) for name in same}
    assert plain(decode_batch(result)) == plain(decode_batch(data)), "CRC included"
    assert validate_produced(memoryview(bytearray(result)), max_batch_bytes=LARGE)


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(range(5), 2)))
def test_the_way_there_and_back_gives_the_same_uncompressed_bytes(source: int, target: int) -> None:
    original = batch()
    first = converted(original, BatchRules(codec=source)) or original
    second = converted(first, BatchRules(codec=target))
    assert second is not None and (len(second) < len(original)) == (target != 0)
    assert (converted(second, BatchRules(codec=0)) or second) == original


def test_the_names_of_codecs_are_those_of_the_format() -> None:
    assert {"uncompressed" if codec is Codec.NONE else codec.name.lower(): codec for codec in Codec} == CODEC_NUMBERS


def test_the_same_batch_is_converted_to_the_same_bytes() -> None:
    """No clock and no randomness in what is stored: replicas of a simulated cluster must not differ between runs."""
    for target in range(1, 5):
        assert converted(batch(), BatchRules(codec=target)) == converted(batch(), BatchRules(codec=target))


def test_a_batch_that_is_too_large_after_conversion_is_refused() -> None:
    small = batch("zstd", 100)
    error = refusal(small, BatchRules(codec=0), max_batch_bytes=5000)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE and "max.message.bytes is 5000" in str(error)
    assert len(small) < 5000


def test_a_wrong_max_timestamp_of_a_compressed_batch_is_corrected() -> None:
    data = bytearray(batch("gzip"))
    lying = validate_produced(memoryview(data), max_batch_bytes=LARGE)[0]
    stamp(lying, NOW_MS + 10**9)
    data[21:23] = (lying.attributes & ~TIMESTAMP_TYPE_BIT).to_bytes(2, "big")
    for rules, codec in ((BatchRules(needs_keys=True), Codec.GZIP), (BatchRules(codec=4), Codec.ZSTD)):
        result = converted(bytes(data), rules)
        assert result is not None and read_header(result).codec == codec
        assert read_header(result).max_timestamp_ms == NOW_MS + 19
        assert plain(decode_batch(result)) == plain(decode_batch(batch("gzip")))


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_without_key_is_refused_and_named(codec: str) -> None:
    records = [(NOW_MS, b"k", b"v", []), (NOW_MS, b"k", b"v", []), (NOW_MS, None, b"v" * 500, [])]
    error = refusal(build(records, codec), BatchRules(needs_keys=True))
    assert error.code is ErrorCode.INVALID_RECORD and "record 2 has no key" in str(error)
    assert converted(batch(codec), BatchRules(needs_keys=True)) is None


BEFORE_100 = BatchRules(before_max_ms=100)
AFTER_100 = BatchRules(after_max_ms=100)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("rules", "offset_ms", "is_good"),
    [
        (BEFORE_100, -100, True),
        (BEFORE_100, -101, False),
        (BEFORE_100, 10**9, True),
        (AFTER_100, 100, True),
        (AFTER_100, 101, False),
        (AFTER_100, -(10**9), True),
    ],
)
def test_every_timestamp_lies_within_its_bounds(codec: str, rules: BatchRules, offset_ms: int, is_good: bool) -> None:
    """The record in question is neither the first nor the latest: no header tells of it."""
    odd = NOW_MS + offset_ms
    records = [(NOW_MS, b"k", b"v" * 300, []), (odd, b"k", b"v" * 300, []), (max(odd, NOW_MS), b"k", b"v", [])]
    data = build(records, codec)
    if is_good:
        assert converted(data, rules) is None
        return
    error = refusal(data, rules)
    assert error.code is ErrorCode.INVALID_TIMESTAMP and f"record 1 has timestamp {odd} ms" in str(error)


def test_a_record_without_timestamp_is_never_out_of_bounds() -> None:
    data = build([(-1, b"k", b"v" * 300, [])] * 3, "gzip")
    assert converted(data, BatchRules(before_max_ms=0, after_max_ms=0)) is None


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_cannot_be_decoded_is_refused_for_good(codec: str) -> None:
    """A code that lets the producer try again would make it try until its timeout."""
    data = bytearray(batch(codec))
    data[HEADER_BYTES + 20 : HEADER_BYTES + 30] = bytes(10)
    error = refusal(bytes(data), BatchRules(needs_keys=True))
    assert error.code is ErrorCode.INVALID_RECORD and not error.code.retriable


@pytest.mark.parametrize("codec", CODECS[1:])
def test_offsets_inside_a_compressed_batch_are_checked(codec: str) -> None:
    one, two = build([(NOW_MS, b"k", b"v" * 400, [])]), batch(count=2)
    twice = bytearray(two[:HEADER_BYTES] + one[HEADER_BYTES:] * 2)
    twice[8:12] = (len(twice) - 12).to_bytes(4, "big")
    data = converted_unchecked(bytes(twice), codec)
    error = refusal(data, BatchRules(needs_keys=True))
    assert error.code is ErrorCode.INVALID_RECORD and "record 1 of a batch has offset delta 0" in str(error)


def converted_unchecked(plain_batch: bytes, codec: str) -> bytes:
    from strandline.protocol.records.conversion import _rebuild

    return _rebuild(memoryview(plain_batch), read_header(plain_batch), Codec[codec.upper()], NOW_MS)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused_at_the_cap(codec: str) -> None:
    bomb = build([(NOW_MS, b"k", bytes(4_000_000), [])], codec)
    error = refusal(bomb, BatchRules(needs_keys=True), cap=1_000_000)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE and "1000000 bytes allowed" in str(error)


# --- the job -----------------------------------------------------------------------------------------------------


def test_the_job_has_an_outcome_for_each_batch_and_one_bad_batch_harms_no_other() -> None:
    rules = BatchRules(needs_keys=True, codec=4)
    batches = [batch(), batch(key=None), batch("zstd")]
    outcomes, decoded_bytes = convert_all(None, batches, [list(rules)] * 3, [[LARGE, LARGE]] * 3, NOW_MS, LARGE)
    assert isinstance(outcomes[0], bytes) and plain(decode_batch(outcomes[0])) == plain(decode_batch(batches[0]))
    assert isinstance(outcomes[1], list) and outcomes[1][0] == ErrorCode.INVALID_RECORD
    assert outcomes[1][1:] == [
        "record 0 has no key, which a compacted topic needs (20 records of the batch are refused)",
        tuple((index, "no key, which a compacted topic needs") for index in range(20)),
    ]
    assert outcomes[2] is None
    assert decoded_bytes > 2 * len(batch())


def test_a_job_names_as_many_records_as_an_answer_may_have() -> None:
    small = build([(NOW_MS, None, b"", [])] * (MAX_AT_FAULT - 5), "gzip")
    outcomes, _ = convert_all(None, [small] * 3, [list(BatchRules(needs_keys=True))] * 3, [[LARGE] * 2] * 3, 0, LARGE)
    assert [len(outcome[2]) for outcome in outcomes if isinstance(outcome, list)] == [MAX_AT_FAULT - 5, 5, 0]


def test_the_job_ends_when_a_request_decodes_to_more_than_is_taken_at_once() -> None:
    batches = [batch("gzip", size=10_000)] * 4
    limits = [[LARGE, LARGE]] * 4
    outcomes, _ = convert_all(None, batches, [list(BatchRules(codec=0))] * 4, limits, NOW_MS, 300_000)
    assert [isinstance(outcome, bytes) for outcome in outcomes] == [True, True, False, False]
    assert outcomes[3] is not None and outcomes[3][0] == ErrorCode.RECORD_LIST_TOO_LARGE


# --- on the event loop -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_stamped_batch_has_the_brokers_time_for_every_record(codec: str) -> None:
    data = bytearray(batch(codec))
    (produced,) = validate_produced(memoryview(data), max_batch_bytes=LARGE)
    stamp(produced, NOW_MS + 12345)
    header = read_header(data)
    assert (header.timestamp_type, header.max_timestamp_ms) == (1, NOW_MS + 12345)
    assert header.base_timestamp_ms == NOW_MS, "as Kafka leaves it"
    assert (produced.max_timestamp_ms, produced.attributes) == (header.max_timestamp_ms, header.attributes)
    records = decode_batch(data)
    assert {(record.timestamp_ms, record.timestamp_type) for record in records} == {(NOW_MS + 12345, 1)}
    assert [record[3:] for record in records] == [record[3:] for record in decode_batch(batch(codec))]


def test_a_converted_batch_takes_the_place_of_what_was_sent() -> None:
    (produced,) = validate_produced(memoryview(bytearray(batch())), max_batch_bytes=LARGE)
    result = converted(batch(), BatchRules(codec=1))
    assert result is not None
    take_over(produced, result)
    assert bytes(produced.view) == result and not produced.view.readonly
    assert (produced.size_bytes, produced.attributes, produced.records_count) == (len(result), 1, 20)


# --- rules from the configuration --------------------------------------------------------------------------------


def rules_of(**changed: object) -> BatchRules | None:
    values: dict[str, object] = {
        "cleanup_policy": ("delete",),
        "compression_type": "producer",
        "timestamp_type": "CreateTime",
        "before_max_ms": UNBOUNDED_MS,
        "after_max_ms": UNBOUNDED_MS,
        "difference_max_ms": UNBOUNDED_MS,
    }
    return batch_rules(**{**values, **changed})


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, None),
        ({"cleanup_policy": ("compact", "delete")}, BatchRules(needs_keys=True)),
        ({"compression_type": "uncompressed"}, BatchRules(codec=0)),
        ({"compression_type": "zstd"}, BatchRules(codec=4)),
        ({"timestamp_type": "LogAppendTime"}, BatchRules(stamps=True)),
        ({"timestamp_type": "LogAppendTime", "before_max_ms": 5, "difference_max_ms": 5}, BatchRules(stamps=True)),
        ({"before_max_ms": 5}, BatchRules(before_max_ms=5)),
        ({"after_max_ms": 5}, BatchRules(after_max_ms=5)),
        ({"difference_max_ms": 5}, BatchRules(before_max_ms=5, after_max_ms=5)),
        ({"difference_max_ms": 5, "after_max_ms": 7}, BatchRules(before_max_ms=5, after_max_ms=7)),
    ],
)
def test_rules_come_from_the_configuration(changed: dict[str, object], expected: BatchRules | None) -> None:
    assert rules_of(**changed) == expected


def test_only_what_the_rules_reach_into_needs_a_worker() -> None:
    table = {
        BatchRules(needs_keys=True): (False, True, True),
        BatchRules(before_max_ms=1): (False, True, True),
        BatchRules(after_max_ms=1): (False, True, True),
        BatchRules(stamps=True): (False, False, False),
        BatchRules(codec=0): (False, True, True),
        BatchRules(codec=1): (True, False, True),
        BatchRules(codec=4, needs_keys=True): (True, True, True),
    }
    for rules, expected in table.items():
        assert tuple(rules.needs_worker(codec) for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY)) == expected, rules
