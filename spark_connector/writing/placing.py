"""Which partition a row goes to. Pure.

Under exactly once the same row goes to the same partition in every attempt, so it depends on the row and on the number
of partitions only: rows with a key go where every producer of Kafka puts them, those without by a checksum of their
value. (Otherwise the producer chooses for the latter: a batch of rows at a time.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from zlib import crc32

import numpy as np

from strandline.client.accumulator import ToSend
from strandline.client.partitioner import murmur2
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import WriteFailed
from strandline.spark_connector.writing.columns import Rows

Unplaced = tuple[str, int | None]
"""Topic and partition; None: the producer chooses."""

REMEMBERED_KEYS = 65_536
FEW = 16
"""So many keys of one length are hashed one by one."""


class Placing:
    """Places the rows of one task, and remembers the hashes of keys that come again."""

    def __init__(self, partitions_count: Callable[[str], int]) -> None:
        """partitions_count: of a topic."""
        self._partitions_count = partitions_count
        self._hashes: dict[bytes, int] = {}

    def placed(self, rows: Rows) -> dict[TopicPartition, list[ToSend]]:
        """Rows by partition, in order. WriteFailed: a row names a partition that its topic does not have."""
        groups: dict[TopicPartition, list[ToSend]] = {}
        for (topic, given), records in unplaced(rows).items():
            count = self._partitions_count(topic)
            if given is None:
                for number, chosen in enumerate(self._divided(records, count)):
                    if chosen:
                        groups.setdefault(TopicPartition(topic, number), []).extend(chosen)
            elif given < count:
                groups.setdefault(TopicPartition(topic, given), []).extend(records)
            else:
                raise WriteFailed(f"topic {topic!r} has no partition {given}, only {count} of them")
        return groups

    def _divided(self, records: Sequence[ToSend], count: int) -> list[list[ToSend]]:
        hashes = self._hashes_of(record[0] for record in records)
        divided: list[list[ToSend]] = [[] for _ in range(count)]
        append = [each.append for each in divided]
        for record in records:
            key = record[0]
            append[(crc32(record[1] or b"") if key is None else hashes[key]) % count](record)
        return divided

    def _hashes_of(self, keys: Iterable[bytes | None]) -> dict[bytes, int]:
        """Of all these keys, and of others."""
        wanted = set(keys) - {None}
        if len(self._hashes) > REMEMBERED_KEYS:
            self._hashes.clear()
        new = [key for key in wanted if key is not None and key not in self._hashes]
        self._hashes.update(zip(new, hashes_of(new), strict=True))
        return self._hashes


def unplaced(rows: Rows) -> dict[Unplaced, list[ToSend]]:
    """Rows by topic and by the partition that they name, in order."""
    if isinstance(rows.topics, str) and rows.partitions is None:
        return {(rows.topics, None): rows.records} if rows.records else {}
    size = len(rows.records)
    topics = [rows.topics] * size if isinstance(rows.topics, str) else rows.topics
    groups: dict[Unplaced, list[ToSend]] = {}
    for topic, partition, record in zip(topics, rows.partitions or [None] * size, rows.records, strict=True):
        groups.setdefault((topic, partition), []).append(record)
    return groups


def hashes_of(keys: Sequence[bytes]) -> list[int]:
    """`murmur2` of each, without its sign bit, as the default partitioner takes it; keys of one length in step."""
    by_length: dict[int, list[int]] = {}
    for index, key in enumerate(keys):
        by_length.setdefault(len(key), []).append(index)
    found = [0] * len(keys)
    for length, indexes in by_length.items():
        own = [keys[index] for index in indexes]
        hashes = _in_step(own, length) if len(own) > FEW else map(murmur2, own)
        for index, hashed in zip(indexes, hashes, strict=True):
            found[index] = hashed & 0x7FFFFFFF
    return found


def _in_step(keys: Sequence[bytes], length: int) -> list[int]:
    """The steps of `murmur2`, each for all keys at once; numbers wrap around at 32 bits."""
    m = np.uint32(0x5BD1E995)
    data = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), length)
    words_end = length // 4 * 4
    words = np.ascontiguousarray(data[:, :words_end]).view("<u4")
    hashed = np.full(len(keys), (0x9747B28C ^ length) & 0xFFFFFFFF, dtype=np.uint32)
    for number in range(words_end // 4):
        word = words[:, number] * m
        hashed = (hashed * m) ^ ((word ^ (word >> np.uint32(24))) * m)
    if words_end < length:
        for position in range(words_end, length):
            hashed = hashed ^ (data[:, position].astype(np.uint32) << np.uint32(8 * (position - words_end)))
        hashed = hashed * m
    hashed = (hashed ^ (hashed >> np.uint32(13))) * m
    found: list[int] = (hashed ^ (hashed >> np.uint32(15))).tolist()
    return found
