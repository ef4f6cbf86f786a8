"""Settings and partitioning: names, limits, golden hashes."""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import re
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.client.errors import InvalidClientConfig
from strandline.client.partitioner import murmur2, partition_for_key
from strandline.client.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    from_mapping,
    parse_addresses,
)
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address


def test_dotted_names_and_strings_of_a_command_line_are_understood() -> None:
    settings = from_mapping(
        ProducerSettings,
        {"bootstrap.servers": "a:1, [::1]:2", "acks": "all", "linger.ms": "7.5", "batch-size": "100"},
    )
    assert (settings.acks, settings.linger_ms, settings.batch_size) == (-1, 7.5, 100)
    assert parse_addresses(settings.bootstrap_servers) == [Address("a", 1), Address("::1", 2)]
    assert from_mapping(ConsumerSettings, {"bootstrap_servers": "a:1", "check_crcs": "false"}).check_crcs is False


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"lingerms": 5}, "did you mean linger_ms"),
        ({"linger.mss": 5}, r"did you mean linger\.ms\?"),
        ({"debug": "all"}, "known are acks, allow_auto_create_topics, "),
        ({"quite.something.else": 1}, r"known are acks, allow\.auto\.create\.topics, "),
        ({"security.protocol": "SSL"}, "there is neither TLS nor SASL: leave it out"),
        ({"sasl_mechanism": "PLAIN"}, "there is neither TLS nor SASL"),
        ({"transactional_id": "x"}, "brokers serve no transactions: leave it out"),
        ({"api_version": (2, 0)}, "versions are agreed upon with each broker"),
        ({"bootstrap_servers": {"bootstrap.servers": "a:1"}}, "is a dict: settings are given by name"),
        ({"acks": 2}, "0, 1 or all"),
        ({"batch_size": "many"}, "batch_size='many' is not an integer"),
        ({"batch.size": "many"}, r"batch\.size='many' is not an integer"),
        ({"batch_size": -1}, "at least 0 bytes"),
        ({"linger_ms": float("nan")}, "at least 0 ms"),
        ({"retries": True}, "at least"),
        ({"compression_type": "brotli"}, "none, gzip"),
        ({"buffer_full": "explode"}, "block, drop, raise"),
        ({"bootstrap_servers": "localhost"}, "'localhost' is not host:port"),
        ({"bootstrap_servers": "localhost:99999"}, "is not host:port"),
        ({"bootstrap_servers": ""}, "is not host:port"),
        ({"bootstrap_servers": None}, "bootstrap_servers=None is not host:port, nor a list"),
        ({"bootstrap_servers": 5}, "bootstrap_servers=5 is not host:port, nor a list"),
        ({"client_id": None}, "client_id=None is not a string"),
        ({"client_id": 5}, "client_id=5 is not a string"),
        ({"client_id": "x" * 2**15}, "client_id is longer than 32767 bytes"),
        ({"request_timeout_ms": 2**31}, "at most 2147483647 ms"),
        ({"request_timeout_ms": math.inf}, "at most 2147483647 ms"),
        ({"max_request_size": 2**31}, "at most 2147483647 bytes"),
        ({"retries": math.inf}, "retries=inf is not an integer"),
        ({"batch_size": 2.7}, r"batch_size=2\.7 is not an integer"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_with_what_is_allowed(changed: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidClientConfig, match=text):
        from_mapping(ProducerSettings, {"bootstrap_servers": "a:1", **changed})


@pytest.mark.parametrize(
    "changed",
    [
        *({name: 2**31} for name in ("fetch_min_bytes", "fetch_max_wait_ms", "fetch_max_bytes", "session_timeout_ms")),
        {"client_rack": None},
        {"group_id": 5},
        {"max_poll_records": 2.7},
    ],
)
def test_what_no_request_of_a_consumer_can_carry_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(InvalidClientConfig, match=next(iter(changed))):
        from_mapping(ConsumerSettings, {"bootstrap_servers": "a:1", **changed})


def test_a_consumer_may_wait_for_ever_and_be_of_no_group() -> None:
    given = {"bootstrap_servers": ["a:1", "b:2"], "consumer_timeout_ms": math.inf, "group_id": None}
    settings = from_mapping(ConsumerSettings, {**given, "max_poll_records": 5.0})
    assert (settings.bootstrap_servers, settings.consumer_timeout_ms) == ("a:1,b:2", math.inf)
    assert (settings.group_id, repr(settings.max_poll_records)) == ("", "5")


TABLES = (ProducerSettings, ConsumerSettings, AdminSettings)
SETTINGS = [(table, item.name) for table in TABLES for item in dataclasses.fields(table)]
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10),
    st.floats(),
    st.complex_numbers(),
    st.decimals(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.binary(max_size=3).map(bytearray),
    st.lists(st.one_of(st.integers(), st.text(max_size=2), st.none()), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sets(st.integers(), max_size=2),
    st.sampled_from(
        ["true", "range", "all", "none", "a:1", "5", "\ud800", object(), object, len, TopicPartition("t", 0)]
    ),
)


def is_of(value: object, kind: Any) -> bool:
    """Whether it is what the table says."""
    if get_origin(kind) is UnionType:
        return any(is_of(value, each) for each in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
    if get_origin(kind) is collections.abc.Callable:
        return callable(value)
    return type(value) is kind


@given(setting=st.sampled_from(SETTINGS), value=ANYTHING)
@example(setting=(ConsumerSettings, "check_crcs"), value=None)
@example(setting=(ConsumerSettings, "check_crcs"), value=1)
@example(setting=(ConsumerSettings, "partition_assignment_strategy"), value=5)
@example(setting=(ConsumerSettings, "partition_assignment_strategy"), value=[["range"]])
@example(setting=(ProducerSettings, "partitioner"), value=5)
@example(setting=(ProducerSettings, "linger_ms"), value=b"5")
@example(setting=(ProducerSettings, "acks"), value=b"1")
@example(setting=(ProducerSettings, "client_id"), value="\ud800")
def test_whatever_is_given_is_what_the_table_says_or_one_error_that_names_it(
    setting: tuple[type[ClientSettings], str], value: object
) -> None:
    table, name = setting
    try:
        settings = from_mapping(table, {"bootstrap_servers": "a:1", name: value})
    except InvalidClientConfig as error:
        text = str(error)
        assert text.startswith(name) and "\n" not in text
        assert re.search("; |: |, nor |needs | is not host:port", text), "the remedy"
        assert repr(value) in text or name in ("bootstrap_servers", "enable_idempotence")
    else:
        assert is_of(getattr(settings, name), get_type_hints(table)[name])


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(InvalidClientConfig, match="bootstrap_servers is missing"):
        from_mapping(ProducerSettings, {})


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert partition_for_key(key, 100) == (hashed & 0x7FFFFFFF) % 100


@given(st.binary(max_size=100), st.integers(1, 1000))
def test_every_key_has_a_partition(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions
