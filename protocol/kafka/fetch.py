"""Fetch of Kafka's protocol, versions 4 to 18, by hand: what it answers is sent from where it lies.

```
request    [4–14 int32 replica_id] int32 max_wait_ms | int32 min_bytes | int32 max_bytes | int8 isolation_level
           | [7+ int32 session_id | int32 session_epoch] | [topic] | [7+ [forgotten]] | [11+ string rack_id]
           | tagged: [12+ 0: string? cluster_id] [15+ 1: int32 replica_id | int64 replica_epoch | tagged]
topic      name | [partition]
partition  int32 partition | [9+ int32 current_leader_epoch] | int64 fetch_offset | [12+ int32 last_fetched_epoch]
           | [5+ int64 log_start_offset] | int32 partition_max_bytes
forgotten  name | [int32 partition]
response   int32 throttle_time_ms | [7+ int16 error_code | int32 session_id] | [topic]
           | tagged: [16+ 0: [node endpoint]]
topic      name | [partition]
partition  int32 partition_index | int16 error_code | int64 high_watermark | int64 last_stable_offset
           | [5+ int64 log_start_offset] | [aborted transaction]? | [11+ int32 preferred_read_replica] | bytes? records
           | tagged: [0: int32 epoch | int64 end_offset | tagged] [1: int32 leader_id | int32 leader_epoch | tagged]
name       up to 12 string topic; 13+ 16 bytes topic_id
```
From version 12 on all of it is flexible (`primitives`); 17 and 18 have more tagged fields of followers, which come in
the native dialect only. Source: FetchRequest.json and FetchResponse.json of Kafka 4.3.

What is always the same: partitions without records have empty ones, as Kafka's have (librdkafka takes null for damage);
there are no aborted transactions, as long as there are no transactions (Kafka says null, not none, to those who read
uncommitted; both mean the same there); where leaders live is not told, as clients know the brokers from their metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.kafka.primitives import (
    CUT_OFF,
    DOES_NOT_FIT,
    INT32,
    NO_TAGS,
    check_end,
    frame_of,
    length_of,
    read_count,
    read_string,
    read_tags,
    skip_tags,
    string,
    unreadable,
    unwritable,
)
from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.messages.data import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_OFFSET, NO_TOPIC, NO_TOPIC_ID, TopicId

FIRST_FROM_FOLLOWERS = 11
"""Consumers that speak this version, or a later one, take answers of followers (FetchParams.fetchOnlyLeader)."""
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
TOPIC_ID_BYTES = 16

_LIMITS = struct.Struct(">iiib")
"""max_wait_ms, min_bytes, max_bytes, isolation_level."""
_SESSION = struct.Struct(">ii")
_REPLICA_STATE_TAG = 1
_REPLICA_STATE = struct.Struct(">iq")

_NOTHING_MORE_7 = length_of(0, False)
_NOTHING_MORE_11 = _NOTHING_MORE_7 + string("", False)
_NOTHING_MORE_12 = length_of(0, True) + string("", True) + NO_TAGS
"""No topics to forget, no rack, no tagged fields: most requests of clients end like that."""

_WANTED_4 = struct.Struct(">iqi")
_WANTED_5 = struct.Struct(">iqqi")
_WANTED_9 = struct.Struct(">iiqqi")
_WANTED_12 = struct.Struct(">iiqiqi")

_HEAD_4 = INT32
_HEAD_7 = struct.Struct(">ihi")
_DATA_4 = struct.Struct(">ihqqii")
"""Index, error, high watermark, last stable offset, no aborted transactions, bytes of records."""
_DATA_5 = struct.Struct(">ihqqqii")
_DATA_11 = struct.Struct(">ihqqqiii")
_DATA_12 = struct.Struct(">ihqqqBi")
"""Without the bytes of records, of which the length varies."""
_NONE_ABORTED = 1
_DIVERGING = struct.Struct(">BBiqB")
"""A tagged field: its tag 0, its size, epoch, end offset, no tagged fields."""
_DIVERGING_BYTES = 13
_LEADER = struct.Struct(">BBiiB")
"""A tagged field: its tag 1, its size, id, epoch, no tagged fields."""
_LEADER_BYTES = 9


def read_fetch(version: int, body: memoryview) -> FetchRequest:
    """The request. From version 13 on topics have no names in it but ids.

    RemoteProtocolError: `body` is not a Fetch request of this version, or names more than `MAX_NAMED` topics,
    partitions, or partitions to forget.
    """
    try:
        return _read(version, body)
    except CUT_OFF as error:
        raise unreadable(FetchRequest, error) from None


def _read(version: int, body: memoryview) -> FetchRequest:
    flexible = version >= FIRST_FLEXIBLE
    position = 0
    replica_id, replica_epoch = NO_BROKER, NO_EPOCH
    if version < 15:
        (replica_id,) = INT32.unpack_from(body)
        position = 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(body, position)
    position += _LIMITS.size
    session_id, session_epoch = 0, NO_EPOCH
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(body, position)
        position += _SESSION.size
    topics, position = _read_topics(version, body, position)
    forgotten: list[ForgottenTopic] = []
    rack_id = ""
    if version < 7:
        check_end(body, position)
    elif body[position:] != (_NOTHING_MORE_12 if flexible else _NOTHING_MORE_11 if version == 11 else _NOTHING_MORE_7):
        forgotten, position = _read_forgotten(version, body, position)
        if version >= 11:
            rack_id, position = read_string(body, position, flexible)
        if flexible:
            tags, position = read_tags(body, position)
            if version >= 15 and (state := tags.get(_REPLICA_STATE_TAG)) is not None:
                replica_id, replica_epoch = _REPLICA_STATE.unpack_from(state)
                check_end(state, skip_tags(state, _REPLICA_STATE.size))
        check_end(body, position)
    return FetchRequest(
        max_wait_ms,
        min_bytes,
        max_bytes,
        topics,
        replica_id,
        replica_epoch,
        isolation_level,
        session_id,
        session_epoch,
        forgotten,
        rack_id,
        knows_followers=version >= FIRST_FROM_FOLLOWERS,
    )


def _read_name(version: int, body: memoryview, position: int) -> tuple[str, TopicId, int]:
    if version < FIRST_WITH_TOPIC_IDS:
        name, position = read_string(body, position, version >= FIRST_FLEXIBLE)
        return name, NO_TOPIC_ID, position
    end = position + TOPIC_ID_BYTES
    if end > len(body):
        raise RemoteProtocolError(f"a topic id in {len(body) - position} bytes")
    return NO_TOPIC, bytes(body[position:end]), end


def _read_topics(version: int, body: memoryview, position: int) -> tuple[list[FetchTopic], int]:
    flexible = version >= FIRST_FLEXIBLE
    count, position = read_count(body, position, flexible, 3 if flexible else 6)
    left = MAX_NAMED
    topics: list[FetchTopic] = []
    for _ in range(count):
        name, topic_id, position = _read_name(version, body, position)
        count, position = read_count(body, position, flexible, _WANTED_4.size, left)
        left -= count
        partitions: list[FetchPartition] = []
        for _ in range(count):
            current_epoch, fetched_epoch, log_start = NO_EPOCH, NO_EPOCH, NO_OFFSET
            if flexible:
                index, current_epoch, offset, fetched_epoch, log_start, max_bytes = _WANTED_12.unpack_from(
                    body, position
                )
                position = skip_tags(body, position + _WANTED_12.size)
            elif version >= 9:
                index, current_epoch, offset, log_start, max_bytes = _WANTED_9.unpack_from(body, position)
                position += _WANTED_9.size
            elif version >= 5:
                index, offset, log_start, max_bytes = _WANTED_5.unpack_from(body, position)
                position += _WANTED_5.size
            else:
                index, offset, max_bytes = _WANTED_4.unpack_from(body, position)
                position += _WANTED_4.size
            partitions.append(FetchPartition(index, offset, max_bytes, current_epoch, fetched_epoch, log_start))
        if flexible:
            position = skip_tags(body, position)
        topics.append(FetchTopic(name, partitions, topic_id))
    return topics, position


def _read_forgotten(version: int, body: memoryview, position: int) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= FIRST_FLEXIBLE
    count, position = read_count(body, position, flexible, 3 if flexible else 6)
    left = MAX_NAMED
    forgotten: list[ForgottenTopic] = []
    for _ in range(count):
        name, topic_id, position = _read_name(version, body, position)
        count, position = read_count(body, position, flexible, INT32.size, left)
        left -= count
        partitions = [index for (index,) in INT32.iter_unpack(body[position : position + INT32.size * count])]
        position += INT32.size * count
        if flexible:
            position = skip_tags(body, position)
        forgotten.append(ForgottenTopic(name, partitions, topic_id))
    return forgotten, position


def encode_fetch_response(
    version: int, correlation_id: int, message: FetchResponse, sizes: Sequence[int]
) -> list[bytes]:
    """The frame, with its length and header, in the segments between its records. What a version has no place for is
    left out. Hot: some 2 µs for one partition.

    sizes: how many bytes of records each partition has, in the order of `message`; 0: none. For each size above 0 a
    segment ends where those records have to follow; a last segment follows the last records where there is more.

    LocalProtocolError: a number or a text does not fit its place, or there is not a size for each partition.
    """
    flexible = version >= FIRST_FLEXIBLE
    segments: list[bytes] = []
    pieces: list[bytes] = []
    position = 0
    try:
        if version >= 7:
            pieces.append(_HEAD_7.pack(message.throttle_time_ms, message.error_code, message.session_id))
        else:
            pieces.append(_HEAD_4.pack(message.throttle_time_ms))
        pieces.append(length_of(len(message.responses), flexible))
        for topic in message.responses:
            name = topic.topic_id if version >= FIRST_WITH_TOPIC_IDS else string(topic.topic, flexible)
            pieces.append(name + length_of(len(topic.partitions), flexible))
            for part in topic.partitions:
                size = sizes[position]
                position += 1
                pieces.append(_data(version, part, size))
                if size:
                    segments.append(b"".join(pieces))
                    pieces.clear()
                if flexible:
                    pieces.append(_tags(part))
            if flexible:
                pieces.append(NO_TAGS)
        if position != len(sizes):
            raise LocalProtocolError(f"a FetchResponse of {position} partitions with {len(sizes)} sizes")
        if flexible:
            pieces.append(NO_TAGS)
        if pieces:
            segments.append(b"".join(pieces))
        first = segments[0]
        attached_bytes = sum(sizes) + sum(map(len, segments)) - len(first)
        segments[0] = frame_of(correlation_id, flexible, first, attached_bytes)
    except DOES_NOT_FIT as error:
        raise unwritable(message, error) from error
    return segments


def _data(version: int, part: FetchPartitionData, size: int) -> bytes:
    """Of one partition all that comes before the records."""
    if version >= FIRST_FLEXIBLE:
        data = _DATA_12.pack(
            part.partition_index,
            part.error_code,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            _NONE_ABORTED,
            part.preferred_read_replica,
        )
        return data + length_of(size, True)
    if version >= 11:
        return _DATA_11.pack(
            part.partition_index,
            part.error_code,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            0,
            part.preferred_read_replica,
            size,
        )
    if version >= 5:
        return _DATA_5.pack(
            part.partition_index,
            part.error_code,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            0,
            size,
        )
    return _DATA_4.pack(part.partition_index, part.error_code, part.high_watermark, part.last_stable_offset, 0, size)


def _tags(part: FetchPartitionData) -> bytes:
    """Of one partition what comes behind the records, where there is something to tell."""
    diverging = part.diverging_epoch
    if diverging is None and part.current_leader_id == NO_BROKER:
        return NO_TAGS
    tags = b""
    if diverging is not None:
        tags += _DIVERGING.pack(0, _DIVERGING_BYTES, diverging.epoch, diverging.end_offset, 0)
    if part.current_leader_id != NO_BROKER:
        tags += _LEADER.pack(1, _LEADER_BYTES, part.current_leader_id, part.current_leader_epoch, 0)
    count = (diverging is not None) + (part.current_leader_id != NO_BROKER)
    return length_of(count - 1, True) + tags
