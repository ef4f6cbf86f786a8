"""The answer to DescribeConfigs written by hand says what Kafka's schemas say, in every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import LocalProtocolError
from strandline.protocol.kafka.converter import to_entity
from strandline.protocol.kafka.describe_configs import TOO_LONG, encode_describe_configs_response
from strandline.protocol.messages import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from support import kio_wire
from support.kio_wire import INT8, INT32, TEXT

NULLABLE = st.none() | TEXT
SYNONYMS = st.builds(DescribeConfigsSynonym, TEXT, NULLABLE, INT8)
KEYS = st.builds(
    DescribeConfigsResourceResult,
    TEXT,
    NULLABLE,
    st.booleans(),
    st.booleans(),
    INT8,
    st.lists(SYNONYMS, max_size=3),
    INT8,
    NULLABLE,
)
RESULTS = st.builds(
    DescribeConfigsResult, st.sampled_from([0, 3, 40, 42]), NULLABLE, INT8, TEXT, st.lists(KEYS, max_size=3)
)
RESPONSES = st.builds(DescribeConfigsResponse, st.lists(RESULTS, max_size=3), st.integers(0, 2**31 - 1))


@pytest.mark.parametrize("version", range(1, 5))
@settings(max_examples=60)
@given(correlation_id=INT32, response=RESPONSES)
def test_an_answer_is_what_kafkas_schema_makes_of_it(version, correlation_id, response) -> None:
    frame = encode_describe_configs_response(version, correlation_id, response)
    found_id, body = kio_wire.split_frame(frame, version >= 4)
    schema = kio_wire.module("describe_configs", version, "response").DescribeConfigsResponse
    assert found_id == correlation_id
    assert body == kio_wire.written(to_entity(schema, response))


@pytest.mark.parametrize("version", range(1, 5))
def test_a_value_that_is_too_long_for_kafkas_strings_is_told_by_its_key_alone(version) -> None:
    def answer(value: str | None, synonym: str | None, *of_long: object) -> DescribeConfigsResponse:
        synonyms = [DescribeConfigsSynonym("k", synonym, 1), DescribeConfigsSynonym("k", "*", 5)]
        key = DescribeConfigsResourceResult("k", value, False, bool(of_long), 1, synonyms, 7, *of_long)
        other = DescribeConfigsResourceResult("other", "1", False, False, 5)
        return DescribeConfigsResponse([DescribeConfigsResult(0, None, 2, "t", [key, other])])

    for long in ("x" * 2**15, "é" * 2**14):
        told = encode_describe_configs_response(version, 1, answer(long, long))
        assert told == encode_describe_configs_response(version, 1, answer(None, None, TOO_LONG))
    just = "é" * (2**14 - 1) + "x"
    assert just.encode() in encode_describe_configs_response(version, 1, answer(just, None))


def test_what_does_not_fit_is_a_bug_of_this_side() -> None:
    with pytest.raises(LocalProtocolError, match="DescribeConfigsResponse cannot be encoded"):
        encode_describe_configs_response(4, 1, DescribeConfigsResponse([DescribeConfigsResult(2**15, None, 2, "t")]))
