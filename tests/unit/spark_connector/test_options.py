"""Options of the Spark source: what is accepted, what is refused, in which words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.request import (
    EARLIEST,
    LATEST,
    Assign,
    GlobalTimestamp,
    OffsetWord,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
)
from strandline.spark_connector.options.source_options import parse_options

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(**options: str) -> SourceOptions:
    return parse_options({"servers": "b:1", "subscribe": "t"} | options)


def refused(options: dict[str, str]) -> str:
    with pytest.raises(InvalidOption) as caught:
        parse_options(options)
    return str(caught.value)


def test_the_defaults_are_those_of_a_batch_query() -> None:
    options = parse()
    assert options.subscription == Subscribe(("t",))
    assert (options.starting, options.ending) == (OffsetWord(EARLIEST), OffsetWord(LATEST))
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert not options.late_start_is_latest
    assert options.min_partitions is options.max_records_per_partition is None
    assert options.warnings == ()


def test_names_are_case_insensitive_and_the_short_address_is_an_alias() -> None:
    options = parse_options({"KAFKA.bootstrap.SERVERS": " a:1,b:2 ", "PATH": "t, u ,t"})
    assert options.bootstrap_servers == "a:1,b:2"
    assert options.subscription == Subscribe(("t", "u"))
    assert "differ" in refused({"servers": "a:1", "kafka.bootstrap.servers": "b:1", "subscribe": "t"})
    assert "kafka.bootstrap.servers" in refused({"subscribe": "t"})


def test_exactly_one_subscription() -> None:
    for options in ({}, {"subscribe": "t", "assign": '{"t":[0]}'}, {"path": "t", "subscribePattern": "t"}):
        text = refused({"servers": "b:1", **options})
        assert "'subscribe', 'subscribePattern' and 'assign'" in text
    assert "No topics" in refused({"servers": "b:1", "subscribe": " , "})


def test_patterns_and_assignments() -> None:
    pattern = parse_options({"servers": "b:1", "subscribePattern": "a.*"}).subscription
    assert pattern == SubscribePattern(re.compile("a.*"))
    assigned = parse_options({"servers": "b:1", "assign": '{"t":[1,0],"s":[2]}'}).subscription
    assert assigned == Assign((TopicPartition("s", 2), T0, T1))
    assert "regular expression" in refused({"servers": "b:1", "subscribePattern": "("})


@pytest.mark.parametrize(
    "value",
    ["t", "", "[]", "{}", '{"t":0}', '{"t":[true]}', '{"t":[-1]}', '{"t":["0"]}', '{"t":[0],"t":[1]}', "{" * 9999],
)
def test_a_wrong_assignment_is_refused(value: str) -> None:
    assert "assign" in refused({"servers": "b:1", "assign": value})


def test_start_and_end_by_priority() -> None:
    offsets = '{"t":{"1":-1,"0":23}}'
    options = parse(endingOffsets=offsets, startingOffsets='{"t":{"0":-2,"1":5}}')
    assert options.ending == SpecificOffsets({T0: 23, T1: -1})
    assert options.starting == SpecificOffsets({T0: -2, T1: 5})
    options = parse(startingOffsets="earliest", startingOffsetsByTimestamp='{"t":{"0":1000}}')
    assert options.starting == SpecificTimestamps({T0: 1000})
    options = parse(startingTimestamp="5", startingOffsetsByTimestamp="not looked at")
    assert options.starting == GlobalTimestamp(5)
    assert parse(endingTimestamp="7").ending == GlobalTimestamp(7)
    assert parse(endingOffsets="LATEST").ending == OffsetWord(LATEST)
    assert parse(startingOffsetsByTimestampStrategy="Latest").late_start_is_latest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"t":{"0":-1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"t":{"0":-2}}'),
        ("startingOffsets", '{"t":{"0":-3}}'),
        ("startingOffsets", '{"t":{"0":true}}'),
        ("startingOffsets", '{"t":{"0":1.0}}'),
        ("startingOffsets", '{"t":{"0":"1"}}'),
        ("startingOffsets", '{"t":{"x":1}}'),
        ("startingOffsets", '{"t":{"-1":1}}'),
        ("startingOffsets", '{"t":{"0":9223372036854775808}}'),
        ("startingOffsets", '{"t":[0]}'),
        ("startingOffsets", '{"t":{"0":1,"0":2}}'),
        ("startingOffsets", "first"),
        ("startingOffsets", "[1]"),
        ("startingOffsets", '{"t":' * 5000),
        ("startingTimestamp", "-1"),
        ("startingTimestamp", "now"),
        ("endingTimestamp", "1.5"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}'),
        ("startingOffsetsByTimestampStrategy", "guess"),
        ("failOnDataLoss", "yes"),
        ("includeHeaders", "1"),
        ("minPartitions", "0"),
        ("minPartitions", "many"),
        ("maxRecordsPerPartition", "-5"),
        ("kafkaConsumer.pollTimeoutMs", "0"),
        ("kafka.auto.offset.reset", "earliest"),
        ("kafka.enable.auto.commit", "true"),
        ("kafka.key.deserializer", "x"),
        ("kafka.value.deserializer", "x"),
        ("kafka.interceptor.classes", "x"),
        ("kafka.security.protocol", "SSL"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_named(name: str, value: str) -> None:
    text = refused({"servers": "b:1", "subscribe": "t", name: value})
    assert name.lower() in text.lower() or "offset can't be" in text


def test_client_settings_are_passed_on_and_others_only_warn() -> None:
    options = parse(**{"kafka.request.timeout.ms": "5000", "kafka.security.protocol": "PLAINTEXT"})
    assert options.client_settings == {"request_timeout_ms": "5000"}
    assert options.warnings == ()
    options = parse(**{"kafka.fetch.max.byte": "5", "maxOffsetsPerTrigger": "1", "startingOffset": "latest"})
    texts = "; ".join(options.warnings)
    assert "did you mean fetch.max.bytes?" in texts
    assert "maxOffsetsPerTrigger is for streams" in texts
    assert "did you mean startingOffsets?" in texts
    assert options.starting == OffsetWord(EARLIEST)


def test_group_options_of_kafka_queries_are_accepted() -> None:
    options = parse(**{"groupIdPrefix": "x", "kafka.group.id": "g"})
    assert ["kafka.group.id" in text for text in options.warnings] == [True]


@given(
    st.sampled_from(["startingOffsets", "endingOffsets", "assign", "startingOffsetsByTimestamp", "subscribePattern"]),
    st.text(alphabet='{}[]":,0123456789-.etrualsn', max_size=30),
)
def test_no_value_fails_otherwise_than_by_a_named_error(name: str, value: str) -> None:
    subscription = {} if name in ("assign", "subscribePattern") else {"subscribe": "t"}
    try:
        parse_options({"servers": "b:1", name: value, **subscription})
    except InvalidOption:
        pass
