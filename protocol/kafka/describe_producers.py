"""The answer to DescribeProducers in Kafka's protocol, version 0, by hand: a log may know thousands of them, and kio
takes some 10 µs for each (by hand less than a tenth).

```
response   int32 throttle_time_ms | array of topics | tagged
topic      string name | array of partitions | tagged
partition  int32 partition_index | int16 error_code | string? error_message | array of active_producers | tagged
producer   int64 producer_id | int32 producer_epoch | int32 last_sequence | int64 last_timestamp
           | int32 coordinator_epoch | int64 current_txn_start_offset | tagged
```
It is flexible (`primitives`). Source: DescribeProducersResponse.json of Kafka 3.9.
"""

from __future__ import annotations

import struct

from strandline.protocol.kafka.primitives import (
    DOES_NOT_FIT,
    INT32,
    NO_TAGS,
    frame_of,
    length_of,
    nullable_string,
    string,
    unwritable,
)
from strandline.protocol.messages import DescribeProducersResponse

_PARTITION = struct.Struct(">ih")
_PRODUCER = struct.Struct(">qiiqiqB")
"""And no tagged fields."""


def encode_describe_producers_response(version: int, correlation_id: int, message: DescribeProducersResponse) -> bytes:
    """The whole frame, with its length and header. LocalProtocolError: a value does not fit its place."""
    out: list[bytes] = []
    try:
        out += (INT32.pack(message.throttle_time_ms), length_of(len(message.topics), True))
        for topic in message.topics:
            out += (string(topic.name, True), length_of(len(topic.partitions), True))
            for part in topic.partitions:
                out += (
                    _PARTITION.pack(part.partition_index, part.error_code),
                    nullable_string(part.error_message, True),
                    length_of(len(part.active_producers), True),
                )
                for each in part.active_producers:
                    epoch, sequence, stamp = each.producer_epoch, each.last_sequence, each.last_timestamp
                    began = each.coordinator_epoch, each.current_txn_start_offset
                    out.append(_PRODUCER.pack(each.producer_id, epoch, sequence, stamp, *began, 0))
                out.append(NO_TAGS)
            out.append(NO_TAGS)
        out.append(NO_TAGS)
        return frame_of(correlation_id, True, b"".join(out))
    except DOES_NOT_FIT as error:
        raise unwritable(message, error) from error
