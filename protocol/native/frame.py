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
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgpack
import msgspec

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.messages.base import Message

MAX_FRAME_BYTES = 100 * 2**20
"""Default of `socket.request.max.bytes`: the longest frame, without its length prefix."""

MAX_BODY_BYTES = 4 * 2**20
"""The longest msgpack body (attachments do not count): the metadata of 100 K partitions is 2.5 MB. Decoding builds up
to 64 bytes of objects per byte, so this, not the frame's limit, bounds what a hostile body can cost."""

MAX_NAMED = 10_000
"""Topics, or partitions, in one request of a client or follower: more than one broker should lead."""

MARKERS_PER_ELEMENT = 40
"""Where elements are bounded: so many bytes of a body per element may look like a list, a map or an extension. A
partition has fewer even when each byte of its numbers does (FetchPartition: 32; of a topic's id, which is random, 3 of
16 do). 2 MiB of empty lists took 260 to 380 ms; they are refused in 2."""

MAX_FIELDS = 32
"""No element of a message has more: what follows names nothing."""

PREFIX_BYTES = 4
HEADER_BYTES = 17
PREFIX_AND_HEADER_BYTES = PREFIX_BYTES + HEADER_BYTES

_ARRAY_OF_4, _UINT16, _UINT32 = 0x94, 0xCD, 0xCE
_MARKERS = bytes((*range(0x80, 0xA0), *range(0xC7, 0xCA), *range(0xD4, 0xD9), *range(0xDC, 0xE0)))
"""First bytes of maps, arrays and extensions: what is expensive to make, in msgpack's Python."""
_encode = msgspec.msgpack.Encoder().encode

_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">BBHBHBIBI")
_PREFIX_AND_HEADER = struct.Struct(">iBBHBHBIBI")

Buffer = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)


class FrameHeader(NamedTuple):
    """Which message follows: `body_bytes` of msgpack, then attachments up to the end of the frame.

    `body_bytes` is what the peer says: compare it with the frame before slicing (`attachments_position`).
    """

    api_key: int
    version: int
    correlation_id: int
    body_bytes: int

    def attachments_position(self, position: int, frame_end: int) -> int:
        """Where the attachments begin, for a payload at `position` whose frame ends at `frame_end`.

        RemoteProtocolError: the body would be longer than the frame.
        """
        start = position + HEADER_BYTES + self.body_bytes
        if start > frame_end:
            raise RemoteProtocolError(
                f"body of {self.body_bytes} bytes in a frame of {frame_end - position} bytes (header included)"
            )
        return start


