"""What a read asks for: the options in their checked form. Values only; `options` makes them, `planning` uses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strandline.protocol.types import TopicPartition

EARLIEST = -2
LATEST = -1

# --- What is read ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches, internal topics left out."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription = Subscribe | SubscribePattern | Assign


# --- From where to where ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetWord:
    """EARLIEST or LATEST for every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset, EARLIEST or LATEST for each partition."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """The first offset whose record is not older, in every partition; ms since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """… a time for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]


OffsetLimit = OffsetWord | SpecificOffsets | GlobalTimestamp | SpecificTimestamps


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options, checked. `client_settings` are the `kafka.*` options by our client's names."""

    bootstrap_servers: str
    subscription: Subscription
    starting: OffsetLimit
    ending: OffsetLimit
    late_start_is_latest: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    poll_timeout_ms: int
    pushdown: bool
    client_settings: Mapping[str, str]
    warnings: tuple[str, ...]
