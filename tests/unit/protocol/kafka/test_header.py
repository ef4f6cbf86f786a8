"""Frames and headers of Kafka's requests: whole, cut anywhere, and wrong."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader

from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.kafka.header import behind_tags, read_header
from strandline.protocol.kafka.primitives import frame_of, uvarint
from strandline.protocol.kafka.schemas import write_entity

LIMIT = 1000
INT16, INT32 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)


def frame(api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes = b"") -> bytes:
    header = RequestHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    head = write_entity(header)
    return struct.pack(">i", len(head) + len(body)) + head + body


@given(INT16, INT16, INT32, st.none() | st.text(max_size=50), st.binary(max_size=50))
def test_a_header_is_read_as_it_was_written(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> None:
    written = frame(api_key, version, correlation_id, client_id, body)
    found = read_header(b"before" + written, 6, len(written), LIMIT)
    assert found is not None
    assert (found.api_key, found.version, found.correlation_id) == (api_key, version, correlation_id)
    assert (found.size_bytes, found.body_bytes) == (len(written), len(body))
    assert found.client_id.decode() == (client_id or "")


@given(st.none() | st.text(max_size=20), st.data())
def test_of_a_part_nothing_is_told_before_the_client_id_is_there(client_id: str | None, data: st.DataObject) -> None:
    written = frame(3, 1, 2, client_id, b"body")
    header_bytes = len(written) - len(b"body")
    have = data.draw(st.integers(0, len(written)))
    found = read_header(written[:have], 0, have, LIMIT)
    assert (found is not None) == (have >= header_bytes)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 9, LIMIT + 1, 2**31 - 1])
def test_a_frame_that_cannot_be_is_refused_by_its_length_alone(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="frame length"):
        read_header(struct.pack(">i", length), 0, 4, LIMIT)
    with pytest.raises(RemoteProtocolError, match="frame length"):
        read_header(struct.pack(">i", length) + bytes(20), 0, 24, LIMIT)


@pytest.mark.parametrize("id_bytes", [-(2**15), -2, 3, 2**15 - 1])
def test_a_client_id_that_does_not_fit_its_frame_is_refused(id_bytes: int) -> None:
    written = struct.pack(">ihhih", 12, 3, 1, 2, id_bytes) + b"ab"
    with pytest.raises(RemoteProtocolError, match="client id"):
        read_header(written, 0, len(written), LIMIT)


@given(st.lists(st.tuples(st.integers(0, 2**31), st.binary(max_size=300)), max_size=3), st.binary())
def test_what_follows_the_tagged_fields_is_the_body(tags: list[tuple[int, bytes]], body: bytes) -> None:
    written = uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in tags)
    assert behind_tags(memoryview(written + body)) == body
    for end in range(len(written)):
        with pytest.raises(RemoteProtocolError):
            behind_tags(memoryview(written[:end]))


@pytest.mark.parametrize("written", [b"\xff\xff\xff\xff\x0f", b"\xff" * 6, b"\x01\x00\xff\xff\xff\xff\x7f", b"\x65"])
def test_tagged_fields_that_cannot_be_are_refused(written: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        behind_tags(memoryview(written))


def test_a_response_has_its_length_its_number_and_tags_where_its_version_has_some() -> None:
    assert frame_of(7, False, b"abc") == b"\0\0\0\x07\0\0\0\x07abc"
    assert frame_of(-1, True, b"abc") == b"\0\0\0\x08\xff\xff\xff\xff\0abc"