def encode_head(api_key: int, version: int, correlation_id: int, message: Message, attachment_bytes: int = 0) -> bytes:
    """Length prefix, header and body in one piece; exactly `attachment_bytes` must follow it on the wire.

    LocalProtocolError: a number does not fit its place, or the message holds what msgpack cannot carry.
    """
    try:
        # The struct library's own encoder writes the bytes that msgpack's packer would, in a fifth of the time.
        body = _encode(message)
        head = _PREFIX_AND_HEADER.pack(
            HEADER_BYTES + len(body) + attachment_bytes,
            _ARRAY_OF_4,
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


def frame_bytes(buffer: Buffer, position: int, available: int, max_frame_bytes: int = MAX_FRAME_BYTES) -> int | None:
    """Total size in bytes, prefix included, of the frame that starts at `position` of `buffer`.

    available: how many bytes from `position` on have been received. None while these are fewer than 4; the frame is
    whole once `available` reaches the result. RemoteProtocolError: no frame has such a length.
    """
    if available < PREFIX_BYTES:
        return None
    (length,) = _LENGTH.unpack_from(buffer, position)
    if length < HEADER_BYTES or length > max_frame_bytes:
        raise RemoteProtocolError(
            f"frame length {length} is outside [{HEADER_BYTES}, {max_frame_bytes}]: another protocol?"
        )
    return PREFIX_BYTES + int(length)


def decode_header(buffer: Buffer, position: int) -> FrameHeader:
    """The header at `position`, which is where the payload begins: right after the length prefix.

    RemoteProtocolError: it is not a native header, fewer than 17 bytes are there, or the body is over its limit.
    """
    try:
        array, tag1, api_key, tag2, version, tag3, correlation_id, tag4, body_bytes = _HEADER.unpack_from(
            buffer, position
        )
    except struct.error:
        raise RemoteProtocolError(f"frame ends within its header of {HEADER_BYTES} bytes") from None
    if array != _ARRAY_OF_4 or tag1 != _UINT16 or tag2 != _UINT16 or tag3 != _UINT32 or tag4 != _UINT32:
        raise RemoteProtocolError("the frame does not begin with a native header")
    if body_bytes > MAX_BODY_BYTES:
        raise RemoteProtocolError(f"body of {body_bytes} bytes, more than the {MAX_BODY_BYTES} allowed")
    return FrameHeader(api_key, version, correlation_id, body_bytes)


def decode_body(cls: type[M], body: Buffer, *, max_elements: int | None = None) -> M:
    """The message of class `cls` that `body` holds, all of it and nothing else.

    max_elements: of each array and map, and of all partitions (settings) of all topics, at most so many; and
    MARKERS_PER_ELEMENT times as many lists of any kind. RemoteProtocolError: `body` is not msgpack, not that message,
    or longer than it. Memory stays within 64 times `len(body)` (empty arrays, one byte each on the wire): unpackb
    compares every length with the bytes that are there.
    """
    try:
        # Not strict_map_key: CreateTopics has partition numbers as keys. Colliding integers are no danger: CPython's
        # probing takes in all 64 bits within a few steps.
        if max_elements is None:
            value = msgpack.unpackb(body, strict_map_key=False)
        else:
            if len(body) - len(bytes(body).translate(None, _MARKERS)) > MARKERS_PER_ELEMENT * max_elements:
                raise RemoteProtocolError(f"a {cls.__name__} of more lists than its topics and partitions need")
            value = msgpack.unpackb(body, strict_map_key=False, max_array_len=max_elements, max_map_len=max_elements)
            if (named := _count_named(value)) > max_elements:  # before the larger part of the work
                raise RemoteProtocolError(f"a {cls.__name__} that names {named} topics and partitions")
        return msgspec.convert(value, cls)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        # msgpack: ValueError, ExtraData, FormatError, StackError, UnicodeDecodeError; TypeError for an unhashable
        # map key. msgspec: ValidationError (a ValueError) and RecursionError.
        reason = str(error) or type(error).__name__
        raise RemoteProtocolError(f"body is not a {cls.__name__}: {reason[:200]}") from None


def _count_named(value: object) -> int:
    """What the lists of a message name: the longest list or map in each element (a topic's partitions, or its settings
    if these are more), or the elements where there are none."""
    named = 0
    for field in value if isinstance(value, list) else ():
        for element in field if isinstance(field, list) else ():
            fields = element[:MAX_FIELDS] if isinstance(element, list) else ()
            named += max((len(part) for part in fields if isinstance(part, (list, dict))), default=1) or 1
    return named


def split_attachments(sizes: Iterable[int], view: memoryview) -> list[memoryview | None]:
    """Cut the attachments of a frame by the `records_size` fields of its body, in order; None for a size of −1.

    RemoteProtocolError: the sizes do not add up to `len(view)` exactly, or one is below −1.
    """
    pieces: list[memoryview | None] = []
    position, end = 0, len(view)
    for size in sizes:
        if size < 0:
            if size != -1:
                raise RemoteProtocolError(f"attachment of {size} bytes")
            pieces.append(None)
            continue
        start = position
        position += size
        if position > end:
            raise RemoteProtocolError(f"the body names attachments of more than the {end} bytes that follow it")
        pieces.append(view[start:position])
    if position != end:
        raise RemoteProtocolError(f"the body names attachments of {position} bytes, {end} follow it")
    return pieces
