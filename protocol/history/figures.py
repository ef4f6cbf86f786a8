"""A history cut to a range of time, and what it amounts to. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple, TypeVar

from strandline.protocol.history.lives import NEVER_MS, Downtime
from strandline.protocol.history.timeline import Interval, Outage, PartitionHistory, Service

T = TypeVar("T", Interval, Outage, Service, Downtime)


class Range(NamedTuple):
    """[since_ms, until_ms); what goes on is counted up to `last_ms`, the last moment that logs tell of."""

    since_ms: int = 0
    until_ms: int = NEVER_MS
    last_ms: int = NEVER_MS - 1

    def length_ms(self, part: Interval | Outage | Service | Downtime) -> int:
        """How long it lasted, as far as is known."""
        to_ms = self.last_ms if part.to_ms is None else part.to_ms
        return max(0, min(to_ms, self.until_ms) - max(part.from_ms, self.since_ms))

    def cut(self, parts: Iterable[T]) -> tuple[T, ...]:
        """Those that touch it, no longer than it is. What goes on at `last_ms` goes on."""
        found = []
        for part in parts:
            goes_on = part.to_ms is None and self.until_ms > self.last_ms
            to_ms = min(NEVER_MS if part.to_ms is None else part.to_ms, self.until_ms)
            if part.from_ms < self.until_ms and to_ms > self.since_ms:
                found.append(part._replace(from_ms=max(part.from_ms, self.since_ms), to_ms=None if goes_on else to_ms))
        return tuple(found)


class Figures(NamedTuple):
    """Of one partition. elections: new leader epochs with a leader; leader_changes: another leader than before.
    The first state is neither."""

    elections: int
    leader_changes: int
    isr_shrinks: int
    isr_expansions: int
    outages: int
    unavailable_ms: int
    longest_outage_ms: int
    under_replicated_ms: int
    under_min_isr_ms: int
    hand_overs: int
    longest_hand_over_ms: int


class BrokerFigures(NamedTuple):
    """What one broker was to one partition, or to several."""

    led_ms: int = 0
    elections: int = 0
    left_isr: int = 0
    joined_isr: int = 0


def in_range(history: PartitionHistory, span: Range) -> PartitionHistory | None:
    """What of it lies there; None where nothing does."""
    intervals = span.cut(history.intervals)
    if not intervals:
        return None
    return history._replace(
        intervals=intervals,
        services=span.cut(history.services),
        outages=span.cut(history.outages),
        hand_overs_ms=tuple(each for each in history.hand_overs_ms if span.since_ms <= each[0] < span.until_ms),
    )


def figures(history: PartitionHistory, span: Range) -> Figures:
    """Of a history that was cut to `span`."""
    pairs = list(pairwise(history.intervals))
    outages_ms = [span.length_ms(outage) for outage in history.outages]
    return Figures(
        elections=sum(_is_election(*pair) for pair in pairs),
        leader_changes=sum(before.leader != after.leader for before, after in pairs),
        isr_shrinks=sum(bool(set(before.isr) - set(after.isr)) for before, after in pairs),
        isr_expansions=sum(bool(set(after.isr) - set(before.isr)) for before, after in pairs),
        outages=len(outages_ms),
        unavailable_ms=sum(outages_ms),
        longest_outage_ms=max(outages_ms, default=0),
        under_replicated_ms=sum(span.length_ms(each) for each in history.intervals if each.is_under_replicated),
        under_min_isr_ms=sum(span.length_ms(each) for each in history.intervals if each.is_under_min_isr),
        hand_overs=len(history.hand_overs_ms),
        longest_hand_over_ms=max((length_ms for _, length_ms in history.hand_overs_ms), default=0),
    )


def broker_figures(history: PartitionHistory, span: Range) -> dict[int, BrokerFigures]:
    """By broker, of a history that was cut to `span`."""
    led_ms: dict[int, int] = defaultdict(int)
    elections: dict[int, int] = defaultdict(int)
    left: dict[int, int] = defaultdict(int)
    joined: dict[int, int] = defaultdict(int)
    for service in history.services:
        led_ms[service.leader] += span.length_ms(service)
    for before, after in pairwise(history.intervals):
        elections[after.leader] += _is_election(before, after)
        for broker_id in sorted(set(before.isr) - set(after.isr)):
            left[broker_id] += 1
        for broker_id in sorted(set(after.isr) - set(before.isr)):
            joined[broker_id] += 1
    brokers = sorted({*led_ms, *(each for each, count in elections.items() if count), *left, *joined})
    return {each: BrokerFigures(led_ms[each], elections[each], left[each], joined[each]) for each in brokers}


def _is_election(before: Interval, after: Interval) -> bool:
    return before.leader_epoch != after.leader_epoch and after.leader >= 0
