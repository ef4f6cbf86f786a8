"""Options of the Spark source: what is accepted, what is refused, in which words."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import InvalidOption, MismatchedPartitions, UnresolvedStartAfterEnd
from strandline.spark_connector.options.request import (
    COLUMNS,
    EARLIEST,
    EVERY_TOPIC,
    LATEST,
    Ago,
    Assign,
    FromEnd,
    GlobalTimestamp,
    OffsetWord,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
)
from strandline.spark_connector.options.sink_options import parse_sink_options
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.options.stream_options import parse_stream_options
from strandline.spark_connector.options.values import whole_number

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
    assert options.columns == COLUMNS
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
    assert "Pattern to subscribe is empty" in refused({"servers": "b:1", "subscribePattern": " "})


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


def test_a_start_may_be_counted_from_the_end_and_numbers_in_json_are_kafkas() -> None:
    assert parse(startingOffsets=" -100 ").starting == OffsetWord(FromEnd(100))
    assert parse(startingOffsets="-1").starting == OffsetWord(FromEnd(1)), "latest has a word of its own"
    assert parse(endingOffsets="-5").ending == OffsetWord(FromEnd(5))
    limit = parse(startingOffsets='{"t":{"0":-2,"1":"-2","2":"EARLIEST"}}').starting
    assert limit == SpecificOffsets({T0: EARLIEST, T1: FromEnd(2), TopicPartition("t", 2): EARLIEST})
    text = refused({"servers": "b:1", "subscribe": "t", "startingOffsets": '{"t":{"0":-100}}'})
    assert "t-0 is -100" in text and '"-100" for the last 100' in text


def test_json_may_have_defaults_and_a_topic_of_that_name() -> None:
    limit = parse(startingOffsets='{"t":{"0":23,"default":"earliest"},"default":"-10"}').starting
    assert limit == SpecificOffsets({T0: 23}, {"t": EARLIEST, EVERY_TOPIC: FromEnd(10)})
    limit = parse(startingOffsets='{"default":{"0":1,"default":2}}').starting
    assert limit == SpecificOffsets({TopicPartition("default", 0): 1}, {"default": 2})
    times = parse(endingOffsetsByTimestamp='{"t":{"0":"-10m"},"default":5}').ending
    assert times == SpecificTimestamps({T0: Ago(600_000)}, {EVERY_TOPIC: 5})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("-10m", Ago(600_000)),
        ("-90s", Ago(90_000)),
        ("-2h", Ago(7_200_000)),
        ("-1d", Ago(86_400_000)),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01 00:00:01", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.123", 123),
        ("1970-01-01T00:00:00.000001Z", 1),
    ],
)
def test_times_are_milliseconds_iso_or_ago(value: str, expected: int | Ago) -> None:
    assert parse(startingTimestamp=value).starting == GlobalTimestamp(expected)
    assert parse(endingTimestamp=value).ending == GlobalTimestamp(expected)
    limit = parse(startingOffsetsByTimestamp=json.dumps({"t": {"0": value}})).starting
    assert limit == SpecificTimestamps({T0: expected})


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({"startingTimestamp": "5"}, {"endingTimestamp": "4"}),
        ({"startingTimestamp": "-5m"}, {"endingTimestamp": "-10m"}),
        ({"startingOffsets": '{"t":{"0":5}}'}, {"endingOffsets": '{"t":{"0":4}}'}),
        ({"startingOffsets": '{"t":{"0":"-5"}}'}, {"endingOffsets": '{"t":{"0":"-6"}}'}),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}'}, {"endingOffsetsByTimestamp": '{"t":{"0":4}}'}),
    ],
)
def test_a_start_that_lies_behind_its_end_whatever_there_is(start: dict[str, str], end: dict[str, str]) -> None:
    with pytest.raises(UnresolvedStartAfterEnd, match="UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        parse(**start, **end)


def test_a_start_at_its_end_or_of_another_kind_is_for_the_plan_to_judge() -> None:
    parse(startingTimestamp="5", endingTimestamp="5")
    parse(startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":-1}}')
    parse(startingOffsets='{"t":{"0":"-5"}}', endingOffsets='{"t":{"0":0}}')
    parse(startingTimestamp="5", endingTimestamp="-1m")


def test_start_and_end_name_the_same_partitions() -> None:
    with pytest.raises(MismatchedPartitions, match=r"start names t-0, the end t-0, t-1"):
        parse(startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":9,"1":9}}')
    parse(startingOffsets='{"t":{"0":5,"default":"earliest"}}', endingOffsets='{"t":{"0":9,"1":9}}')


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
        ("startingTimestamp", "-10"),
        ("startingTimestamp", "-10x"),
        ("startingTimestamp", "2026-13-01"),
        ("startingTimestamp", "1969-12-31T23:59:59Z"),
        ("startingTimestamp", "9" * 5000),
        ("startingOffsets", "-0"),
        ("startingOffsets", "100"),
        ("startingOffsets", '{"t":{"0":-100}}'),
        ("startingOffsets", '{"t":{"default":"latest"}}'),
        ("startingOffsets", '{"default":-1}'),
        ("startingOffsets", '{"default":[0]}'),
        ("startingOffsets", '{"":{"0":1}}'),
        ("startingOffsets", '{"t":{"00":1}}'),
        ("startingOffsets", '{"t":{"%s":1}}' % ("9" * 5000)),
        ("endingOffsets", '{"t":{"default":"earliest"}}'),
        ("startingOffsetsByTimestamp", '{"t":{"0":"earliest"}}'),
        ("endingTimestamp", "1.5"),
        ("startingOffsetsByTimestamp", '{"t":{"0":-1}}'),
        ("startingOffsetsByTimestampStrategy", "guess"),
        ("failOnDataLoss", "yes"),
        ("includeHeaders", "1"),
        ("minPartitions", "0"),
        ("minPartitions", "many"),
        ("minPartitions", "2147483648"),
        ("minPartitions", "9" * 5000),
        ("maxRecordsPerPartition", "-5"),
        ("maxRecordsPerPartition", "9223372036854775808"),
        ("kafkaConsumer.pollTimeoutMs", "0"),
        ("isolationLevel", "PERMISSIVE"),
        ("kafka.isolation.level", "serializable"),
        ("failOnDataLoss", "PERMISSIVE"),
        ("fetchOffset.numRetries", "-1"),
        ("fetchOffset.retryIntervalMs", "soon"),
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


def test_as_many_tasks_and_as_long_ones_as_sparks_types_allow_may_be_asked_for() -> None:
    options = parse(minPartitions="2147483647", maxRecordsPerPartition="9223372036854775807")
    assert (options.min_partitions, options.max_records_per_partition) == (2**31 - 1, 2**63 - 1)


@pytest.mark.parametrize("value", ["-1", "1.5", "soon", "9" * 20, "9" * 5000])
def test_a_version_that_is_no_number_is_refused_and_named(value: str) -> None:
    with pytest.raises(InvalidOption, match="writeVersion must be a whole number from 0 on"):
        whole_number({"writeversion": value}, "writeVersion", 0)


def test_columns_come_in_the_order_in_which_they_are_named() -> None:
    assert parse(columns="offset, KEY,timestamptype").columns == ("offset", "key", "timestampType")
    assert parse(columns="value", includeHeaders="true").columns == ("value", "headers")
    assert parse(columns="headers,value").columns == ("headers", "value")
    assert parse(includeHeaders="true").columns == (*COLUMNS, "headers")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "no column ''"),
        ("key,", "no column ''"),
        ("key,vlaue", "no column 'vlaue'; did you mean value[?]"),
        ("key,value,KEY", "names key twice"),
        ("*", "name some of key, value, topic"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(value: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        parse(columns=value)
    with pytest.raises(InvalidOption, match="headers and includeHeaders is false"):
        parse(columns="headers", includeHeaders="false")


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


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("kafka.fetch.max.bytes", "lots", "kafka.fetch.max.bytes='lots' is not an integer"),
        ("kafka.fetch.min.bytes", "-1", "kafka.fetch.min.bytes='-1': at least 0 bytes"),
        ("kafka.fetch.max.bytes", "2147483648", "kafka.fetch.max.bytes='2147483648': at most 2147483647"),
        ("kafka.check.crcs", "maybe", "kafka.check.crcs='maybe': use true or false"),
        ("kafka.request.timeout.ms", "soon", "kafka.request.timeout.ms='soon' is not a number"),
        ("kafka.request.timeout.ms", "inf", "kafka.request.timeout.ms='inf': at most 2147483647"),
        ("KAFKA.Bootstrap.Servers", "nohost", "kafka.bootstrap.servers must be host:port .* not 'nohost'"),
        ("servers", "b:1,nohost", "servers must be host:port .* not 'b:1,nohost'"),
        ("servers", "b:0", "servers must be host:port"),
    ],
)
def test_a_value_that_the_client_cannot_use_is_refused_with_the_name_of_the_option(
    name: str, value: str, why: str
) -> None:
    given = {"subscribe": "t", name: value}
    if "servers" not in name.lower():
        given["servers"] = "b:1"
    for parse_given in (parse_options, parse_stream_options):
        with pytest.raises(InvalidOption, match=rf"\[INVALID_SOURCE_OPTION\] {why}"):
            parse_given(given)
    if "servers" in name.lower() or name == "kafka.request.timeout.ms":
        with pytest.raises(InvalidOption, match=why):
            parse_sink_options(given)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("kafka.compression.type", "zip", "kafka.compression.type='zip': use one of none, gzip"),
        ("kafka.batch.size", "1.5", "kafka.batch.size='1.5' is not an integer"),
        ("kafka.linger.ms", "-1", "kafka.linger.ms='-1': at least 0 ms"),
    ],
)
def test_a_value_that_the_producer_cannot_use_is_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=rf"\[INVALID_SOURCE_OPTION\] {why}"):
        parse_sink_options({"servers": "b:1", name: value})
    assert parse_sink_options({"servers": "b:1", "kafka.buffer.memory": "4294967296"})


def test_the_isolation_level_has_two_names_and_two_values() -> None:
    assert parse().isolation_level == "read_uncommitted"
    assert parse(isolationLevel="READ_COMMITTED").isolation_level == "read_committed"
    options = parse(**{"kafka.isolation.level": "read_committed", "isolationLevel": "read_committed"})
    assert options.isolation_level == "read_committed"
    assert options.warnings == ()
    assert options.client_settings == {}
    with pytest.raises(InvalidOption, match=r"isolationLevel and .* differ"):
        parse(**{"kafka.isolation.level": "read_committed", "isolationLevel": "read_uncommitted"})


def test_options_of_another_use_warn_and_say_where_they_belong() -> None:
    (text,) = parse(maxTriggerDelay="5m").warnings
    assert text == "option maxTriggerDelay is for streams that are read and has no effect in batch reads"
    (text,) = parse_stream_options({"servers": "b:1", "subscribe": "t", "pushdown": "true"}).source.warnings
    assert text == "option pushdown is for batch reads and has no effect in streams that are read"
    (text,) = parse_sink_options({"servers": "b:1", "startingOffsets": "earliest"}).warnings
    assert text == "option startingOffsets is for reading and has no effect in writing"
    (text,) = parse(topic="t").warnings
    assert "topic is for writing" in text


def test_a_misspelt_option_is_told_from_all_that_there_are_also_those_of_another_use() -> None:
    (text,) = parse(maxOffsetPerTrigger="5").warnings
    assert text == "option maxoffsetpertrigger is unknown and has no effect; did you mean maxOffsetsPerTrigger?"
    (text,) = parse_sink_options({"servers": "b:1", "minPartition": "5"}).warnings
    assert text.endswith("did you mean minPartitions?")
    (text,) = parse_stream_options({"servers": "b:1", "subscribe": "t", "exactlyOnc": "true"}).source.warnings
    assert text.endswith("did you mean exactlyOnce?")


def test_group_options_of_kafka_queries_are_accepted() -> None:
    options = parse(
        **{
            "groupIdPrefix": "x",
            "kafka.group.id": "g",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "9",
        }
    )
    assert ["kafka.group.id" in text for text in options.warnings] == [True]


@given(
    st.sampled_from(
        [
            "startingOffsets",
            "endingOffsets",
            "assign",
            "startingOffsetsByTimestamp",
            "subscribePattern",
            "startingTimestamp",
        ]
    ),
    st.text(alphabet='{}[]":,0123456789-.etrualsndfmTZ+', max_size=30),
)
def test_no_value_fails_otherwise_than_by_a_named_error(name: str, value: str) -> None:
    subscription = {} if name in ("assign", "subscribePattern") else {"subscribe": "t"}
    try:
        parse_options({"servers": "b:1", name: value, **subscription})
    except InvalidOption:
        pass
