"""What a broker accepts from producers and leaders: each rule broken on its own, then everything else intact."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import (
    HEADER_BYTES,
    READER_SLACK_BYTES,
    BatchBuilder,
    BatchHeader,
    InvalidBatch,
    assign_offset,
    build_batch,
    decode_batch,
    read_header,
    validate_fetched,
    validate_produced,
)
from strandline.protocol.records.rules import BatchRules
from strandline.protocol.records.validation import MAX_AT_FAULT, MAX_BATCHES, ProducedBatch, validate_in_pieces

NOW_MS = 1_700_000_000_000
LIMIT_BYTES = 1_048_588


def varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    zigzag &= 2**64 - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def record(
    offset_delta: int,
    *,
    timestamp_delta_ms: int = 0,
    key: bytes = varint(-1),
    value: bytes = varint(1) + b"v",
    headers: bytes = varint(0),
    length: int | None = None,
) -> bytes:
    """One record; key, value and headers as they stand on the wire, lengths included."""
    body = b"\x00" + varint(timestamp_delta_ms) + varint(offset_delta) + key + value + headers
    return varint(len(body) if length is None else length) + body


class Batch(NamedTuple):
    """A batch to order: every header field may lie; `length` and `crc` are right unless given."""

    records: bytes = record(0)
    count: int = 1
    last_offset_delta: int = 0
    base_offset: int = 0
    epoch: int = -1
    magic: int = 2
    attributes: int = 0
    base_timestamp_ms: int = NOW_MS
    max_timestamp_ms: int = NOW_MS
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    length: int | None = None
    crc: int | None = None

    def build(self) -> bytearray:
        covered = struct.pack(
            ">hiqqqhii",
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )
        covered += self.records
        return bytearray(
            struct.pack(
                ">qiibI",
                self.base_offset,
                len(covered) + 9 if self.length is None else self.length,
                self.epoch,
                self.magic,
                crc32c(covered) if self.crc is None else self.crc,
            )
            + covered
        )


def validate(data: bytearray, **options: Any) -> list[ProducedBatch]:
    return list(validate_produced(memoryview(data), max_batch_bytes=LIMIT_BYTES, **options))


def headers(count: int, *pairs: bytes) -> bytes:
    return varint(count) + b"".join(pairs)


HEADER = varint(1) + b"h" + varint(-1)
TWO = record(0) + record(1)

BROKEN: dict[str, tuple[Batch, ErrorCode]] = {
    "bad CRC": (Batch(crc=1), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (Batch(magic=0), ErrorCode.INVALID_RECORD),
    "magic 1": (Batch(magic=1), ErrorCode.INVALID_RECORD),
    "magic 3": (Batch(magic=3), ErrorCode.INVALID_RECORD),
    "length longer than the bytes": (Batch(length=1000), ErrorCode.CORRUPT_MESSAGE),
    "length shorter than the bytes": (Batch(length=50), ErrorCode.CORRUPT_MESSAGE),
    "length below a header's": (Batch(length=48), ErrorCode.CORRUPT_MESSAGE),
    "length negative": (Batch(length=-1), ErrorCode.CORRUPT_MESSAGE),
    "length of the smallest integer": (Batch(length=-(2**31)), ErrorCode.CORRUPT_MESSAGE),
    "length of the largest integer": (Batch(length=2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
    "count 0": (Batch(count=0, last_offset_delta=-1, records=b""), ErrorCode.INVALID_RECORD),
    "count negative": (Batch(count=-1), ErrorCode.INVALID_RECORD),
    "count above last offset delta + 1": (Batch(count=2, records=TWO), ErrorCode.INVALID_RECORD),
    "count below last offset delta + 1": (Batch(last_offset_delta=1), ErrorCode.INVALID_RECORD),
    "last offset delta negative": (Batch(last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "count of the largest integer": (Batch(count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
    "more records than the count": (Batch(records=TWO), ErrorCode.INVALID_RECORD),
    "fewer records than the count": (Batch(count=2, last_offset_delta=1), ErrorCode.INVALID_RECORD),
    "no records": (Batch(records=b""), ErrorCode.INVALID_RECORD),
    "control batch": (Batch(attributes=0x20), ErrorCode.INVALID_RECORD),
    "transactional batch": (Batch(attributes=0x10), ErrorCode.INVALID_TXN_STATE),
    "LogAppendTime set by the producer": (Batch(attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
    "delete horizon": (Batch(attributes=0x40), ErrorCode.INVALID_RECORD),
    "unused attribute bit": (Batch(attributes=0x4000), ErrorCode.INVALID_RECORD),
    "sign bit of the attributes": (Batch(attributes=-(2**15)), ErrorCode.INVALID_RECORD),
    "codec 5": (Batch(attributes=5), ErrorCode.INVALID_RECORD),
    "codec 6": (Batch(attributes=6), ErrorCode.INVALID_RECORD),
    "codec 7": (Batch(attributes=7), ErrorCode.INVALID_RECORD),
    "producer without sequence": (Batch(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
    "producer without epoch": (Batch(producer_id=5, base_sequence=0), ErrorCode.INVALID_RECORD),
    "producer id -2": (Batch(producer_id=-2), ErrorCode.INVALID_RECORD),
    "max timestamp -2^63": (Batch(max_timestamp_ms=-(2**63)), ErrorCode.INVALID_TIMESTAMP),
    "max timestamp 2^63-1": (Batch(max_timestamp_ms=2**63 - 1), ErrorCode.INVALID_TIMESTAMP),
    "base timestamp -2^63": (Batch(base_timestamp_ms=-(2**63)), ErrorCode.INVALID_TIMESTAMP),
    "base timestamp 2^63-1": (Batch(base_timestamp_ms=2**63 - 1), ErrorCode.INVALID_TIMESTAMP),
    "record timestamp below -1": (
        Batch(records=record(0, timestamp_delta_ms=-NOW_MS - 2)),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "record timestamp near 2^63": (Batch(records=record(0, timestamp_delta_ms=2**62)), ErrorCode.INVALID_TIMESTAMP),
    "record timestamp overflows": (Batch(records=record(0, timestamp_delta_ms=2**63 - 1)), ErrorCode.INVALID_TIMESTAMP),
    "compressed, max timestamp -2": (Batch(attributes=1, max_timestamp_ms=-2), ErrorCode.INVALID_TIMESTAMP),
    "offset delta does not begin at 0": (Batch(records=record(1)), ErrorCode.INVALID_RECORD),
    "offset deltas out of order": (
        Batch(records=record(1) + record(0), count=2, last_offset_delta=1),
        ErrorCode.INVALID_RECORD,
    ),
    "offset delta twice": (Batch(records=record(0) * 2, count=2, last_offset_delta=1), ErrorCode.INVALID_RECORD),
    "offset delta with a gap": (
        Batch(records=record(0) + record(2), count=2, last_offset_delta=1),
        ErrorCode.INVALID_RECORD,
    ),
    "offset delta overflows": (Batch(records=record(2**63 - 1), base_offset=5), ErrorCode.INVALID_RECORD),
    "record length beyond the batch": (Batch(records=record(0, length=500)), ErrorCode.INVALID_RECORD),
    "record length short": (Batch(records=record(0, length=3)), ErrorCode.INVALID_RECORD),
    "record length negative": (Batch(records=record(0, length=-1)), ErrorCode.INVALID_RECORD),
    "value beyond the batch": (Batch(records=record(0, value=varint(100) + b"v")), ErrorCode.INVALID_RECORD),
    "value of 2^63-1 bytes": (Batch(records=record(0, value=varint(2**63 - 1) + b"v")), ErrorCode.INVALID_RECORD),
    "key beyond the batch": (Batch(records=record(0, key=varint(100))), ErrorCode.INVALID_RECORD),
    "key of almost 2^63 bytes": (Batch(records=record(0, key=varint(2**63 - 40))), ErrorCode.INVALID_RECORD),
    "headers count negative": (Batch(records=record(0, headers=varint(-1))), ErrorCode.INVALID_RECORD),
    "headers count beyond the batch": (Batch(records=record(0, headers=varint(2**31))), ErrorCode.INVALID_RECORD),
    "header key null": (Batch(records=record(0, headers=headers(1, varint(-1), varint(-1)))), ErrorCode.INVALID_RECORD),
    "header key not UTF-8": (
        Batch(records=record(0, headers=headers(1, varint(1), b"\xff", varint(-1)))),
        ErrorCode.INVALID_RECORD,
    ),
    "header value beyond the batch": (
        Batch(records=record(0, headers=headers(1, varint(1), b"h", varint(99)))),
        ErrorCode.INVALID_RECORD,
    ),
    "one header too few": (Batch(records=record(0, headers=headers(2, HEADER))), ErrorCode.INVALID_RECORD),
    "one header too many": (Batch(records=record(0, headers=headers(0, HEADER))), ErrorCode.INVALID_RECORD),
    "varint without end": (Batch(records=b"\xff" * 30), ErrorCode.INVALID_RECORD),
    "varint that ends behind the batch": (Batch(records=record(0)[:-1] + b"\x80"), ErrorCode.INVALID_RECORD),
    "bytes behind the last record": (Batch(records=record(0) + b"\x00"), ErrorCode.INVALID_RECORD),
}


def test_a_batch_made_by_hand_is_valid_so_that_each_lie_below_stands_alone() -> None:
    (batch,) = validate(Batch(records=TWO, count=2, last_offset_delta=1).build())
    assert batch.records_count == 2


@pytest.mark.parametrize("slack_bytes", [0, READER_SLACK_BYTES], ids=["copied", "in place"])
@pytest.mark.parametrize("case", BROKEN)
def test_a_batch_that_breaks_one_rule_is_refused_with_its_code(case: str, slack_bytes: int) -> None:
    batch, code = BROKEN[case]
    data = batch.build()
    buffer = memoryview(data + bytes(range(0x80, 0x80 + READER_SLACK_BYTES)))
    with pytest.raises(InvalidBatch) as caught:
        validate_produced(buffer[: len(data)], max_batch_bytes=LIMIT_BYTES, slack_bytes=slack_bytes)
    assert caught.value.code is code
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", BROKEN)
def test_a_good_batch_in_front_does_not_save_a_bad_one(case: str) -> None:
    batch, code = BROKEN[case]
    with pytest.raises(InvalidBatch) as caught:
        validate(Batch().build() + batch.build())
    assert caught.value.code is code


def indexes(error: InvalidBatch) -> tuple[int, ...]:
    """Which records are at fault."""
    return tuple(index for index, _ in error.at_fault)


@pytest.mark.parametrize("rules", [None, BatchRules(stamps=True)])
@pytest.mark.parametrize(
    ("second", "at_fault"),
    [
        (record(1, timestamp_delta_ms=-NOW_MS - 2), (1,)),
        (record(2), (1,)),
        (record(1, length=500), ()),  # where a record does not end, the next may be what is wrong
    ],
    ids=["timestamp", "offset", "framing"],
)
def test_the_record_at_fault_is_named_where_it_is_known(
    second: bytes, at_fault: tuple[int, ...], rules: BatchRules | None
) -> None:
    data = Batch(records=record(0) + second + record(2), count=3, last_offset_delta=2, base_offset=70).build()
    with pytest.raises(InvalidBatch) as caught:
        validate(data, rules=rules, now_ms=NOW_MS)
    assert indexes(caught.value) == at_fault


@pytest.mark.parametrize("case", ["bad CRC", "control batch", "more records than the count", "max timestamp 2^63-1"])
def test_no_record_is_named_where_the_batch_is_at_fault(case: str) -> None:
    with pytest.raises(InvalidBatch) as caught:
        validate(BROKEN[case][0].build())
    assert caught.value.at_fault == ()


def test_nothing_at_all_is_a_valid_produce() -> None:
    assert validate(bytearray()) == []


@pytest.mark.parametrize("size", [1, HEADER_BYTES - 1])
def test_bytes_that_are_no_header_are_refused(size: int) -> None:
    with pytest.raises(InvalidBatch, match="no batch header") as caught:
        validate(bytearray(size))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_size_limit_counts_the_whole_batch_and_is_inclusive() -> None:
    data = Batch().build()
    assert validate_produced(memoryview(data), max_batch_bytes=len(data))
    with pytest.raises(InvalidBatch) as caught:
        validate_produced(memoryview(data), max_batch_bytes=len(data) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_an_idempotent_producer_may_send_one_batch_only() -> None:
    idempotent = Batch(producer_id=7, producer_epoch=0, base_sequence=0).build()
    (batch,) = validate(idempotent)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 0, 0)
    for both in (idempotent + Batch().build(), Batch().build() + idempotent):
        with pytest.raises(InvalidBatch, match="idempotent") as caught:
            validate(both)
        assert caught.value.code is ErrorCode.INVALID_RECORD


def test_the_number_of_batches_per_partition_and_request_is_bounded() -> None:
    assert len(validate(Batch().build() * MAX_BATCHES)) == MAX_BATCHES
    with pytest.raises(InvalidBatch, match="send several requests"):
        validate(Batch().build() * (MAX_BATCHES + 1))


def test_each_batch_is_handed_over_as_a_writable_view_of_its_own_bytes() -> None:
    first, second = Batch(records=TWO, count=2, last_offset_delta=1).build(), Batch().build()
    buffer = first + second
    one, two = validate_produced(memoryview(buffer), max_batch_bytes=LIMIT_BYTES)
    assert (bytes(one.view), bytes(two.view)) == (bytes(first), bytes(second))
    assert (one.size_bytes, one.records_count, one.max_timestamp_ms) == (len(first), 2, NOW_MS)
    assign_offset(one.view, 100, 7)
    assign_offset(two.view, 102, 7)
    assert [h.base_offset for h in fetched_headers(buffer, 100, 7)] == [100, 102]


def test_a_wrong_max_timestamp_is_corrected_with_its_crc_because_the_time_index_rests_on_it() -> None:
    records = record(0) + record(1, timestamp_delta_ms=50) + record(2, timestamp_delta_ms=20)
    data = Batch(records=records, count=3, last_offset_delta=2, max_timestamp_ms=NOW_MS + 10**9).build()
    (batch,) = validate(data)
    assert batch.max_timestamp_ms == NOW_MS + 50
    assert read_header(data).max_timestamp_ms == NOW_MS + 50
    assert [r.timestamp_ms - NOW_MS for r in decode_batch(data, check_crc=True)] == [0, 50, 20]


def test_records_without_timestamps_are_fine() -> None:
    (batch,) = validate(Batch(base_timestamp_ms=-1, max_timestamp_ms=-1).build())
    assert batch.max_timestamp_ms == -1


def test_the_base_offset_that_a_producer_wrote_does_not_matter() -> None:
    assert validate(Batch(base_offset=12345).build())


# --- topics with rules of their own ------------------------------------------------------------------------------

KEYED = BatchRules(needs_keys=True)


def test_a_compacted_topic_needs_a_key_in_every_record() -> None:
    keyless = bytearray(build_batch([(NOW_MS, b"k", b"v")] * 4 + [(NOW_MS, None, b"v")]))
    assert validate(bytearray(build_batch([(NOW_MS, b"k", b"v")] * 5)), rules=KEYED)
    assert validate(keyless)
    with pytest.raises(InvalidBatch, match="record 4 has no key") as caught:
        validate(keyless, rules=KEYED)
    assert (caught.value.code, indexes(caught.value)) == (ErrorCode.INVALID_RECORD, (4,))


@pytest.mark.parametrize("offset_ms", [-100, -50, 0, 100])
def test_timestamps_within_their_bounds_are_taken_and_the_largest_is_found(offset_ms: int) -> None:
    rules = BatchRules(before_max_ms=100, after_max_ms=100)
    data = bytearray(build_batch([(NOW_MS, b"k", b"v"), (NOW_MS + offset_ms, b"k", b"v"), (NOW_MS, b"k", b"v")]))
    (batch,) = validate(data, rules=rules, now_ms=NOW_MS)
    assert batch.max_timestamp_ms == max(NOW_MS, NOW_MS + offset_ms)


@pytest.mark.parametrize(
    ("rules", "offset_ms"), [(BatchRules(before_max_ms=100), -101), (BatchRules(after_max_ms=100), 101)]
)
def test_a_timestamp_out_of_bounds_is_found_in_the_middle_too(rules: BatchRules, offset_ms: int) -> None:
    data = bytearray(build_batch([(NOW_MS, b"k", b"v"), (NOW_MS + offset_ms, b"k", b"v"), (NOW_MS, b"k", b"v")]))
    assert validate(bytearray(data))
    with pytest.raises(InvalidBatch, match="record 1 has timestamp") as caught:
        validate(data, rules=rules, now_ms=NOW_MS)
    assert (caught.value.code, indexes(caught.value)) == (ErrorCode.INVALID_TIMESTAMP, (1,))


def test_all_records_are_named_that_break_a_topics_rules() -> None:
    rules = BatchRules(needs_keys=True, before_max_ms=100)
    keys = [b"k", None, b"k", None, b"k"]
    keyless = [(NOW_MS, key, b"v") for key in keys]
    with pytest.raises(InvalidBatch, match="2 records") as caught:
        validate(bytearray(build_batch(keyless)), rules=rules, now_ms=NOW_MS)
    assert (caught.value.code, indexes(caught.value)) == (ErrorCode.INVALID_RECORD, (1, 3))
    early = [(NOW_MS - 101 * (place == 2), key, b"v") for place, key in enumerate(keys)]
    with pytest.raises(InvalidBatch, match="record 2 has timestamp") as caught:
        validate(bytearray(build_batch(early)), rules=rules, now_ms=NOW_MS)
    assert (caught.value.code, indexes(caught.value)) == (ErrorCode.INVALID_TIMESTAMP, (1, 2, 3))


def test_each_record_that_breaks_a_topics_rules_has_a_text_of_its_own() -> None:
    rules = BatchRules(needs_keys=True, before_max_ms=100, after_max_ms=50)
    records = [(NOW_MS, b"k", b"v"), (NOW_MS, None, b"v"), (NOW_MS - 101, b"k", b"v"), (NOW_MS, None, b"v")]
    with pytest.raises(InvalidBatch) as caught:
        validate(bytearray(build_batch(records)), rules=rules, now_ms=NOW_MS)
    no_key = "no key, which a compacted topic needs"
    early = f"timestamp outside [{NOW_MS - 100}, {NOW_MS + 50}]"
    assert caught.value.at_fault == ((1, no_key), (2, early), (3, no_key))


def test_as_many_records_are_named_as_an_answer_may_have() -> None:
    data = bytearray(build_batch([(NOW_MS, None, b"v")] * (MAX_AT_FAULT + 5)))
    with pytest.raises(InvalidBatch) as caught:
        validate(data, rules=KEYED)
    assert indexes(caught.value) == tuple(range(MAX_AT_FAULT))


def test_records_without_timestamp_are_in_no_bounds() -> None:
    data = bytearray(build_batch([(-1, b"k", b"v")]))
    assert validate(data, rules=BatchRules(before_max_ms=0, after_max_ms=0), now_ms=NOW_MS)


@pytest.mark.parametrize("rules", [None, KEYED, BatchRules(codec=4), BatchRules(before_max_ms=1)])
def test_compressed_records_are_never_looked_into_here(rules: BatchRules | None) -> None:
    nonsense = Batch(attributes=1, records=b"this is no gzip").build()
    assert validate(nonsense, rules=rules, now_ms=NOW_MS)


def test_records_that_a_worker_will_compress_are_walked_there_and_not_here() -> None:
    broken = Batch(records=b"no record").build()
    assert validate(broken, rules=BatchRules(codec=1))
    for rules in (None, BatchRules(codec=0), KEYED, BatchRules(stamps=True)):
        with pytest.raises(InvalidBatch):
            validate(broken, rules=rules)


@pytest.mark.parametrize("rules", [BatchRules(stamps=True), BatchRules(before_max_ms=2**62, after_max_ms=2**62)])
@pytest.mark.parametrize(("batch", "code"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_for_every_topic_is_wrong_for_one_with_rules(
    batch: Batch, code: ErrorCode, rules: BatchRules
) -> None:
    """The walk by rules is a second piece of code: it must not be the laxer one."""
    with pytest.raises(InvalidBatch) as caught:
        validate(batch.build(), rules=rules, now_ms=NOW_MS)
    assert caught.value.code is code


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), flips=st.integers(1, 4))
def test_damage_behind_a_matching_crc_gives_a_valid_batch_or_a_typed_error(seed: int, flips: int) -> None:
    rng = random.Random(seed)
    batch = bytearray(build_batch([(NOW_MS + i, b"key", b"value", [("h", b"x")]) for i in range(3)]))
    for _ in range(flips):
        batch[rng.randrange(HEADER_BYTES, len(batch))] = rng.choice((0x00, 0x01, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    try:
        (accepted,) = validate(batch)
    except InvalidBatch:
        return
    assert [r.offset for r in decode_batch(accepted.view)] == [0, 1, 2]


# --- from the leader ---------------------------------------------------------------------------------------------


def stored(offset: int, count: int, epoch: int) -> bytes:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(NOW_MS + index, None, b"value")
    batch = bytearray(builder.build())
    assign_offset(batch, offset, epoch)
    return bytes(batch)


def fetched_headers(data: bytes | bytearray, expected_offset: int, max_epoch: int) -> list[BatchHeader]:
    return [BatchHeader(*header) for header in validate_fetched(memoryview(data), expected_offset, max_epoch)]


def test_what_a_leader_sends_is_taken_batch_by_batch() -> None:
    data = stored(10, 3, 1) + stored(13, 1, 1) + stored(14, 2, 4)
    fetched = fetched_headers(data, 10, 4)
    assert [(h.base_offset, h.next_offset, h.partition_leader_epoch) for h in fetched] == [
        (10, 13, 1),
        (13, 14, 1),
        (14, 16, 4),
    ]
    assert fetched_headers(b"", 10, 4) == []


def test_a_follower_takes_the_gaps_that_compaction_leaves() -> None:
    data = stored(12, 3, 1) + stored(20, 1, 1)
    assert [header.base_offset for header in fetched_headers(data, 10, 1)] == [12, 20]


def patched(position: int, replacement: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + replacement + data[position + len(replacement) :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\x00",
        lambda data: stored(9, 3, 1) + data,
        lambda data: data + stored(12, 1, 1),
        lambda data: data + stored(13, 1, 0),
        lambda data: data + stored(13, 1, 3),
        lambda data: data + stored(13, 1, -1),
        patched(70, b"\xff"),
        patched(16, b"\x01"),
        patched(8, b"\x00\x00\x00\x01"),
        patched(8, b"\xff\xff\xff\xff"),
        patched(17, b"\x00\x00\x00\x00"),
    ],
    ids=[
        "last byte missing", "a byte too many", "before the expected offset", "overlap", "epoch falls",
        "epoch above the leader's", "no epoch", "flipped value", "magic", "short length", "negative length", "crc",
    ],
)  # fmt: skip
def test_a_follower_takes_nothing_of_a_response_with_a_flaw(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(InvalidBatch) as caught:
        validate_fetched(memoryview(damage(stored(10, 3, 1))), 10, 2)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_that_compaction_thinned_out_is_taken_and_one_with_too_many_records_is_not() -> None:
    thinned = Batch(records=record(1), count=1, last_offset_delta=3, epoch=0).build()
    emptied = Batch(records=b"", count=0, last_offset_delta=3, epoch=0).build()
    for data in (thinned, emptied):
        (header,) = fetched_headers(data, 0, 0)
        assert header.next_offset == 4
    for count in (5, -1):
        with pytest.raises(InvalidBatch):
            validate_fetched(memoryview(Batch(count=count, last_offset_delta=3, epoch=0).build()), 0, 0)


# --- in pieces -------------------------------------------------------------------------------------------------------

KINDS = [
    Batch().build(),
    Batch(records=record(0) + record(1), count=2, last_offset_delta=1).build(),
    Batch(producer_id=7, producer_epoch=0, base_sequence=0).build(),
    Batch(crc=1).build(),
    Batch(length=2**31 - 1).build(),
    Batch(length=-5).build(),
    Batch(max_timestamp_ms=-9).build(),
    bytearray(30),
]


@pytest.mark.parametrize("piece_bytes", [1, 100, 200])
@given(kinds=st.lists(st.sampled_from(KINDS[:1] * 3 + KINDS), max_size=6))
def test_batches_are_checked_in_pieces_as_they_are_together(piece_bytes: int, kinds: list[bytearray]) -> None:
    def outcome(check: Callable[[memoryview], list[ProducedBatch]]) -> object:
        records = memoryview(bytearray(b"".join(kinds)) + bytes(READER_SLACK_BYTES))[:-READER_SLACK_BYTES]
        try:
            return [(bytes(batch.view), batch.records_count, batch.producer_id) for batch in check(records)]
        except InvalidBatch as error:
            return error.code

    def in_pieces(records: memoryview) -> list[ProducedBatch]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("strandline.protocol.records.validation.PIECE_BYTES", piece_bytes)
            pieces = [*validate_in_pieces(records, max_batch_bytes=LIMIT_BYTES, slack_bytes=32, rules=None, now_ms=0)]
        return [batch for piece in pieces for batch in piece]

    def together(records: memoryview) -> list[ProducedBatch]:
        return validate_produced(records, max_batch_bytes=LIMIT_BYTES, slack_bytes=READER_SLACK_BYTES)

    assert outcome(in_pieces) == outcome(together)


def test_the_number_of_batches_is_bounded_over_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.protocol.records.validation.PIECE_BYTES", 1000)
    for count, is_allowed in ((MAX_BATCHES, True), (MAX_BATCHES + 1, False)):
        records = memoryview(Batch().build() * count + bytes(READER_SLACK_BYTES))[:-READER_SLACK_BYTES]
        pieces = validate_in_pieces(records, max_batch_bytes=LIMIT_BYTES, slack_bytes=32, rules=None, now_ms=0)
        if is_allowed:
            assert sum(map(len, pieces)) == MAX_BATCHES
        else:
            with pytest.raises(InvalidBatch, match="send several requests"):
                list(pieces)
