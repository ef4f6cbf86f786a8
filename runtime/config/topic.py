"""What may be configured per topic: the keys, which have their defaults in the broker's configuration, and the values.

All of them may change while the topic lives.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

import msgspec

from strandline.protocol.records.rules import BatchRules, batch_rules
from strandline.runtime.config.broker import BROKER_KEYS, BrokerConfig
from strandline.runtime.config.keys import ConfigKey, attribute_of, keys_of, strings
from strandline.runtime.config.throttled_replicas import THROTTLED_REPLICAS, ThrottledReplicas, throttled_replicas
from strandline.runtime.config.values import INT_MAX, LONG_MAX, InvalidConfig, Value, check_length

T = TypeVar("T")


def of_broker(default: T, doc: str = "") -> T:
    """Declares a topic's key whose default is an attribute of BrokerConfig, which is named through the class so that a
    type checker compares both types. Kind, unit and allowed values are the broker's, and the text where none is given.
    """
    attribute = attribute_of(default)
    key = BROKER_KEYS[attribute.replace("_", ".")]
    return cast(T, key._replace(doc=doc or key.doc, dynamic=True, broker_attribute=attribute))


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's configuration, resolved: the topic's own overrides over the broker's values."""

    # A table, one row per key.
    # fmt: off
    cleanup_policy: tuple[str, ...] = of_broker(BrokerConfig.log_cleanup_policy,
        "delete old segments, compact to the newest record per key, or both.")
    compression_type: str = of_broker(BrokerConfig.compression_type, "Compression of stored batches.")
    delete_retention_ms: int = of_broker(BrokerConfig.log_cleaner_delete_retention_ms,
        "How long tombstones of a compacted topic stay.")
    file_delete_delay_ms: int = of_broker(BrokerConfig.log_segment_delete_delay_ms,
        "Files of deleted segments stay for so long, renamed.")
    flush_messages: int = of_broker(BrokerConfig.log_flush_interval_messages)
    flush_ms: int = of_broker(BrokerConfig.log_flush_interval_ms, "fsync records at this age.")
    index_interval_bytes: int = of_broker(BrokerConfig.log_index_interval_bytes)
    max_compaction_lag_ms: int = of_broker(BrokerConfig.log_cleaner_max_compaction_lag_ms,
        "Records that wait longer are compacted whatever the ratio says; closes segments as segment.ms does.")
    max_message_bytes: int = of_broker(BrokerConfig.message_max_bytes, "Largest batch that producers may send.")
    message_downconversion_enable: bool = of_broker(BrokerConfig.log_message_downconversion_enable)
    message_timestamp_after_max_ms: int = of_broker(BrokerConfig.log_message_timestamp_after_max_ms)
    message_timestamp_before_max_ms: int = of_broker(BrokerConfig.log_message_timestamp_before_max_ms)
    message_timestamp_difference_max_ms: int = of_broker(BrokerConfig.log_message_timestamp_difference_max_ms,
        "Largest distance of a timestamp from now, both ways (older key).")
    message_timestamp_type: str = of_broker(BrokerConfig.log_message_timestamp_type)
    min_cleanable_dirty_ratio: float = of_broker(BrokerConfig.log_cleaner_min_cleanable_ratio,
        "Share of dirty bytes to clean above.")
    min_compaction_lag_ms: int = of_broker(BrokerConfig.log_cleaner_min_compaction_lag_ms)
    min_insync_replicas: int = of_broker(BrokerConfig.min_insync_replicas, "Replicas in sync that acks=all needs.")
    preallocate: bool = of_broker(BrokerConfig.log_preallocate,
        "Reserve segment.bytes on the disk for each new segment (Linux).")
    retention_bytes: int = of_broker(BrokerConfig.log_retention_bytes)
    retention_ms: int = of_broker(BrokerConfig.log_retention_ms)
    segment_bytes: int = of_broker(BrokerConfig.log_segment_bytes)
    segment_index_bytes: int = of_broker(BrokerConfig.log_index_size_max_bytes)
    segment_jitter_ms: int = of_broker(BrokerConfig.log_roll_jitter_ms,
        "Up to so much is taken off segment.ms, at random.")
    segment_ms: int = of_broker(BrokerConfig.log_roll_ms, "A segment is closed at this age.")
    unclean_leader_election_enable: bool = of_broker(BrokerConfig.unclean_leader_election_enable,
        "Elect a replica that is not in sync.")
    follower_replication_throttled_replicas: tuple[str, ...] = strings((), THROTTLED_REPLICAS,
        "Replicas that are filled no faster than their broker's follower.replication.throttled.rate.", dynamic=True)
    leader_replication_throttled_replicas: tuple[str, ...] = strings((), THROTTLED_REPLICAS,
        "Leaders that fill others no faster than their broker's leader.replication.throttled.rate.", dynamic=True)
    # fmt: on

    is_tiered: bool = False
    """Parts of the topic may lie in Kafka's remote tier, which is not served: its logs are refused."""
    batch_rules: BatchRules | None = None
    """Derived once: what is asked of each produced batch; None for the ordinary topic."""
    throttled_followers: ThrottledReplicas | None = None
    throttled_leaders: ThrottledReplicas | None = None
    """Derived once: which replicas are throttled; None where nobody is."""

    @property
    def is_compacted(self) -> bool:
        """Whether records need keys."""
        return "compact" in self.cleanup_policy


TOPIC_KEYS: dict[str, ConfigKey] = keys_of(TopicConfig)
"""By name."""
REMOTE_STORAGE = "remote.storage.enable"
"""Kafka's key (KIP-405) for records that move to another store; then its log start says where the remote ones begin."""


