"""Which brokers hold a new partition's replicas, and whether an assignment made by hand can be used.

Rule (reference text 000): n brokers sorted, replica j of partition i on broker (i + j) mod n, so leaders and replicas
are spread evenly. By that alone all that a failed broker led would go to the next one; so in each further round of n
partitions the followers begin one broker later, as in the tables of text 003 (Kafka's own rule), and the load goes to
all others. With racks, brokers are dealt out rack by rack, and a partition takes a second replica on a rack only when
it has one on each.

On purpose it is not as in a Kafka: where a topic starts is not drawn but follows from what there is
(`PreferredCounts`), so that the same requests give the same layout and many small topics are spread, too; and racks
count only if every broker has one, where a Kafka refuses the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from strandline.protocol.errors import BrokerError, ErrorCode


def assign_replicas(
    brokers: Mapping[int, str | None], partitions: int, replication_factor: int, start_index: int = 0, first: int = 0
) -> Iterator[tuple[int, ...]]:
    """The replica ids of one partition after the other, preferred first, so that thousands can be made in steps.
    `brokers`: id → rack. `start_index` shifts partition 0's preferred broker along the sorted list; each whole turn of
    it shifts the followers. `first`: the number of the first of these partitions.
    1 ≤ replication_factor ≤ len(brokers)."""
    assert 1 <= replication_factor <= len(brokers), f"{replication_factor} replicas on {len(brokers)} brokers"
    ordered = order_brokers(brokers)
    racks = brokers if _is_rack_aware(brokers) else dict.fromkeys(brokers)
    turns, start = divmod(start_index, len(ordered))
    for partition in range(first, first + partitions):
        candidates = _candidates(ordered, start + partition, turns + partition // len(ordered))
        yield _replicas_of(candidates, racks, replication_factor)


def _is_rack_aware(brokers: Mapping[int, str | None]) -> bool:
    """Racks count when every broker has one; a rack for some only would push data onto the others."""
    return None not in brokers.values()


def order_brokers(brokers: Mapping[int, str | None]) -> list[int]:
    """Sorted; with racks, one broker of each rack in turn."""
    if not _is_rack_aware(brokers):
        return sorted(brokers)
    by_rack: dict[str | None, list[int]] = {}
    for broker_id in sorted(brokers):
        by_rack.setdefault(brokers[broker_id], []).append(broker_id)
    rows = [by_rack[rack] for rack in sorted(by_rack, key=str)]
    return [row[i] for i in range(max(map(len, rows), default=0)) for row in rows if i < len(row)]


def _candidates(ordered: Sequence[int], index: int, shift: int) -> list[int]:
    """All brokers, in the order in which a partition takes them."""
    count = len(ordered)
    followers = [ordered[(index + j) % count] for j in range(1, count)]
    shift %= max(len(followers), 1)
    return [ordered[index % count], *followers[shift:], *followers[:shift]]


def _replicas_of(
    candidates: Sequence[int], racks: Mapping[int, str | None], replication_factor: int
) -> tuple[int, ...]:
    chosen: list[int] = []
    while len(chosen) < replication_factor:
        used: set[str] = set()
        for broker_id in candidates:  # one round: at most one more replica per rack
            rack = racks[broker_id]
            if len(chosen) < replication_factor and broker_id not in chosen and (rack is None or rack not in used):
                chosen.append(broker_id)
                used |= set() if rack is None else {rack}
    return tuple(chosen)


class PreferredCounts:
    """How often each broker is the preferred one, so that many small topics do not all prefer the first."""

    def __init__(self, brokers: Mapping[int, str | None], assignments: Iterable[Mapping[int, Sequence[int]]]) -> None:
        self._ordered = order_brokers(brokers)
        self._counts = dict.fromkeys(self._ordered, 0)
        for assignment in assignments:
            self.add(assignment)

    def add(self, assignment: Mapping[int, Sequence[int]]) -> None:
        counts = self._counts
        for replicas in assignment.values():
            if replicas and replicas[0] in counts:
                counts[replicas[0]] += 1

    def start(self) -> int:
        """Where to start next: the position, in the order of `order_brokers`, of the broker that is preferred least
        often so far (the first among equals), and a turn of all brokers for each time that it is."""
        positions = range(len(self._ordered))
        position = min(positions, key=lambda i: self._counts[self._ordered[i]], default=0)
        return position + len(positions) * (self._counts[self._ordered[position]] if positions else 0)


def check_manual_assignment(
    assignment: Mapping[int, Sequence[int]], live_brokers: Iterable[int], first: int = 0
) -> dict[int, tuple[int, ...]]:
    """An assignment made by hand, in the order of its partitions. BrokerError INVALID_REPLICA_ASSIGNMENT unless it
    numbers its partitions from `first` without gaps and gives each the same number of different live brokers."""

    def refuse(why: str) -> BrokerError:
        return BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)

    live = set(live_brokers)
    last = first + len(assignment) - 1
    if sorted(assignment) != list(range(first, last + 1)):
        numbers = sorted(assignment)[:20]
        raise refuse(f"partitions must be numbered {first} to {last} without gaps, not {numbers}")
    sizes = {len(replicas) for replicas in assignment.values()}
    if 0 in sizes:
        raise refuse("a partition has no replica; name at least one broker for each")
    if len(sizes) > 1:
        raise refuse(f"partitions have different replication factors ({', '.join(map(str, sorted(sizes)))})")
    for partition in sorted(assignment):
        replicas = assignment[partition]
        if len(set(replicas)) != len(replicas):
            raise refuse(f"partition {partition} names a broker twice: {list(replicas)[:20]}")
        unknown = sorted(set(replicas) - live)
        if unknown:
            raise refuse(f"partition {partition} names brokers that are not registered: {unknown[:20]}")
    return {partition: tuple(assignment[partition]) for partition in sorted(assignment)}
