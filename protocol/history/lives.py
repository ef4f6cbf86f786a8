"""When which broker was away, and who was controller when, from the events of all brokers' logs. Pure.

A broker is away from its orderly stop, or from its last sign of life, until it registers again. Signs of life are the
lines of its own logs (one a minute at least), the moment when a follower lost its connection to it, and the last word
that ZooKeeper must have heard of it, a session timeout before the controller missed it. A broker that died alone is so
known to be away from when its connections broke, or its address began to refuse new ones; one that hung, from a session
timeout before it was missed; one that died together with all the others, from its last line on, a minute too early at
most.

Clocks are believed to agree within milliseconds; what they must not decide is told by broker epochs and controller
epochs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from strandline.protocol.history.lines import Event, Kind, Line
from strandline.protocol.types import NO_EPOCH

NEVER_MS = 1 << 62
"""After every time."""
OF_LIVES = frozenset({Kind.STARTED, Kind.STOPPED, Kind.GONE, Kind.SUSPECTED, Kind.CLEARED})
BROKEN_WITHIN_MS = 1000
"""The connections to a process break before its address is found to refuse, no longer than this."""
REPLACED_WITHIN_MS = 1000
"""A registration is replaced and missed at one time, which two brokers log."""


class Downtime(NamedTuple):
    """A broker was away in [from_ms, to_ms); to_ms None: it has not come back. in_order: it said good-bye."""

    broker_id: int
    from_ms: int
    to_ms: int | None
    in_order: bool

    @property
    def end_ms(self) -> int:
        return NEVER_MS if self.to_ms is None else self.to_ms


class Reign(NamedTuple):
    """One term of a controller. acting_ms: when its fail-over was done, None where it never was. to_ms None: it goes
    on. ended: why it ended, as it said itself, or what else tells that it did."""

    broker_id: int
    controller_epoch: int
    from_ms: int
    acting_ms: int | None
    to_ms: int | None
    ended: str


class Lives(NamedTuple):
    """first_line_ms: from when on a broker's own logs tell what it did; who is not in there has no logs."""

    downtimes: dict[int, tuple[Downtime, ...]]
    reigns: tuple[Reign, ...]
    deletions: dict[str, int]
    """Topic id → when nobody was to lead it any more."""
    first_line_ms: dict[int, int]
    last_line_ms: dict[int, int]


class Run(NamedTuple):
    """Lines that one broker wrote one after another in one file, within one life as far as that file tells."""

    broker_id: int
    first_ms: int
    last_ms: int
    lines: int


class Runs:
    """Gathers the runs of one file from its lines, in their order: two signs of life stand for thousands of lines."""

    def __init__(self) -> None:
        self.ended: list[Run] = []
        self._run: Run | None = None

    def add(self, line: Line) -> None:
        run = self._run
        begins_a_life = any(event.kind is Kind.STARTED and event.peer == line.broker_id for event in line.events)
        if run is None or run.broker_id != line.broker_id or begins_a_life:
            self.end()
            self._run = Run(line.broker_id, line.time_ms, line.time_ms, 1)
        else:
            first_ms, last_ms = min(run.first_ms, line.time_ms), max(run.last_ms, line.time_ms)
            self._run = Run(run.broker_id, first_ms, last_ms, run.lines + 1)

    def end(self) -> list[Run]:
        """All runs so far; the next line begins another one."""
        if self._run is not None:
            self.ended.append(self._run)
            self._run = None
        return self.ended


def lives(events: Iterable[Event], runs: Iterable[Run]) -> Lives:
    """`events`: of brokers, controllers and topics, in any order and as often as they come; others are passed over.
    `runs`: of all files."""
    known = sorted(set(events))
    signs: dict[int, set[int]] = defaultdict(set)
    for run in runs:
        signs[run.broker_id].update((run.first_ms, run.last_ms))
    downtimes = _downtimes(known, {broker_id: sorted(times) for broker_id, times in signs.items()})
    deletions: dict[str, int] = {}
    for event in known:
        if event.kind is Kind.DELETED:
            deletions[event.topic_id] = min(event.time_ms, deletions.get(event.topic_id, event.time_ms))
    return Lives(
        downtimes,
        _reigns(known, downtimes),
        deletions,
        {broker_id: min(times) for broker_id, times in sorted(signs.items())},
        {broker_id: max(times) for broker_id, times in sorted(signs.items())},
    )


# --- Brokers ---------------------------------------------------------------------------------------------------


class _Life:
    """What is known of one registration of a broker."""

    def __init__(self) -> None:
        self.started_ms = NEVER_MS
        self.stopped_ms = NEVER_MS
        self.missed_ms = NEVER_MS
        self.heard_ms = -1
        """The last word that ZooKeeper must have heard."""
        self.suspicions: list[tuple[int, int]] = []
        """When it was suspected, and since when its address had refused by then."""
        self.cleared_ms: list[int] = []
        """When it answered after all."""

    def take(self, event: Event) -> None:
        match event.kind:
            case Kind.STARTED:
                self.started_ms = min(self.started_ms, event.time_ms)
            case Kind.STOPPED:
                self.stopped_ms = min(self.stopped_ms, event.time_ms)
            case Kind.SUSPECTED:
                self.suspicions.append((event.time_ms, event.time_ms - event.session_timeout_ms))
            case Kind.CLEARED:
                self.cleared_ms.append(event.time_ms)
            case Kind.GONE if event.time_ms < self.missed_ms:
                self.missed_ms = event.time_ms
                self.heard_ms = event.time_ms - event.session_timeout_ms

    def suspicion(self, back_ms: int) -> tuple[int, int]:
        """The first that was no false alarm. back_ms: when the next life began, which may be what answers."""
        answered_ms = max((each for each in self.cleared_ms if each < back_ms - REPLACED_WITHIN_MS), default=-1)
        true_ones = [each for each in self.suspicions if each[0] > answered_ms]
        return min(true_ones, default=(NEVER_MS, NEVER_MS))


