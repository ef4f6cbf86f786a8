"""What a consumer says when it joins: clients' own format, of which a coordinator looks at the topics only.

    int16 version | int32 count | string topic … | further fields by version
    (a string: int16 length, UTF-8)

Source: Kafka's ConsumerProtocolSubscription.json.
"""

from __future__ import annotations

import struct

CONSUMER = "consumer"
"""The protocol type of groups whose members say this."""

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """None: it cannot be read."""
    try:
        _, count = _HEAD.unpack_from(subscription)
        if not 0 <= count <= len(subscription):
            return None
        position = _HEAD.size
        topics: list[str] = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, position)
            position += _LENGTH.size
            if not 0 <= length <= len(subscription) - position:
                return None
            topics.append(subscription[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
