"""The broker's configuration, part 2: logs, then what later versions act on (groups, transactions, quotas, metrics).

Rows as in `table`.
"""

from __future__ import annotations

from strandline.runtime.config.table import CLUSTER_SECTIONS
from strandline.runtime.config.values import (
    ANY,
    INT_MAX,
    LONG_MAX,
    NOT_EMPTY,
    ConfigKey,
    all_of,
    at_least,
    between,
    one_of,
)

K = ConfigKey

# A table, one row per key, is easier to read than what the formatter makes of it.
# fmt: off

_LOGS = (
    K("log.dirs", "list", None, "", NOT_EMPTY, "Folders of the logs, comma separated; log.dir where left out."),
    K("log.dir", "string", "/tmp/strandline-logs", "", NOT_EMPTY,
      "Folder of the logs where log.dirs is left out. (Kafka: /tmp/kafka-logs.)"),
    K("num.recovery.threads.per.data.dir", "int", 1, "", at_least(1),
      "Logs of one folder that are loaded at once at start. (Kafka: dynamic; here ZooKeeper is asked later.)"),
    K("message.max.bytes", "int", 1000012, "bytes", at_least(0),
      "Largest batch that producers may send. (Kafka 1.0's; Kafka 3.9: 1048588.)", True),
    K("max.decompressed.message.bytes", "long", 67108864, "bytes", at_least(1),
      "Largest batch when decompressed, where the broker has to decompress.", True),
    K("compression.type", "string", "producer", "", one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
      "Compression of stored batches; producer leaves them as they were sent.", True),
    K("log.segment.bytes", "int", 1073741824, "bytes", at_least(14), "A segment is closed at this size.", True),
    K("log.roll.ms", "long", None, "ms", at_least(1),
      "A segment is closed at this age; log.roll.hours where left out.", True),
    K("log.roll.hours", "int", 168, "hours", at_least(1), "A segment is closed at this age."),
    K("log.roll.jitter.ms", "long", None, "ms", at_least(0),
      "Up to so much is taken off that age, at random; log.roll.jitter.hours where left out.", True),
    K("log.roll.jitter.hours", "int", 0, "hours", at_least(0), "Up to so much is taken off that age, at random."),
    K("log.retention.ms", "long", None, "ms", at_least(-1), "Records older may be deleted; -1: never.", True),
    K("log.retention.minutes", "int", None, "minutes", at_least(-1),
      "As log.retention.ms, where that is left out."),
    K("log.retention.hours", "int", 168, "hours", at_least(-1),
      "As log.retention.minutes, where that is left out."),
    K("log.retention.bytes", "long", -1, "bytes", at_least(-1),
      "Most bytes of a partition; -1: no limit.", True),
    K("log.retention.check.interval.ms", "long", 300000, "ms", at_least(1),
      "How often retention is checked."),
    K("log.cleanup.policy", "list", ("delete",), "", all_of("delete", "compact"),
      "What happens to old records: delete whole segments, compact to the newest record per key, or both.",
      True),
    K("log.cleaner.enable", "bool", True, "", ANY, "Run the cleaner of compacted topics."),
    K("log.cleaner.threads", "int", 1, "", at_least(0), "Logs that are compacted at once.", True),
    K("log.cleaner.dedupe.buffer.size", "long", 134217728, "bytes", at_least(1),
      "Memory for the offset maps of all cleaners together, 24 bytes per key.", True),
    K("log.cleaner.io.buffer.load.factor", "double", 0.9, "", between(0.01, 1),
      "How full an offset map gets before a round ends.", True),
    K("log.cleaner.io.buffer.size", "int", 524288, "bytes", at_least(0),
      "Read and write buffers of all cleaners together.", True),
    K("log.cleaner.io.max.bytes.per.second", "double", 1.7976931348623157e+308, "bytes per second", at_least(0),
      "Most that all cleaners together read and write.", True),
    K("log.cleaner.backoff.ms", "long", 15000, "ms", at_least(0),
      "Pause of a cleaner that found nothing to do.", True),
    K("log.cleaner.min.cleanable.ratio", "double", 0.5, "", between(0, 1),
      "Logs are cleaned above this share of dirty bytes; 1: never for it.", True),
    K("log.cleaner.delete.retention.ms", "long", 86400000, "ms", at_least(0),
      "How long tombstones of a compacted log stay.", True),
    K("log.cleaner.min.compaction.lag.ms", "long", 0, "ms", at_least(0),
      "Records younger than this are not compacted.", True),
    K("log.cleaner.max.compaction.lag.ms", "long", LONG_MAX, "ms", at_least(1),
      "Records that wait longer are compacted whatever the ratio says; closes segments as log.roll.ms does.", True),
    K("log.index.size.max.bytes", "int", 10485760, "bytes", at_least(12),  # `index_bounds`
      "A segment is closed when its index is so long.", True),
    K("log.index.interval.bytes", "int", 4096, "bytes", at_least(0), "Bytes of log between two index entries.", True),
    K("log.flush.interval.messages", "long", LONG_MAX, "records", at_least(1), "fsync after so many records.", True),
    K("log.flush.interval.ms", "long", None, "ms", at_least(0),
      "fsync records at this age; log.flush.scheduler.interval.ms where left out.", True),
    K("log.flush.scheduler.interval.ms", "long", LONG_MAX, "ms", at_least(0),
      "How often records are fsynced by age."),
    K("log.flush.offset.checkpoint.interval.ms", "int", 60000, "ms", at_least(1),
      "How often recovery points are written to disk."),
    K("log.flush.start.offset.checkpoint.interval.ms", "int", 60000, "ms", at_least(1),
      "How often log start offsets are written to disk."),
    K("log.segment.delete.delay.ms", "long", 60000, "ms", at_least(0),
      "Files of deleted segments and logs stay for so long, renamed.", True),
    K("log.preallocate", "bool", False, "", ANY,
      "Reserve segment.bytes on the disk when a segment is created, until it is closed (Linux).", True),
    K("log.message.timestamp.type", "string", "CreateTime", "", one_of("CreateTime", "LogAppendTime"),
      "Whose clock stamps records.", True),
    K("log.message.timestamp.difference.max.ms", "long", LONG_MAX, "ms", at_least(0),
      "Largest distance of a timestamp from the broker's clock, both ways (Kafka's older key).", True),
    K("log.message.timestamp.before.max.ms", "long", LONG_MAX, "ms", at_least(0),
      "Largest distance of a timestamp into the past.", True),
    K("log.message.timestamp.after.max.ms", "long", LONG_MAX, "ms", at_least(0),
      "Largest distance of a timestamp into the future.", True),
    K("log.message.downconversion.enable", "bool", True, "", ANY, "Serve consumers of old formats.", True, False),
    K("log.message.format.version", "string", None, "", NOT_EMPTY, "Records are always in format 2.", False, False),
    K("inter.broker.protocol.version", "string", None, "", NOT_EMPTY,
      "Brokers agree on versions by themselves.", False, False),
)

