"""The timeline of a partition: who led it when, who was in sync, and when it had nobody to lead it. Pure.

* A state (leader, epoch, ISR) holds from when it was written until the next one was. States are put in order by leader
  epoch, then znode version, then time: clocks only say how long each lasted, and never backwards. What several brokers
  tell of one state is one: who wrote it knows when, else who heard of it first. So lines may come in any order, and
  again and again.
* A partition is *available* while a broker leads it: from when the leader's own log says so (where that log is missing,
  from when the state was written) until that broker is away (`lives`), its log fails, the next leader's state is
  written, or the topic goes.
* An *outage* is a stretch between two of these, from the first to the next. A hand-over, in which a living leader gives
  way to another one, or a new partition gets its first, is one if it lasts `LONG_HAND_OVER_MS` or more.
* *Under-replicated* is a partition whose ISR is smaller than its assigned replicas, *under min ISR* one whose ISR is
  smaller than `min.insync.replicas` lets it be for acks=all, where a leader has logged that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from strandline.protocol.history.lines import NO_VERSION, OF_STATES, Event, Kind
from strandline.protocol.history.lives import NEVER_MS, Lives, down_at
from strandline.protocol.types import NO_BROKER

_OF_WRITERS = (Kind.WRITTEN, Kind.CHANGED)
OF_LEADING = (Kind.LEADS, Kind.CHANGED)
"""Who writes these leads."""
LONG_HAND_OVER_MS = 1000
"""Mostly it takes some milliseconds, during which clients ask again."""


class Interval(NamedTuple):
    """One state and how long it held. to_ms None: it holds still. replicas empty, min_isr 0: not known."""

    from_ms: int
    to_ms: int | None
    leader: int
    leader_epoch: int
    zk_version: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    min_isr: int

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_isr


class Service(NamedTuple):
    """That broker led the partition in [from_ms, to_ms)."""

    from_ms: int
    to_ms: int | None
    leader: int


class Outage(NamedTuple):
    """Nobody led. to_ms None: nobody leads still. leader_before, leader_after: −1 where there was none."""

    from_ms: int
    to_ms: int | None
    why: str
    leader_before: int
    leader_after: int


class PartitionHistory(NamedTuple):
    """One partition of one topic, of which a later one of the same name has another id."""

    topic: str
    topic_id: str
    partition: int
    intervals: tuple[Interval, ...]
    services: tuple[Service, ...]
    outages: tuple[Outage, ...]
    hand_overs_ms: tuple[tuple[int, int], ...]
    """Each shorter hand-over: (when, how long)."""
    unknown_changes: int
    """States of which no log says anything: znode versions that are left out."""
    clock_skew_ms: int
    """How far a clock went back between two states at most."""


def histories(events: Iterable[Event], lives: Lives) -> list[PartitionHistory]:
    """Of one partition by name: one history per topic id, the oldest first."""
    by_id: dict[str, set[Event]] = defaultdict(set)
    for event in events:
        by_id[event.topic_id].add(event)
    found = []
    for topic_id, own in by_id.items():
        states, skew_ms = _in_order(own)
        if states:
            found.append((states[0].time_ms, topic_id, states, skew_ms, own))
    found.sort(key=lambda each: each[:2])
    result = []
    for place, (_, topic_id, states, skew_ms, own) in enumerate(found):
        end_ms = lives.deletions.get(topic_id, NEVER_MS)
        if place + 1 < len(found):
            end_ms = min(end_ms, found[place + 1][0])
        result.append(_history(states, skew_ms, own, max(end_ms, states[0].time_ms), lives))
    return result


# --- States ----------------------------------------------------------------------------------------------------


def _in_order(events: Iterable[Event]) -> tuple[list[Event], int]:
    """One event per state, with a time that does not go back; and by how much it would have, at most."""
    told: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in OF_STATES and event.zk_version != NO_VERSION:
            told[event.leader_epoch, event.zk_version].append(event)
    states: list[Event] = []
    skew_ms = latest_ms = 0
    for key in sorted(told):
        state = merged(told[key])
        skew_ms = max(skew_ms, latest_ms - state.time_ms)
        latest_ms = max(latest_ms, state.time_ms)
        states.append(state._replace(time_ms=latest_ms))
    return states, skew_ms


def merged(events: Iterable[Event]) -> Event:
    """What is told of one state: by who wrote it, else by who heard of it first; with what others add."""
    ranked = sorted(events, key=lambda event: (event.kind not in _OF_WRITERS, event.time_ms, event))
    replicas = next((event.replicas for event in ranked if event.replicas), ())
    min_isr = next((event.min_isr for event in ranked if event.min_isr), 0)
    return ranked[0]._replace(replicas=replicas, min_isr=min_isr)


def _intervals(states: Sequence[Event], end_ms: int) -> tuple[Interval, ...]:
    """What a line does not say of replicas and their minimum is as it was; before the first word as it was then."""
    replicas = next((state.replicas for state in states if state.replicas), ())
    min_isr = next((state.min_isr for state in states if state.min_isr), 0)
    result = []
    states = [state for place, state in enumerate(states) if place == 0 or state.time_ms < end_ms]
    for place, state in enumerate(states):
        replicas, min_isr = state.replicas or replicas, state.min_isr or min_isr
        to_ms = states[place + 1].time_ms if place + 1 < len(states) else end_ms
        result.append(
            Interval(
                state.time_ms,
                None if to_ms == NEVER_MS else min(to_ms, end_ms),
                state.leader,
                state.leader_epoch,
                state.zk_version,
                state.isr,
                replicas,
                min_isr,
            )
        )
    return tuple(result)


# --- Who led, and who did not ----------------------------------------------------------------------------------


class _Term(NamedTuple):
    """One leader epoch, from its first state to that of the next one."""

    from_ms: int
    to_ms: int
    leader: int
    leader_epoch: int


def _history(
    states: Sequence[Event], skew_ms: int, events: Iterable[Event], end_ms: int, lives: Lives
) -> PartitionHistory:
    first = states[0]
    intervals = _intervals(states, end_ms)
    led_before = first.kind not in _OF_WRITERS and first.zk_version > 0
    services, ends = _services(_terms(intervals, end_ms), events, lives, led_before=led_before)
    outages, hand_overs_ms = _outages(intervals, services, ends, end_ms)
    versions = [state.zk_version for state in states]
    return PartitionHistory(
        first.topic,
        first.topic_id,
        first.partition,
        intervals,
        tuple(services),
        tuple(outages),
        tuple(hand_overs_ms),
        sum(max(0, later - earlier - 1) for earlier, later in pairwise(versions)),
        skew_ms,
    )


def _terms(intervals: Sequence[Interval], end_ms: int) -> list[_Term]:
    terms: list[_Term] = []
    for interval in intervals:
        if not terms or terms[-1].leader_epoch != interval.leader_epoch:
            terms.append(_Term(interval.from_ms, end_ms, interval.leader, interval.leader_epoch))
    return [
        term._replace(to_ms=terms[place + 1].from_ms) if place + 1 < len(terms) else term
        for place, term in enumerate(terms)
    ]


def _services(
    terms: Sequence[_Term], events: Iterable[Event], lives: Lives, *, led_before: bool
) -> tuple[list[Service], list[str]]:
    """When somebody led, and why each of these ended; empty: the next term began, or the partition ended. led_before:
    the logs begin in the middle of the first term."""
    began: dict[int, list[int]] = defaultdict(list)
    failed: dict[int, list[int]] = defaultdict(list)
    for event in events:
        if event.kind in OF_LEADING:
            began[event.leader_epoch].append(event.time_ms)
        elif event.kind is Kind.FAILED:
            failed[event.broker_id].append(event.time_ms)
    services: list[Service] = []
    ends: list[str] = []
    for place, term in enumerate(terms):
        if term.leader == NO_BROKER:
            continue
        leads_on = bool(services) and services[-1][1:] == (term.from_ms, term.leader) and not ends[-1]
        starts = [max(time_ms, term.from_ms) for time_ms in began[term.leader_epoch]]
        if leads_on or (place == 0 and led_before) or not _tells(lives, term):
            starts.append(term.from_ms)
        served_to_ms = -1
        for start in sorted(starts):
            is_away = down_at(lives.downtimes.get(term.leader, ()), start) is not None
            if start < served_to_ms or start >= term.to_ms or is_away:
                continue
            served_to_ms, why = _end_of_service(term, start, failed[term.leader], lives)
            if served_to_ms <= start:
                continue
            if leads_on and start == term.from_ms:
                start = services.pop().from_ms
                ends.pop()
                leads_on = False
            services.append(Service(start, None if served_to_ms == NEVER_MS else served_to_ms, term.leader))
            ends.append(why)
    return services, ends


def _tells(lives: Lives, term: _Term) -> bool:
    """Whether the leader's own log is there to tell when it began to lead."""
    return lives.first_line_ms.get(term.leader, NEVER_MS) <= term.from_ms


