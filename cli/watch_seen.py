"""What `strandline watch` sees of a topic at one moment, and what has moved between two of them. Pure.

    seen ─ Watched.take ─> changes, each a line or a JSON object; `Watched.current` is what the table shows

Rules: a look that failed changes nothing that is known, it is only told why. A topic with another id is another topic,
whatever its name: what was known of the old one is forgotten. What one look could not find out is not a change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from strandline.cli.wording import counted
from strandline.protocol.types import NO_BROKER, NO_EPOCH

OFFSETS = ("high_watermark", "log_end_offsets")
"""Of the fields of a partition those that move with every record."""


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """One partition; an offset that is not known is None, or not there."""

    leader: int = NO_BROKER
    leader_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    high_watermark: int | None = None
    log_end_offsets: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Broker → where the log of its replica ends."""
    away: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    """Broker whose replica cannot be asked → why."""

    @property
    def lagging(self) -> tuple[int, ...]:
        """Replicas that are not in sync."""
        return tuple(each for each in self.replicas if each not in self.isr)


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic at one moment. partitions None: nobody could be asked. problem: what is wrong with the topic as a
    whole. touched: which partitions may differ from the look before; None: all of them."""

    time_ms: int
    topic: str
    topic_id: str
    partitions: Mapping[int, PartitionSeen] | None
    problem: str = ""
    touched: Collection[int] | None = None


class Change(NamedTuple):
    """What has moved in one partition, or (partition None) in the topic. changed: the fields of `PartitionSeen` that
    have, or `topic_id`, `problem`; none where it is seen for the first time. state: of the partition, afterwards."""

    time_ms: int
    topic: str
    topic_id: str
    partition: int | None
    changed: tuple[str, ...]
    text: str
    state: PartitionSeen | None = None

    @property
    def is_event(self) -> bool:
        """More than records that come."""
        return self.state is None or any(each not in OFFSETS for each in self.changed)

    @property
    def name(self) -> str:
        return f"topic {self.topic}" if self.partition is None else f"{self.topic}-{self.partition}"

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = {
            "time_ms": self.time_ms,
            "topic": self.topic,
            "topic_id": self.topic_id or None,
            "partition": self.partition,
            "changed": list(self.changed),
            "text": self.text,
        }
        if (state := self.state) is not None:
            found |= {
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "isr": list(state.isr),
                "replicas": list(state.replicas),
                "high_watermark": state.high_watermark,
                "log_end_offsets": {str(each): state.log_end_offsets[each] for each in sorted(state.log_end_offsets)},
                "away": {str(each): state.away[each] for each in sorted(state.away)},
            }
        return found


class Watched:
    """What is known of a topic, from one look to the next."""

    def __init__(self) -> None:
        self.current: TopicSeen | None = None
        self.before: TopicSeen | None = None
        """The state before the last look that succeeded: for rates."""
        self.changed_ms: dict[int, int] = {}
        """Partition → when something but its offsets moved."""

    def take(self, seen: TopicSeen) -> list[Change]:
        """What this look shows that the ones before did not."""
        known = self.current
        changes = list(_of_topic(known, seen))
        if seen.partitions is None:
            last = known or replace(seen, partitions={})
            self.current = replace(last, problem=seen.problem)
            return changes
        is_another = known is not None and bool(known.topic_id) and known.topic_id != seen.topic_id
        if known is None or is_another:
            self.changed_ms.clear()
        partitions = {} if known is None or is_another else known.partitions or {}
        for number in sorted(seen.partitions if seen.touched is None else seen.partitions.keys() & seen.touched):
            change = _of_partition(partitions.get(number), seen, number)
            if change is not None:
                changes.append(change)
                if change.is_event and change.changed:
                    self.changed_ms[number] = seen.time_ms
        self.before = None if is_another else known
        # Of a topic that was deleted its id stays known: the next one of that name is told from it.
        topic_id = seen.topic_id or ("" if known is None else known.topic_id)
        self.current = replace(seen, topic_id=topic_id)
        return changes

    def records_per_second(self, number: int) -> float | None:
        """By how far the high watermark came between the last two looks; None where that is not known."""
        if self.current is None or self.before is None or self.current.time_ms <= self.before.time_ms:
            return None
        now, then = ((each.partitions or {}).get(number) for each in (self.current, self.before))
        if now is None or then is None or now.high_watermark is None or then.high_watermark is None:
            return None
        return (now.high_watermark - then.high_watermark) * 1000 / (self.current.time_ms - self.before.time_ms)


# --- The topic -------------------------------------------------------------------------------------------------


def _of_topic(known: TopicSeen | None, seen: TopicSeen) -> Iterator[Change]:
    def told(changed: str, text: str, topic_id: str) -> Change:
        return Change(seen.time_ms, seen.topic, topic_id, None, (changed,), text)

    known_id = "" if known is None else known.topic_id
    if seen.topic_id and known_id and seen.topic_id != known_id:
        yield told("topic_id", f"was created anew: its id is {seen.topic_id}, before {known_id}", seen.topic_id)
        if not seen.problem:
            return
    if seen.problem != ("" if known is None else known.problem):
        yield told("problem", seen.problem or "can be seen again", seen.topic_id or known_id)


# --- A partition -----------------------------------------------------------------------------------------------


def _of_partition(before: PartitionSeen | None, seen: TopicSeen, number: int) -> Change | None:
    """None: nothing has moved."""
    assert seen.partitions is not None
    state = seen.partitions[number]
    if before is None:
        text = ", ".join(_first(state))
        return Change(seen.time_ms, seen.topic, seen.topic_id, number, (), text, state)
    moved = dict(_moved(before, state))
    if not moved:
        return None
    return Change(seen.time_ms, seen.topic, seen.topic_id, number, tuple(moved), ", ".join(moved.values()), state)


def _first(state: PartitionSeen) -> Iterator[str]:
    yield f"leader {broker_text(state.leader)}"
    yield f"epoch {state.leader_epoch}"
    yield f"ISR {brokers_text(state.isr)} of {brokers_text(state.replicas)}"
    if state.high_watermark is not None:
        yield f"HW {state.high_watermark}"
    if state.log_end_offsets:
        yield f"LEO {ends_text(state.log_end_offsets)}"
    yield from state.away.values()


def _moved(before: PartitionSeen, state: PartitionSeen) -> Iterator[tuple[str, str]]:
    """Field → what is to be said of it."""
    if before.leader != state.leader:
        yield "leader", f"leader {broker_text(before.leader)} -> {broker_text(state.leader)}"
    if before.leader_epoch != state.leader_epoch:
        yield "leader_epoch", f"epoch {before.leader_epoch} -> {state.leader_epoch}"
    if set(before.isr) != set(state.isr):
        yield "isr", f"ISR {brokers_text(before.isr)} -> {brokers_text(state.isr)}"
    if before.replicas != state.replicas:
        yield "replicas", f"replicas {brokers_text(before.replicas)} -> {brokers_text(state.replicas)}"
    if state.high_watermark is not None and before.high_watermark != state.high_watermark:
        yield "high_watermark", f"HW {_grown(before.high_watermark, state.high_watermark)}"
    grown = {
        broker: _grown(before.log_end_offsets.get(broker), end)
        for broker, end in state.log_end_offsets.items()
        if before.log_end_offsets.get(broker) != end
    }
    if grown:
        yield "log_end_offsets", f"LEO {ends_text(grown)}"
    if dict(before.away) != dict(state.away):
        gone = [why for broker, why in state.away.items() if before.away.get(broker) != why]
        back = [f"broker {broker} answers again" for broker in before.away if broker not in state.away]
        yield "away", ", ".join([*gone, *back])


def _grown(before: int | None, now: int) -> str:
    return str(now) if before is None else f"{now} ({now - before:+d})"


def broker_text(broker: int) -> str:
    return "none" if broker == NO_BROKER else str(broker)


def brokers_text(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, sorted(brokers))) or "none"


def ends_text(ends: Mapping[int, object]) -> str:
    """`1:120 2:118`."""
    return " ".join(f"{broker}:{ends[broker]}" for broker in sorted(ends))


def missing_text(topic: str, numbers: list[int], count: int) -> str:
    """Why partitions that were asked for are not shown."""
    named = ", ".join(map(str, numbers))
    return f"there is no partition {named}: {topic} has {counted(count, 'partition')}"
