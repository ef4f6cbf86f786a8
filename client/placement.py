"""Where partitions should lie: a plan that is even, and moves little.

Rules, the strongest first:

1. A partition has as many replicas as its replication factor says, on different brokers of those that may be used.
2. Racks count where every broker has one. A partition takes a second replica on a rack only when it has one on each.
3. Of all topics together no broker holds more than one replica more than another, and of each topic no more than two:
   since partitions of one topic are about as large as each other, bytes follow. (One for each topic, too, would move
   twice as much where topics are small.) Of preferred leaders, the first of each list, one for each topic and in sum:
   they move without bytes.
4. What can stay where it is stays; of a topic's partitions the small ones move.

Where racks do not let 3 come true (they differ in size), it holds as far as moves lead from a fuller broker to an
emptier one, also by way of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from strandline.protocol.types import TopicPartition

Racks = Mapping[int, str | None]
"""Broker → its rack."""


class Held(NamedTuple):
    """One partition as it is: its brokers, preferred first, and how large one copy is."""

    replicas: tuple[int, ...]
    size_bytes: int = 0


class TooFewBrokers(ValueError):
    """`topics`: which have more replicas than there are brokers to hold them."""

    def __init__(self, brokers: int, topics: Mapping[str, int]) -> None:
        self.topics = topics
        most = 5
        named = ", ".join(f"{name} ({factor} replicas)" for name, factor in list(topics.items())[:most])
        rest = f" and {len(topics) - most} more" if len(topics) > most else ""
        super().__init__(f"too few brokers, {brokers}, for {named}{rest}")


def spread(
    held: Mapping[TopicPartition, Held],
    brokers: Racks,
    *,
    replication_factor: int | None = None,
    others: Iterable[Sequence[int]] = (),
    evenly: bool = True,
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of each partition, preferred first, on these brokers.

    replication_factor: another one than now. others: the replicas of partitions that stay as they are, and count in the
    sums over all topics. evenly False: what lies on these brokers stays, only what is missing is placed, evenly, and
    preferred leaders that had to go are replaced. TooFewBrokers."""
    wanted = {tp: replication_factor or len(each.replicas) for tp, each in held.items()}
    too_many: dict[str, int] = {}
    for tp, factor in wanted.items():
        if factor > len(brokers):
            too_many[tp.topic] = max(factor, too_many.get(tp.topic, 0))
    if too_many:
        raise TooFewBrokers(len(brokers), too_many)
    others = list(others)
    replicas = _Replicas(held, brokers, others)
    for tp, factor in wanted.items():
        replicas.shorten(tp, factor)
    for tp, factor in wanted.items():
        replicas.fill(tp, factor)
    if evenly:
        for tp in held:
            replicas.mend_racks(tp)
        replicas.places.even_out(replicas.may_go, replicas.move, tolerated=2)
    leaders = _Leaders(held, replicas.of, brokers, others)
    if evenly:
        leaders.places.even_out(leaders.may_go, leaders.move, tolerated=1)
    return {tp: leaders.first(tp, replicas.of[tp]) for tp in held}


class _Places:
    """Which partitions each broker has (a replica of, or the leadership), by topic and in sum."""

    def __init__(self, brokers: Iterable[int]) -> None:
        self.sums = dict.fromkeys(sorted(brokers), 0)
        self.topics: dict[str, dict[int, dict[TopicPartition, None]]] = {}

    def topic(self, name: str) -> dict[int, dict[TopicPartition, None]]:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = {broker_id: {} for broker_id in self.sums}
        return found

    def put(self, tp: TopicPartition, broker_id: int) -> None:
        self.topic(tp.topic)[broker_id][tp] = None
        self.sums[broker_id] += 1

    def take(self, tp: TopicPartition, broker_id: int) -> None:
        del self.topic(tp.topic)[broker_id][tp]
        self.sums[broker_id] -= 1

    def load(self, topic: str, broker_id: int) -> tuple[int, int]:
        """To be compared: of this topic, then of all."""
        return len(self.topic(topic)[broker_id]), self.sums[broker_id]

    def even_out(
        self,
        may_go: Callable[[TopicPartition, int, int], bool],
        move: Callable[[TopicPartition, int, int], None],
        *,
        tolerated: int,
    ) -> None:
        """First within each topic, up to a difference that is tolerated; then in sum by moves that leave the topics as
        even as they are."""

        def movable(name: str, fuller: int, emptier: int) -> TopicPartition | None:
            return next((tp for tp in self.topic(name)[fuller] if may_go(tp, fuller, emptier)), None)

        for name in sorted(self.topics, key=lambda name: (-sum(map(len, self.topics[name].values())), name)):
            _level(
                self.sums,
                lambda broker_id, name=name: self.load(name, broker_id),  # type: ignore[misc]
                lambda fuller, emptier, name=name: movable(name, fuller, emptier),  # type: ignore[misc]
                may_go,
                move,
                tolerated,
            )

        def movable_in_sum(fuller: int, emptier: int) -> TopicPartition | None:
            for name, places in self.topics.items():
                if len(places[fuller]) > len(places[emptier]) and (tp := movable(name, fuller, emptier)) is not None:
                    return tp
            return None

        _level(self.sums, lambda broker_id: (self.sums[broker_id], 0), movable_in_sum, may_go, move, 1)


