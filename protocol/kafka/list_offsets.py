"""The answer to ListOffsets in Kafka's protocol, versions 1 to 9, by hand: consumers ask about all of their partitions,
and kio takes some 10 µs for each (by hand less than a tenth).

```
response   [2+ int32 throttle_time_ms] | array of topics | tagged
topic      string name | array of partitions | tagged
partition  int32 partition_index | int16 error_code | int64 timestamp | int64 offset | [4+ int32 leader_epoch] | tagged
```
Version 6 and later are flexible (`primitives`). Before version 5 clients do not know OFFSET_NOT_AVAILABLE: they get
LEADER_NOT_AVAILABLE, which they repeat as well (KIP-207). Source: ListOffsetsResponse.json of Kafka 3.9.
"""

from __future__ import annotations

import struct

from strandline.protocol.errors import ErrorCode
from strandline.protocol.kafka.primitives import (
    DOES_NOT_FIT,
    INT32,
    NO_TAGS,
    frame_of,
    length_of,
    string,
    unwritable,
)
from strandline.protocol.messages import ListOffsetsResponse

FIRST_FLEXIBLE = 6
FIRST_THAT_KNOWS_NOT_AVAILABLE = 5
FIRST_WITH_EPOCHS = 4

_PARTITION = struct.Struct(">ihqq")
_PARTITION_4 = struct.Struct(">ihqqi")
_PARTITION_6 = struct.Struct(">ihqqiB")
"""And no tagged fields."""


def encode_list_offsets_response(version: int, correlation_id: int, message: ListOffsetsResponse) -> bytes:
    """The whole frame, with its length and header. LocalProtocolError: a value does not fit its place."""
    flexible = version >= FIRST_FLEXIBLE
    out: list[bytes] = []
    try:
        if version >= 2:
            out.append(INT32.pack(message.throttle_time_ms))
        out.append(length_of(len(message.topics), flexible))
        for topic in message.topics:
            out += (string(topic.name, flexible), length_of(len(topic.partitions), flexible))
            for part in topic.partitions:
                index, code, stamp, offset = part.partition_index, part.error_code, part.timestamp, part.offset
                if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_THAT_KNOWS_NOT_AVAILABLE:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                if flexible:
                    out.append(_PARTITION_6.pack(index, code, stamp, offset, part.leader_epoch, 0))
                elif version >= FIRST_WITH_EPOCHS:
                    out.append(_PARTITION_4.pack(index, code, stamp, offset, part.leader_epoch))
                else:
                    out.append(_PARTITION.pack(index, code, stamp, offset))
            if flexible:
                out.append(NO_TAGS)
        if flexible:
            out.append(NO_TAGS)
        return frame_of(correlation_id, flexible, b"".join(out))
    except DOES_NOT_FIT as error:
        raise unwritable(message, error) from error
