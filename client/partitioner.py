"""Which partition a record belongs to. Pure.

With a key: murmur2 of the key, as every Java client does it. Without one: any, by chance, those for which less waits
more often (KIP-794; when another one is chosen is in `keyless`).

The hash is Austin Appleby's MurmurHash2 (32 bit, seed 0x9747b28c); partition = (hash & 0x7fffffff) mod partitions.
Producers in other languages find the same partition for the same key as long as the number of partitions stays.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from strandline.client.errors import InvalidRecordValue

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_key_of = itemgetter(0)

REMEMBERED_KEYS = 65_536
"""Hashing costs about 0.3 µs per 4 bytes in Python; keys come in runs and come back."""


@functools.lru_cache(maxsize=REMEMBERED_KEYS)
def murmur2(key: bytes) -> int:
    """The hash as an unsigned 32-bit integer."""
    length = len(key)
    words = length // 4
    hashed = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", key):
        word = (word * _M) & _MASK
        hashed = ((hashed * _M) & _MASK) ^ (((word ^ (word >> 24)) * _M) & _MASK)
    tail = key[words * 4 :]
    if tail:
        hashed = ((hashed ^ int.from_bytes(tail, "little")) * _M) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
    return hashed ^ (hashed >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """The default partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def checked(partitioner: Callable[[bytes, int], int]) -> Callable[[bytes, int], int]:
    """A program's partitioner, which may be wrong: then it raises InvalidRecordValue."""

    def choose(key: bytes, partitions: int) -> int:
        name = getattr(partitioner, "__qualname__", type(partitioner).__qualname__)
        try:
            number = partitioner(key, partitions)
        except SystemExit as error:  # it would end the loop, and every client of the process
            raise InvalidRecordValue(f"the partitioner {name} raised {error!r}") from error
        if not (hasattr(number, "__index__") and 0 <= number < partitions):
            raise InvalidRecordValue(
                f"the partitioner {name} returned {number!r:.40} where the topic has {partitions} partitions: "
                f"return an int from 0 to {partitions - 1}"
            )
        return number

    return choose


def by_partition(
    records: Sequence[Any], partition: int | None, partitions: int, choose: Callable[[bytes, int], int]
) -> dict[int | None, Sequence[Any]]:
    """Records that begin with their key, in order within each partition: that which was asked for, else that which
    `choose` says. None: they have no key and may go anywhere."""
    if partition is not None:
        return {partition: records}
    if records and records[0][0] is None and [*map(_key_of, records)].count(None) == len(records):
        return {None: records}
    groups: dict[int | None, list[Any]] = {}
    last_key: bytes | object | None = groups  # equal to no key
    for record in records:
        key = record[0]
        if key != last_key:
            last_key = key
            number = None if key is None else choose(key, partitions)
            append_to_group = groups.setdefault(number, []).append
        append_to_group(record)
    return dict(groups)


def choose_partition(waiting: Mapping[int, int], point: float) -> int:
    """One of the keys of `waiting`, which tells how many batches wait for each partition. It is as likely as it has
    fewer than the longest queue plus one: of lengths 0, 0, 3 the first two come four times as often as the last.
    `point`: where chance has it, in [0, 1). ValueError where there is none to choose from."""
    longest = max(waiting.values())
    weights = {partition: longest + 1 - length for partition, length in waiting.items()}
    left = point * sum(weights.values())
    for partition, weight in weights.items():
        left -= weight
        if left < 0:
            return partition
    return partition
