"""The frame and the header of Kafka's requests and responses.

    frame     = length int32 | header | body
    request   = api_key int16 | api_version int16 | correlation_id int32 | client_id nullable string | [tags]
    response  = correlation_id int32 | [tags]

Tagged fields follow where the version of the API is a flexible one (KIP-482); the client's id is a legacy string there,
too. The response of ApiVersions never has them, since its reader does not know yet which version it gets (KIP-511).

Source: RequestHeader.json, ResponseHeader.json of Kafka's message schema.
"""

from __future__ import annotations

import struct

import msgspec

from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.kafka.primitives import CUT_OFF, skip_tags

FIRST_BYTE = 0x00
"""Of a frame behind its length: the high byte of its API key."""
PREFIX_BYTES = 4
_FIXED = struct.Struct(">ihhih")
"""Length, API key, version, correlation id, length of the client's id."""
_LENGTH = struct.Struct(">i")
_MIN_HEADER_BYTES = _FIXED.size - PREFIX_BYTES


class KafkaHeader(msgspec.Struct, gc=False):
    """What is known of a request before its body is read. `body_bytes`: behind the header, tagged fields included; the
    record batches of a Produce request are taken off once they are found."""

    size_bytes: int
    api_key: int
    version: int
    correlation_id: int
    body_bytes: int
    client_id: bytes


def read_header(
    buffer: bytes | bytearray | memoryview, position: int, available: int, max_frame_bytes: int
) -> KafkaHeader | None:
    """The header of the frame that starts at `position` of `buffer`, of which `available` bytes have been received.
    None while they are too few to tell.

    RemoteProtocolError, as soon as it shows: no frame has such a length, or the client's id does not fit into it."""
    if available < _FIXED.size:
        if available >= PREFIX_BYTES:
            _check_length(_LENGTH.unpack_from(buffer, position)[0], max_frame_bytes)
        return None
    length, api_key, version, correlation_id, id_bytes = _FIXED.unpack_from(buffer, position)
    if not _MIN_HEADER_BYTES <= length <= max_frame_bytes:
        _check_length(length, max_frame_bytes)
    start = position + _FIXED.size
    client_id = b""
    if id_bytes > 0:
        if id_bytes > length - _MIN_HEADER_BYTES:
            raise RemoteProtocolError(f"a client id of {id_bytes} bytes in a frame of {length} bytes")
        if available < _FIXED.size + id_bytes:
            return None
        client_id = bytes(buffer[start : start + id_bytes])
    elif id_bytes < -1:
        raise RemoteProtocolError(f"a client id of {id_bytes} bytes")
    return KafkaHeader(
        PREFIX_BYTES + length,
        api_key,
        version,
        correlation_id,
        length - _MIN_HEADER_BYTES - len(client_id),
        client_id,
    )


def _check_length(length: int, max_frame_bytes: int) -> None:
    if not _MIN_HEADER_BYTES <= length <= max_frame_bytes:
        raise RemoteProtocolError(
            f"frame length {length} is outside [{_MIN_HEADER_BYTES}, {max_frame_bytes}]: another protocol?"
        )


def behind_tags(body: memoryview) -> memoryview:
    """What follows the tagged fields that `body` begins with: those of a flexible request header.

    RemoteProtocolError: they do not end within it."""
    try:
        return body[skip_tags(body, 0) :]
    except CUT_OFF:
        raise RemoteProtocolError("a request header ends within its tagged fields") from None
