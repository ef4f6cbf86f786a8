"""What a read asks for: the options in their checked form. Values only; `options` makes them, `planning` uses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.protocol.types import TopicPartition

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Of a read that names none, in this order; as in Spark's Kafka source."""

HEADERS = "headers"
"""The one column more that there may be."""

DEFAULT_MAX_RECORDS_PER_TASK = 5_000_000
"""A longer range is cut where the options say nothing of it: some ten seconds of a task with small records, half a
minute with 1 KB. What a lost task repeats is bounded, and a long partition is read by more than one core."""

EARLIEST = -2
LATEST = -1

# --- What is read ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]

    def names(self, partition: TopicPartition) -> bool:
        return partition.topic in self.topics


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics in whose names the pattern is found, as by Spark's Kafka source; internal topics are
    left out."""

    pattern: re.Pattern[str]

    def names(self, partition: TopicPartition) -> bool:
        return self.pattern.search(partition.topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]

    def names(self, partition: TopicPartition) -> bool:
        return partition in self.partitions


Subscription = Subscribe | SubscribePattern | Assign


# --- From where to where ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FromEnd:
    """An offset so far before the high watermark, but not before the first record."""

    offsets: int


@dataclass(frozen=True, slots=True)
class Ago:
    """A time so long before the moment at which the query is planned."""

    milliseconds: int


Offset = int | FromEnd
"""An offset, EARLIEST, LATEST, or one counted from the end."""

Time = int | Ago
"""Milliseconds since 1970, or counted back from now."""

EVERY_TOPIC = ""
"""In `defaults`: what counts for partitions of all topics."""


@dataclass(frozen=True, slots=True)
class OffsetWord:
    """The same for every partition."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition; `defaults`: topic → of its partitions that are not named."""

    offsets: Mapping[TopicPartition, Offset]
    defaults: Mapping[str, Offset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """The first offset whose record is not older, in every partition."""

    timestamp_ms: Time


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """… a time for each partition; `defaults` as above."""

    timestamps_ms: Mapping[TopicPartition, Time]
    defaults: Mapping[str, Time] = field(default_factory=dict)


OffsetLimit = OffsetWord | SpecificOffsets | GlobalTimestamp | SpecificTimestamps


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options, checked. `columns`: of the rows, in their order; `poll_timeout_ms` None: as long as Spark waits for
    its network (network_timeout.py); `isolation_level`: nothing depends on it until there are transactions;
    `client_settings` are the `kafka.*` options by our client's names."""

    bootstrap_servers: str
    subscription: Subscription
    starting: OffsetLimit
    ending: OffsetLimit
    late_start_is_latest: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    poll_timeout_ms: int | None
    isolation_level: str
    pushdown: bool
    client_settings: Mapping[str, str]
    warnings: tuple[str, ...]
