"""Whether a body may be given to kio: every length in it, read by the schema, fits into what remains.

kio reserves memory for as many elements as an array claims to have before it looks at the first, and where there is not
so much its process ends, without an exception: five bytes would end a broker (kio 0.6.5; `ff ff ff ff 0f` as the length
of a compact array). It also raises KeyError for tagged fields that it does not know, which Kafka's protocol has skipped
(KIP-482): clients that are newer than the schema send such.

So each body is walked over first. Nothing is made meanwhile, and runs of fields of fixed size are one step; the cost is
0.1 to 0.3 µs per string, array or struct. How many elements all arrays have together is bounded, too, and how much a
request names: what it would take to make them is not spent on one that is refused (100,000 topics took 570 ms).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from typing import Any

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    PrimitiveTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.kafka.primitives import MAX_STRING_BYTES, read_uvarint, uvarint
from strandline.protocol.messages.base import MAX_NAMED

MAX_ELEMENTS = 10 * MAX_NAMED
"""Of all arrays of a body together, and tagged fields; a partition to create names its replicas, too."""
NO_LIMIT = 2**31

_FIXED = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "bool": 1,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
"""Bytes of a value, by kio's name of its type."""

_int16 = struct.Struct(">h").unpack_from
_int32 = struct.Struct(">i").unpack_from


class _Body:
    """What is walked over, and what was found on the way."""

    __slots__ = (
        "data",
        "depth",
        "elements",
        "end",
        "max_elements",
        "max_named",
        "named",
        "widest",
        "within_tag",
        "without",
    )

    def __init__(self, data: memoryview, max_elements: int, max_named: int) -> None:
        self.data = data
        self.end = len(data)
        self.elements = 0
        self.max_elements = max_elements
        self.max_named = max_named
        self.named = 0
        self.depth = 0
        """Of arrays within each other."""
        self.widest = 1
        """The length of the longest array within this element of an array that is in none."""
        self.within_tag = False
        self.without: list[tuple[int, int, bytes]] = []
        """Tagged fields of a struct among which one is not known: where they stand, and what is to stand there."""

    def skip(self, position: int, length: int) -> int:
        if length > self.end - position:
            raise RemoteProtocolError(f"a length of {length} where {max(self.end - position, 0)} bytes remain")
        return position + length

    def count(self, elements: int) -> None:
        self.elements += elements
        if self.elements > self.max_elements:
            raise RemoteProtocolError(f"{self.elements} elements and tagged fields, {self.max_elements} are the most")

    def name(self, count: int) -> None:
        self.named += count
        if self.named > self.max_named:
            raise RemoteProtocolError(f"a request that names more than {self.max_named} topics and partitions")

    def varint(self, position: int) -> tuple[int, int]:
        """(value, position behind it)."""
        return read_uvarint(self.data, position)


Step = int | Callable[[_Body, int], int]
"""So many bytes on, or: from one position to the next."""


def checked(entity: Any, body: memoryview, max_elements: int = MAX_ELEMENTS, max_named: int = NO_LIMIT) -> memoryview:
    """`body` as it is, or without tagged fields that `entity`, a class of kio's, does not have. max_named: topics and
    partitions, by the rule of `broker/network/request_bounds.py`.

    RemoteProtocolError: its lengths cannot be true, or it names too much. A body that passes may still be wrong in what
    takes no memory: kio sees to that."""
    walked = _Body(body, max_elements, max_named)
    walk = _struct_walk(entity)
    try:
        walked.skip(walk if isinstance(walk, int) else walk(walked, 0), 0)
    except (struct.error, IndexError):
        raise RemoteProtocolError(f"a body of {len(body)} bytes that ends too early") from None
    return _rewritten(body, walked.without) if walked.without else body


def _rewritten(body: memoryview, changes: list[tuple[int, int, bytes]]) -> memoryview:
    pieces: list[bytes | memoryview] = []
    position = 0
    for start, end, instead in sorted(changes):
        pieces += (body[position:start], instead)
        position = end
    return memoryview(b"".join((*pieces, body[position:])))


# --- how each part is walked over ------------------------------------------------------------------------------------


@cache
def _struct_walk(entity: Any) -> Step:
    """Of a struct; so many bytes where it has only fields of fixed size."""
    flexible = bool(entity.__flexible__)
    steps: list[Step] = []
    tagged: dict[int, Step] = {}
    for field in fields(entity):
        tag = get_field_tag(field)
        step = _field_walk(field, flexible, is_tagged=tag is not None)
        if tag is not None:
            tagged[tag] = step
        elif isinstance(step, int) and steps and isinstance(steps[-1], int):
            steps[-1] += step
        else:
            steps.append(step)
    if flexible:
        steps.append(_tags_walk(tagged))
    if not steps:
        return 0
    if len(steps) == 1:
        return steps[0]

    def walk(body: _Body, position: int) -> int:
        for step in steps:
            position = position + step if isinstance(step, int) else step(body, position)
        return position

    return walk