def _level(
    brokers: Iterable[int],
    load: Callable[[int], tuple[int, int]],
    movable: Callable[[int, int], TopicPartition | None],
    may_go: Callable[[TopicPartition, int, int], bool],
    move: Callable[[TopicPartition, int, int], None],
    tolerated: int,
) -> None:
    """Move from fuller brokers to emptier ones, until the difference (of the loads' first numbers) is tolerated, or
    partitions can go no further, straight or by way of others. Each round lessens the sum of squares, so it ends."""
    everyone = list(brokers)
    while everyone:
        emptiest = min(load(each)[0] for each in everyone)
        for fullest in sorted(everyone, key=load, reverse=True):
            if load(fullest)[0] <= emptiest + tolerated:
                return
            path = _path(fullest, everyone, load, movable)
            if path is not None and _went(path, may_go, move):
                break
        else:
            return


Hop = tuple[TopicPartition, int, int]
"""A partition, from where, to where."""


def _path(
    start: int,
    everyone: Iterable[int],
    load: Callable[[int], tuple[int, int]],
    movable: Callable[[int, int], TopicPartition | None],
) -> list[Hop] | None:
    """The shortest way to a broker that has two less, the emptiest first."""
    reached: dict[int, list[Hop]] = {start: []}
    left = [start]
    emptiest_first = sorted(everyone, key=load)
    limit = load(start)[0] - 2
    for place in left:  # which grows
        for other in emptiest_first:
            if other in reached:
                continue
            tp = movable(place, other)
            if tp is None:
                continue
            reached[other] = [*reached[place], (tp, place, other)]
            if load(other)[0] <= limit:
                return reached[other]
            left.append(other)
    return None


def _went(
    path: Sequence[Hop],
    may_go: Callable[[TopicPartition, int, int], bool],
    move: Callable[[TopicPartition, int, int], None],
) -> bool:
    """All hops are made, from the end on, or none: one may stand in another's way."""
    done: list[Hop] = []
    for tp, place, other in reversed(path):
        if not may_go(tp, place, other):
            for gone, before, after in reversed(done):
                move(gone, after, before)
            return False
        move(tp, place, other)
        done.append((tp, place, other))
    return True


