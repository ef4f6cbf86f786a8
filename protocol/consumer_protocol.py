"""What consumers tell each other through their group: what each subscribes to, and what its leader assigned to it.

A coordinator hands these bytes on as they are; of a subscription it looks at the topics only. All integers are big
endian; a string is an int16 length and UTF-8, bytes are an int32 length and bytes, an array is an int32 count and
elements; a length of −1 is null where that is allowed (`?`).
```
subscription   int16 version | array of topics: string | bytes? user data |
   1 …         owned |
   2 …         int32 generation, −1 none |
   3 …         string? rack
assignment     int16 version 0 … 3, which all mean the same | owned | bytes? user data
owned          array of: string topic | array of partitions: int32

user data of a subscription, by the assignor that it is meant for
   sticky               owned | int32 generation (missing where a very old client speaks)
   cooperative-sticky   int32 generation
```
A version that is not known yet is read as the last one that is, and bytes behind the last field are ignored: both as
Kafka's clients do. Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json; KIP-429 (owned
partitions), KIP-792 (generation), KIP-881 (rack); StickyAssignor and CooperativeStickyAssignor for the user data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.kafka.primitives import (
    CUT_OFF,
    DOES_NOT_FIT,
    INT16,
    INT32,
    nullable_string,
    read_count,
    read_nullable_string,
    read_string,
    string,
)
from strandline.protocol.types import TopicPartition

CONSUMER = "consumer"
"""The protocol type of groups whose members say this."""

NO_GENERATION = -1
"""Of who was in no group yet."""

_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE, _LAST = 1, 2, 3, 3
_STRING_BYTES, _ENTRY_BYTES, _PARTITION_BYTES = 2, 6, 4
"""The least that one element of an array has."""
_ANY_COUNT = 2**31
"""There is no limit but the bytes."""

T = TypeVar("T")


class InvalidConsumerData(Exception):
    """Bytes that are not of these formats, or a value that cannot be written in them. The text says why."""


class Subscription(msgspec.Struct, frozen=True):
    """What a member says when it joins. `owned_partitions`: what it has at this moment, and has not given up, since
    generation `generation_id`. `group_instance_id` is not part of the bytes: a leader is told it beside them."""

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignment(msgspec.Struct, frozen=True):
    """What a member is given."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


# --- writing ---------------------------------------------------------------------------------------------------------


def encode_subscription(subscription: Subscription, version: int = _LAST) -> bytes:
    """Fields that `version` does not have are left out. InvalidConsumerData: a name is too long; so for all that
    write."""

    def write() -> bytes:
        pieces = [INT16.pack(version), INT32.pack(len(subscription.topics))]
        pieces += [string(topic, False) for topic in subscription.topics]
        pieces.append(_nullable_bytes(subscription.user_data))
        if version >= _OWNED_SINCE:
            pieces.append(_partitions(subscription.owned_partitions))
        if version >= _GENERATION_SINCE:
            pieces.append(INT32.pack(subscription.generation_id))
        if version >= _RACK_SINCE:
            pieces.append(nullable_string(subscription.rack_id, False))
        return b"".join(pieces)

    return _written(write)


def encode_assignment(assignment: Assignment, version: int = _LAST) -> bytes:
    return _written(
        lambda: INT16.pack(version) + _partitions(assignment.partitions) + _nullable_bytes(assignment.user_data)
    )


def encode_sticky_data(owned: Sequence[TopicPartition], generation: int) -> bytes:
    """The user data for the sticky assignor."""
    return _written(lambda: _partitions(owned) + INT32.pack(generation))


def encode_cooperative_data(generation: int) -> bytes:
    """The user data for the cooperative sticky assignor."""
    return _written(lambda: INT32.pack(generation))


def _written(write: Callable[[], bytes]) -> bytes:
    try:
        return write()
    except (*DOES_NOT_FIT, LocalProtocolError) as error:
        raise InvalidConsumerData(f"it cannot be written: {error}") from None