def _field_walk(field: Field[Any], flexible: bool, *, is_tagged: bool) -> Step:
    kind = classify_field(field)
    if isinstance(kind, (EntityField, EntityTupleField)):
        step = _struct_walk(kind.type_)
    else:
        assert isinstance(kind, (PrimitiveField, PrimitiveTupleField))
        step = _primitive_walk(get_schema_field_type(field), flexible)
    if kind.is_array:
        return _array_walk(step, flexible, field.name if not is_optional(field) else None)
    if isinstance(kind, EntityField) and is_optional(field) and not is_tagged:
        return _nullable_walk(step)
    return step


def _primitive_walk(kafka_type: str, flexible: bool) -> Step:
    size = _FIXED.get(kafka_type)
    if size is not None:
        return size
    if flexible:
        return _compact_string if kafka_type == "string" else _compact_bytes
    return _legacy_string if kafka_type == "string" else _legacy_bytes


def _compact_bytes(body: _Body, position: int) -> int:
    """Behind their length plus 1; 0 is null."""
    length, position = body.varint(position)
    return body.skip(position, length - 1) if length else position


def _compact_string(body: _Body, position: int) -> int:
    """No longer than a legacy one, as Kafka has it: what one client says another may be told in an older version."""
    length, position = body.varint(position)
    if length > MAX_STRING_BYTES + 1:
        raise RemoteProtocolError(f"a string of {length - 1} bytes")
    return body.skip(position, length - 1) if length else position


def _legacy_string(body: _Body, position: int) -> int:
    return body.skip(position + 2, _not_below_null(_int16(body.data, position)[0]))


def _legacy_bytes(body: _Body, position: int) -> int:
    return body.skip(position + 4, _not_below_null(_int32(body.data, position)[0]))


def _not_below_null(length: int) -> int:
    if length < -1:
        raise RemoteProtocolError(f"a length of {length}")
    return max(length, 0)


def _array_walk(step: Step, flexible: bool, never_null: str | None) -> Step:
    """never_null: the name of a field that is an array always. kio reads null there as it does anywhere."""

    def walk(body: _Body, position: int) -> int:
        if flexible:
            count, position = body.varint(position)
            count -= 1
        else:
            count, position = _int32(body.data, position)[0], position + 4
        if count == -1 and never_null is not None:
            raise RemoteProtocolError(f"{never_null} is null")
        count = _not_below_null(count)
        body.count(count)
        depth = body.depth
        if depth == 0:
            body.name(count)
        elif depth == 1 and count > body.widest:
            body.name(count - body.widest)
            body.widest = count
        if isinstance(step, int):
            return body.skip(position, count * step)
        body.skip(position, count)  # each has a byte at least
        body.depth += 1
        for _ in range(count):
            if depth == 0:
                body.widest = 1
            position = step(body, position)
        body.depth = depth
        return position

    return walk


def _nullable_walk(step: Step) -> Step:
    """A struct behind a byte that is negative where there is none (KIP-893)."""

    def walk(body: _Body, position: int) -> int:
        if body.data[position] >= 0x80:
            return position + 1
        return position + 1 + step if isinstance(step, int) else step(body, position + 1)

    return walk


def _tags_walk(tagged: dict[int, Step]) -> Step:
    """The tagged fields of a flexible struct: how many, then number, size and value of each."""

    def walk(body: _Body, start: int) -> int:
        count, position = body.varint(start)
        if not count:  # as it mostly is
            return position
        body.count(count)
        kept: list[memoryview] = []
        for _ in range(count):
            begin = position
            tag, position = body.varint(position)
            size, position = body.varint(position)
            end = body.skip(position, size)
            step = tagged.get(tag)
            if step is not None:
                _walk_tagged(step, body, position, end)
                kept.append(body.data[begin:end])
            position = end
        if len(kept) < count:
            if body.within_tag:
                raise RemoteProtocolError("an unknown tagged field within a tagged field")
            body.without.append((start, position, b"".join((uvarint(len(kept)), *kept))))
        return position

    return walk


def _walk_tagged(step: Step, body: _Body, position: int, end: int) -> None:
    """Its value has to be as long as it is said to be: kio reads on where the value ends."""
    outer, body.within_tag = body.within_tag, True
    found = position + step if isinstance(step, int) else step(body, position)
    body.within_tag = outer
    if found != end:
        raise RemoteProtocolError(f"a tagged field of {end - position} bytes whose value has {found - position}")
