"""Produce of Kafka's protocol, versions 0 to 11, by hand: every record comes through here, and kio would copy it.

```
request    [3+ string? transactional_id] int16 acks | int32 timeout_ms | [topic]
topic      string name | [partition]
partition  int32 index | bytes? records
response   [topic] | [1+ int32 throttle_time_ms] | tagged: [10+ 0: [node endpoint]]
topic      string name | [partition]
partition  int32 index | int16 error_code | int64 base_offset | [2+ int64 log_append_time_ms]
           | [5+ int64 log_start_offset] | [8+ [error] | string? error_message]
           | tagged: [10+ 0: int32 leader_id | int32 leader_epoch | tagged]
error      int32 batch_index | string? batch_index_error_message
```
From version 9 on all of it is flexible (`primitives`). Source: ProduceRequest.json, ProduceResponse.json (Kafka 3.9).
Versions 0 to 2 carry older record formats, which nobody serves here: they are read so that a refusal can name their
topics. Where the leaders live (node endpoints) is not told: clients know the brokers from their metadata.
"""

from __future__ import annotations

import struct

from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.kafka.primitives import (
    CUT_OFF,
    DOES_NOT_FIT,
    INT32,
    LAST_OF_UVARINT,
    NO_TAGS,
    check_end,
    frame_of,
    length_of,
    nullable_string,
    read_count,
    read_length,
    read_nullable_string,
    read_string,
    skip_tags,
    string,
    unreadable,
    unwritable,
)
from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.messages.data import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.protocol.types import NO_BROKER

FIRST_FLEXIBLE = 9

_HEAD = struct.Struct(">hi")
"""acks, timeout."""
_ONE_TOPIC = struct.Struct(">hhiih")
"""No transactional id, acks, timeout, one topic, length of its name."""
_ONE_PARTITION = struct.Struct(">iii")
"""One partition, its index, size of its records."""
_ONE_FLEXIBLE_TOPIC = struct.Struct(">BhiBB")
_ONE_FLEXIBLE_PARTITION = struct.Struct(">BiBBB")
"""The last three: the size of the records, if it takes so many bytes."""
_NO_TAGS_THRICE = 3 * NO_TAGS

_NO_DETAILS = length_of(0, False) + nullable_string(None, False)
_NO_FLEXIBLE_DETAILS = length_of(0, True) + nullable_string(None, True) + NO_TAGS
"""Of what was appended: no record errors, no message."""

_OUTCOME_0 = struct.Struct(">ihq")
_OUTCOME_2 = struct.Struct(">ihqq")
_OUTCOME_5 = struct.Struct(">ihqqq")
_LEADER = struct.Struct(">BBBiiB")
"""One tagged field, its tag 0, its size, id, epoch, no tagged fields."""
_LEADER_BYTES = 9

Records = list[memoryview | None]


def read_produce(version: int, body: memoryview) -> tuple[ProduceRequest, Records]:
    """The request, and the record batches of each partition that it names, in its order: slices of `body`, None where
    they are null. `records_size` of each partition tells their bytes (−1: null), so what else there is of the body.

    RemoteProtocolError: `body` is not a Produce request of this version, or names more than `MAX_NAMED`.
    """
    try:
        if version >= FIRST_FLEXIBLE:
            return _read_one_flexible(body) or _read(version, body)
        if version >= 3:
            return _read_one(body) or _read(version, body)
        return _read(version, body)
    except CUT_OFF as error:
        raise unreadable(ProduceRequest, error) from None


def _read_one(body: memoryview) -> tuple[ProduceRequest, Records] | None:
    """Most requests are for one partition and of no transaction. None: this one is not, or is no good. Hot: 1 µs."""
    if len(body) < 26:
        return None
    null, acks, timeout_ms, topics, name_bytes = _ONE_TOPIC.unpack_from(body)
    name_end = 14 + name_bytes
    if null != -1 or topics != 1 or not 0 <= name_bytes <= len(body) - 26:
        return None
    partitions, index, size = _ONE_PARTITION.unpack_from(body, name_end)
    start = name_end + 12
    if partitions != 1 or start + size != len(body):
        return None
    topic = TopicProduceData(str(body[14:name_end], "utf-8"), [PartitionProduceData(index, size)])
    return ProduceRequest(acks, timeout_ms, [topic]), [body[start:]]


