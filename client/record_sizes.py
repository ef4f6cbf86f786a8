"""How large a record is to the brokers: as a batch of its own, with all its framing (its layout is in `records.batch`).

This is what `max_request_size` of a producer limits, before compression, and `max.message.bytes` of a topic, as sent.
The default of the first is 12 bytes below that of the second, as in Kafka: what passes here passes there.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def _field(content: bytes | None) -> int:
    """With the length before it; a length of -1 means None, and takes one byte, too."""
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Zigzag, 7 bits to a byte, of a number that is not negative."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
