"""One look at the replicas of partitions: what there is to compare, in pieces, and the comparison of one piece.

    works, known = plan(admin, topics, compacted)   # asks all brokers; known: what shows without reading anything
    for work in works:                              # anywhere, in any order, side by side
        results = look(reader, work)

A look sees a cluster that goes on: leaders move, brokers start and stop. So what it finds is to be found by another
one, made from a new plan, before anybody is told (`unconfirmed`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from strandline.client.errors import CannotReachBroker, ClientError, RequestTimedOut
from strandline.client.metadata import PartitionView, TopicView
from strandline.client.replicas.compacted import compare_compacted
from strandline.client.replicas.comparison import (
    AHEAD,
    DAMAGED,
    DIFFERENT,
    MISSING,
    OFFLINE,
    UNREAD,
    Compared,
    Finding,
    compare,
)
from strandline.client.replicas.reading import Replica, ReplicaOffsets, ReplicaPart
from strandline.client.replicas.streams import BatchStream
from strandline.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from strandline.protocol.types import NO_BROKER, TopicPartition

OFFSETS_PER_WORK = 1_000_000
"""Longer partitions are compared in pieces, side by side, with borders at multiples of this. Compacted ones are not:
what overtook a record may stand anywhere behind it."""

PATIENCE_MS = 10_000
"""How long a plan waits for a broker that does not answer."""

WAIT_MS = 500
NO_SUCH_OFFSET = -1
"""The answer about a time after the last record."""

MAX_WAITS = 4
"""A follower learns with its next fetch what is committed; one in sync is waited for so often."""


class Work(NamedTuple):
    """A piece of a partition to be compared; `brokers`: whose replicas, the leader's first."""

    partition: TopicPartition
    leader_epoch: int
    brokers: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int
    end: int
    is_compacted: bool

    @property
    def leader(self) -> int:
        return self.brokers[0]

    @property
    def piece(self) -> tuple[TopicPartition, int]:
        """The partition and the number of the piece: the same in every plan."""
        return self.partition, 0 if self.is_compacted else self.start // OFFSETS_PER_WORK


Known = dict[Replica, Finding]
"""Replicas that are ahead, whose broker is gone, or that cannot be read."""


@dataclass(frozen=True, slots=True)
class Begin:
    """From where partitions are compared: their first record of `timestamp` (ms since 1970) or later, their beginning
    or their end (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP). A replica in `reached` was compared up to there before; of the
    replicas of a partition that can be read now, the one that has come least far decides. topic_ids: name → the id that
    the topic had then; one of that name with another id has not been compared at all."""

    timestamp: int = EARLIEST_TIMESTAMP
    reached: Mapping[Replica, int] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)

    def without(self, names: Container[str]) -> Begin:
        """As if nothing of these topics had been compared."""
        reached = {replica: at for replica, at in self.reached.items() if replica.partition.topic not in names}
        return replace(self, reached=reached)

    def made_anew(self, topics: Mapping[str, TopicView]) -> set[str]:
        """The names of those that have another id than they had."""
        return {name for name, topic in topics.items() if self.topic_ids.get(name, topic.topic_id) != topic.topic_id}


WHOLE = Begin()


class Asked(Protocol):
    """What a plan needs of `Admin`."""

    def replica_offsets(
        self, epochs: Mapping[Replica, int], timestamp: int, *, timeout_ms: float
    ) -> ReplicaOffsets: ...


class Read(Protocol):
    """`Admin.read_replica`."""

    def __call__(self, replica: Replica, offset: int, *, leader_epoch: int, max_wait_ms: int) -> ReplicaPart: ...


