"""What a read asks for: the options in their checked form. Values only; `options` makes them, `planning` uses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

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


# --- Which of the rows ------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """Of one column: values from `first` on and below `end`, of those `among`; None: no limit."""

    first: int | None = None
    end: int | None = None
    among: frozenset[int | str] | None = None

    def both(self, other: Limits) -> Limits:
        """What both of them allow."""
        firsts = [each for each in (self.first, other.first) if each is not None]
        ends = [each for each in (self.end, other.end) if each is not None]
        among = [each for each in (self.among, other.among) if each is not None]
        return Limits(
            max(firsts, default=None), min(ends, default=None), frozenset.intersection(*among) if among else None
        )

    def allows(self, value: int | str) -> bool:
        if self.among is not None and value not in self.among:
            return False
        if isinstance(value, str):
            return True
        return (self.first is None or value >= self.first) and (self.end is None or value < self.end)

    def bounds(self) -> tuple[int | None, int | None]:
        """Nothing below the one or from the other on is allowed. Of numbers."""
        if self.among is None:
            return self.first, self.end
        numbers = [each for each in self.among if isinstance(each, int) and self.allows(each)]
        return (min(numbers), max(numbers) + 1) if numbers else (0, 0)


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Condition:
    """What the option `where` leaves of a read; timestamps in milliseconds."""

    topic: Limits = NO_LIMITS
    partition: Limits = NO_LIMITS
    offset: Limits = NO_LIMITS
    timestamp: Limits = NO_LIMITS

    @property
    def is_of_rows(self) -> bool:
        """Some rows of a partition may meet it and others not, by more than a range of offsets."""
        return self.timestamp != NO_LIMITS or self.offset.among is not None


EVERYTHING = Condition()


# --- All together -----------------------------------------------------------------------------------------------


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
    log_reads: bool
    condition: Condition
    client_settings: Mapping[str, str]
    warnings: tuple[str, ...]