def _read_one_flexible(body: memoryview) -> tuple[ProduceRequest, Records] | None:
    """As `_read_one`, for records below 2 MiB."""
    if len(body) < 17:
        return None
    null, acks, timeout_ms, topics, name_length = _ONE_FLEXIBLE_TOPIC.unpack_from(body)
    name_end = 8 + name_length
    if null or topics != 2 or not 0 < name_length < LAST_OF_UVARINT or name_end + 8 > len(body):
        return None
    partitions, index, first, second, third = _ONE_FLEXIBLE_PARTITION.unpack_from(body, name_end)
    if first < LAST_OF_UVARINT:
        size, start = first - 1, name_end + 6
    elif second < LAST_OF_UVARINT:
        size, start = (second << 7 | first & 0x7F) - 1, name_end + 7
    elif third < LAST_OF_UVARINT:
        size, start = (third << 14 | (second & 0x7F) << 7 | first & 0x7F) - 1, name_end + 8
    else:
        return None
    end = start + size
    if partitions != 2 or size < 0 or body[end:] != _NO_TAGS_THRICE:
        return None
    topic = TopicProduceData(str(body[9:name_end], "utf-8"), [PartitionProduceData(index, size)])
    return ProduceRequest(acks, timeout_ms, [topic]), [body[start:end]]


def _read(version: int, body: memoryview) -> tuple[ProduceRequest, Records]:
    flexible = version >= FIRST_FLEXIBLE
    transactional_id, position = read_nullable_string(body, 0, flexible) if version >= 3 else (None, 0)
    acks, timeout_ms = _HEAD.unpack_from(body, position)
    count, position = read_count(body, position + 6, flexible, 3 if flexible else 6)
    left = MAX_NAMED
    topics: list[TopicProduceData] = []
    records: Records = []
    for _ in range(count):
        name, position = read_string(body, position, flexible)
        count, position = read_count(body, position, flexible, 6 if flexible else 8, left)
        left -= count
        partitions: list[PartitionProduceData] = []
        for _ in range(count):
            (index,) = INT32.unpack_from(body, position)
            size, start = read_length(body, position + 4, flexible)
            if size >= 0:
                position = start + size
                if position > len(body):
                    raise RemoteProtocolError(f"records of {size} bytes where {len(body) - start} follow")
                records.append(body[start:position])
            else:
                position = start
                records.append(None)
            if flexible:
                position = skip_tags(body, position)
            partitions.append(PartitionProduceData(index, size))
        if flexible:
            position = skip_tags(body, position)
        topics.append(TopicProduceData(name, partitions))
    check_end(body, skip_tags(body, position) if flexible else position)
    return ProduceRequest(acks, timeout_ms, topics, transactional_id), records


def encode_produce_response(version: int, correlation_id: int, message: ProduceResponse) -> bytes:
    """The whole frame, with its length and header. What a version has no place for is left out. Hot: 1 to 2 µs.

    LocalProtocolError: a number or a text of `message` does not fit its place.
    """
    flexible = version >= FIRST_FLEXIBLE
    pieces: list[bytes] = [length_of(len(message.responses), flexible)]
    try:
        for topic in message.responses:
            parts = topic.partition_responses
            pieces.append(string(topic.name, flexible) + length_of(len(parts), flexible))
            pieces += [_outcome(version, part) for part in parts]
            if flexible:
                pieces.append(NO_TAGS)
        if version >= 1:
            pieces.append(INT32.pack(message.throttle_time_ms))
        if flexible:
            pieces.append(NO_TAGS)
        return frame_of(correlation_id, flexible, b"".join(pieces))
    except DOES_NOT_FIT as error:
        raise unwritable(message, error) from error


def _outcome(version: int, part: PartitionProduceResponse) -> bytes:
    if version < 2:
        return _OUTCOME_0.pack(part.index, part.error_code, part.base_offset)
    if version < 5:
        return _OUTCOME_2.pack(part.index, part.error_code, part.base_offset, part.log_append_time_ms)
    outcome = _OUTCOME_5.pack(
        part.index, part.error_code, part.base_offset, part.log_append_time_ms, part.log_start_offset
    )
    if version < 8:
        return outcome
    flexible = version >= FIRST_FLEXIBLE
    if part.error_code == 0:
        return outcome + (_NO_FLEXIBLE_DETAILS if flexible else _NO_DETAILS)
    outcome += length_of(len(part.record_errors), flexible)
    for record in part.record_errors:
        outcome += INT32.pack(record.batch_index) + nullable_string(record.batch_index_error_message, flexible)
        if flexible:
            outcome += NO_TAGS
    outcome += nullable_string(part.error_message, flexible)
    if not flexible:
        return outcome
    if version < 10 or part.current_leader_id == NO_BROKER:
        return outcome + NO_TAGS
    return outcome + _LEADER.pack(1, 0, _LEADER_BYTES, part.current_leader_id, part.current_leader_epoch, 0)
