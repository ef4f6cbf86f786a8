"""Groups, by the names of Kafka's GroupMetadataManager and of kafka_exporter: each group is told by its coordinator.

Lag is where a partition ends less what is committed. Where the end is not known the lag is left out, and the sum is
that of the others; where no end is known there is no sum: 0 would be taken for good news.

As by kafka_exporter, a partition in which a group has committed nothing, while it has in others of the topic, is told
with -1 for both, so that somebody can be called for it. These -1 are part of the sum of offsets, and no part of that of
lags.

Sums are of all partitions, however few of these may be told: alerts rest on them. Where there are more than may be
told, -1 gives way to what is committed, and groups with many topics give way to those with few, so that one group
takes nobody's place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

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
_OFFSETS, _LAGS = f"{_GROUP}_current_offset", f"{_GROUP}_lag"
_OFFSETS_TEXT = "What each group has committed; -1: nothing, but something in others of the topic"
_NOTHING = -1


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
    """What one scrape found of all groups. It is gathered before it is told, since each family is told at a stretch.

    room: how many partitions have series; 0: only sums are told."""

    def __init__(self, room: int) -> None:
        self._room = room
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
        if self._room:
            yield from self._per_partition()
        sums = f"{_GROUP}_current_offset_sum", f"{_GROUP}_lag_sum"
        rows = (((each.group, each.topic), float(each.committed)) for each in self._sums)
        yield from gauges(sums[0], "The sum over a topic's partitions", _LABELS, rows)
        lags = (((s.group, s.topic), float(s.lag)) if s.lag is not None else None for s in self._sums)
        yield from gauges(sums[1], "How far each group is behind in a topic", _LABELS, lags)
        for name in sums:
            yield LeftOut(name, self._sums_left_out)

    def _per_partition(self) -> Iterator[Metric]:
        labels = (*_LABELS, "partition")
        places = self._places + self._gaps[: self._room - len(self._places)]
        rows = (((p.group, p.topic, str(p.partition)), float(p.committed)) for p in places)
        yield from gauges(_OFFSETS, _OFFSETS_TEXT, labels, rows)
        lags = (
            ((p.group, p.topic, str(p.partition)), float(lag)) if (lag := p.lag) is not None else None for p in places
        )
        yield from gauges(_LAGS, "How far each group is behind", labels, lags)
        for name in (_OFFSETS, _LAGS):
            yield LeftOut(name, self._partitions - len(places))


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

    def __call__(self) -> Iterator[Metric]:
        groups = list(chain.from_iterable((shard.groups or {}).values() for shard in self._coordinator.shards.values()))
        yield from _sizes(groups)
        counts = self._coordinator.counts
        for name, text, value in (
            ("group_completed_rebalance_count", "Rebalances that ended with assignments", counts.completed_rebalances),
            ("offset_commit_count", "Offsets that were committed", counts.commits),
            ("offset_expiration_count", "Offsets that were let go of, too old", counts.expirations),
            ("offset_deletion_count", "Offsets that were deleted", counts.deletions),
        ):
            yield gauge(f"{_COUNTS}_{name}", text, value)
        yield from self._each(groups)

    def _each(self, groups: list[Coordinated]) -> Iterator[Metric]:
        members, text = f"{_GROUP}_members", "Members of each group"
        told: list[Coordinated] = []
        by_topics: dict[int, list[Coordinated]] = {}
        for number, each in enumerate(groups, 1):
            if len(told) == MAX_SERIES:
                break
            if may_be_a_label(each.group.group_id):
                told.append(each)
                by_topics.setdefault(len(each.offsets.committed), []).append(each)
            if number % SLICE_SAMPLES == 0:
                yield Metric(members, text, "gauge")
        rows = (((each.group.group_id,), float(len(each.group.members))) for each in told)
        yield from gauges(members, text, ("consumergroup",), rows)
        yield LeftOut(members, len(groups) - len(told))
        yield from self._offsets(chain.from_iterable(by_topics[count] for count in sorted(by_topics)))

    def _offsets(self, groups: Iterable[Coordinated]) -> Iterator[Metric]:
        found = _Found(MAX_SERIES if self._is_per_partition() else 0)
        for number, _ in enumerate(chain.from_iterable(self._look_at(each, found) for each in groups), 1):
            if number % SLICE_SAMPLES == 0:
                yield Metric(_OFFSETS, _OFFSETS_TEXT, "gauge")
        yield from found.families()

    def _look_at(self, coordinated: Coordinated, found: _Found) -> Iterator[None]:
        """It yields for each group, topic and partition that it has looked at. Others may run in between: each topic of
        a group is as of its turn."""
        yield
        group, committed = coordinated.group.group_id, coordinated.offsets.committed
        for topic in list(committed):
            yield
            offsets = dict(committed.get(topic, {}))
            if offsets and may_be_a_label(topic):
                yield from self._look_at_topic(group, topic, offsets, found)

    def _look_at_topic(
        self, group: str, topic: str, offsets: dict[int, CommittedOffset], found: _Found
    ) -> Iterator[None]:
        partitions = self._partitions_of(topic)
        if found.is_full:
            found.leave_out(max(partitions, len(offsets)))
            return
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


def _sizes(groups: list[Coordinated]) -> Iterator[Metric]:
    """It looks at each group: now and then it yields a family without samples, for the loop to turn."""
    by_state = dict.fromkeys(GroupState, 0)
    offsets = 0
    name, text = f"{_MANAGER}_numoffsets", "Offsets that are committed by groups that are coordinated here"
    for number, each in enumerate(groups, 1):
        by_state[each.group.state] += 1
        offsets += each.offsets.count
        if number % SLICE_SAMPLES == 0:
            yield Metric(name, text, "gauge")
    yield gauge(name, text, offsets)
    yield gauge(f"{_MANAGER}_numgroups", "Groups that are coordinated here", len(groups))
    for state, count in by_state.items():
        yield gauge(f"{_MANAGER}_numgroups{state.value.lower()}", f"Groups in state {state.value}", count)