def plan(
    admin: Asked,
    topics: Iterable[TopicView],
    compacted: Container[str],
    is_meant: Callable[[TopicPartition], bool] = lambda partition: True,
    begin: Begin = WHOLE,
) -> tuple[list[Work], Known]:
    """What there is to compare of these topics, and what is wrong already. compacted: the names of those that are."""
    views = {
        partition: view
        for topic in topics
        for number, view in sorted(topic.partitions.items())
        if is_meant(partition := TopicPartition(topic.name, number))
    }
    known: Known = {}
    epochs: dict[Replica, int] = {}
    for partition, view in views.items():
        for broker in view.replicas:
            replica = Replica(partition, broker)
            if why := _cannot_be_asked(broker, view):
                known[replica] = why
            else:
                epochs[replica] = view.leader_epoch
    leaders = {replica: epoch for replica, epoch in epochs.items() if _leads(replica, views)}
    followers = {replica: epoch for replica, epoch in epochs.items() if replica not in leaders}
    # The followers first: what they have their leader had before, so it has more by the time it is asked.
    ends = admin.replica_offsets(followers, LATEST_TIMESTAMP, timeout_ms=PATIENCE_MS)
    starts = admin.replica_offsets(leaders, EARLIEST_TIMESTAMP, timeout_ms=PATIENCE_MS)
    ends |= admin.replica_offsets(leaders, LATEST_TIMESTAMP, timeout_ms=PATIENCE_MS)
    begins = starts | _begins(admin, leaders, ends, begin.timestamp)
    works: list[Work] = []
    for partition, view in views.items():
        for whole in _of_partition(partition, view, starts, ends, partition.topic in compacted, known):
            first = begins[Replica(partition, view.leader)]
            if isinstance(first, Exception):
                text = f"the leader, broker {view.leader}, does not say where to begin: {first}"
                known.update((Replica(partition, broker), Finding(UNREAD, 0, 0, 1, text)) for broker in whole.brokers)
                continue
            first = min(first, whole.end)
            wished = min(begin.reached.get(Replica(partition, broker), first) for broker in whole.brokers)
            # What was compared was committed: a log that ends before was cut, nobody knows where, by a leader that had
            # lagged.
            start = whole.start if wished > whole.end else max(whole.start, wished)
            part = whole._replace(start=start)
            works += [part] if part.is_compacted else _pieces(part)
    return works, known


def _begins(admin: Asked, leaders: Mapping[Replica, int], ends: ReplicaOffsets, timestamp: int) -> ReplicaOffsets:
    """Where what is asked for begins, of each leader; nothing where that is its whole log."""
    if timestamp == EARLIEST_TIMESTAMP:
        return {}
    found = {leader: ends[leader] for leader in leaders}
    if timestamp == LATEST_TIMESTAMP:
        return found
    later = admin.replica_offsets(leaders, timestamp, timeout_ms=PATIENCE_MS)
    return found | {leader: first for leader, first in later.items() if first != NO_SUCH_OFFSET}


def _leads(replica: Replica, views: Mapping[TopicPartition, PartitionView]) -> bool:
    return views[replica.partition].leader == replica.broker_id


def _cannot_be_asked(broker: int, view: PartitionView) -> Finding | None:
    if broker in view.offline_replicas:
        return Finding(OFFLINE, 0, 0, 1, f"broker {broker} is not running")
    if broker in view.refused_replicas:
        return Finding(UNREAD, 0, 0, 1, f"broker {broker} does not serve it: {view.refused_replicas[broker]}")
    if view.leader == NO_BROKER:
        return Finding(UNREAD, 0, 0, 1, "the partition has no leader to compare with")
    return None


