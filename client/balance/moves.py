"""What to move so that no broker's load deviates too much: few moves, and first those that copy nothing. Pure.

A broker's load is a sum of shares of indicators (`load`), so each partition that it leads or follows stands for a part
of that load:

| role | what goes along |
|---|---|
| the leader | one of the leaders; what is sent to consumers and to the followers, and the disk reads for it |
| every replica | one of the partitions; what producers write, over the network and to disk |

and of the processors each role has the part that its bytes have in all that its broker moves. Memory, descriptors and
the machine's waiting do not follow a partition; what is uneven in them is not moved away.

1. Every partition is led by its preferred replica, where that is in sync: the election that follows the other moves
   does that to all, and brokers with `auto.leader.rebalance.enable` do it by themselves. Who is to lead
   nevertheless becomes the preferred one.
2. Leaders move to replicas in sync: nothing is copied. So they move until every broker is well within the threshold:
   what a partition stands for is an estimate.
3. Where that does not do, replicas move, until every broker is just within, to brokers that do not hold the partition,
   within the rules for racks: no rack gets a second replica that had none to give. Such a move is done once all
   replicas that are to stay are in sync, too, and that of a broker which does not run may never be: partitions that
   have one are held up, and their replicas stay where they are.

Each step of 2 and 3 takes the move that lessens the sum of squares most, among those between a broker with more and one
with less of which one is beyond the threshold; no partition takes part in 2 or 3 twice. So it ends, with few steps
though not always the fewest. Where all of it does not make the load more even, nothing is moved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from strandline.client.balance.indicators import BYTES_IN, BYTES_OUT, CPU, LEADERS, PARTITIONS, READ, WRITTEN, Traffic
from strandline.client.balance.load import Load, deviations_of, is_beyond
from strandline.protocol.types import TopicPartition

MOST_MOVES = 5000
AIM = 0.75
"""Part of the threshold that leaders are moved for."""
LEAST_GAIN = 1e-4
"""Of the square of the mean load: a move that brings less is not worth it."""


class Placed(NamedTuple):
    """Where a partition is. replicas: the preferred one first; in_sync: of those."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Move(NamedTuple):
    """Leadership, or a replica (`copies`), goes from `source` to `target`; where both are the same, who leads stays,
    and becomes the preferred replica. replicas: of the partition, after it."""

    partition: TopicPartition
    source: int
    target: int
    copies: bool
    leads: bool
    """The leadership goes along."""
    replicas: tuple[int, ...]
    part: float
    """Of the load, in the unit of `Load.loads`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """moves: one after the other; a partition may be in two of them. deviations: of each broker, as they are to be
    expected afterwards. held_up: partition → the brokers without which no move of its replicas would end."""

    moves: tuple[Move, ...]
    deviations: Mapping[int, float]
    held_up: Mapping[TopicPartition, tuple[int, ...]]

    def assignment(self, placed: Mapping[TopicPartition, Placed]) -> dict[TopicPartition, tuple[int, ...]]:
        """The partitions whose list of replicas becomes another."""
        at_last = {each.partition: each.replicas for each in self.moves}
        return {tp: replicas for tp, replicas in at_last.items() if replicas != placed[tp].replicas}

    @property
    def partitions(self) -> list[TopicPartition]:
        """That are moved, each once."""
        return list(dict.fromkeys(each.partition for each in self.moves))

    @property
    def elections(self) -> list[TopicPartition]:
        """Whose leaders move only once their preferred replicas are elected."""
        return [each.partition for each in self.moves if not each.copies and each.source != each.target]


def planned(
    load: Load,
    placed: Mapping[TopicPartition, Placed],
    traffic: Mapping[TopicPartition, Traffic],
    racks: Mapping[int, str | None],
) -> Plan:
    """The moves that bring every broker below the threshold, or as near as moves can. Brokers that `load` does not know
    are neither sources nor targets, and what is led by one stays."""
    known = {tp: each for tp, each in sorted(placed.items()) if each.leader in load.loads}
    parts = _Parts(load, known, traffic)
    loads = dict(load.loads)
    moves: dict[tuple[TopicPartition, bool], Move] = {}

    def take(step: Move) -> None:
        loads[step.source] -= step.part
        loads[step.target] += step.part
        known[step.partition] = _after(known[step.partition], step)
        before = moves.pop((step.partition, step.copies), step)
        moves[step.partition, step.copies] = step._replace(source=before.source)

    if load.is_even:
        return Plan((), load.deviations, {})
    held_up = {tp: away for tp, each in known.items() if (away := _away(each, loads))}
    for step in list(_to_preferred(known, parts, loads)):
        take(step)
    most = len(moves) + MOST_MOVES
    for candidates, limit in ((_leaders, AIM * load.threshold), (_replicas, load.threshold)):
        pairs = _Pairs(candidates(known, parts, loads, racks))
        while len(moves) < most and (best := _best(pairs, loads, limit)) is not None:
            take(best)
            pairs.forget(best.partition)
    if _squares(loads) >= _squares(load.loads):
        return Plan((), load.deviations, held_up)
    return Plan(tuple(moves.values()), deviations_of(loads), held_up)


def _away(placed: Placed, loads: Mapping[int, float]) -> tuple[int, ...]:
    """Who holds the partition and is not known to run. Who is in sync runs, and who tells its figures catches up."""
    return tuple(each for each in placed.replicas if each not in placed.in_sync and each not in loads)


def _squares(loads: Mapping[int, float]) -> float:
    return sum(load * load for load in loads.values())


def _after(placed: Placed, move: Move) -> Placed:
    in_sync = tuple(move.target if move.copies and each == move.source else each for each in placed.in_sync)
    return Placed(move.target if move.leads else placed.leader, move.replicas, in_sync)


def _to_preferred(known: Mapping[TopicPartition, Placed], parts: _Parts, loads: Mapping[int, float]) -> Iterator[Move]:
    for tp, each in known.items():
        preferred, part = each.replicas[0], parts.of_leader(tp)
        if preferred != each.leader and preferred in each.in_sync and preferred in loads and part > 0:
            yield Move(tp, each.leader, preferred, False, True, each.replicas, part)


def _leaders(
    known: Mapping[TopicPartition, Placed], parts: _Parts, loads: Mapping[int, float], racks: Mapping[int, str | None]
) -> Iterator[Move]:
    for tp, each in known.items():
        part = parts.of_leader(tp)
        for target in each.in_sync:
            if target != each.leader and target in loads and target in each.replicas and part > 0:
                yield Move(tp, each.leader, target, False, True, _preferring(target, each.replicas), part)


def _replicas(
    known: Mapping[TopicPartition, Placed], parts: _Parts, loads: Mapping[int, float], racks: Mapping[int, str | None]
) -> Iterator[Move]:
    mean = sum(loads.values()) / len(loads)
    emptier = [each for each, load in loads.items() if load < mean]
    for tp, each in known.items():
        if _away(each, loads):
            continue
        for source in each.replicas:
            if loads.get(source, 0.0) <= mean:
                continue
            others = [replica for replica in each.replicas if replica != source]
            leads = source == each.leader
            part = parts.of_replica(tp, source) + (parts.of_leader(tp) if leads else 0.0)
            for target in emptier:
                if target in each.replicas or part <= 0 or not _may_stand(target, source, others, racks):
                    continue
                after = tuple(target if replica == source else replica for replica in each.replicas)
                yield Move(tp, source, target, True, leads, _preferring(target, after) if leads else after, part)


def _preferring(first: int, replicas: tuple[int, ...]) -> tuple[int, ...]:
    return (first, *(each for each in replicas if each != first))


def _may_stand(target: int, source: int, others: Iterable[int], racks: Mapping[int, str | None]) -> bool:
    rack = racks.get(target)
    return rack is None or rack == racks.get(source) or all(racks.get(each) != rack for each in others)


class _Parts:
    """How much of its broker's load a partition stands for, in each role."""

    def __init__(
        self, load: Load, known: Mapping[TopicPartition, Placed], traffic: Mapping[TopicPartition, Traffic]
    ) -> None:
        self._load, self._known, self._traffic = load, dict(known), traffic  # as it was measured, while it moves on
        self._led_out = dict.fromkeys(load.loads, 0.0)
        self._written = dict.fromkeys(load.loads, 0.0)
        self._all = dict.fromkeys(load.loads, 0.0)
        for tp, each in known.items():
            of_clients = traffic.get(tp, Traffic(0.0, 0.0))
            self._led_out[each.leader] += of_clients.out_bytes_s
            self._all[each.leader] += self._sent(tp)
            for broker_id in each.replicas:
                if broker_id in self._all:
                    self._written[broker_id] += of_clients.in_bytes_s
                    self._all[broker_id] += of_clients.in_bytes_s

    def of_leader(self, tp: TopicPartition) -> float:
        """What goes with the leadership alone."""
        leader, of_clients = self._known[tp].leader, self._traffic.get(tp, Traffic(0.0, 0.0))
        sent = self._sent(tp)
        return (
            self._share(LEADERS, 1.0)
            + self._share(BYTES_OUT, sent)
            + self._share_of(READ, leader, of_clients.out_bytes_s, self._led_out[leader])
            + self._share_of(CPU, leader, sent, self._all[leader])
        )

    def of_replica(self, tp: TopicPartition, broker_id: int) -> float:
        """What goes with a replica that follows."""
        in_bytes_s = self._traffic.get(tp, Traffic(0.0, 0.0)).in_bytes_s
        return (
            self._share(PARTITIONS, 1.0)
            + self._share(BYTES_IN, in_bytes_s)
            + self._share_of(WRITTEN, broker_id, in_bytes_s, self._written[broker_id])
            + self._share_of(CPU, broker_id, in_bytes_s, self._all[broker_id])
        )

    def _sent(self, tp: TopicPartition) -> float:
        """To consumers and followers, per second."""
        in_bytes_s, out_bytes_s = self._traffic.get(tp, Traffic(0.0, 0.0))
        return out_bytes_s + in_bytes_s * (len(self._known[tp].in_sync) - 1)

    def _share(self, indicator: str, amount: float) -> float:
        load = self._load
        return load.weights[indicator] * amount / load.sums[indicator] if indicator in load.readings else 0.0

    def _share_of(self, indicator: str, broker_id: int, part: float, whole: float) -> float:
        """That part of what the broker has of the indicator."""
        if indicator not in self._load.readings or not whole:
            return 0.0
        return self._share(indicator, self._load.readings[indicator][broker_id] * part / whole)


