"""What DescribeConfigs says: Kafka's order of places, its spelling of values, and no value of what is not known."""

from __future__ import annotations

import pytest

from strandline.protocol.messages import ConfigSource, ConfigType, DescribeConfigsResourceResult
from strandline.runtime.config.broker import BROKER_KEYS
from strandline.runtime.config.describing import NOT_KNOWN, BrokerView, text_of, type_of
from strandline.runtime.config.dynamic import Layer
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import TOPIC_KEYS
from strandline.runtime.network import Address

FILE = {"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data"}


def view(
    file: dict[str, str] | None = None, for_all: dict[str, str] | None = None, own: dict[str, str] | None = None
) -> BrokerView:
    layers = [Layer("/config/brokers/<default>", for_all or {}, False), Layer("/config/brokers/1", own or {}, True)]
    return BrokerView(load_broker_config(FILE | (file or {})), layers)


def topic_key(view: BrokerView, name: str, overrides: dict[str, str] | None = None) -> DescribeConfigsResourceResult:
    [found] = [each for each in view.of_topic(overrides or {}) if each.name == name]
    return found


def broker_key(view: BrokerView, name: str) -> DescribeConfigsResourceResult:
    [found] = [each for each in view.of_this_broker() if each.name == name]
    return found


def places(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def test_all_places_are_named_and_the_first_one_counts() -> None:
    places_of_all = view({"message.max.bytes": "4"}, {"message.max.bytes": "3"}, {"message.max.bytes": "2"})
    entry = topic_key(places_of_all, "max.message.bytes", {"max.message.bytes": "1"})
    assert (entry.value, entry.config_source) == ("1", ConfigSource.TOPIC)
    assert places(entry) == [
        ("max.message.bytes", "1", 1),
        ("message.max.bytes", "2", 2),
        ("message.max.bytes", "3", 3),
        ("message.max.bytes", "4", 4),
        ("message.max.bytes", "1048588", 5),
    ]
    entry = topic_key(places_of_all, "max.message.bytes")
    assert (entry.value, entry.config_source) == ("2", ConfigSource.DYNAMIC_BROKER)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ({}, ("604800000", [])),
        ({"log.retention.hours": "2"}, ("7200000", [])),
        (
            {"log.retention.ms": "5", "log.retention.hours": "2"},
            ("5", [("log.retention.ms", "5", 4), ("log.retention.hours", "2", 4), ("log.retention.hours", "168", 5)]),
        ),
    ],
)
def test_other_keys_that_stand_in_are_named_behind_the_key_itself_only(
    file: dict[str, str], expected: tuple[str, list[tuple[str, str, int]]]
) -> None:
    """As Kafka's ConfigHelper does: `retention.ms=604800000 synonyms={}`."""
    entry = topic_key(view(file), "retention.ms")
    assert (entry.value, places(entry)) == expected
    assert broker_key(view(file), "log.retention.ms").value == expected[0]


def test_every_key_of_the_tables_is_described_with_its_kafka_type() -> None:
    assert [each.name for each in view().of_this_broker()] == list(BROKER_KEYS)
    assert [each.name for each in view().of_topic({})] == list(TOPIC_KEYS)
    assert {name: type_of(BROKER_KEYS[name]) for name in ("listeners", "log.cleanup.policy", "log.preallocate")} == {
        "listeners": ConfigType.STRING,
        "log.cleanup.policy": ConfigType.LIST,
        "log.preallocate": ConfigType.BOOLEAN,
    }
    assert type_of(BROKER_KEYS["offsets.topic.replication.factor"]) is ConfigType.SHORT
    assert all(not each.read_only for each in view().of_topic({}))
    assert broker_key(view(), "log.dirs").read_only and not broker_key(view(), "log.cleaner.threads").read_only
    assert broker_key(view(), "metric.reporters").read_only, "dynamic in Kafka, without effect here"


def test_what_counts_for_all_brokers_is_what_is_set_for_them() -> None:
    found = list(
        view({"log.cleaner.threads": "3"}, {"log.cleaner.threads": "2"}, {"max.connections": "500"}).of_all_brokers()
    )
    assert [(each.name, each.value, each.config_source) for each in found] == [("log.cleaner.threads", "2", 3)]
    assert places(found[0]) == [("log.cleaner.threads", "2", 3)]


