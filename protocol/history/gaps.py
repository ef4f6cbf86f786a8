"""Where lines are missing from change logs, as far as the others show it. Pure.

| what is missing | how it shows |
|---|---|
| states of a partition | each has the next znode version, and whoever writes or follows it logs it |
| terms of controllers | each has the next controller epoch, and who is elected logs it |
| lines of a broker | it writes one a minute, and says when it registers and when it stops in order |
| the end of a broker's log | the others go on, and none tells that it is gone, or was when a controller took over |
| all logs of a broker | states of partitions name it as leader or replica |

Lines may come in another order than they were written in, since clocks differ: what comes late fills its gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.protocol.history.lines import NO_VERSION, OF_STATES, Event, Kind
from strandline.protocol.history.merging import Told
from strandline.protocol.types import NO_BROKER, NO_EPOCH

SILENCE_MS = 180_000
"""Three lines that say that a broker is alive."""
MOST_GAPS = 1000
"""Of one partition; what is found beyond that is left out."""


class Place(NamedTuple):
    """A line."""

    time_ms: int
    broker_id: int
    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


class Gap(NamedTuple):
    """Between these two lines something is missing. Of a partition: its states with the znode versions `first` to
    `last`; of a broker: its lines; else the terms with these controller epochs."""

    before: Place
    behind: Place
    topic: str = ""
    topic_id: str = ""
    partition: int = -1
    broker_id: int = NO_BROKER
    first: int = 0
    last: int = 0

    @property
    def text(self) -> str:
        between = f"between {self.before} and {self.behind}"
        if self.topic:
            return f"{self.topic}-{self.partition}: no log has {_numbers('znode version', self)}, {between}"
        if self.broker_id != NO_BROKER:
            silent_s = (self.behind.time_ms - self.before.time_ms) / 1000
            if self.behind.broker_id != self.broker_id:
                between = f"after {self.before}, and no log says that it stopped or is gone, up to {self.behind}"
            return f"broker {self.broker_id}: no line for {silent_s:.0f} s, though it writes one a minute, {between}"
        return f"no log has the election of {_numbers('controller epoch', self)}, {between}"


def _numbers(noun: str, gap: Gap) -> str:
    return f"{noun} {gap.first}" if gap.first == gap.last else f"{noun}s {gap.first} to {gap.last}"


class Unheard(NamedTuple):
    """No log has a line of this broker, though states of partitions name it as leader or replica, from the line `first`
    to the line `last`."""

    broker_id: int
    first: Place
    last: Place


class Gaps:
    """What is missing from the lines so far; in memory are two lines' places and the brokers per partition, and some
    lines' places per broker."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str, int], _Numbers] = {}
        self._terms = _Numbers()
        self._lives = _Lives()
        self._names = _Names()

    def add(self, told: Told, events: Iterable[Event]) -> None:
        """events: those of the line that are asked for."""
        line = told.line
        place = Place(line.time_ms, line.broker_id, told.file, told.number)
        self._names.heard.add(line.broker_id)
        self._lives.add(told, place)
        for event in events:
            if event.kind in OF_STATES and event.zk_version != NO_VERSION:
                key = event.topic, event.topic_id, event.partition
                numbers = self._states.get(key)
                if numbers is None:
                    numbers = self._states[key] = _Numbers()
                numbers.add(event.zk_version, place)
                self._names.add(key, event, place)
        for event in line.events:
            if event.kind is Kind.ELECTED and event.controller_epoch != NO_EPOCH:
                self._terms.add(event.controller_epoch, place)

    def between(self, since_ms: int | None, until_ms: int | None) -> tuple[list[Gap], list[Unheard]]:
        """What is missing from [since_ms, until_ms); None: from the first line on, to the last one."""

        def concerns(first: Place, last: Place) -> bool:
            return (since_ms is None or last.time_ms >= since_ms) and (until_ms is None or first.time_ms < until_ms)

        return (
            [gap for gap in self.found() if concerns(gap.before, gap.behind)],
            [each for each in self.unheard() if concerns(each.first, each.last)],
        )

    def found(self) -> list[Gap]:
        """In the order of time."""
        gaps = [
            *self._lives.silences(),
            *(Gap(before, behind, first=first, last=last) for first, last, before, behind in self._terms.holes),
        ]
        for (topic, topic_id, partition), numbers in self._states.items():
            gaps += [
                Gap(before, behind, topic, topic_id, partition, first=first, last=last)
                for first, last, before, behind in numbers.holes
            ]
        return sorted(gaps, key=lambda gap: (gap.before.time_ms, gap.behind.time_ms, gap))

    def unheard(self) -> list[Unheard]:
        """By broker id. Whom the newest state of a partition names is named up to the last line."""
        return self._names.unheard(self._lives.last)


