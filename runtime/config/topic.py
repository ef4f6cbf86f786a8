"""What may be configured per topic: each key, its default in the broker's configuration, and the resolved value.

A row names the topic's key, the broker's key that gives its kind, unit, allowed values and default, and what it
means. All of them may change while the topic lives.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from strandline.protocol.records.rules import BatchRules, batch_rules
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.table_logs import BROKER_KEY
from strandline.runtime.config.values import ANY, INT_MAX, LONG_MAX, ConfigKey, InvalidConfig, Value


class TopicKey(NamedTuple):
    """`broker_attribute` of BrokerConfig holds the default; None where there is none (then: no entries)."""

    key: ConfigKey
    broker_attribute: str | None


def _row(name: str, broker_key: str, doc: str) -> TopicKey:
    broker = BROKER_KEY[broker_key]
    return TopicKey(broker._replace(name=name, doc=doc, dynamic=True), broker.attribute)


def _throttled(name: str, doc: str) -> TopicKey:
    return TopicKey(ConfigKey(name, "list", (), "", ANY, doc, True, False), None)


# A table, one row per key.
# fmt: off
TOPIC_KEYS: tuple[TopicKey, ...] = (
    _row("cleanup.policy", "log.cleanup.policy", "delete old segments, compact to the newest record per key, or both."),
    _row("compression.type", "compression.type", "Compression of stored batches."),
    _row("delete.retention.ms", "log.cleaner.delete.retention.ms", "How long tombstones of a compacted topic stay."),
    _row("file.delete.delay.ms", "log.segment.delete.delay.ms", "Files of deleted segments stay for so long, renamed."),
    _row("flush.messages", "log.flush.interval.messages", "fsync after so many records."),
    _row("flush.ms", "log.flush.interval.ms", "fsync records at this age."),
    _row("index.interval.bytes", "log.index.interval.bytes", "Bytes of log between two index entries."),
    _row("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms",
         "Records that wait longer are compacted whatever the ratio says; closes segments as segment.ms does."),
    _row("max.message.bytes", "message.max.bytes", "Largest batch that producers may send."),
    _row("message.downconversion.enable", "log.message.downconversion.enable", "Serve consumers of old formats."),
    _row("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms",
         "Largest distance of a timestamp into the future."),
    _row("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms",
         "Largest distance of a timestamp into the past."),
    _row("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms",
         "Largest distance of a timestamp from now, both ways (older key)."),
    _row("message.timestamp.type", "log.message.timestamp.type", "Whose clock stamps records."),
    _row("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", "Share of dirty bytes to clean above."),
    _row("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "Records younger than this are not compacted."),
    _row("min.insync.replicas", "min.insync.replicas", "Replicas in sync that acks=all needs."),
    _row("preallocate", "log.preallocate", "Reserve segment.bytes on the disk for each new segment (Linux)."),
    _row("retention.bytes", "log.retention.bytes", "Most bytes of a partition; -1: no limit."),
    _row("retention.ms", "log.retention.ms", "Records older may be deleted; -1: never."),
    _row("segment.bytes", "log.segment.bytes", "A segment is closed at this size."),
    _row("segment.index.bytes", "log.index.size.max.bytes", "A segment is closed when its index is so long."),
    _row("segment.jitter.ms", "log.roll.jitter.ms", "Up to so much is taken off segment.ms, at random."),
    _row("segment.ms", "log.roll.ms", "A segment is closed at this age."),
    _row("unclean.leader.election.enable", "unclean.leader.election.enable", "Elect a replica that is not in sync."),
    _throttled("follower.replication.throttled.replicas", "partition:broker, or *: followers that are throttled."),
    _throttled("leader.replication.throttled.replicas", "partition:broker, or *: leaders that are throttled."),
)
# fmt: on

REMOTE_STORAGE = "remote.storage.enable"
"""Kafka's key (KIP-405) for records that move to another store; then its log start says where the remote ones begin."""
_BY_NAME = {row.key.name: row for row in TOPIC_KEYS}


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's configuration, resolved: the topic's own overrides over the broker's values."""

    cleanup_policy: tuple[str, ...]
    compression_type: str
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_downconversion_enable: bool
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_difference_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    is_tiered: bool = False
    """Parts of the topic may lie in Kafka's remote tier, which is not served: its logs are refused."""
    batch_rules: BatchRules | None = None
    """Derived once: what is asked of each produced batch; None for the ordinary topic."""

    @property
    def is_compacted(self) -> bool:
        """Whether records need keys."""
        return "compact" in self.cleanup_policy


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
    return reading.config


def read_topic_config(broker_config: BrokerConfig, overrides: Mapping[str, str] | None) -> TopicReading:
    """As it stands in ZooKeeper, perhaps written by a Kafka that knows more keys (None: it cannot be read).

    Each key stands alone. An unknown one changes nothing; a value that cannot be used, of the topic or of the broker's
    key that is its default, is read as the one that loses nothing: nothing is deleted or compacted, no unclean
    election, acks=all needs every replica."""
    values = {
        row.key.attribute: getattr(broker_config, row.broker_attribute) for row in TOPIC_KEYS if row.broker_attribute
    }
    own, unknown, unusable = _parsed(overrides or {})
    safe: dict[str, Value] = {}
    for row in TOPIC_KEYS:
        if row.broker_attribute in broker_config.undecided and row.key.attribute not in own:
            safe |= _UNDECIDED.get(row.key.attribute, {})
    if overrides is None:
        safe |= _KEEP_ALL | _ALL_REPLICAS | _NEVER_UNCLEAN
    values |= own
    low, high = values["min_compaction_lag_ms"], values["max_compaction_lag_ms"]
    if low > high:
        unusable.append(InvalidConfig("min.compaction.lag.ms", low, f"must not be above max.compaction.lag.ms={high}"))
    for error in unusable:
        safe |= _KEEP_ALL | _UNDECIDED.get(_BY_NAME[error.key].key.attribute, {})
    values["is_tiered"] = (overrides or {}).get(REMOTE_STORAGE, "false").strip().lower() != "false"
    return TopicReading(_resolved(values | safe), tuple(unknown), tuple(unusable))


def _parsed(overrides: Mapping[str, str]) -> tuple[dict[str, Value], list[InvalidConfig], list[InvalidConfig]]:
    """Attribute → value, and what is unknown, and unusable."""
    values: dict[str, Value] = {}
    unknown: list[InvalidConfig] = []
    unusable: list[InvalidConfig] = []
    for name, text in overrides.items():
        row = _BY_NAME.get(name)
        if row is None:
            if name == REMOTE_STORAGE:
                unknown.append(
                    InvalidConfig(name, text, "Kafka's remote tier is not served: a topic that has one is refused")
                )
                continue
            near = difflib.get_close_matches(name, _BY_NAME, n=1)
            why = "there is no such topic key" + (f"; did you mean {near[0]}?" if near else "")
            unknown.append(InvalidConfig(name, text, why))
            continue
        try:
            values[row.key.attribute] = row.key.parse(text)
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
    return config if rules is None else msgspec.structs.replace(config, batch_rules=rules)


def not_honoured_yet(overrides: Iterable[str]) -> list[str]:
    """Those of the topic keys that this version accepts and does not act on."""
    return [name for name in overrides if name in _BY_NAME and not _BY_NAME[name].key.honoured]
