"""What ZooKeeper has over a broker's file: who comes first, what is not served, what nobody can know."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.runtime.config.broker import BROKER_KEYS, BrokerConfig
from strandline.runtime.config.dynamic import TOPIC_DEFAULTS, CurrentConfig, DynamicReading, Layer, with_dynamic
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import topic_config

ALL, ONE = "/config/brokers/<default>", "/config/brokers/1"
STATIC = load_broker_config(
    {"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data", "log.retention.ms": "60000"}
)
RETENTION = "log.retention.ms"


def reading(
    for_all: dict[str, str] | None, own: dict[str, str] | None, static: BrokerConfig = STATIC
) -> DynamicReading:
    return with_dynamic(static, [Layer(ALL, for_all, False), Layer(ONE, own, True)])


@pytest.mark.parametrize(
    ("for_all", "own", "expected"),
    [
        ({}, {}, 60000),
        ({RETENTION: "5"}, {}, 5),
        ({}, {RETENTION: "7"}, 7),
        ({RETENTION: "5"}, {RETENTION: "-1"}, -1),
        ({"log.retention.hours": "1"}, {}, 60000),
    ],
    ids=["file", "of all", "of one", "of one before all", "not dynamic"],
)
def test_the_more_particular_one_counts(for_all: dict[str, str], own: dict[str, str], expected: int) -> None:
    config = reading(for_all, own).config
    assert config.log_retention_ms == expected
    assert not config.undecided
    assert topic_config(config, {}).retention_ms == expected
    assert topic_config(config, {"retention.ms": "9"}).retention_ms == 9, "the topic's own comes before all of them"


@pytest.mark.parametrize(
    ("for_all", "own", "value", "is_undecided"),
    [
        ({RETENTION: "soon"}, {}, 60000, True),
        ({RETENTION: "0"}, {}, 60000, True),
        ({RETENTION: "5"}, {RETENTION: "soon"}, 5, True),
        ({RETENTION: "soon"}, {RETENTION: "5"}, 5, False),
        (None, {}, 60000, True),
        (None, {RETENTION: "5", "log.cleanup.policy": "delete"}, 5, False),
        ({RETENTION: "5"}, None, 5, True),
    ],
)
def test_where_nobody_knows_what_was_meant_nothing_is_deleted_by_it(
    for_all: dict[str, str] | None, own: dict[str, str] | None, value: int, is_undecided: bool
) -> None:
    config = reading(for_all, own).config
    assert config.log_retention_ms == value
    assert ("log_retention_ms" in config.undecided) == is_undecided
    own_time = {"retention.ms": "9"}
    assert (topic_config(config, {}).retention_ms == -1) == is_undecided
    policy_is_known = "log_cleanup_policy" not in config.undecided
    assert (topic_config(config, own_time).retention_ms == 9) == policy_is_known, "it might not say delete"
    assert topic_config(config, {**own_time, "cleanup.policy": "delete"}).retention_ms == 9


@pytest.mark.parametrize(
    ("path", "name", "why"),
    [
        (ALL, "ssl.keystore.password", "not honoured yet"),
        (ALL, "log.cleaner.thread", "did you mean log.cleaner.threads?"),
        (ONE, "retention.ms", "topics have it, and brokers its default: log.retention.ms"),
        (ONE, "listener.name.internal.sasl.jaas.config", "not honoured yet"),
        (ONE, "listener.name.internal.max.connections", "no listener INTERNAL"),
        (ONE, "listener.name.plaintext.num.network.threads", "shared by all listeners"),
        (ONE, "log.retention.hours", "broker's file only"),
        (ONE, "metric.reporters", "Java classes cannot be run here"),
        (ALL, "advertised.listeners", "for one broker only"),
        (ONE, "log.message.downconversion.enable", "no record is converted"),
    ],
)
def test_what_is_not_served_is_named_without_its_value(path: str, name: str, why: str) -> None:
    layer = {name: "secret"}
    result = reading(layer if path == ALL else {}, layer if path == ONE else {})
    (named,) = result.not_served
    assert (named.path, named.key) == (path, name)
    assert why in named.why
    assert "secret" not in repr(result.not_served)
    assert result.config == STATIC
    assert not result.unusable


def test_values_that_exclude_each_other_do_not_count() -> None:
    result = reading({"log.cleaner.min.compaction.lag.ms": "6"}, {"log.cleaner.max.compaction.lag.ms": "5"})
    assert result.config.log_cleaner_min_compaction_lag_ms == 6, "the more particular one goes"
    assert result.config.log_cleaner_max_compaction_lag_ms == STATIC.log_cleaner_max_compaction_lag_ms
    assert {"log_cleaner_min_compaction_lag_ms", "log_cleaner_max_compaction_lag_ms"} == result.config.undecided
    assert [error.key for error in result.unusable] == ["log.cleaner.min.compaction.lag.ms"]
    assert not reading({"max.connections": "5"}, {}).config.undecided, "connections delete nothing"
    assert reading({"max.connections": "5"}, {}).config.max_connections == STATIC.max_connections
    assert reading({"max.connections": "500"}, {"max.connections": "5"}).config.max_connections == 500


def test_a_rate_that_keeps_everybody_out_does_not_count_wherever_it_stands() -> None:
    """Else nobody could connect to change it, and a restart would not help."""
    rate = "max.connection.creation.rate"
    result = reading({rate: "5"}, {rate: "0"})
    assert result.config.max_connection_creation_rate == 5, "the next lower one"
    assert [(error.key, error.value) for error in result.unusable] == [(rate, "0")]
    assert reading({rate: "0"}, {}).config == STATIC
    assert not result.config.undecided, "connections delete nothing"


def test_of_two_contradictions_both_are_told_and_what_a_higher_layer_mends_is_none() -> None:
    both = {"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5", "max.connections": "5"}
    result = reading(both, {})
    assert {error.key for error in result.unusable} == {
        "log.cleaner.min.compaction.lag.ms",
        "inter.broker.connections.reserved",
    }
    assert result.counting == ({}, {})
    assert result.config.log_cleaner_max_compaction_lag_ms == STATIC.log_cleaner_max_compaction_lag_ms
    mended = reading(both, {"log.cleaner.max.compaction.lag.ms": "7", "max.connections": "500"})
    assert not mended.unusable
    assert mended.config.log_cleaner_min_compaction_lag_ms == 6


@pytest.mark.parametrize(
    ("text", "host"), [("PLAINTEXT://kafka:9092", "kafka"), ("SSL://kafka:9093", "127.0.0.1"), ("", "127.0.0.1")]
)
def test_an_advertised_address_counts_where_it_can_be_told(text: str, host: str) -> None:
    result = reading({}, {"advertised.listeners": text})
    assert result.config.advertised_listeners[0].host == host
    assert bool(result.unusable) == (host != "kafka")


def test_what_cannot_change_while_the_broker_runs_waits_for_its_next_start() -> None:
    after = reading({"num.recovery.threads.per.data.dir": "3", RETENTION: "5"}, {}).config
    current = CurrentConfig(STATIC)
    assert current.change(after) == ["num.recovery.threads.per.data.dir"]
    config = current.value
    assert (config.num_recovery_threads_per_data_dir, config.log_retention_ms) == (1, 5)
    assert after.num_recovery_threads_per_data_dir == 3, "a broker that starts has it"


def test_who_watches_a_key_hears_when_it_has_changed_and_only_then() -> None:
    current, heard = CurrentConfig(STATIC), list[int]()
    current.watch(
        lambda: heard.append(current.value.log_retention_ms),
        BrokerConfig.log_retention_ms,
        BrokerConfig.compression_type,
    )
    current.change(reading({RETENTION: "5", "max.connections": "200"}, {}).config)
    current.change(reading({RETENTION: "5", "max.connections": "300"}, {}).config)
    current.change(reading({RETENTION: "6", "compression.type": "gzip"}, {}).config)
    assert heard == [5, 6]


def test_every_default_of_a_topics_key_is_dynamic() -> None:
    dynamic = {key.attribute for key in BROKER_KEYS.values() if key.dynamic and key.live}
    assert dynamic >= TOPIC_DEFAULTS


NAMES = list(BROKER_KEYS)
layers = st.one_of(
    st.none(),
    st.dictionaries(
        st.one_of(st.sampled_from(NAMES), st.text(max_size=20)),
        st.one_of(st.integers(-2, 10**7).map(str), st.text(max_size=8)),
        max_size=6,
    ),
)


@given(for_all=layers, own=layers)
def test_whatever_stands_there_changes_nothing_but_dynamic_keys(
    for_all: dict[str, str] | None, own: dict[str, str] | None
) -> None:
    result = reading(for_all, own)
    before, after = msgspec.structs.asdict(STATIC), msgspec.structs.asdict(result.config)
    may_change = {key.attribute for key in BROKER_KEYS.values() if key.dynamic and key.honoured} | {"undecided"}
    assert {name for name in before if before[name] != after[name]} <= may_change
    written = {*(for_all or {}), *(own or {})}
    named = {each.key for each in result.not_served} | {error.key for error in result.unusable}
    for key in BROKER_KEYS.values():
        changed = before[key.attribute] != after[key.attribute]
        if key.attribute in TOPIC_DEFAULTS and changed:
            assert key.name in written
    assert named <= written | BROKER_KEYS.keys()