class _Lives:
    """Where brokers are silent though they live, as far as they and the others tell."""

    def __init__(self) -> None:
        self.last: Place | None = None
        self._alive: dict[int, Place | None] = {}
        """Broker → its last line; None where it said that it stops."""
        self._epochs: dict[int, int] = {}
        """Broker → its last registration."""
        self._gone_ms: dict[int, int] = {}
        """Broker → when another one noticed last that it is gone."""
        self._controller = NO_BROKER
        self._acting = NO_BROKER
        """Who took over last, until it resigned or registered anew: it tells of everybody who dies meanwhile."""
        self._told_until_ms = 0
        """Its last line."""
        self._silences: list[Gap] = []

    def add(self, told: Told, place: Place) -> None:
        if self.last is None or place.time_ms >= self.last.time_ms:
            self.last = place
        self._look_at_life(told, place)
        for event in told.line.events:
            self._look_at_others(event, place)
        if place.broker_id == self._acting:
            self._told_until_ms = place.time_ms

    def _look_at_life(self, told: Told, place: Place) -> None:
        broker_id = place.broker_id
        own = [event.kind for event in told.line.events if event.peer == broker_id]
        if Kind.STOPPED in own:
            self._alive[broker_id] = None
        elif Kind.STARTED in own:
            self._alive[broker_id] = place if told.beats else None
        elif told.beats:
            last = self._alive.get(broker_id)
            if last is not None and place.time_ms - last.time_ms > SILENCE_MS:
                self._silences.append(Gap(last, place, broker_id=broker_id))
            self._alive[broker_id] = place

    def _look_at_others(self, event: Event, place: Place) -> None:
        """What a line says of other brokers' lives."""
        peer = event.peer
        match event.kind:
            case Kind.STARTED:
                self._epochs[peer] = max(event.broker_epoch, self._epochs.get(peer, event.broker_epoch))
                self._gone_ms.pop(peer, None)
                self._end_term(peer)
            case Kind.LOST:
                self._gone_ms[peer] = event.time_ms
            case Kind.GONE if event.broker_epoch >= self._epochs.get(peer, event.broker_epoch):
                self._gone_ms[peer] = event.time_ms
                last = self._alive.get(peer)
                if last is not None and event.time_ms - event.session_timeout_ms - last.time_ms > SILENCE_MS:
                    self._silences.append(Gap(last, place, broker_id=peer))
                    self._alive[peer] = None
            case Kind.ELECTED:
                # The controller says of others that they are gone; of itself, the next election does.
                if self._controller not in (NO_BROKER, event.broker_id):
                    self._gone_ms[self._controller] = event.time_ms
                self._controller = event.broker_id
            case Kind.WRITTEN:  # its election may be older than the logs
                self._controller = event.broker_id
            case Kind.ACTING:
                self._look_at_absent(event)
                self._controller = self._acting = event.broker_id
            case Kind.RESIGNED:
                self._end_term(event.broker_id)

    def _look_at_absent(self, event: Event) -> None:
        """Who is not there when a controller takes over died with the one before, or later. Who was silent long before
        that lived on without a line, as the one before told nothing of it."""
        for peer, last in self._alive.items():
            is_absent = event.brokers and peer not in event.brokers
            if is_absent and last is not None and self._told_until_ms - last.time_ms <= SILENCE_MS:
                self._gone_ms[peer] = event.time_ms

    def _end_term(self, broker_id: int) -> None:
        if broker_id == self._acting:
            self._acting = NO_BROKER

    def silences(self) -> list[Gap]:
        return self._silences[:MOST_GAPS] + self._at_the_end()

    def _at_the_end(self) -> list[Gap]:
        behind = self.last
        return [
            Gap(last, behind, broker_id=broker_id)
            for broker_id, last in self._alive.items()
            if last is not None
            and behind is not None
            and behind.time_ms - last.time_ms > SILENCE_MS
            and not self._is_gone(broker_id, last)
        ]

    def _is_gone(self, broker_id: int, last: Place) -> bool:
        """Who writes on long after it was thought to be gone was not gone; clocks may differ by less."""
        gone_ms = self._gone_ms.get(broker_id)
        return gone_ms is not None and last.time_ms - gone_ms <= SILENCE_MS


class _Names:
    """Which brokers the states of partitions name, and which have lines."""

    def __init__(self) -> None:
        self.heard: set[int] = set()
        self._named: dict[int, Unheard] = {}
        self._newest: dict[tuple[str, str, int], tuple[int, tuple[int, ...]]] = {}
        """Partition → the highest znode version, and who is named in it."""

    def add(self, key: tuple[str, str, int], event: Event, place: Place) -> None:
        names = event.replicas or (event.leader, *event.isr)
        if event.zk_version >= self._newest.get(key, (NO_VERSION,))[0]:
            self._newest[key] = event.zk_version, names
        for broker_id in names:
            if broker_id != NO_BROKER and broker_id not in self.heard:
                known = self._named.get(broker_id)
                self._named[broker_id] = Unheard(broker_id, place if known is None else known.first, place)

    def unheard(self, end: Place | None) -> list[Unheard]:
        still = {broker_id for _, names in self._newest.values() for broker_id in names}
        return [
            each._replace(last=end) if broker_id in still and end is not None else each
            for broker_id, each in sorted(self._named.items())
            if broker_id not in self.heard
        ]


class _Hole(NamedTuple):
    first: int
    last: int
    before: Place
    behind: Place


class _Numbers:
    """Which of a row of numbers were seen, from the lowest to the highest one."""

    __slots__ = ("_highest", "_lowest", "holes")

    def __init__(self) -> None:
        self.holes: list[_Hole] = []
        self._lowest: tuple[int, Place] | None = None
        self._highest: tuple[int, Place] | None = None

    def add(self, number: int, place: Place) -> None:
        if self._lowest is None or self._highest is None:
            self._lowest = self._highest = number, place
        elif number > self._highest[0]:
            self._leave(*self._highest, number, place)
            self._highest = number, place
        elif number < self._lowest[0]:
            self._leave(number, place, *self._lowest)
            self._lowest = number, place
        else:
            self._fill(number, place)

    def _leave(self, low: int, before: Place, high: int, behind: Place) -> None:
        if low + 1 < high and len(self.holes) < MOST_GAPS:
            self.holes.append(_Hole(low + 1, high - 1, before, behind))

    def _fill(self, number: int, place: Place) -> None:
        for at, (first, last, before, behind) in enumerate(self.holes):
            if first <= number <= last:
                del self.holes[at]
                self._leave(first - 1, before, number, place)
                self._leave(number, place, last + 1, behind)
                return
