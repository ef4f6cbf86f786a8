"""Groups, by the names of Kafka's GroupMetadataManager and of kafka_exporter: each group is told by its coordinator.

Lag is where a partition ends less what is committed. Where the end is not known the lag is left out, and the sum is
that of the others; where no end is known there is no sum: 0 would be taken for good news.

As by kafka_exporter, a partition in which a group has committed nothing, while it has in others of the topic, is told
with -1 for both, so that somebody can be called for it. These -1 are part of the sum of offsets, and no part of that of
lags.

Sums are of all partitions, however few of these may be told: alerts rest on them. Where there are more than may be
told, -1 gives way to what is committed, and groups with many topics give way to those with few, so that one group
takes nobody's place.

All that is told is found before it is told, since each family is told at a stretch: megabytes, where there are many
groups. A scraper that stops to read keeps them until it is sent away. So a scrape that begins within `SHARED_FOR_S`
after another one that is not over yet tells what that one has found; who scrapes alone always has it anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import NamedTuple

import trio
from prometheus_client.core import Metric

from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.groups.shards import Coordinated
from strandline.broker.groups.states import GroupState
from strandline.broker.metrics.bounds import MAX_SERIES, may_be_a_label
from strandline.broker.metrics.end_offsets import EndOffsets
from strandline.broker.metrics.families import SLICE_SAMPLES, LeftOut, gauge, gauges
from strandline.protocol.group_records import CommittedOffset
from strandline.protocol.types import TopicPartition

_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
_COUNTS = "kafka_server_group_coordinator_metrics"
_GROUP = "kafka_consumergroup"
_LABELS = ("consumergroup", "topic")
_NUMBER_OF_OFFSETS = f"{_MANAGER}_numoffsets", "Offsets that are committed by groups that are coordinated here"
_NOTHING = -1
SHARED_FOR_S = 10.0
"""As long as ends of partitions count before they are looked up again."""


class _Place(NamedTuple):
    """Where a group goes on in a partition. committed: `_NOTHING` where it has committed nothing. end: None where that
    is not known."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int | None = None

    @property
    def lag(self) -> int | None:
        """Never negative but for `_NOTHING`: the end may have been looked up before the commit."""
        if self.committed == _NOTHING:
            return _NOTHING
        return None if self.end is None else max(self.end - self.committed, 0)


class _Sum(NamedTuple):
    """Of a group in all partitions of a topic. lag: None where no end is known."""

    group: str
    topic: str
    committed: int
    lag: int | None