# --- The best step ---------------------------------------------------------------------------------------------------


class _Pairs:
    """The moves that are left from one broker to another, by the size of their parts."""

    def __init__(self, moves: Iterable[Move]) -> None:
        self.between: dict[tuple[int, int], list[tuple[float, TopicPartition, Move]]] = {}
        self.of: dict[TopicPartition, list[Move]] = {}
        for each in moves:
            self.between.setdefault((each.source, each.target), []).append((each.part, each.partition, each))
            self.of.setdefault(each.partition, []).append(each)
        for listed in self.between.values():
            listed.sort()

    def forget(self, tp: TopicPartition) -> None:
        for each in self.of.pop(tp, ()):
            listed = self.between[each.source, each.target]
            del listed[bisect_left(listed, (each.part, each.partition, each))]


def _best(pairs: _Pairs, loads: Mapping[int, float], threshold: float) -> Move | None:
    """The move that lessens the sum of squares most; None where everybody is within the threshold, or none helps.

    From a to b with a gap of g a part p lessens it by 2p(g − p): most at half the gap, so that of each pair only the
    neighbours of that need a look."""
    mean = sum(loads.values()) / len(loads)
    beyond = {broker_id for broker_id, load in loads.items() if is_beyond(load / mean - 1, threshold)}
    best, most = None, LEAST_GAIN * mean * mean
    for (source, target), listed in pairs.between.items():
        gap = loads[source] - loads[target]
        if gap <= 0 or not (source in beyond or target in beyond):
            continue
        place = bisect_left(listed, (gap / 2,))
        for part, _, move in listed[max(0, place - 1) : place + 1]:
            if (gain := 2 * part * (gap - part)) > most:
                best, most = move, gain
    return best
