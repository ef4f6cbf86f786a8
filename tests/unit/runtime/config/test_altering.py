"""What becomes of overrides that a client changes: Kafka's operations, and nothing that is not allowed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import AlterableConfig, ConfigOperation, IncrementalAlterableConfig
from strandline.runtime.config.altering import Entity, broker_entity, incremented, replaced, topic_entity
from strandline.runtime.config.dynamic import Layer
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import TOPIC_KEYS, topic_config
from strandline.runtime.config.values import MAX_TEXT_BYTES, InvalidConfig

STATIC = load_broker_config({"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data"})
TOPIC = topic_entity(STATIC)
FOREIGN = {"compression.zstd.level": "3"}
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def broker(of_one: bool = True, for_all: dict[str, str] | None = None) -> Entity:
    layers = [Layer("/config/brokers/<default>", for_all or {}, False), Layer("/config/brokers/1", {}, True)]
    return broker_entity(STATIC, layers, 1 if of_one else 0)


def change(
    entity: Entity, standing: dict[str, str], *changes: tuple[str, int] | tuple[str, int, str | None]
) -> dict[str, str]:
    return incremented(entity, standing, [IncrementalAlterableConfig(*each) for each in changes])


@pytest.mark.parametrize(
    ("standing", "operation", "value", "expected"),
    [
        ({}, SET, "compact", "compact"),
        ({"cleanup.policy": "compact"}, DELETE, None, None),
        ({}, DELETE, None, None),
        ({}, APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, APPEND, "delete, compact", "compact,delete"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "delete", "compact"),
    ],
)
def test_each_operation_does_what_kafkas_does(
    standing: dict[str, str], operation: int, value: str | None, expected: str | None
) -> None:
    after = change(TOPIC, FOREIGN | standing, ("cleanup.policy", operation, value))
    assert after.get("cleanup.policy") == expected
    assert after.items() >= FOREIGN.items()


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ([("segment.bytes", SET, "many")], ErrorCode.INVALID_CONFIG, "segment.bytes='many'"),
        ([("segment.bytes", SET, "1")], ErrorCode.INVALID_CONFIG, "14 or more"),
        ([("segment.byte", SET, "100")], ErrorCode.INVALID_CONFIG, "did you mean segment.bytes"),
        ([("segment.byte", APPEND, "1")], ErrorCode.INVALID_CONFIG, "no such key"),
        ([("segment.bytes", APPEND, "1")], ErrorCode.INVALID_CONFIG, "no list"),
        ([("cleanup.policy", SUBTRACT, "delete")], ErrorCode.INVALID_CONFIG, "one or more of"),
        ([("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "4")], ErrorCode.INVALID_CONFIG, "above"),
        ([("segment.bytes", SET, None)], ErrorCode.INVALID_REQUEST, "no value"),
        ([("segment.bytes", SET, "99"), ("segment.bytes", DELETE)], ErrorCode.INVALID_REQUEST, "twice"),
        ([("segment.bytes", 4, "99")], ErrorCode.INVALID_REQUEST, "operation 4"),
        ([("remote.storage.enable", SET, "true")], ErrorCode.INVALID_CONFIG, "remote tier"),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(
    changes: list[tuple[str, int, str | None]], code: ErrorCode, text: str
) -> None:
    with pytest.raises(BrokerError, match=re.escape(text)) as caught:
        change(TOPIC, {}, *changes)
    assert caught.value.code is code


def test_what_stands_there_unusable_hinders_no_other_change_and_can_be_mended() -> None:
    standing = {"retention.bytes": "all of them", **FOREIGN}
    assert change(TOPIC, standing, ("segment.bytes", SET, "99")) == standing | {"segment.bytes": "99"}
    assert change(TOPIC, standing, ("retention.bytes", DELETE), ("compression.zstd.level", DELETE)) == {}
    with pytest.raises(BrokerError, match="all of them"):
        change(TOPIC, standing, ("retention.bytes", SET, "all of them"))


THROTTLED = "leader.replication.throttled.replicas"
LONGEST = ",".join(f"{partition:04}:1" for partition in range(4681))


def test_a_value_that_kafkas_protocol_cannot_tell_is_not_set_and_hinders_nothing_where_it_stands() -> None:
    assert len(LONGEST) == MAX_TEXT_BYTES - 1
    assert change(TOPIC, {}, (THROTTLED, SET, LONGEST)) == {THROTTLED: LONGEST}
    standing = {THROTTLED: f"{LONGEST},1:1"}
    for refused in (
        lambda: change(TOPIC, {}, (THROTTLED, SET, standing[THROTTLED])),
        lambda: change(TOPIC, {THROTTLED: LONGEST}, (THROTTLED, APPEND, "1:1")),
        lambda: replaced(TOPIC, {}, [AlterableConfig(THROTTLED, standing[THROTTLED])]),
        lambda: topic_config(STATIC, standing),
    ):
        with pytest.raises((BrokerError, InvalidConfig), match="32,770 bytes, and no value may have more than 32,767"):
            refused()
    assert change(TOPIC, standing, ("segment.bytes", SET, "99")) == standing | {"segment.bytes": "99"}
    assert change(TOPIC, standing, (THROTTLED, SUBTRACT, LONGEST)) == {THROTTLED: "1:1"}


def test_a_remote_tier_is_not_taken_from_a_topic() -> None:
    standing = {"remote.storage.enable": "true"}
    with pytest.raises(BrokerError, match="remote tier"):
        change(TOPIC, standing, ("remote.storage.enable", DELETE))
    assert replaced(TOPIC, standing, []) == standing


def test_replacing_keeps_what_is_not_known_and_nothing_else() -> None:
    standing = FOREIGN | {"segment.bytes": "99", "retention.ms": "5"}
    assert replaced(TOPIC, standing, [AlterableConfig("retention.ms", "7")]) == FOREIGN | {"retention.ms": "7"}
    assert replaced(TOPIC, standing, [AlterableConfig("compression.zstd.level", "3")]) == FOREIGN
    for wanted in ("4", "3 "):
        with pytest.raises(BrokerError, match=re.escape("no such topic key")):
            replaced(TOPIC, standing, [AlterableConfig("compression.zstd.level", wanted)])


@pytest.mark.parametrize(
    ("of_one", "name", "value", "text"),
    [
        (True, "log.cleaner.threads", "many", "log.cleaner.threads='many'"),
        (True, "log.dirs", "/etc", "configuration log.dirs: read from the broker's file only"),
        (True, "background.threads", "257", "background.threads='257': allowed is from 1 to 256"),
        (True, "metric.reporters", "my.Reporter", "configuration metric.reporters: Java classes cannot be run here"),
        (True, "ssl.key.password", "hunter2", "configuration ssl.key.password: not honoured yet"),
        (False, "advertised.listeners", "PLAINTEXT://a:1", "configuration advertised.listeners: counts for one"),
        (True, "log.cleaner.min.compaction.lag.ms", "5", "must not be above log.cleaner.max.compaction.lag.ms=4"),
    ],
)
def test_brokers_take_dynamic_keys_only(of_one: bool, name: str, value: str, text: str) -> None:
    entity = broker(of_one, {"log.cleaner.max.compaction.lag.ms": "4"} if of_one else None)
    with pytest.raises(BrokerError, match=re.escape(text)) as caught:
        change(entity, {}, (name, SET, value))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert "hunter2" not in str(caught.value)


def test_a_brokers_own_list_begins_with_that_of_all_brokers() -> None:
    entity = broker(for_all={"log.cleanup.policy": "compact"})
    assert change(entity, {}, ("log.cleanup.policy", APPEND, "delete")) == {"log.cleanup.policy": "compact,delete"}


NAMES = st.sampled_from(["segment.bytes", "retention.ms", "cleanup.policy", "compression.zstd.level", "nonsense"])
TEXTS = st.sampled_from(["compact", "delete", "100", "-1", "many", ""])
OVERRIDES = st.dictionaries(NAMES, TEXTS)


@given(OVERRIDES, st.lists(st.tuples(NAMES, st.integers(0, 3), TEXTS), max_size=4))
def test_no_change_adds_what_nobody_understands_and_the_rest_stays(
    standing: dict[str, str], changes: list[tuple[str, int, str]]
) -> None:
    try:
        after = change(TOPIC, standing, *changes)
    except BrokerError:
        return
    touched = {name for name, _, _ in changes}
    assert {n: t for n, t in after.items() if n not in touched} == {
        n: t for n, t in standing.items() if n not in touched
    }
    for name in touched & set(after):
        if after[name] != standing.get(name):
            assert TOPIC_KEYS[name].parse(after[name]) is not None
    assert change(TOPIC, after, *changes) == after, "an answer that was lost: the same once more"


def test_a_key_of_one_listener_is_replaced_as_any_other() -> None:
    name = "listener.name.plaintext.max.connections"
    assert change(broker(), {}, (name, SET, "7")) == {name: "7"}
    assert replaced(broker(), {name: "7"}, [AlterableConfig("max.connections", "500")]) == {"max.connections": "500"}
    with pytest.raises(BrokerError, match="1 or more"):
        change(broker(), {}, (name, SET, "0"))


TWO_LISTENERS = load_broker_config(
    {
        "broker.id": "1",
        "zookeeper.connect": "z:1",
        "log.dirs": "/data",
        "listeners": "CLIENTS://host:1,PLAINTEXT://host:2",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
)
"""Brokers use the second one."""
KEY = "advertised.listeners"
MOVED, BACK = {KEY: "PLAINTEXT://mine:2,CLIENTS://host:1"}, {KEY: "PLAINTEXT://host:2,CLIENTS://host:1"}


def of_two_listeners(standing: dict[str, str], *, is_inter_broker: bool = False) -> Entity:
    layers = [Layer("/config/brokers/<default>", {}, False), Layer("/config/brokers/1", standing, True)]
    return broker_entity(TWO_LISTENERS, layers, 1, is_inter_broker=is_inter_broker)


@pytest.mark.parametrize("standing", [{}, BACK, MOVED])
@pytest.mark.parametrize("told", ["elsewhere:2", "host:3"])
def test_no_client_says_where_brokers_reach_a_broker(standing: dict[str, str], told: str) -> None:
    wanted = f"CLIENTS://host:1,PLAINTEXT://{told}"
    with pytest.raises(BrokerError, match="no client may change that: change it in the broker's file") as caught:
        change(of_two_listeners(standing), standing, (KEY, SET, wanted))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(BrokerError, match="restart the broker"):
        replaced(of_two_listeners(standing), standing, [AlterableConfig(KEY, wanted)])
    entity = of_two_listeners(standing, is_inter_broker=True)
    assert change(entity, standing, (KEY, SET, wanted)) == {KEY: wanted}


def test_clients_say_where_clients_reach_a_broker_and_may_go_back_to_its_file() -> None:
    for standing, brokers in (({}, "host:2"), (MOVED, "mine:2"), (MOVED, "host:2")):
        wanted = f"CLIENTS://elsewhere:9,PLAINTEXT://{brokers}"
        assert change(of_two_listeners(standing), standing, (KEY, SET, wanted)) == {KEY: wanted}
    entity = of_two_listeners(MOVED)
    assert change(entity, MOVED, (KEY, DELETE)) == {}
    assert replaced(entity, MOVED, [AlterableConfig("max.connections", "500")]) == {"max.connections": "500"}