class _Found:
    """What a look found of all groups.

    room: how many partitions have series; 0: only sums are told."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._groups = dict.fromkeys(GroupState, 0)
        self._offsets = 0
        self._told: list[Coordinated] = []
        self._places: list[_Place] = []
        self._gaps: list[_Place] = []
        """Places where nothing is committed."""
        self._partitions = 0
        """How many there would be of both, were there room."""
        self._sums: list[_Sum] = []
        self._sums_left_out = 0

    @property
    def is_full(self) -> bool:
        return len(self._sums) == MAX_SERIES

    @property
    def wants_gaps(self) -> bool:
        return len(self._gaps) < self._room

    def add_group(self, each: Coordinated) -> bool:
        """Returns whether it is told, or only counted."""
        self._groups[each.group.state] += 1
        self._offsets += each.offsets.count
        is_told = len(self._told) < MAX_SERIES and may_be_a_label(each.group.group_id)
        if is_told:
            self._told.append(each)
        return is_told

    def add(self, place: _Place) -> None:
        """While there is room."""
        places = self._gaps if place.committed == _NOTHING else self._places
        if len(places) < self._room:
            places.append(place)

    def add_sum(self, found: _Sum, partitions: int) -> None:
        """partitions: of which this is the sum."""
        self._sums.append(found)
        self._partitions += partitions

    def leave_out(self, partitions: int) -> None:
        """A topic of a group with so many partitions is not told."""
        self._sums_left_out += 1
        self._partitions += partitions

    def families(self) -> Iterator[Metric]:
        groups = sum(self._groups.values())
        yield gauge(*_NUMBER_OF_OFFSETS, self._offsets)
        yield gauge(f"{_MANAGER}_numgroups", "Groups that are coordinated here", groups)
        for state, count in self._groups.items():
            yield gauge(f"{_MANAGER}_numgroups{state.value.lower()}", f"Groups in state {state.value}", count)
        members = f"{_GROUP}_members"
        rows = (((each.group.group_id,), float(len(each.group.members))) for each in self._told)
        yield from gauges(members, "Members of each group", ("consumergroup",), rows)
        yield LeftOut(members, groups - len(self._told))
        if self._room:
            yield from self._per_partition()
        yield from self._per_topic()

    def _per_topic(self) -> Iterator[Metric]:
        sums = f"{_GROUP}_current_offset_sum", f"{_GROUP}_lag_sum"
        rows = (((each.group, each.topic), float(each.committed)) for each in self._sums)
        yield from gauges(sums[0], "The sum over a topic's partitions", _LABELS, rows)
        lags = (((s.group, s.topic), float(s.lag)) if s.lag is not None else None for s in self._sums)
        yield from gauges(sums[1], "How far each group is behind in a topic", _LABELS, lags)
        for name in sums:
            yield LeftOut(name, self._sums_left_out)

    def _per_partition(self) -> Iterator[Metric]:
        offset, lag = f"{_GROUP}_current_offset", f"{_GROUP}_lag"
        labels = (*_LABELS, "partition")
        rows = (((p.group, p.topic, str(p.partition)), float(p.committed)) for p in self._told_places())
        text = "What each group has committed; -1: nothing, but something in others of the topic"
        yield from gauges(offset, text, labels, rows)
        lags = (
            ((p.group, p.topic, str(p.partition)), float(behind)) if (behind := p.lag) is not None else None
            for p in self._told_places()
        )
        yield from gauges(lag, "How far each group is behind", labels, lags)
        told = min(len(self._places) + len(self._gaps), self._room)
        for name in (offset, lag):
            yield LeftOut(name, self._partitions - told)

    def _told_places(self) -> Iterator[_Place]:
        return islice(chain(self._places, self._gaps), self._room)


class _Look:
    """A look at all groups, and how far it has come. Whoever tells of it goes on where another one stopped, so that
    nobody waits for a scraper that does not read."""

    def __init__(self, found: _Found, steps: Iterator[None], began_s: float) -> None:
        """steps: fill `found`."""
        self.found = found
        self._steps = steps
        self.began_s = began_s
        self.is_whole = False
        self.has_failed = False

    def go_on(self) -> None:
        """By as many steps as a slice has samples. RuntimeError where it has failed before, under another scrape."""
        if self.has_failed:
            raise RuntimeError("a look at the groups failed, which other scrapes were to tell of, too")
        try:
            self.is_whole = sum(1 for _ in islice(self._steps, SLICE_SAMPLES)) < SLICE_SAMPLES
        except Exception:
            self.has_failed = True
            raise


class OfGroups:
    """A source. partitions_of: how many a topic has. is_per_partition: whether partitions have series of their own, or
    only sums are told."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        ends: EndOffsets,
        partitions_of: Callable[[str], int],
        is_per_partition: Callable[[], bool],
    ) -> None:
        self._is_per_partition = is_per_partition
        self._coordinator = coordinator
        self._ends = ends
        self._partitions_of = partitions_of
        self._last: Callable[[], _Look | None] = lambda: None
        """The look that began last, for as long as a scrape tells of it."""

    def __call__(self) -> Iterator[Metric]:
        counts = self._coordinator.counts
        for name, text, value in (
            ("group_completed_rebalance_count", "Rebalances that ended with assignments", counts.completed_rebalances),
            ("offset_commit_count", "Offsets that were committed", counts.commits),
            ("offset_expiration_count", "Offsets that were let go of, too old", counts.expirations),
            ("offset_deletion_count", "Offsets that were deleted", counts.deletions),
        ):
            yield gauge(f"{_COUNTS}_{name}", text, value)
        look = self._shared_look()
        while not look.is_whole:
            look.go_on()
            yield Metric(*_NUMBER_OF_OFFSETS, "gauge")  # without a sample: for the loop to turn
        yield from look.found.families()

    def _shared_look(self) -> _Look:
        look, now_s = self._last(), trio.current_time()
        if look is None or look.has_failed or now_s - look.began_s >= SHARED_FOR_S:
            found = _Found(MAX_SERIES if self._is_per_partition() else 0)
            look = _Look(found, self._look_at_all(found), now_s)
            self._last = weakref.ref(look)
        return look

    def _look_at_all(self, found: _Found) -> Iterator[None]:
        """It yields for each group, topic and partition that it has looked at. Others may run in between: each topic of
        a group is as of its turn."""
        by_topics: dict[int, list[Coordinated]] = {}
        not_told: list[Coordinated] = []
        shards = self._coordinator.shards.values()
        for each in list(chain.from_iterable((shard.groups or {}).values() for shard in shards)):
            yield
            if found.add_group(each):
                by_topics.setdefault(len(each.offsets.committed), []).append(each)
            else:
                not_told.append(each)
        for each in chain.from_iterable(by_topics[count] for count in sorted(by_topics)):
            yield from self._look_at(each, True, found)
        for each in not_told:
            yield from self._look_at(each, False, found)

    def _look_at(self, coordinated: Coordinated, is_told: bool, found: _Found) -> Iterator[None]:
        yield
        group, committed = coordinated.group.group_id, coordinated.offsets.committed
        for topic in list(committed):
            yield
            offsets = dict(committed.get(topic, {}))
            if not offsets:
                continue
            if is_told and not found.is_full and may_be_a_label(topic):
                yield from self._look_at_topic(group, topic, offsets, found)
            else:
                found.leave_out(max(self._partitions_of(topic), len(offsets)))

    def _look_at_topic(
        self, group: str, topic: str, offsets: dict[int, CommittedOffset], found: _Found
    ) -> Iterator[None]:
        partitions = self._partitions_of(topic)
        committed, lag, gaps = 0, None, partitions
        for partition, offset in offsets.items():
            yield
            place = _Place(group, topic, partition, offset.offset, self._ends.of(TopicPartition(topic, partition)))
            found.add(place)
            committed += place.committed
            gaps -= partition < partitions
            if place.end is not None and place.committed != _NOTHING:
                lag = (lag or 0) + (place.lag or 0)
        found.add_sum(_Sum(group, topic, committed - gaps, lag), len(offsets) + gaps)
        for partition in range(partitions) if gaps else ():
            if not found.wants_gaps:
                break
            yield
            if partition not in offsets:
                found.add(_Place(group, topic, partition, _NOTHING))