class _Replicas:
    def __init__(self, held: Mapping[TopicPartition, Held], brokers: Racks, others: Iterable[Sequence[int]]) -> None:
        self.of: dict[TopicPartition, list[int]] = {}
        self.places = _Places(brokers)
        self._racks: Racks = brokers if None not in brokers.values() else dict.fromkeys(brokers, "")
        self._of_rack: dict[str | None, list[int]] = {}
        for broker_id in sorted(brokers):
            self._of_rack.setdefault(self._racks[broker_id], []).append(broker_id)
        for tp in sorted(held, key=lambda tp: (held[tp].size_bytes, tp)):  # the small ones are the first to move
            self.of[tp] = [each for each in dict.fromkeys(held[tp].replicas) if each in brokers]
            for broker_id in self.of[tp]:
                self.places.put(tp, broker_id)
        for replicas in others:
            for broker_id in replicas:
                if broker_id in self.places.sums:
                    self.places.sums[broker_id] += 1

    def _on_rack(self, tp: TopicPartition, broker_id: int) -> int:
        rack = self._racks[broker_id]
        return sum(self._racks[each] == rack for each in self.of[tp])

    def shorten(self, tp: TopicPartition, factor: int) -> None:
        """Where racks have most, then where most lies; the preferred one stays as long as it can."""
        while len(self.of[tp]) > factor:
            goes = max(
                self.of[tp][1:], key=lambda each: (self._on_rack(tp, each), self.places.load(tp.topic, each), each)
            )
            self.of[tp].remove(goes)
            self.places.take(tp, goes)

    def fill(self, tp: TopicPartition, factor: int) -> None:
        while len(self.of[tp]) < factor:
            free = [each for each in self.places.sums if each not in self.of[tp]]
            comes = min(free, key=lambda each: (self._on_rack(tp, each), self.places.load(tp.topic, each), each))
            self.of[tp].append(comes)
            self.places.put(tp, comes)

    def mend_racks(self, tp: TopicPartition) -> None:
        """While a rack has two more than one that has room, a replica moves there."""
        while True:
            free = [each for each in self.places.sums if each not in self.of[tp]]
            if not free or not self.of[tp]:
                return
            comes = min(free, key=lambda each: (self._on_rack(tp, each), self.places.load(tp.topic, each), each))
            goes = max(self.of[tp], key=lambda each: (self._on_rack(tp, each), self.places.load(tp.topic, each), each))
            if self._on_rack(tp, goes) < self._on_rack(tp, comes) + 2:
                return
            self.move(tp, goes, comes)

    def may_go(self, tp: TopicPartition, place: int, other: int) -> bool:
        replicas = self.of[tp]
        if other in replicas or place not in replicas:
            return False
        return self._racks[place] == self._racks[other] or self._on_rack(tp, place) > self._on_rack(tp, other)

    def move(self, tp: TopicPartition, place: int, other: int) -> None:
        replicas = self.of[tp]
        replicas[replicas.index(place)] = other
        self.places.take(tp, place)
        self.places.put(tp, other)


class _Leaders:
    """Preferred leaders: of those who hold it, and as before where that holds it still."""

    def __init__(
        self,
        held: Mapping[TopicPartition, Held],
        replicas: Mapping[TopicPartition, Sequence[int]],
        brokers: Iterable[int],
        others: Iterable[Sequence[int]],
    ) -> None:
        self._held = held
        self._replicas = replicas
        self.places = _Places(brokers)
        self.of: dict[TopicPartition, int] = {}
        for each in others:
            if each and each[0] in self.places.sums:
                self.places.sums[each[0]] += 1
        for tp in held:
            if held[tp].replicas and held[tp].replicas[0] in replicas[tp]:
                self._put(tp, held[tp].replicas[0])
        for tp in held:
            if tp not in self.of and replicas[tp]:
                self._put(tp, min(replicas[tp], key=lambda each: (self.places.load(tp.topic, each), each)))

    def _put(self, tp: TopicPartition, broker_id: int) -> None:
        self.of[tp] = broker_id
        self.places.put(tp, broker_id)

    def may_go(self, tp: TopicPartition, place: int, other: int) -> bool:
        return self.of[tp] == place and other in self._replicas[tp]

    def move(self, tp: TopicPartition, place: int, other: int) -> None:
        self.places.take(tp, place)
        self._put(tp, other)

    def first(self, tp: TopicPartition, replicas: Sequence[int]) -> tuple[int, ...]:
        """The preferred one, those who held it already in their order, then the new ones."""
        before = [each for each in self._held[tp].replicas if each in replicas]
        ordered = [self.of[tp], *before, *replicas] if tp in self.of else list(replicas)
        return tuple(dict.fromkeys(ordered))


# --- Figures ---------------------------------------------------------------------------------------------------------


class BrokerLoad(NamedTuple):
    """`leaders`: partitions that prefer it."""

    replicas: int
    leaders: int
    size_bytes: int


def loads(assignments: Iterable[tuple[Sequence[int], int]]) -> dict[int, BrokerLoad]:
    """What each broker has, of partitions given as (replicas, bytes of one copy)."""
    found: dict[int, BrokerLoad] = {}
    for replicas, size_bytes in assignments:
        for place, broker_id in enumerate(replicas):
            before = found.get(broker_id, BrokerLoad(0, 0, 0))
            found[broker_id] = BrokerLoad(
                before.replicas + 1, before.leaders + (place == 0), before.size_bytes + size_bytes
            )
    return {broker_id: found[broker_id] for broker_id in sorted(found)}


def bytes_to_move(held: Held, target: Sequence[int]) -> int:
    """To fill the replicas that are new."""
    return held.size_bytes * len(set(target) - set(held.replicas))