class TopicReading(NamedTuple):
    """What stands for a topic, understood as far as it can be. `config` deletes nothing by what is not understood."""

    config: TopicConfig
    unknown: tuple[InvalidConfig, ...] = ()
    """Keys that nobody knows here: without effect."""
    unusable: tuple[InvalidConfig, ...] = ()
    """Known keys with a value that is not allowed: the topic keeps everything until they are mended."""


_NEVER_COMPACTED: dict[str, Value] = {"min_compaction_lag_ms": LONG_MAX, "max_compaction_lag_ms": LONG_MAX}
_KEEP_ALL: dict[str, Value] = {"retention_ms": -1, "retention_bytes": -1, **_NEVER_COMPACTED}
_ALL_REPLICAS: dict[str, Value] = {"min_insync_replicas": INT_MAX}
_NEVER_UNCLEAN: dict[str, Value] = {"unclean_leader_election_enable": False}
_UNDECIDED: dict[str, dict[str, Value]] = {
    "cleanup_policy": _KEEP_ALL,
    "retention_ms": {"retention_ms": -1},
    "retention_bytes": {"retention_bytes": -1},
    "delete_retention_ms": _NEVER_COMPACTED,
    "max_compaction_lag_ms": _NEVER_COMPACTED,
    "min_cleanable_dirty_ratio": _NEVER_COMPACTED,
    "min_compaction_lag_ms": _NEVER_COMPACTED,
    "min_insync_replicas": _ALL_REPLICAS,
    "unclean_leader_election_enable": _NEVER_UNCLEAN,
}
"""Attribute whose value nobody knows → what is safe whatever was meant. Others have the next lower value."""


def topic_config(broker_config: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """As a client asks for it: InvalidConfig for an unknown key or a value that is not allowed."""
    reading = read_topic_config(broker_config, overrides)
    for error in (*reading.unknown, *reading.unusable):
        raise error
    for name, text in overrides.items():
        check_length(name, text)
    return reading.config


def read_topic_config(broker_config: BrokerConfig, overrides: Mapping[str, str] | None) -> TopicReading:
    """As it stands in ZooKeeper, perhaps written by a Kafka that knows more keys (None: it cannot be read).

    Each key stands alone. An unknown one changes nothing; a value that cannot be used, of the topic or of the broker's
    key that is its default, is read as the one that loses nothing: nothing is deleted or compacted, no unclean
    election, acks=all needs every replica."""
    values = {
        key.attribute: key.default if key.broker_attribute is None else getattr(broker_config, key.broker_attribute)
        for key in TOPIC_KEYS.values()
    }
    own, unknown, unusable = _parsed(overrides or {})
    safe: dict[str, Value] = {}
    for key in TOPIC_KEYS.values():
        if key.broker_attribute in broker_config.undecided and key.attribute not in own:
            safe |= _UNDECIDED.get(key.attribute, {})
    if overrides is None:
        safe |= _KEEP_ALL | _ALL_REPLICAS | _NEVER_UNCLEAN
    values |= own
    low, high = values["min_compaction_lag_ms"], values["max_compaction_lag_ms"]
    if low > high:
        unusable.append(InvalidConfig("min.compaction.lag.ms", low, f"must not be above max.compaction.lag.ms={high}"))
    for error in unusable:
        safe |= _KEEP_ALL | _UNDECIDED.get(TOPIC_KEYS[error.key].attribute, {})
    values["is_tiered"] = (overrides or {}).get(REMOTE_STORAGE, "false").strip().lower() != "false"
    return TopicReading(_resolved(values | safe), tuple(unknown), tuple(unusable))


def _parsed(overrides: Mapping[str, str]) -> tuple[dict[str, Value], list[InvalidConfig], list[InvalidConfig]]:
    """Attribute → value, and what is unknown, and unusable."""
    values: dict[str, Value] = {}
    unknown: list[InvalidConfig] = []
    unusable: list[InvalidConfig] = []
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            if name == REMOTE_STORAGE:
                unknown.append(
                    InvalidConfig(name, text, "Kafka's remote tier is not served: a topic that has one is refused")
                )
                continue
            near = difflib.get_close_matches(name, TOPIC_KEYS, n=1)
            why = "there is no such topic key" + (f"; did you mean {near[0]}?" if near else "")
            unknown.append(InvalidConfig(name, text, why))
            continue
        try:
            values[key.attribute] = key.parse(text)
        except InvalidConfig as error:
            unusable.append(error)
    return values, unknown, unusable


def _resolved(values: Mapping[str, Value]) -> TopicConfig:
    config = TopicConfig(**values)
    rules = batch_rules(
        cleanup_policy=config.cleanup_policy,
        compression_type=config.compression_type,
        timestamp_type=config.message_timestamp_type,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        difference_max_ms=config.message_timestamp_difference_max_ms,
    )
    followers = throttled_replicas(config.follower_replication_throttled_replicas)
    leaders = throttled_replicas(config.leader_replication_throttled_replicas)
    if rules is None and followers is None and leaders is None:
        return config
    return msgspec.structs.replace(config, batch_rules=rules, throttled_followers=followers, throttled_leaders=leaders)


def not_honoured(overrides: Iterable[str]) -> dict[str, str]:
    """Those of the topic keys that this version accepts and does not act on, and why."""
    return {name: why for name in overrides if name in TOPIC_KEYS and (why := TOPIC_KEYS[name].without_effect)}
