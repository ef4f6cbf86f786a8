"""Throttled replicas: what a topic may say, whom it means, and how Kafka's reassignment tool sets and deletes it."""

from __future__ import annotations

import pytest

from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import ConfigOperation, IncrementalAlterableConfig
from strandline.runtime.config.altering import broker_entity, incremented, topic_entity
from strandline.runtime.config.describing import BrokerView
from strandline.runtime.config.dynamic import Layer, with_dynamic
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import read_topic_config, topic_config
from strandline.runtime.config.values import LONG_MAX, InvalidConfig

STATIC = load_broker_config({"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data"})
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
HUGE = "9" * 5000
"""More digits than Python makes a number of."""
LAYERS = [Layer("/config/brokers/<default>", {}, False), Layer("/config/brokers/1", {}, True)]


@pytest.mark.parametrize(
    ("text", "has", "has_not"),
    [
        ("*", [(0, 1), (99, 7)], []),
        ("0:1,1:2", [(0, 1), (1, 2)], [(0, 2), (1, 1), (2, 1)]),
        (" 0:1 , ,00:02,", [(0, 1), (0, 2)], [(1, 1)]),
    ],
)
def test_a_list_means_the_replicas_that_it_names(
    text: str, has: list[tuple[int, int]], has_not: list[tuple[int, int]]
) -> None:
    config = topic_config(STATIC, {LEADERS: text})
    assert config.throttled_followers is None, "each side has its own"
    assert config.throttled_leaders is not None
    assert all(config.throttled_leaders.has(*replica) for replica in has)
    assert not any(config.throttled_leaders.has(*replica) for replica in has_not)
    assert topic_config(STATIC, {FOLLOWERS: text}).throttled_followers == config.throttled_leaders


def test_where_nothing_is_named_nothing_is_there_to_be_looked_at() -> None:
    for overrides in ({}, {LEADERS: "", FOLLOWERS: ""}):
        config = topic_config(STATIC, overrides)
        assert config.throttled_leaders is config.throttled_followers is None


@pytest.mark.parametrize(
    "text",
    ["*,0:1", "*,*", "0", "0:", ":1", "0:1:2", "a:1", "-1:1", "0:1;1:2", "٣:1", "0 :1", HUGE + ":1", "0:" + HUGE],
)
@pytest.mark.parametrize("key", [LEADERS, FOLLOWERS])
def test_what_is_no_such_list_is_refused_in_one_line_and_throttles_nobody(key: str, text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        topic_config(STATIC, {key: text})
    assert str(refused.value).endswith(": allowed is *, or a list of partition:broker")
    config = read_topic_config(STATIC, {key: text}).config
    assert config.throttled_leaders is config.throttled_followers is None


@pytest.mark.parametrize("layer", [0, 1], ids=["of all brokers", "of one broker"])
def test_rates_are_set_and_deleted_as_kafkas_tool_does(layer: int) -> None:
    """`kafka-reassign-partitions` sets two, and deletes a third one with them, which it may not have set."""
    entity = broker_entity(STATIC, LAYERS, layer)
    sets = [IncrementalAlterableConfig(key, ConfigOperation.SET, "5000000") for key in (LEADER_RATE, FOLLOWER_RATE)]
    after = incremented(entity, {}, sets)
    assert after == {LEADER_RATE: "5000000", FOLLOWER_RATE: "5000000"}
    reading = with_dynamic(
        STATIC, [each._replace(overrides=after) if each is LAYERS[layer] else each for each in LAYERS]
    )
    assert not reading.not_served
    assert reading.config.leader_replication_throttled_rate == 5_000_000
    assert reading.config.follower_replication_throttled_rate == 5_000_000
    deletes = [
        IncrementalAlterableConfig(key, ConfigOperation.DELETE) for key in (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
    ]
    assert incremented(entity, after, deletes) == {}


@pytest.mark.parametrize("text", ["-1", "fast", str(LONG_MAX + 1), "1.5"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    change = IncrementalAlterableConfig(LEADER_RATE, ConfigOperation.SET, text)
    with pytest.raises(BrokerError) as refused:
        incremented(broker_entity(STATIC, LAYERS, 1), {}, [change])
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert LEADER_RATE in str(refused.value)


def test_a_topics_list_is_added_to_and_taken_from_as_the_tool_does() -> None:
    entity = topic_entity(STATIC)
    after = incremented(entity, {LEADERS: "0:1"}, [IncrementalAlterableConfig(LEADERS, ConfigOperation.APPEND, "0:2")])
    assert after == {LEADERS: "0:1,0:2"}
    wrong = IncrementalAlterableConfig(LEADERS, ConfigOperation.SET, "all")
    with pytest.raises(BrokerError) as refused:
        incremented(entity, after, [wrong])
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert incremented(entity, after, [IncrementalAlterableConfig(LEADERS, ConfigOperation.DELETE)]) == {}


def test_they_are_shown_as_keys_that_may_be_changed() -> None:
    layers = [LAYERS[0], LAYERS[1]._replace(overrides={LEADER_RATE: "7"})]
    view = BrokerView(STATIC, layers)
    of_broker = {each.name: each for each in view.of_this_broker()}
    assert [of_broker[key].value for key in (LEADER_RATE, FOLLOWER_RATE)] == ["7", str(LONG_MAX)]
    assert not of_broker[LEADER_RATE].read_only and not of_broker[FOLLOWER_RATE].read_only
    of_topic = {each.name: each for each in view.of_topic({FOLLOWERS: "0:1, 1:1"})}
    assert [of_topic[key].value for key in (FOLLOWERS, LEADERS)] == ["0:1, 1:1", ""]
