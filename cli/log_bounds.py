"""What partitions hold, asked leader by leader: one that does not answer hides nothing of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from strandline.cli.offset_range import FROM_START, Bound, BoundKind, OffsetRange, PartitionBounds
from strandline.cli.options import LOOK_TIMEOUT_MS
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Admin, Consumer

T = TypeVar("T")

LEADER_TIMEOUT_MS = 1_000
"""So long at least each leader may take; together they have the time of a look."""

Asked = dict[TopicPartition, "PartitionBounds | Exception"]


def bounds_of(
    consumer: Consumer,
    leaders: Mapping[TopicPartition, int],
    monotonic: Callable[[], float],
    wanted: OffsetRange = FROM_START,
) -> Asked:
    """Of each partition its bounds, and the offsets of the times in `wanted`, or why they cannot be told."""
    return of_each_leader(
        lambda led, limit_ms: _ask(consumer, led, wanted, limit_ms), leaders, monotonic, LOOK_TIMEOUT_MS
    )


def of_each_leader(
    ask: Callable[[list[TopicPartition], float], dict[TopicPartition, T]],
    leaders: Mapping[TopicPartition, int],
    monotonic: Callable[[], float],
    limit_ms: float,
) -> dict[TopicPartition, T | Exception]:
    """What each leader says of what it leads, one after the other, or why it says nothing. `ask(partitions, ms)` asks
    one of them; `limit_ms`: for all together."""
    from strandline.client.errors import AnsweredError, ClientError

    by_leader: dict[int, list[TopicPartition]] = {}
    for tp, leader in sorted(leaders.items()):
        by_leader.setdefault(leader, []).append(tp)
    limit_ms = max(LEADER_TIMEOUT_MS, limit_ms / max(1, len(by_leader)))
    found: dict[TopicPartition, T | Exception] = {}
    for led in by_leader.values():
        deadline = monotonic() + limit_ms / 1000
        try:
            found |= ask(led, limit_ms)
        except ClientError as error:
            found |= dict.fromkeys(led, error)
            if not isinstance(error, AnsweredError):
                continue
            # The leader is there, and refuses one of them: the others are asked for by themselves.
            for tp in led:
                if monotonic() >= deadline + limit_ms / 1000:
                    break
                try:
                    found |= ask([tp], LEADER_TIMEOUT_MS)
                except ClientError as reason:
                    found[tp] = reason
    return found


def _ask(consumer: Consumer, led: list[TopicPartition], wanted: OffsetRange, limit_ms: float) -> Asked:
    beginnings = consumer.beginning_offsets(led, timeout_ms=limit_ms)
    ends = consumer.end_offsets(led, timeout_ms=limit_ms)
    starts, stops = (_at(consumer, led, bound, limit_ms) for bound in wanted)
    return {tp: PartitionBounds(beginnings[tp], ends[tp], starts.get(tp), stops.get(tp)) for tp in led}


def _at(
    consumer: Consumer, led: list[TopicPartition], bound: Bound | None, limit_ms: float
) -> dict[TopicPartition, int]:
    """The first offset at or after a time; nothing where the bound is none, or after the last record."""
    if bound is None or bound.kind is not BoundKind.TIMESTAMP:
        return {}
    found = consumer.offsets_for_times(dict.fromkeys(led, bound.value), timeout_ms=limit_ms)
    return {tp: at.offset for tp, at in found.items() if at is not None}


def sizes_of(
    admin: Admin, leaders: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[int, Exception]]:
    """Bytes of each partition's log on its leader, and which brokers do not say."""
    from strandline.client.errors import ClientError
    from strandline.client.log_dirs import log_sizes

    told = admin.describe_log_dirs(sorted(set(leaders.values())), list(leaders), timeout_ms=LOOK_TIMEOUT_MS)
    silent: dict[int, Exception] = {each: why for each, why in told.items() if isinstance(why, ClientError)}
    sizes = {each: log_sizes(dirs) for each, dirs in told.items() if not isinstance(dirs, ClientError)}
    found = {tp: sizes[leader][tp] for tp, leader in leaders.items() if leader in sizes and tp in sizes[leader]}
    return found, silent
