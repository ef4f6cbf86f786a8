"""The answer to Metadata written by hand says what Kafka's schemas say, in every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import LocalProtocolError
from strandline.protocol.kafka.converter import to_entity
from strandline.protocol.kafka.metadata import encode_metadata_response
from strandline.protocol.messages import MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic
from strandline.protocol.types import NO_TOPIC_ID
from support import kio_wire
from support.kio_wire import INT32, TEXT, TOPIC_IDS

CODES = st.sampled_from([0, 3, 5, 17, 100])
BROKERS = st.builds(MetadataBroker, INT32, TEXT, INT32, st.none() | TEXT)
IDS = st.lists(INT32, max_size=4)
PARTITIONS = st.builds(MetadataPartition, CODES, INT32, INT32, INT32, IDS, IDS, IDS)
TOPICS = st.builds(
    MetadataTopic,
    CODES,
    st.none() | TEXT,
    st.lists(PARTITIONS, max_size=3) | st.just([MetadataPartition(0, 0, 1, 2, [1], [1])] * 130),
    st.just(NO_TOPIC_ID) | TOPIC_IDS,
    st.booleans(),
    INT32,
)
RESPONSES = st.builds(
    MetadataResponse,
    st.lists(BROKERS, max_size=3),
    st.lists(TOPICS, max_size=3),
    INT32,
    TEXT,
    st.integers(0, 2**31 - 1),
    cluster_authorized_operations=INT32,
)


@pytest.mark.parametrize("version", range(13))
@settings(max_examples=40, deadline=None)
@given(correlation_id=INT32, response=RESPONSES)
def test_an_answer_is_what_kafkas_schema_makes_of_it(version, correlation_id, response) -> None:
    frame = encode_metadata_response(version, correlation_id, response)
    found_id, body = kio_wire.split_frame(frame, version >= 9)
    schema = kio_wire.module("metadata", version, "response").MetadataResponse
    assert found_id == correlation_id
    assert body == kio_wire.written(to_entity(schema, response))


def test_what_does_not_fit_is_a_bug_of_this_side() -> None:
    with pytest.raises(LocalProtocolError, match="MetadataResponse cannot be encoded"):
        encode_metadata_response(12, 1, MetadataResponse([], [MetadataTopic(2**15, "t", [])]))