def _downtimes(events: Iterable[Event], signs: Mapping[int, list[int]]) -> dict[int, tuple[Downtime, ...]]:
    by_broker: dict[int, dict[int, _Life]] = {broker_id: {} for broker_id in signs}
    lost: dict[int, list[int]] = defaultdict(list)
    for event in events:
        if event.kind in OF_LIVES:
            by_broker.setdefault(event.peer, {}).setdefault(event.broker_epoch, _Life()).take(event)
        elif event.kind is Kind.LOST:
            lost[event.peer].append(event.time_ms)
    result: dict[int, tuple[Downtime, ...]] = {}
    for broker_id, by_epoch in sorted(by_broker.items()):
        seen = sorted([*signs.get(broker_id, ()), *lost[broker_id]])
        own = [by_epoch[epoch] for epoch in sorted(by_epoch)]
        if not own or (seen and seen[0] < own[0].started_ms < NEVER_MS):
            own.insert(0, _Life())  # the logs begin in the middle of one
        found = [
            downtime
            for place in range(len(own))
            if (downtime := _after(broker_id, own, place, seen, lost[broker_id])) is not None
        ]
        if found:
            result[broker_id] = tuple(found)
    return result


def _after(broker_id: int, own: list[_Life], place: int, seen: list[int], lost: Sequence[int]) -> Downtime | None:
    """When the broker was away after that life; None while it lasts. `seen`: all signs of life, sorted; `lost`: those
    that are connections which broke."""
    life = own[place]
    back_ms = next((later.started_ms for later in own[place + 1 :] if later.started_ms < NEVER_MS), NEVER_MS)
    to_ms = None if back_ms == NEVER_MS else back_ms
    if life.stopped_ms < NEVER_MS:
        return Downtime(broker_id, life.stopped_ms, to_ms, in_order=True)
    suspected_ms, refused_ms = life.suspicion(back_ms)
    bound = min(life.missed_ms, suspected_ms, back_ms)
    if bound == NEVER_MS:
        return None
    began_ms = -1 if life.started_ms == NEVER_MS else life.started_ms
    # A line at the very moment of the next start is of the next life.
    place_of_last = bisect_right(seen, bound - 1 if bound == back_ms else bound)
    last_sign = seen[place_of_last - 1] if place_of_last else -1
    # Who is back by then had its old registration replaced: ZooKeeper has not waited for a session to time out.
    has_timed_out = life.missed_ms + REPLACED_WITHIN_MS <= back_ms
    known_ms = max(last_sign, life.heard_ms) if has_timed_out else last_sign
    if suspected_ms == bound:
        # Nearer than any session tells, but not nearer than connections that broke just before.
        broken_ms = max((each for each in lost if each <= bound), default=-1)
        known_ms = broken_ms if broken_ms >= refused_ms - BROKEN_WITHIN_MS else max(last_sign, refused_ms)
    from_ms = bound if known_ms < 0 else min(max(known_ms, began_ms), bound)
    return Downtime(broker_id, from_ms, to_ms, in_order=False)


def down_at(downtimes: Iterable[Downtime], time_ms: int) -> Downtime | None:
    return next((each for each in downtimes if each.from_ms <= time_ms < each.end_ms), None)


# --- Controllers -----------------------------------------------------------------------------------------------


def _reigns(events: Iterable[Event], downtimes: Mapping[int, tuple[Downtime, ...]]) -> tuple[Reign, ...]:
    """By controller epoch, of events in order. A term whose end nobody logged ends where its broker was away, or the
    next one began."""
    begun: dict[int, Event] = {}
    acting: dict[int, int] = {}
    resigned: dict[int, Event] = {}
    for event in events:
        epoch = event.controller_epoch
        if event.kind is Kind.ELECTED and epoch != NO_EPOCH:
            begun.setdefault(epoch, event)
        elif event.kind is Kind.ACTING:
            acting.setdefault(epoch, event.time_ms)
        elif event.kind is Kind.RESIGNED:
            resigned.setdefault(epoch, event)
    epochs = sorted(begun)
    reigns = []
    for place, epoch in enumerate(epochs):
        elected = begun[epoch]
        ends = []
        if epoch in resigned:
            ends.append((max(resigned[epoch].time_ms, elected.time_ms), resigned[epoch].why))
        for downtime in downtimes.get(elected.broker_id, ()):
            if downtime.end_ms > elected.time_ms and not downtime.from_ms < elected.time_ms:
                ends.append((downtime.from_ms, "the broker stopped" if downtime.in_order else "the broker was gone"))
        if place + 1 < len(epochs):
            ends.append((max(begun[epochs[place + 1]].time_ms, elected.time_ms), "another one was elected"))
        to_ms, ended = min(ends) if ends else (None, "")
        reigns.append(Reign(elected.broker_id, epoch, elected.time_ms, acting.get(epoch), to_ms, ended))
    return tuple(reigns)
