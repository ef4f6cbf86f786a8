"""The pieces that Kafka's bodies are made of, for all that is read or written by hand here.

```
            legacy                                   flexible ("compact", KIP-482)
length      int16 of a string, int32 of an array     uvarint of the length + 1
null        length −1                                0
structs     their fields                             their fields, then their tagged fields
uvarint     7 bits per byte, the lowest first; all but the last byte have bit 7 set; 5 bytes at most
tagged      uvarint count | (uvarint tag | uvarint size | that many bytes)…
```
Integers are big endian. Source: Kafka's protocol guide ("Protocol Primitive Types") and KIP-482.

Readers get the body and a position and return what stands there, and the position behind it. They raise
RemoteProtocolError, or one of `CUT_OFF` where the body ends too early: who reads a body turns these into the former
(`unreadable`). No length is believed that is not there: nothing is made before its bytes have been seen.
"""

from __future__ import annotations

import struct

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.messages.base import MAX_NAMED

MAX_STRING_BYTES = 2**15 - 1
"""Also of a compact one, as Kafka has it."""
MAX_TAGGED_FIELDS = 16
"""Of one struct; Kafka's own have three at most. Ten thousand partitions with as many each are read in some 50 ms."""

CUT_OFF = (IndexError, struct.error, UnicodeDecodeError)
"""What reading behind the end raises, and a string that is no UTF-8."""
DOES_NOT_FIT = (IndexError, struct.error, UnicodeEncodeError)
"""What writing raises where a value does not fit its place."""

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
_PREFIX = struct.Struct(">ii")
"""Length of the frame, correlation id."""
_FLEXIBLE_PREFIX = struct.Struct(">iiB")
"""And no tagged fields of the header."""

LAST_OF_UVARINT = 0x80
"""A byte below this one ends a uvarint. Most are one byte long, so hot code looks at it itself."""

NO_TAGS = b"\x00"
NULL_STRING = b"\xff\xff"
NULL_COMPACT_STRING = b"\x00"

_ONE_BYTE = tuple(bytes([number]) for number in range(LAST_OF_UVARINT))


def unreadable(message: type, error: Exception) -> RemoteProtocolError:
    """The body of a `message` ends too early, or holds a string that is none."""
    reason = str(error)[:200] if isinstance(error, UnicodeDecodeError) else "it ends too early"
    return RemoteProtocolError(f"body is not a {message.__name__}: {reason}")


def unwritable(message: object, error: Exception) -> LocalProtocolError:
    """A value of `message` does not fit its place."""
    return LocalProtocolError(f"{type(message).__name__} cannot be encoded: {error}")


# --- reading -----------------------------------------------------------------------------------------------------


def read_uvarint(body: memoryview | bytes, position: int) -> tuple[int, int]:
    value = body[position]
    if value < LAST_OF_UVARINT:
        return value, position + 1
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < LAST_OF_UVARINT:
            return value, position
    raise RemoteProtocolError("a uvarint of more than 5 bytes")


def read_length(body: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    """Of an array, or of records; −1: null. The bytes need not be there yet."""
    if flexible:
        length, position = read_uvarint(body, position)
        return length - 1, position
    (length,) = INT32.unpack_from(body, position)
    if length < -1:
        raise RemoteProtocolError(f"length {length}")
    return length, position + 4


def read_count(
    body: memoryview, position: int, flexible: bool, element_bytes: int, limit: int = MAX_NAMED
) -> tuple[int, int]:
    """The length of an array that is not null, of elements of at least `element_bytes`: at most `limit`, and no more
    than are there."""
    if not flexible:
        (count,) = INT32.unpack_from(body, position)
        position += 4
    else:
        count = body[position] - 1
        position += 1
        if count >= LAST_OF_UVARINT - 1:
            count, position = read_length(body, position - 1, True)
    if not 0 <= count <= limit or count * element_bytes > len(body) - position:
        raise RemoteProtocolError(
            f"a list of {count} where {len(body) - position} bytes follow and {limit} of {MAX_NAMED} may be named"
        )
    return count, position


def read_nullable_string(body: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    if not flexible:
        (length,) = INT16.unpack_from(body, position)
        position += 2
    else:
        length = body[position] - 1
        position += 1
        if length >= LAST_OF_UVARINT - 1:
            length, position = read_length(body, position - 1, True)
    if length == -1:
        return None, position
    end = position + length
    if not 0 <= length <= MAX_STRING_BYTES or end > len(body):
        raise RemoteProtocolError(f"a string of {length} bytes where {len(body) - position} follow")
    return str(body[position:end], "utf-8"), end


def read_string(body: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    text, position = read_nullable_string(body, position, flexible)
    if text is None:
        raise RemoteProtocolError("null where a string has to be")
    return text, position


def read_tags(body: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """What each tagged field of a struct holds, by its tag; who reads them takes those that they know."""
    count, position = read_uvarint(body, position)
    if count > MAX_TAGGED_FIELDS:
        raise RemoteProtocolError(f"{count} tagged fields in one struct, more than {MAX_TAGGED_FIELDS}")
    fields = {}
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        end = position + size
        if end > len(body):
            raise RemoteProtocolError(f"a tagged field of {size} bytes where {len(body) - position} follow")
        fields[tag] = body[position:end]
        position = end
    return fields, position


def skip_tags(body: memoryview, position: int) -> int:
    """The position behind tagged fields that nobody knows."""
    return position + 1 if body[position] == 0 else read_tags(body, position)[1]


def check_end(body: memoryview, position: int) -> None:
    """A body that goes on behind its last field was meant to be something else."""
    if position != len(body):
        raise RemoteProtocolError(f"{len(body) - position} bytes behind the end of the body")


# --- writing -----------------------------------------------------------------------------------------------------


def uvarint(value: int) -> bytes:
    """Of a number that is not negative."""
    if value < LAST_OF_UVARINT:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= LAST_OF_UVARINT:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_of(count: int, flexible: bool) -> bytes:
    """In front of an array, or of records, of that many elements or bytes."""
    return uvarint(count + 1) if flexible else INT32.pack(count)


def string(text: str, flexible: bool) -> bytes:
    raw = text.encode()
    return (uvarint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw


def nullable_string(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return NULL_COMPACT_STRING if flexible else NULL_STRING
    return string(text, flexible)


def frame_of(correlation_id: int, flexible: bool, body: bytes, attached_bytes: int = 0) -> bytes:
    """A response's length, header and body; exactly `attached_bytes` more of the body follow them on the wire."""
    if flexible:
        return _FLEXIBLE_PREFIX.pack(5 + len(body) + attached_bytes, correlation_id, 0) + body
    return _PREFIX.pack(4 + len(body) + attached_bytes, correlation_id) + body