def _partitions(partitions: Sequence[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    pieces = [INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        pieces += (string(topic, False), INT32.pack(len(numbers)), *map(INT32.pack, numbers))
    return b"".join(pieces)


def _nullable_bytes(data: bytes | None) -> bytes:
    return INT32.pack(-1) if data is None else INT32.pack(len(data)) + data


# --- reading ---------------------------------------------------------------------------------------------------------


def decode_subscription(data: bytes) -> Subscription:
    """InvalidConsumerData; so for all that read."""
    return _read(data, _subscription)


def decode_assignment(data: bytes) -> Assignment:
    return _read(data, _assignment)


def decode_sticky_data(data: bytes) -> tuple[list[TopicPartition], int]:
    """What a member owned, and since which generation."""
    return _read(data, _sticky_data)


def decode_cooperative_data(data: bytes) -> int:
    """The generation since which a member has what it owns."""
    return _read(data, lambda body: int(INT32.unpack_from(body)[0]))


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """None: it cannot be read. What stands behind the topics is not looked at: clients have written versions there that
    their bytes are not of."""
    try:
        return frozenset(_read(subscription, lambda body: _topics(body, _version(body)[1])[0]))
    except InvalidConsumerData:
        return None


def _read(data: bytes, read: Callable[[memoryview], T]) -> T:
    try:
        return read(memoryview(data))
    except RemoteProtocolError as error:
        raise InvalidConsumerData(str(error)) from None
    except UnicodeDecodeError as error:
        raise InvalidConsumerData(f"a string is not UTF-8: {error.reason}") from None
    except CUT_OFF:
        raise InvalidConsumerData(f"it ends after {len(data)} bytes, inside of a field") from None


def _subscription(body: memoryview) -> Subscription:
    version, position = _version(body)
    topics, position = _topics(body, position)
    user_data, position = _read_bytes(body, position)
    owned: list[TopicPartition] = []
    generation, rack = NO_GENERATION, None
    if version >= _OWNED_SINCE:
        owned, position = _read_partitions(body, position)
    if version >= _GENERATION_SINCE:
        (generation,) = INT32.unpack_from(body, position)
        position += INT32.size
    if version >= _RACK_SINCE:
        rack, position = read_nullable_string(body, position, False)
    return Subscription(topics, user_data, owned, generation, rack)


def _assignment(body: memoryview) -> Assignment:
    _, position = _version(body)
    partitions, position = _read_partitions(body, position)
    return Assignment(partitions, _read_bytes(body, position)[0])


def _sticky_data(body: memoryview) -> tuple[list[TopicPartition], int]:
    owned, position = _read_partitions(body, 0)
    if position == len(body):
        return owned, NO_GENERATION
    return owned, INT32.unpack_from(body, position)[0]


def _version(body: memoryview) -> tuple[int, int]:
    (version,) = INT16.unpack_from(body)
    if version < 0:
        raise RemoteProtocolError(f"version {version}")
    return version, INT16.size


def _topics(body: memoryview, position: int) -> tuple[list[str], int]:
    count, position = read_count(body, position, False, _STRING_BYTES, _ANY_COUNT)
    topics = []
    for _ in range(count):
        topic, position = read_string(body, position, False)
        topics.append(topic)
    return topics, position


def _read_partitions(body: memoryview, position: int) -> tuple[list[TopicPartition], int]:
    topics, position = read_count(body, position, False, _ENTRY_BYTES, _ANY_COUNT)
    partitions: list[TopicPartition] = []
    for _ in range(topics):
        topic, position = read_string(body, position, False)
        count, position = read_count(body, position, False, _PARTITION_BYTES, _ANY_COUNT)
        for _ in range(count):
            partitions.append(TopicPartition(topic, INT32.unpack_from(body, position)[0]))
            position += INT32.size
    return partitions, position


def _read_bytes(body: memoryview, position: int) -> tuple[bytes | None, int]:
    (length,) = INT32.unpack_from(body, position)
    start = position + INT32.size
    if length == -1:
        return None, start
    if not 0 <= length <= len(body) - start:
        raise RemoteProtocolError(f"a length of {length} where {len(body) - start} bytes follow")
    return bytes(body[start : start + length]), start + length