# fmt: on


def _later(name: str, kind: str, default: object, unit: str, lowest: int, doc: str, dynamic: bool = False) -> ConfigKey:
    """A number that this build reads and does not act on."""
    return K(name, kind, default, unit, at_least(lowest), doc, dynamic, False)


# fmt: off
_GROUPS = (
    _later("group.min.session.timeout.ms", "int", 6000, "ms", 1, "Shortest session of a group member."),
    _later("group.max.session.timeout.ms", "int", 300000, "ms", 1,
      "Longest session of a group member. (Kafka 1.0's; Kafka 3.9: 1800000.)"),
    _later("group.initial.rebalance.delay.ms", "int", 3000, "ms", 0, "A new group waits so long for members."),
    _later("group.max.size", "int", INT_MAX, "members", 1, "Most members of a group."),
    _later("group.consumer.session.timeout.ms", "int", 45000, "ms", 1, "Session of a member (KIP-848)."),
    _later("group.consumer.heartbeat.interval.ms", "int", 5000, "ms", 1, "Heartbeats of a member (KIP-848)."),
    _later("offsets.topic.num.partitions", "int", 50, "", 1, "Partitions of the topic of committed offsets."),
    _later("offsets.topic.replication.factor", "int", 3, "", 1, "Its replicas."),
    _later("offsets.topic.segment.bytes", "int", 104857600, "bytes", 1, "Its segments."),
    _later("offsets.topic.compression.codec", "int", 0, "", 0, "Its compression: 0 none, 1 gzip, 2 snappy, 3 lz4."),
    _later("offsets.retention.minutes", "int", 10080, "minutes", 1, "How long offsets of a dead group stay."),
    _later("offsets.retention.check.interval.ms", "long", 600000, "ms", 1, "How often that is checked."),
    _later("offsets.load.buffer.size", "int", 5242880, "bytes", 1, "Read at once when offsets are loaded."),
    _later("offsets.commit.timeout.ms", "int", 5000, "ms", 1, "How long a commit waits for its replicas."),
    _later("offsets.commit.required.acks", "int", -1, "", -1, "acks of a commit."),
    _later("offset.metadata.max.bytes", "int", 4096, "bytes", 0, "Longest metadata of a commit."),
)