def test_what_is_not_known_is_named_without_its_value() -> None:
    secret = {"listener.name.a.ssl.key.password": "hunter2"}
    found = [*view(own=secret).of_this_broker(), *view(for_all=secret).of_all_brokers(), *view().of_topic(secret)]
    unknown = [each for each in found if each.name in secret]
    assert [each.config_source for each in unknown] == [2, 3, 1]
    assert all(each.value is None and each.is_sensitive and each.documentation == NOT_KNOWN for each in unknown)
    assert "hunter2" not in repr(found)


def test_a_topics_own_value_that_cannot_be_used_is_shown_as_it_stands() -> None:
    assert topic_key(view(), "segment.bytes", {"segment.bytes": "many"}).value == "many"


@pytest.mark.parametrize(
    ("file", "wrong", "counting"),
    [
        ({}, {"log.retention.bytes": "abc"}, [("-1", 5)]),
        ({"log.retention.bytes": "7"}, {"log.retention.bytes": "abc"}, [("7", 4), ("-1", 5)]),
        ({"log.retention.hours": "7"}, {"log.retention.hours": "5"}, [("7", 4), ("168", 5)]),
        ({}, {"max.connections": "5"}, [(BROKER_KEYS["max.connections"].default_text, 5)]),
        ({}, {"listener.name.gone.max.connections": "many"}, []),
    ],
    ids=["not usable", "over a file's", "read from the file only", "excludes another", "of a listener"],
)
def test_what_stands_and_does_not_count_is_named_behind_what_counts(
    file: dict[str, str], wrong: dict[str, str], counting: list[tuple[str, int]]
) -> None:
    """Of all brokers it is what is set; of one broker, by whose values programs go, what counts comes first."""
    [(name, text)] = wrong.items()
    for_all, own = view(file, for_all=wrong), view(file, own=wrong)
    assert [(each.name, each.value, each.config_source) for each in for_all.of_all_brokers()] == [(name, text, 3)]
    assert not list(own.of_all_brokers())
    for found, source in ((for_all, 3), (own, 2)):
        entry = broker_key(found, name)
        assert places(entry) == [(name, *each) for each in (*counting, (text, source))]
        assert (entry.value, entry.config_source) == (counting[0] if counting else (None, ConfigSource.DEFAULT))


def test_what_does_not_count_stands_behind_the_default_though_there_is_none() -> None:
    name = "listener.name.plaintext.max.connections"
    entry = broker_key(view(for_all={name: "many"}, own={name: "4"}), name)
    assert places(entry) == [(name, "4", 2), (name, None, 5), (name, "many", 3)]
    entry = topic_key(view(for_all={"log.retention.ms": "abc"}), "retention.ms", {"retention.ms": "7"})
    assert places(entry) == [("retention.ms", "7", 1), ("log.retention.ms", None, 5), ("log.retention.ms", "abc", 3)]


def test_a_topic_names_what_stands_wrong_for_its_default() -> None:
    entry = topic_key(view(for_all={"log.retention.ms": "abc"}), "retention.ms")
    assert (entry.config_source, places(entry)) == (ConfigSource.DEFAULT, [("log.retention.ms", "abc", 3)])


def test_the_value_of_an_unknown_key_is_nowhere_named_not_even_of_one_without_a_name() -> None:
    secret = {"": "hunter2", "sasl.password": "hunter2"}
    shown = view(for_all=secret, own=secret)
    assert "hunter2" not in repr([*shown.of_this_broker(), *shown.of_all_brokers(), *shown.of_topic({})])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (("delete", "compact"), "delete,compact"),
        ((), ""),
        ({"A": "PLAINTEXT"}, "A:PLAINTEXT"),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e6, "1000000.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (-0.00025, "-2.5E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (7, "7"),
        (Address("::1", 9644), "[::1]:9644"),
    ],
)
def test_values_are_spelled_as_java_does(value: object, text: str | None) -> None:
    assert text_of(value) == text


def test_a_key_of_one_listener_has_its_places_too() -> None:
    name = "listener.name.plaintext.max.connections"
    entry = broker_key(view({name: "4"}, {name: "3"}, {name: "2"}), name)
    assert (entry.value, entry.read_only, entry.config_type) == ("2", False, ConfigType.INT)
    assert places(entry) == [(name, "2", 2), (name, "3", 3), (name, "4", 4)]
    assert [each.name for each in view(for_all={name: "3"}).of_all_brokers()] == [name]


def test_what_excludes_another_value_comes_behind_what_counts() -> None:
    entry = broker_key(view({}, {"max.connections": "500"}, {"max.connections": "5"}), "max.connections")
    assert (entry.value, entry.config_source) == ("500", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert [source for _, _, source in places(entry)] == [3, 5, 2]
