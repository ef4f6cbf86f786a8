"""Heartbeat of Kafka's protocol, versions 0 to 4, by hand: each member of each group sends one every few seconds.

```
request   string group_id | int32 generation_id | string member_id | [3+ string? group_instance_id] | tagged
response  [1+ int32 throttle_time_ms] | int16 error_code | tagged
```
Version 4 is flexible (`primitives`). Source: HeartbeatRequest.json and HeartbeatResponse.json of Kafka 3.9.
"""

from __future__ import annotations

import struct

from strandline.protocol.kafka.primitives import (
    CUT_OFF,
    DOES_NOT_FIT,
    INT16,
    INT32,
    NO_TAGS,
    check_end,
    frame_of,
    read_nullable_string,
    read_string,
    skip_tags,
    unreadable,
    unwritable,
)
from strandline.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

FIRST_FLEXIBLE = 4

_ANSWER = struct.Struct(">ih")
"""throttle_time_ms, error_code."""


def read_heartbeat(version: int, body: memoryview) -> HeartbeatRequest:
    """The request. RemoteProtocolError: `body` is not a Heartbeat request of this version."""
    flexible = version >= FIRST_FLEXIBLE
    try:
        group_id, position = read_string(body, 0, flexible)
        (generation_id,) = INT32.unpack_from(body, position)
        member_id, position = read_string(body, position + INT32.size, flexible)
        group_instance_id = None
        if version >= 3:
            group_instance_id, position = read_nullable_string(body, position, flexible)
        check_end(body, skip_tags(body, position) if flexible else position)
    except CUT_OFF as error:
        raise unreadable(HeartbeatRequest, error) from None
    return HeartbeatRequest(group_id, generation_id, member_id, group_instance_id)


def encode_heartbeat_response(version: int, correlation_id: int, message: HeartbeatResponse) -> bytes:
    """The whole frame, with its length and header. LocalProtocolError: a number does not fit its place."""
    flexible = version >= FIRST_FLEXIBLE
    try:
        if version == 0:
            body = INT16.pack(message.error_code)
        else:
            body = _ANSWER.pack(message.throttle_time_ms, message.error_code)
        return frame_of(correlation_id, flexible, body + NO_TAGS if flexible else body)
    except DOES_NOT_FIT as error:
        raise unwritable(message, error) from error
