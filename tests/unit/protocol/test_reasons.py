"""Why something is refused travels as one line that always fits, with its beginning and its end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.controller.controller_context import MAX_REASONS
from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.messages import (
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
    PartitionError,
    RefusedReplica,
)
from strandline.protocol.native.frame import HEADER_BYTES, MAX_BODY_BYTES, PREFIX_BYTES, decode_body, encode_head
from strandline.protocol.reasons import MAX_REASON_CHARS, reason_of

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=3 * MAX_REASON_CHARS)
"""Also surrogates: a path may hold any bytes."""


def body(message: MetadataResponse | PartitionError | RefusedReplica) -> bytes:
    return encode_head(3, 0, 1, message)[PREFIX_BYTES + HEADER_BYTES :]


@given(ANY_TEXT)
def test_whatever_an_error_says_travels_and_can_be_shown_in_a_line(text: str) -> None:
    for message in (
        RefusedReplica(1, reason_of(ValueError(text))),
        PartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, reason_of(text)),
    ):
        assert decode_body(type(message), body(message)) == message
    assert len(reason_of(text)) <= MAX_REASON_CHARS and reason_of(text).isprintable()


@pytest.mark.parametrize("length", [0, MAX_REASON_CHARS - 30, 5 * MAX_REASON_CHARS])
def test_what_is_refused_and_the_remedy_stay(length: int) -> None:
    line = reason_of(f"/data/t-0 is damaged:\n{'x' * length}\n; restart the broker")
    assert line.startswith("/data/t-0 is damaged: ") and line.endswith(" ; restart the broker")


def test_a_longer_one_is_refused() -> None:
    shapes: list[tuple[Any, tuple[Any, ...]]] = [(RefusedReplica, (1,)), (PartitionError, ("t", 0, 56))]
    for cls, fields in shapes:
        cls_body = body(cls(*fields, "x" * MAX_REASON_CHARS))
        assert decode_body(cls, cls_body) == cls(*fields, "x" * MAX_REASON_CHARS)
        with pytest.raises(RemoteProtocolError, match="length"):
            decode_body(cls, body(cls(*fields, "x" * (MAX_REASON_CHARS + 1))))


def test_the_metadata_of_100_k_partitions_fits_with_all_reasons() -> None:
    worst = [RefusedReplica(2**31 - 1, "\U0001f4a5" * MAX_REASON_CHARS)]
    partitions = [
        MetadataPartition(0, index, 1, 1000, [1, 2, 3], [1, 2, 3], [], worst if index < MAX_REASONS else [])
        for index in range(100_000)
    ]
    assert len(body(MetadataResponse([], [MetadataTopic(0, "t", partitions)]))) < MAX_BODY_BYTES
