"""The answer to ListOffsets written by hand says what Kafka's schemas say, in every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import ErrorCode, LocalProtocolError
from strandline.protocol.kafka.converter import to_entity
from strandline.protocol.kafka.list_offsets import encode_list_offsets_response
from strandline.protocol.messages import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from support import kio_wire
from support.kio_wire import INT32, INT64, TEXT

VERSIONS = range(1, 10)
PARTITIONS = st.builds(ListOffsetsPartitionResponse, INT32, st.sampled_from([0, 3, 6, 76]), INT64, INT64, INT32)
TOPICS = st.builds(ListOffsetsTopicResponse, TEXT, st.lists(PARTITIONS, max_size=3))
RESPONSES = st.builds(ListOffsetsResponse, st.lists(TOPICS, max_size=3), st.integers(0, 2**31 - 1))


def body_of(version: int, correlation_id: int, response: ListOffsetsResponse) -> bytes:
    frame = encode_list_offsets_response(version, correlation_id, response)
    found_id, body = kio_wire.split_frame(frame, version >= 6)
    assert found_id == correlation_id
    return body


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(correlation_id=INT32, response=RESPONSES)
def test_an_answer_is_what_kafkas_schema_makes_of_it(version, correlation_id, response) -> None:
    schema = kio_wire.module("list_offsets", version, "response").ListOffsetsResponse
    assert body_of(version, correlation_id, response) == kio_wire.written(to_entity(schema, response))


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_are_told_to_repeat_in_words_that_they_know(version) -> None:
    part = ListOffsetsPartitionResponse(0, ErrorCode.OFFSET_NOT_AVAILABLE)
    body = body_of(version, 1, ListOffsetsResponse([ListOffsetsTopicResponse("t", [part])]))
    found = kio_wire.read(kio_wire.module("list_offsets", version, "response").ListOffsetsResponse, body)
    code = ErrorCode.LEADER_NOT_AVAILABLE if version < 5 else ErrorCode.OFFSET_NOT_AVAILABLE
    assert found.topics[0].partitions[0].error_code == code


def test_what_does_not_fit_is_a_bug_of_this_side() -> None:
    topics = [ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(0, 2**15)])]
    with pytest.raises(LocalProtocolError, match="ListOffsetsResponse cannot be encoded"):
        encode_list_offsets_response(9, 1, ListOffsetsResponse(topics))
