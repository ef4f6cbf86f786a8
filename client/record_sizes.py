"""How large a record is to the brokers: as a batch of its own, with all its framing (its layout is in `records.batch`).

This is what `max_request_size` of a producer limits, before compression, and `max.message.bytes` of a topic, as sent.
The default of the first is 12 bytes below that of the second, as in Kafka: what passes here passes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from strandline.protocol.records import HEADER_BYTES

FIXED_BYTES = 3
"""Of a batch's first record: attributes, timestamp delta and offset delta, both 0."""


def batch_bytes(record: Sequence[Any], headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Of a batch that holds this record alone, uncompressed. `headers`: of a record that has none of its own."""
    own_headers = headers if len(record) == 2 else record[2]
    size = FIXED_BYTES + _field(record[0]) + _field(record[1]) + _varint(len(own_headers))
    for name, value in own_headers:
        size += _field(name.encode()) + _field(value)
    return HEADER_BYTES + _varint(size) + size


_key_of, _value_of, _headers_of = itemgetter(0), itemgetter(1), itemgetter(2)


def content_bytes(records: Sequence[Any]) -> int:
    """Of keys, values and headers of records of one kind, pairs or full ones: what they take while they wait for being
    encoded. By columns, since there may be a million of them."""
    if not records:
        return 0
    if len(records[0]) == 2:
        return sum(map(len, filter(None, chain.from_iterable(records))))
    keys_and_values = chain(map(_key_of, records), map(_value_of, records))
    headers = sum(map(headers_bytes, filter(None, map(_headers_of, records))))
    return headers + sum(map(len, filter(None, keys_and_values)))


def headers_bytes(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Of names, as far as they are ASCII, and values."""
    return sum(len(name) + len(value or b"") for name, value in headers) if headers else 0


def _field(content: bytes | None) -> int:
    """With the length before it; a length of -1 means None, and takes one byte, too."""
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Zigzag, 7 bits to a byte, of a number that is not negative."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