def _of_partition(
    partition: TopicPartition,
    view: PartitionView,
    starts: ReplicaOffsets,
    ends: ReplicaOffsets,
    is_compacted: bool,
    known: Known,
) -> Iterator[Work]:
    """All of it; nothing where it cannot be compared."""
    leading = Replica(partition, view.leader)
    start, end = starts.get(leading), ends.get(leading)
    readable = []
    for broker in sorted(view.replicas, key=lambda broker: broker != view.leader):
        replica = Replica(partition, broker)
        if replica in known:
            continue
        own_end = ends[replica] if replica != leading or isinstance(end, Exception) else start
        if isinstance(own_end, Exception):
            known[replica] = Finding(UNREAD, 0, 0, 1, str(own_end))
            continue
        readable.append(broker)
        if replica != leading and isinstance(end, int) and isinstance(own_end, int) and own_end > end:
            text = f"its log ends at offset {own_end}, the leader's at {end}"
            known[replica] = Finding(AHEAD, end, own_end, 1, text)
    if not (isinstance(start, int) and isinstance(end, int)) or view.leader not in readable:
        for broker in readable:
            text = f"the leader, broker {view.leader}, cannot be read"
            known[Replica(partition, broker)] = Finding(UNREAD, 0, 0, 1, text)
        return
    yield Work(
        partition, view.leader_epoch, tuple(readable), view.in_sync_replicas, start, max(start, end), is_compacted
    )


def _pieces(whole: Work) -> Iterator[Work]:
    """At least one: a partition without records was compared, too."""
    border = whole.start
    while True:
        next_border = min((border // OFFSETS_PER_WORK + 1) * OFFSETS_PER_WORK, whole.end)
        yield whole._replace(start=border, end=next_border)
        border = next_border
        if border >= whole.end:
            return


class Reader:
    """`Admin.read_replica`; a broker that cannot be reached, or is silent, is not asked again."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._silent: dict[int, ClientError] = {}

    def __call__(self, replica: Replica, offset: int, *, leader_epoch: int, max_wait_ms: int) -> ReplicaPart:
        if (known := self._silent.get(replica.broker_id)) is not None:
            raise known
        try:
            return self._read(replica, offset, leader_epoch=leader_epoch, max_wait_ms=max_wait_ms)
        except (CannotReachBroker, RequestTimedOut) as error:
            self._silent[replica.broker_id] = error
            raise


def look(read: Read, work: Work) -> dict[int, Compared]:
    """Broker → what became of its replica in this piece."""
    committed = 0

    def reading_from(broker: int) -> Callable[[int], ReplicaPart]:
        replica, waits = Replica(work.partition, broker), MAX_WAITS if broker in work.in_sync else 0

        def reading(offset: int) -> ReplicaPart:
            nonlocal committed, waits
            while True:
                is_awaited = waits > 0 and broker != work.leader and offset < committed
                max_wait_ms = WAIT_MS if is_awaited else 0
                part = read(replica, offset, leader_epoch=work.leader_epoch, max_wait_ms=max_wait_ms)
                if broker == work.leader:
                    committed = max(committed, min(part.high_watermark, work.end))
                if part.records or not is_awaited or not part.log_start_offset <= offset == part.high_watermark:
                    return part
                waits -= 1

        return reading

    def opened() -> dict[int, BatchStream]:
        return {broker: BatchStream(reading_from(broker), work.start, work.end) for broker in work.brokers}

    if work.is_compacted:
        return compare_compacted(opened, work.start, work.end)
    return compare(opened(), work.start, work.end)


def unconfirmed(found: Iterable[Finding], before: Iterable[Finding]) -> Iterator[Finding]:
    """What an earlier look at the same replica did not find: nothing at the same offsets, not that it is ahead, not
    that it cannot be read."""
    before = list(before)
    kinds = {each.kind for each in before}
    spans = sorted((each.start, each.end) for each in before if each.kind in AT_OFFSETS)
    reached = place = 0
    for finding in sorted(found, key=lambda each: each.end):
        if finding.kind not in AT_OFFSETS:
            if finding.kind not in kinds:
                yield finding
            continue
        while place < len(spans) and spans[place][0] < finding.end:
            reached, place = max(reached, spans[place][1]), place + 1
        if reached <= finding.start:
            yield finding


AT_OFFSETS = (DAMAGED, MISSING, DIFFERENT)
"""Kinds of findings that are told from others by where they are."""
