"""Groups, by the names of Kafka's GroupMetadataManager and of kafka_exporter: each group is told by its coordinator.

Lag is where a partition ends less what is committed. Where the end is not known the lag is left out, and the sum is
that of the others; where no end is known there is no sum: 0 would be taken for good news.

As by kafka_exporter, a partition in which a group has committed nothing, while it has in others of the topic, is told
with -1 for both, so that somebody can be called for it. These -1 are part of the sum of offsets, and no part of that of
lags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from prometheus_client.core import Metric

from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.groups.shards import Coordinated
from strandline.broker.groups.states import GroupState
from strandline.broker.metrics.bounds import MAX_GROUPS, MAX_PARTITIONS, may_be_a_label
from strandline.broker.metrics.end_offsets import EndOffsets
from strandline.broker.metrics.families import SLICE_SAMPLES, LeftOut, gauge, gauges
from strandline.protocol.types import TopicPartition

_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
_COUNTS = "kafka_server_group_coordinator_metrics"
_GROUP = "kafka_consumergroup"
_LABELS = ("consumergroup", "topic")
_CURRENT_OFFSET = "What each group has committed; -1: nothing, but something in others of the topic"
_NOTHING = -1


class _Place(NamedTuple):
    """Where a group goes on in a partition. committed: `_NOTHING` where it has committed nothing. end: None where that
    is not known."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """Never negative but for `_NOTHING`: the end may have been looked up before the commit."""
        if self.committed == _NOTHING:
            return _NOTHING
        return None if self.end is None else max(self.end - self.committed, 0)


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
        for number, each in enumerate(groups, 1):
            if len(told) == MAX_GROUPS:
                break
            if may_be_a_label(each.group.group_id):
                told.append(each)
            if number % SLICE_SAMPLES == 0:
                yield Metric(members, text, "gauge")
        yield LeftOut(members, len(groups) - len(told))
        rows = [((each.group.group_id,), float(len(each.group.members))) for each in told]
        yield from gauges(members, text, ("consumergroup",), rows)
        places: list[_Place] = []
        left_out = 0
        name, text = f"{_GROUP}_current_offset", _CURRENT_OFFSET
        for number, each in enumerate(told, 1):
            if len(places) == MAX_PARTITIONS:
                left_out += each.offsets.count
            for place in self._places(each) if len(places) < MAX_PARTITIONS else ():
                if len(places) == MAX_PARTITIONS:
                    left_out += 1
                else:
                    places.append(self._with_end(place))
                if (len(places) + left_out) % SLICE_SAMPLES == 0:
                    yield Metric(name, text, "gauge")
            if number % SLICE_SAMPLES == 0:
                yield Metric(name, text, "gauge")
        yield LeftOut(name, left_out)
        if self._is_per_partition():
            yield from _per_partition(places)
        yield from _sums(places)

    def _places(self, coordinated: Coordinated) -> Iterator[_Place]:
        """Others may run between two of them: each is as of its turn."""
        group, committed = coordinated.group.group_id, coordinated.offsets.committed
        for topic in filter(may_be_a_label, list(committed)):
            offsets = dict(committed.get(topic, {}))
            for partition, offset in offsets.items():
                yield _Place(group, topic, partition, offset.offset, None)
            for partition in range(self._partitions_of(topic)) if offsets else ():
                if partition not in offsets:
                    yield _Place(group, topic, partition, _NOTHING, None)

    def _with_end(self, place: _Place) -> _Place:
        if place.committed == _NOTHING:
            return place
        return place._replace(end=self._ends.of(TopicPartition(place.topic, place.partition)))


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


def _per_partition(places: list[_Place]) -> Iterator[Metric]:
    labels = (*_LABELS, "partition")
    offsets = (((p.group, p.topic, str(p.partition)), float(p.committed)) for p in places)
    yield from gauges(f"{_GROUP}_current_offset", _CURRENT_OFFSET, labels, offsets)
    lags = (((p.group, p.topic, str(p.partition)), float(lag)) if (lag := p.lag) is not None else None for p in places)
    yield from gauges(f"{_GROUP}_lag", "How far each group is behind", labels, lags)


def _sums(places: list[_Place]) -> Iterator[Metric]:
    offsets: dict[tuple[str, str], float] = {}
    lags: dict[tuple[str, str], float] = {}
    name, text = f"{_GROUP}_current_offset_sum", "The sum over a topic's partitions"
    for number, place in enumerate(places, 1):
        key = (place.group, place.topic)
        offsets[key] = offsets.get(key, 0.0) + place.committed
        if place.lag is not None and place.committed != _NOTHING:
            lags[key] = lags.get(key, 0.0) + place.lag
        if number % (SLICE_SAMPLES * 4) == 0:
            yield Metric(name, text, "gauge")
    yield from gauges(name, text, _LABELS, offsets.items())
    yield from gauges(f"{_GROUP}_lag_sum", "How far each group is behind in a topic", _LABELS, lags.items())
