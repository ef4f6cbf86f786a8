"""Kafka's messages by kio, which is made from Kafka's own schemas: what codecs written by hand are compared with."""

from __future__ import annotations

import datetime
import importlib
import io
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from strandline.protocol.errors import RemoteProtocolError

INT8, INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["x" * 126, "y" * 127, "ü" * 300]
)
"""Of one and of two bytes of length, when that is a uvarint of the length + 1."""
TOPIC_IDS = st.binary(min_size=16, max_size=16)

ODD_LENGTHS = [b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x27\x11"]
ODD_LENGTHS += [
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x01",
]
"""What stands for a length in a hostile body: null, negative, huge, more than remains, more than may be named."""


KIO_ERRORS = (ValueError, KeyError, SerialError)


def module(api: str, version: int, kind: str) -> ModuleType:
    """`kind`: request or response."""
    return importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read(entity_type: Any, data: bytes) -> Any:
    """ValueError: there is more behind it (kio itself raises it, too)."""
    entity, size = entity_reader(entity_type)(data, 0)
    if size != len(data):
        raise ValueError(f"{len(data) - size} bytes behind the end")
    return entity


def milliseconds(number: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=number)


def to_milliseconds(delta: datetime.timedelta) -> int:
    return delta // datetime.timedelta(milliseconds=1)


def split_frame(frame: bytes, flexible: bool) -> tuple[int, bytes]:
    """(correlation id, body) of a response; its length is that of what there is."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    if flexible:
        assert frame[8] == 0
    return int.from_bytes(frame[4:8], "big", signed=True), frame[9:] if flexible else frame[8:]


def with_odd_lengths(body: bytes) -> Iterator[bytes]:
    """Each odd length at each place."""
    for place in range(len(body)):
        for odd in ODD_LENGTHS:
            yield body[:place] + odd + body[place + len(odd) :]


def check_only_whole(read_body: Callable[[bytes], object], body: bytes) -> None:
    """What is cut off anywhere is refused, and what goes on behind its end."""
    read_body(body)
    for other in (*(body[:end] for end in range(len(body))), body + b"\x00"):
        with pytest.raises(RemoteProtocolError):
            read_body(other)


def check_no_length_is_believed(read_body: Callable[[bytes], object], body: bytes) -> None:
    """Whatever stands for a length there: no memory is taken for it, and there is one kind of error."""
    for other in with_odd_lengths(body):
        with memory_within(50_000), suppress(RemoteProtocolError):
            read_body(other)


@contextmanager
def memory_within(limit_bytes: int) -> Iterator[None]:
    """Nothing in here takes more, not for a moment either."""
    tracemalloc.start()
    try:
        yield
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < limit_bytes


@st.composite
def damaged(draw: Any, bodies: st.SearchStrategy[bytes]) -> bytes:
    """A good body with an odd length, or a byte changed, somewhere in it; or cut off, or longer."""
    body = bytearray(draw(bodies))
    place = draw(st.integers(0, len(body)))
    match draw(st.sampled_from(["length", "byte", "cut", "longer"])):
        case "length":
            odd = draw(st.sampled_from(ODD_LENGTHS))
            body[place : place + len(odd)] = odd
        case "byte":
            body[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
        case "cut":
            del body[place:]
        case _:
            body[place:place] = draw(st.binary(min_size=1, max_size=8))
    return bytes(body)
