"""A configuration that comes from environment variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.runtime.config.broker import BROKER_KEYS
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.values import InvalidConfig
from strandline.runtime.config.variables import (
    contradictions,
    properties_from_environment,
    value_from_environment,
    variable_of,
)

_REQUIRED = {"STRANDLINE_BROKER_ID": "1", "STRANDLINE_ZOOKEEPER_CONNECT": "zookeeper:2181"}


@pytest.mark.parametrize("prefix", ["STRANDLINE_", "KAFKA_CFG_", "KAFKA_"])
@pytest.mark.parametrize("key", list(BROKER_KEYS))
def test_every_key_has_a_variable(prefix: str, key: str) -> None:
    name = prefix + variable_of(key).removeprefix("STRANDLINE_")
    assert properties_from_environment({name: "x"})[key] == "x"


@given(st.from_regex(r"[a-z]+([._-][a-z]+){0,4}", fullmatch=True))
def test_a_name_that_was_made_by_the_rule_is_read_back(key: str) -> None:
    name = "KAFKA_" + variable_of(key).removeprefix("STRANDLINE_")
    if key.split(".")[0] in {"opts", "home", "version", "debug", "mode", "jmx", "log4j", "kraft", "cfg"}:
        return  # an image's own
    assert list(properties_from_environment({name: "x"})) == [key]


def test_our_own_prefix_wins_over_those_of_other_images() -> None:
    variables = {"KAFKA_BROKER_ID": "1", "KAFKA_CFG_BROKER_ID": "2", "STRANDLINE_BROKER_ID": "3"}
    assert properties_from_environment(variables) == {"broker.id": "3"}
    del variables["STRANDLINE_BROKER_ID"]
    assert properties_from_environment(variables) == {"broker.id": "2"}


def test_what_is_meant_for_a_jvm_an_image_or_the_command_is_no_key() -> None:
    names = "KAFKA_HEAP_OPTS KAFKA_OPTS KAFKA_JMX_PORT KAFKA_LOG4J_ROOT_LOGLEVEL STRANDLINE_DATA KAFKA_VERSION PATH"
    names += " STRANDLINE_VERSION STRANDLINE_DEFAULTS"
    assert properties_from_environment(dict.fromkeys(names.split(), "x")) == {}


def test_an_empty_variable_is_not_set() -> None:
    assert properties_from_environment({"STRANDLINE_BROKER_RACK": " "}) == {}


def test_listeners_follow_from_what_is_advertised() -> None:
    told = "INSIDE://broker-1:19092,HOST://localhost:9092"
    config = load_broker_config(
        properties_from_environment(
            _REQUIRED
            | {
                "KAFKA_ADVERTISED_LISTENERS": told,
                "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,HOST:PLAINTEXT",
            }
        )
    )
    assert [str(listener) for listener in config.listeners] == ["INSIDE://0.0.0.0:19092", "HOST://0.0.0.0:9092"]
    assert [str(listener) for listener in config.advertised_listeners] == told.split(",")


def test_listeners_that_are_given_stay() -> None:
    variables = {"KAFKA_ADVERTISED_LISTENERS": "A://a:1", "KAFKA_LISTENERS": "A://127.0.0.1:5"}
    assert properties_from_environment(variables)["listeners"] == "A://127.0.0.1:5"


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ("PLAINTEXT://:9092", "PLAINTEXT://0.0.0.0:9092"),
        ("A://:1, B://127.0.0.1:2", "A://0.0.0.0:1,B://127.0.0.1:2"),
        ("A://[::1]:1,B://host:2", "A://[::1]:1,B://host:2"),
        ("garbage,:9092,A://:", "garbage,:9092,A://0.0.0.0:"),
    ],
)
def test_a_listener_without_a_host_is_on_every_interface(given: str, bound: str) -> None:
    assert properties_from_environment({"KAFKA_LISTENERS": given}) == {"listeners": bound}


def test_a_listener_that_nobody_could_be_told_of_is_refused_by_the_key_that_was_set() -> None:
    given = properties_from_environment({**_REQUIRED, "KAFKA_LISTENERS": "PLAINTEXT://:9092"})
    with pytest.raises(InvalidConfig, match=r"set advertised\.listeners to the host") as caught:
        load_broker_config(given)
    assert (caught.value.key, caught.value.value) == ("listeners", "PLAINTEXT://0.0.0.0:9092")


def test_listeners_of_the_file_beneath_do_not_follow_from_a_variable() -> None:
    variables, file = {"KAFKA_ADVERTISED_LISTENERS": "A://a:1"}, {"listeners": "A://10.0.0.1:5"}
    assert properties_from_environment(variables, file) == {"advertised.listeners": "A://a:1"}


def test_two_variables_of_one_key_that_differ_are_named_without_their_values() -> None:
    variables = {
        "KAFKA_LOG_DIRS": "/a",
        "KAFKA_CFG_LOG_DIRS": "/b",
        "STRANDLINE_LOG_DIRS": "/b",
        "KAFKA_HEAP_OPTS": "x",
    }
    assert list(contradictions(variables)) == [
        "KAFKA_LOG_DIRS has no effect: STRANDLINE_LOG_DIRS, which has another value, wins"
    ]
    assert list(contradictions({"KAFKA_LOG_DIRS": "/a", "STRANDLINE_LOG_DIRS": ""})) == []


def test_the_value_of_one_key_is_the_winners_and_the_others_are_not_judged() -> None:
    variables = {"KAFKA_ADMIN_LISTENER": "a:1", "STRANDLINE_NUM_PARTITION": "3", "STRANDLINE_ADMIN_LISTENER": " "}
    assert value_from_environment(variables, "admin.listener") == "a:1"
    assert value_from_environment(variables | {"STRANDLINE_ADMIN_LISTENER": "b:2"}, "admin.listener") == "b:2"
    assert value_from_environment(variables, "broker.id") is None


def test_a_variable_is_spelled_by_kafkas_rule() -> None:
    assert variable_of("log.dirs") == "STRANDLINE_LOG_DIRS"
    assert variable_of("a.b_c-d") == "STRANDLINE_A_B__C___D"


def test_a_key_of_kafkas_prefix_that_nobody_knows_is_warned_about() -> None:
    config = load_broker_config(properties_from_environment(_REQUIRED | {"KAFKA_NUM_PARTITION": "3"}))
    assert "unknown key num.partition is ignored; did you mean num.partitions?" in config.warnings


def test_a_variable_of_our_own_that_is_no_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidConfig) as refused:
        properties_from_environment({"STRANDLINE_NUM_PARTITION": "3"})
    assert str(refused.value) == (
        "configuration STRANDLINE_NUM_PARTITION='3': "
        "there is no key num.partition; did you mean STRANDLINE_NUM_PARTITIONS?"
    )
    with pytest.raises(InvalidConfig, match="--reference"):
        properties_from_environment({"STRANDLINE_QQQQ": "3"})


@pytest.mark.parametrize(
    "name", ["STRANDLINE_HOST_NAME", "STRANDLINE_ADVERTISED_PORT", "STRANDLINE_SSL_KEYSTORE_LOCATION"]
)
def test_a_key_that_is_older_or_comes_later_is_not_refused(name: str) -> None:
    properties_from_environment({name: "x"})


def test_where_a_service_of_our_name_is_found_is_no_key() -> None:
    names = "STRANDLINE_SERVICE_HOST STRANDLINE_SERVICE_PORT STRANDLINE_SERVICE_PORT_HOST STRANDLINE_PORT_9092_TCP_ADDR"
    assert properties_from_environment(dict.fromkeys([*names.split(), "STRANDLINE_PORT"], "tcp://10.0.0.1:9092")) == {}


def test_an_advertised_entry_without_an_address_is_not_changed() -> None:
    assert properties_from_environment({"STRANDLINE_ADVERTISED_LISTENERS": "garbage"})["listeners"] == "garbage"
