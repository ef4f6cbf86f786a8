"""Frames of the native protocol: how messages become bytes and bytes become messages.

A frame is
```
int32   length of everything that follows                                  4 bytes
header  0x94 0xcd api_key 0xcd version 0xce correlation_id 0xce body_bytes   17 bytes (">BBHBHBIBI")
body    one message as a msgpack array                                     body_bytes
attachments, raw and back to back, whose sizes the body names              the rest
```
The header is a msgpack array of four fixed-width integers, so that `struct` reads it in place; its first byte, 0x94,
tells the native dialect from Kafka's. A response repeats the API key, version and correlation id of its request.

Rules: every length is checked against a limit and against what is there before anything is allocated; whatever a peer
sends raises RemoteProtocolError or nothing. Nothing here keeps state: who reads a connection owns the position.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.messages.base import Message
from strandline.protocol.messages.data import (
    FetchPartitionData,
    FetchResponse,
    PartitionProduceData,
    ProduceRequest,
)

MAX_FRAME_BYTES = 100 * 2**20
"""Default of `socket.request.max.bytes`: the longest frame, without its length prefix."""

MAX_BODY_BYTES = 4 * 2**20
"""The longest msgpack body (attachments do not count): the metadata of 100 K partitions is 2.5 MB. Decoding builds up
to 64 bytes of objects per byte, so this, not the frame's limit, bounds what a hostile body can cost."""

PREFIX_BYTES = 4
HEADER_BYTES = 17
PREFIX_AND_HEADER_BYTES = PREFIX_BYTES + HEADER_BYTES

FIRST_BYTE = 0x94
"""Of a payload: no other dialect begins so (Kafka: 0x00, the high byte of its API key)."""

_UINT16, _UINT32 = 0xCD, 0xCE
_encode = msgspec.msgpack.Encoder().encode

_LENGTH = struct.Struct(">i")
_PREFIX_AND_HEADER = struct.Struct(">iBBHBHBIBI")

Buffer = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)


class FrameHeader(msgspec.Struct, gc=False):
    """Which message a frame of `size_bytes`, prefix included, holds: `body_bytes` of msgpack, then attachments up to
    its end."""

    size_bytes: int
    api_key: int
    version: int
    correlation_id: int
    body_bytes: int


class _Decoders(dict[type[Message], "msgspec.msgpack.Decoder[Any]"]):
    """Made once per class: that is what takes long."""

    def __missing__(self, cls: type[Message]) -> msgspec.msgpack.Decoder[Any]:
        decoder = self[cls] = msgspec.msgpack.Decoder(cls)
        return decoder


_decoders = _Decoders()


def encode_head(api_key: int, version: int, correlation_id: int, message: Message, attachment_bytes: int = 0) -> bytes:
    """Length prefix, header and body in one piece; exactly `attachment_bytes` must follow it on the wire.

    LocalProtocolError: a number does not fit its place, or the message holds what msgpack cannot carry.
    """
    try:
        body = _encode(message)
        head = _PREFIX_AND_HEADER.pack(
            HEADER_BYTES + len(body) + attachment_bytes,
            FIRST_BYTE,
            _UINT16,
            api_key,
            _UINT16,
            version,
            _UINT32,
            correlation_id,
            _UINT32,
            len(body),
        )
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise LocalProtocolError(f"{type(message).__name__} cannot be encoded: {error}") from error
    if len(body) > MAX_BODY_BYTES:
        raise LocalProtocolError(
            f"{type(message).__name__} has a body of {len(body)} bytes, more than {MAX_BODY_BYTES}: split it"
        )
    return head + body


def read_header(
    buffer: Buffer, position: int, available: int, max_frame_bytes: int = MAX_FRAME_BYTES
) -> FrameHeader | None:
    """The header of the frame that starts at `position` of `buffer`, of which `available` bytes have been received: the
    frame is whole once these reach its size. None while they are too few to tell.

    RemoteProtocolError, as soon as it shows: no frame has such a length, the header is not a native one, or its body
    would be over its limit or longer than its frame.
    """
    if available < PREFIX_AND_HEADER_BYTES:
        if available >= PREFIX_BYTES:
            _check_length(_LENGTH.unpack_from(buffer, position)[0], max_frame_bytes)
        return None
    length, array, tag1, api_key, tag2, version, tag3, correlation_id, tag4, body_bytes = (
        _PREFIX_AND_HEADER.unpack_from(buffer, position)
    )
    if length < HEADER_BYTES or length > max_frame_bytes:
        _check_length(length, max_frame_bytes)
    if array != FIRST_BYTE or tag1 != _UINT16 or tag2 != _UINT16 or tag3 != _UINT32 or tag4 != _UINT32:
        raise RemoteProtocolError("the frame does not begin with a native header")
    if body_bytes > MAX_BODY_BYTES:
        raise RemoteProtocolError(f"body of {body_bytes} bytes, more than the {MAX_BODY_BYTES} allowed")
    if body_bytes > length - HEADER_BYTES:
        raise RemoteProtocolError(f"body of {body_bytes} bytes in a frame of {length} bytes (header included)")
    return FrameHeader(PREFIX_BYTES + length, api_key, version, correlation_id, body_bytes)


def _check_length(length: int, max_frame_bytes: int) -> None:
    if not HEADER_BYTES <= length <= max_frame_bytes:
        raise RemoteProtocolError(
            f"frame length {length} is outside [{HEADER_BYTES}, {max_frame_bytes}]: another protocol?"
        )


def decode_body(cls: type[M], body: Buffer) -> M:
    """The message of class `cls` that `body` holds, all of it and nothing else.

    RemoteProtocolError: `body` is not msgpack, not that message, or longer than it. No length is believed that is not
    there: memory stays within 64 times `len(body)`.
    """
    try:
        decoder: msgspec.msgpack.Decoder[M] = _decoders[cls]
        return decoder.decode(body)
    except (ValueError, RecursionError) as error:  # msgspec: ValidationError and DecodeError; bad UTF-8
        raise RemoteProtocolError(f"body is not a {cls.__name__}: {str(error)[:200]}") from None


def cut_records(message: ProduceRequest | FetchResponse, attached: memoryview) -> list[memoryview | None]:
    """The record batches of each partition of `message`, in order, out of what is attached to it; None where it has
    none.

    RemoteProtocolError: the sizes that the message names do not add up to what is attached, or one is below −1.
    """
    parts: Sequence[PartitionProduceData | FetchPartitionData]
    if isinstance(message, ProduceRequest):
        topics = message.topic_data
        if len(topics) == 1:
            parts = topics[0].partition_data
        else:
            parts = [part for topic in topics for part in topic.partition_data]
    else:
        parts = [part for topic in message.responses for part in topic.partitions]
    position, end = 0, len(attached)
    if len(parts) == 1 and parts[0].records_size == end:
        return [attached]
    pieces: list[memoryview | None] = []
    for part in parts:
        size = part.records_size
        if size < 0:
            if size != -1:
                raise RemoteProtocolError(f"attachment of {size} bytes")
            pieces.append(None)
            continue
        start = position
        position += size
        if position > end:
            raise RemoteProtocolError(f"the body names attachments of more than the {end} bytes that follow it")
        pieces.append(attached[start:position])
    if position != end:
        raise RemoteProtocolError(f"the body names attachments of {position} bytes, {end} follow it")
    return pieces