_TRANSACTIONS = (
    _later("transaction.state.log.num.partitions", "int", 50, "", 1, "Partitions of the topic of transactions."),
    _later("transaction.state.log.replication.factor", "int", 3, "", 1, "Its replicas."),
    _later("transaction.state.log.min.isr", "int", 2, "", 1, "Its min.insync.replicas."),
    _later("transaction.state.log.segment.bytes", "int", 104857600, "bytes", 1, "Its segments."),
    _later("transaction.state.log.load.buffer.size", "int", 5242880, "bytes", 1, "Read at once when loaded."),
    _later("transaction.max.timeout.ms", "int", 900000, "ms", 1, "Longest transaction."),
    _later("transactional.id.expiration.ms", "int", 604800000, "ms", 1, "An idle transactional id is forgotten."),
    _later("transaction.abort.timed.out.transaction.cleanup.interval.ms", "int", 60000, "ms", 1,
      "Aborting late ones. (Kafka 1.0's; Kafka 3.9: 10000.)"),
    _later("transaction.remove.expired.transaction.cleanup.interval.ms", "int", 3600000, "ms", 1, "Forgetting ids."),
    K("producer.id.expiration.ms", "int", 86400000, "ms", at_least(1), "An idle producer id is forgotten.", True),
    K("transaction.partition.verification.enable", "bool", True, "", ANY,
      "Check partitions of a transaction.", True, False),
)

_QUOTAS_AND_METRICS = (
    _later("quota.producer.default", "long", LONG_MAX, "bytes per second", 1,
      "Of each client id that produces. (Kafka 1.0's; gone in Kafka 3.9.)"),
    _later("quota.consumer.default", "long", LONG_MAX, "bytes per second", 1,
      "Of each client id that consumes. (Kafka 1.0's; gone in Kafka 3.9.)"),
    _later("quota.window.num", "int", 11, "", 1, "Samples of a quota."),
    _later("quota.window.size.seconds", "int", 1, "seconds", 1, "Length of a sample."),
    _later("replication.quota.window.num", "int", 11, "", 1, "Samples of a replication quota."),
    _later("replication.quota.window.size.seconds", "int", 1, "seconds", 1, "Length of a sample."),
    _later("metrics.num.samples", "int", 2, "", 1, "Samples of a metric."),
    _later("metrics.sample.window.ms", "long", 30000, "ms", 1, "Length of a sample."),
    K("metric.reporters", "list", (), "", ANY, "Classes that report metrics.", True, False),
)

# fmt: on

SECTIONS: dict[str, tuple[ConfigKey, ...]] = {
    **CLUSTER_SECTIONS,
    "Logs": _LOGS,
    "Groups": _GROUPS,
    "Transactions and producers": _TRANSACTIONS,
    "Quotas and metrics": _QUOTAS_AND_METRICS,
}
"""In the order of the reference page."""
BROKER_KEYS: tuple[ConfigKey, ...] = tuple(key for keys in SECTIONS.values() for key in keys)
BROKER_KEY: dict[str, ConfigKey] = {key.name: key for key in BROKER_KEYS}

REPLACED_KEYS = {
    "port": "listeners",
    "host.name": "listeners",
    "advertised.port": "advertised.listeners",
    "advertised.host.name": "advertised.listeners",
}
"""Kafka 1.0's older spellings: not read, and the warning names what to write instead."""

LATER_PREFIXES = (
    "ssl.",
    "sasl.",
    "listener.name.",
    "zookeeper.ssl.",
    "zookeeper.client",
    "password.encoder.",
    "delegation.token.",
    "confluent.",
    "process.roles",
    "node.id",
    "controller.quorum.",
)
"""Families of keys that Kafka knows and this build does not act on."""
