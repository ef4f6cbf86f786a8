"""Which partition a row goes to. Pure.

Under exactly once the same row goes to the same partition in every attempt, so it depends on the row and on the number
of partitions only: rows with a key go where every producer of Kafka puts them, those without by a checksum of their
value. (Otherwise the producer chooses for the latter: a batch of rows at a time.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.client.partitioner import murmur2
from strandline.protocol.records.columnar import I64
from strandline.protocol.types import NO_PARTITION, TopicPartition
from strandline.spark_connector.errors import WriteFailed
from strandline.spark_connector.writing.rows import RecordRows, Rows

FEW = 16
"""So many keys of one length are hashed one by one."""


class Room(NamedTuple):
    """For the rows of one topic: those that name no partition go to the first `placed_among` of its partitions."""

    partitions_count: int
    placed_among: int


def placed(
    rows: Rows, room_of: Callable[[str], Room], *, keyless_are_placed: bool = True
) -> dict[TopicPartition, RecordRows]:
    """Rows by partition, in order; those of NO_PARTITION are for the producer to place, where keyless rows are not
    placed. WriteFailed: a row names a partition that its topic does not have."""
    groups: dict[TopicPartition, RecordRows] = {}
    for topic, partitions, records in _by_topic(rows):
        numbers = _numbers(topic, partitions, records, room_of(topic), keyless_are_placed)
        for number, own in _divided(records, numbers):
            groups[TopicPartition(topic, number)] = own
    return groups


def _by_topic(rows: Rows) -> Iterator[tuple[str, pa.Array | None, RecordRows]]:
    """(topic, partitions that rows name, rows)."""
    if isinstance(rows.topics, str):
        if len(rows.records):
            yield rows.topics, rows.partitions, rows.records
        return
    topics = rows.topics.dictionary_encode()
    codes = topics.indices.to_numpy().astype(np.int64)
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        own = np.flatnonzero(codes == code)
        yield topic, None if rows.partitions is None else rows.partitions.take(pa.array(own)), rows.records.at(own)


def _numbers(topic: str, partitions: pa.Array | None, records: RecordRows, room: Room, keyless_are_placed: bool) -> I64:
    """Of the partition of each row."""
    if partitions is None:
        return _chosen(records, room.placed_among, keyless_are_placed)
    most = pc.max(partitions).as_py()
    if most is not None and most >= room.partitions_count:
        raise WriteFailed(f"topic {topic!r} has no partition {most}, only {room.partitions_count} of them")
    numbers: I64 = partitions.fill_null(NO_PARTITION).to_numpy().astype(np.int64)
    left = np.flatnonzero(numbers == NO_PARTITION)
    numbers[left] = _chosen(records.at(left), room.placed_among, keyless_are_placed)
    return numbers


def _chosen(records: RecordRows, count: int, keyless_are_placed: bool) -> I64:
    """By keys, and by values where there is none."""
    numbers = np.full(len(records), NO_PARTITION, np.int64)
    keyless = np.flatnonzero(records.keys.is_null().to_numpy(zero_copy_only=False))
    if len(keyless) < len(numbers):
        keys = records.keys.dictionary_encode()
        numbers = hashes_of(keys.dictionary)[keys.indices.fill_null(0).to_numpy()] % count
    if len(keyless):
        values = records.values.take(pa.array(keyless)).to_pylist() if keyless_are_placed else ()
        numbers[keyless] = [crc32(value or b"") % count for value in values] if keyless_are_placed else NO_PARTITION
    return numbers


def _divided(records: RecordRows, numbers: I64) -> Iterator[tuple[int, RecordRows]]:
    few_bits = numbers.astype(np.int16) if numbers.max() < 2**15 else numbers  # which are sorted faster
    order = np.argsort(few_bits, kind="stable")
    ordered, sorted_numbers = records.at(order), numbers[order]
    ends = np.append(np.flatnonzero(np.diff(sorted_numbers)) + 1, len(sorted_numbers))
    start = 0
    for end in ends.tolist():
        yield int(sorted_numbers[start]), ordered.part(start, end)
        start = end


def hashes_of(keys: pa.Array) -> I64:
    """`murmur2` of each, without its sign bit, as the default partitioner takes it; keys of one length in step."""
    sizes = pc.binary_length(keys).to_numpy()
    found = np.zeros(len(keys), np.int64)
    for length in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == length)
        own = keys.take(pa.array(rows))
        assert own.offset == 0, "it was just made"
        if len(rows) > FEW and length:
            data = np.frombuffer(own.buffers()[2], np.uint8)[: len(rows) * length]
            found[rows] = _in_step(data.reshape(len(rows), length))
        else:
            found[rows] = [murmur2(key) for key in own.to_pylist()]
    return found & 0x7FFFFFFF


def _in_step(keys: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """The steps of `murmur2`, each for all keys at once, of which each is a row; numbers wrap around at 32 bits."""
    count, length = keys.shape
    m = np.uint32(0x5BD1E995)
    words_end = length // 4 * 4
    words = np.ascontiguousarray(keys[:, :words_end]).view("<u4")
    hashed = np.full(count, (0x9747B28C ^ length) & 0xFFFFFFFF, dtype=np.uint32)
    for number in range(words_end // 4):
        word = words[:, number] * m
        hashed = (hashed * m) ^ ((word ^ (word >> np.uint32(24))) * m)
    if words_end < length:
        for position in range(words_end, length):
            hashed = hashed ^ (keys[:, position].astype(np.uint32) << np.uint32(8 * (position - words_end)))
        hashed = hashed * m
    hashed = (hashed ^ (hashed >> np.uint32(13))) * m
    return hashed ^ (hashed >> np.uint32(15))
