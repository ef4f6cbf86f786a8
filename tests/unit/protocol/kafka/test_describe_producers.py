"""The answer to DescribeProducers written by hand says what Kafka's schema says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import LocalProtocolError
from strandline.protocol.kafka.converter import to_entity
from strandline.protocol.kafka.describe_producers import encode_describe_producers_response
from strandline.protocol.messages import (
    DescribeProducersPartitionResponse,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)
from support import kio_wire
from support.kio_wire import INT32, INT64, TEXT

PRODUCERS = st.builds(ProducerState, INT64, INT32, INT32, INT64, INT32, INT64)
PARTITIONS = st.builds(
    DescribeProducersPartitionResponse,
    INT32,
    st.sampled_from([0, 3, 6, 76]),
    st.none() | TEXT,
    st.lists(PRODUCERS, max_size=3),
)
TOPICS = st.builds(DescribeProducersTopicResponse, TEXT, st.lists(PARTITIONS, max_size=3))
RESPONSES = st.builds(DescribeProducersResponse, st.lists(TOPICS, max_size=3), st.integers(0, 2**31 - 1))


@settings(max_examples=60)
@given(correlation_id=INT32, response=RESPONSES)
def test_an_answer_is_what_kafkas_schema_makes_of_it(correlation_id, response) -> None:
    frame = encode_describe_producers_response(0, correlation_id, response)
    found_id, body = kio_wire.split_frame(frame, True)
    schema = kio_wire.module("describe_producers", 0, "response").DescribeProducersResponse
    assert found_id == correlation_id
    assert body == kio_wire.written(to_entity(schema, response))


def test_what_does_not_fit_is_a_bug_of_this_side() -> None:
    topics = [DescribeProducersTopicResponse("t", [DescribeProducersPartitionResponse(0, 2**15)])]
    with pytest.raises(LocalProtocolError, match="DescribeProducersResponse cannot be encoded"):
        encode_describe_producers_response(0, 1, DescribeProducersResponse(topics))