def _end_of_service(term: _Term, start: int, failures: Iterable[int], lives: Lives) -> tuple[int, str]:
    ends = [(term.to_ms, "")]
    for downtime in lives.downtimes.get(term.leader, ()):
        if downtime.from_ms >= start:
            why = f"broker {term.leader} stopped" if downtime.in_order else f"broker {term.leader} was gone"
            ends.append((downtime.from_ms, why))
    ends += [(time_ms, f"the log of broker {term.leader} failed") for time_ms in failures if time_ms >= start]
    return min(ends)


def _outages(
    intervals: Sequence[Interval], services: Sequence[Service], ends: Sequence[str], end_ms: int
) -> tuple[list[Outage], list[tuple[int, int]]]:
    outages: list[Outage] = []
    hand_overs: list[tuple[int, int]] = []
    at, before, why = intervals[0].from_ms, NO_BROKER, "it had no leader yet"
    for service, end_why in zip([*services, None], [*ends, ""], strict=True):
        to_ms = end_ms if service is None else service.from_ms
        if to_ms > at:
            is_gap = bool(why) and before != NO_BROKER
            leaderless = any(each.leader == NO_BROKER and _overlaps(each, at, to_ms) for each in intervals)
            if is_gap or leaderless or to_ms - at >= LONG_HAND_OVER_MS:
                why = why or ("nobody in sync could lead" if leaderless else "the next leader was late")
                after = NO_BROKER if service is None else service.leader
                outages.append(Outage(at, None if to_ms == NEVER_MS else to_ms, why, before, after))
            else:
                hand_overs.append((at, to_ms - at))
        if service is not None:
            at, before, why = NEVER_MS if service.to_ms is None else service.to_ms, service.leader, end_why
    return outages, hand_overs


def _overlaps(interval: Interval, from_ms: int, to_ms: int) -> bool:
    return interval.from_ms < to_ms and (interval.to_ms is None or interval.to_ms > from_ms)
