"""Lines of `state-change.log` and `controller.log`: what brokers write, and what a reader makes of it. Pure.

Each line is a JSON object with `event`, `timestamp` (UTC) and `broker_id` (whose log it is). Lines that say who leads,
who is in sync, who lives and who is controller become `Event`s; any other line is a sign of life of its broker.

| event | who writes it | what it says |
|---|---|---|
| `partition state changed` | the controller | it wrote this state of a partition into ZooKeeper |
| `partition states changed` | the controller | the same of many at once: `states`, per topic (`packed_state`) |
| `isr changed` | a leader | it wrote this state, with another in-sync set |
| `became leader`, `became follower` | a replica | it has the role that this state gives it |
| `became leaders` | a replica | it leads all of these from now on: `leading`, per topic (`packed_leadership`) |
| `replica failed` | a replica | its log failed: it neither leads nor follows any more |
| `deleting topic`, `topic deleted`, `topic is gone` | the controller | nobody is to lead it any more |
| `broker registered`, `broker stopped`, `broker alive` | the broker | a life of it begins, ends in order, goes on |
| `broker started`, `broker failed` | the controller | it noticed that, mostly `session_timeout_ms` late |
| `broker suspected` | the controller | its address has refused for `refused_ms` |
| `broker that was suspected answers` | a broker | that was a false alarm |
| `contact lost` | a follower | the connection to its leader's broker broke |
| `elected controller`, `no longer controller` | a broker | a term begins, ends |
| `controller` | the controller | its term acts from now on, and which brokers it found alive: `brokers` |

A state is told from any other by topic id, partition, leader epoch and znode version. Topic ids are in the text form of
ZooKeeper and of the tools.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from strandline.protocol.types import NO_BROKER, NO_EPOCH, Int32, Int64

NO_VERSION = -1
"""The znode version of a state that a line does not name."""
NO_OFFSET = -1
"""Where a line does not say how far a log reaches."""


class UnreadableLine(ValueError):
    """A line that is cut or garbled, or of a version that wrote them otherwise."""


class Kind(enum.StrEnum):
    """What an event is about.

    Of a partition: a controller has WRITTEN its state, its leader has CHANGED the ISR, a replica was TOLD of its state,
    LEADS by it, or FAILED. Of a topic: DELETED. Of a broker (`peer`): it STARTED, STOPPED in order, is GONE as the
    controller found, or a follower LOST its connection to it; it is SUSPECTED to be gone, or CLEARED of that. Of the
    controller: ELECTED, ACTING, RESIGNED."""

    WRITTEN = "written"
    CHANGED = "changed"
    TOLD = "told"
    LEADS = "leads"
    FAILED = "failed"
    DELETED = "deleted"
    STARTED = "started"
    STOPPED = "stopped"
    GONE = "gone"
    LOST = "lost"
    SUSPECTED = "suspected"
    CLEARED = "cleared"
    ELECTED = "elected"
    ACTING = "acting"
    RESIGNED = "resigned"


OF_STATES = frozenset({Kind.WRITTEN, Kind.CHANGED, Kind.TOLD, Kind.LEADS})
"""They have leader and leader epoch, and the rest of a state where its line has it (`zk_version`)."""
OF_PARTITIONS = OF_STATES | {Kind.FAILED}


class Event(NamedTuple):
    """What one line says of one thing; fields that it has no word about have their defaults."""

    kind: Kind
    time_ms: int
    """Milliseconds since 1970 by the clock of the broker that wrote the line."""
    broker_id: int
    """Whose log it stands in."""
    topic: str = ""
    topic_id: str = ""
    partition: int = -1
    leader: int = NO_BROKER
    leader_epoch: int = NO_EPOCH
    zk_version: int = NO_VERSION
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    """Assigned ones, the preferred leader first; empty where they are not said."""
    min_isr: int = 0
    """In-sync replicas without which acks=all is refused; 0 where it is not said."""
    controller_epoch: int = NO_EPOCH
    peer: int = NO_BROKER
    broker_epoch: int = NO_EPOCH
    session_timeout_ms: int = 0
    """How late it says what it says of a broker, at most."""
    why: str = ""
    log_end_offset: int = NO_OFFSET
    """Of the log of `broker_id`, when it wrote the line."""
    high_watermark: int = NO_OFFSET
    brokers: tuple[int, ...] = ()
    """Who lives, as a controller found when it took over; empty where it is not said. Nobody has to have told that the
    others are gone: a controller tells it of those that it knew, and these may have died with the one before."""


class Line(NamedTuple):
    """A line that was understood."""

    time_ms: int
    broker_id: int
    events: tuple[Event, ...]


def read_line(text: str | bytes) -> Line:
    """What a line says. UnreadableLine."""
    try:
        head = _HEAD.decode(text)
        rule = _RULES.get(head.event)
        time_ms = round(head.timestamp.timestamp() * 1000)
        if rule is None:
            return Line(time_ms, head.broker_id, ())
        decoder, kind = rule
        return Line(time_ms, head.broker_id, tuple(decoder.decode(text).events(kind, time_ms, head.broker_id)))
    except (ValueError, OverflowError) as error:  # msgspec's errors are ValueErrors
        raise UnreadableLine(str(error)) from None


# --- Many partitions in one line -------------------------------------------------------------------------------


def packed_state(
    partition: int, leader: int, leader_epoch: int, zk_version: int, isr: Iterable[int], replicas: Iterable[int]
) -> str:
    """`0 2 7 14 2,3 1,2,3`: thousands may change at once, and a line for each costs ten times as much."""
    return f"{partition} {leader} {leader_epoch} {zk_version} {_joined(isr)} {_joined(replicas)}"


def packed_leadership(partition: int, leader_epoch: int) -> str:
    return f"{partition} {leader_epoch}"


def _joined(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "-"


def _split(brokers: str) -> tuple[int, ...]:
    return () if brokers == "-" else tuple(map(_number, brokers.split(",")))


def _number(text: str) -> int:
    number = int(text)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{text} is no 32-bit number")
    return number


# --- What lines hold -------------------------------------------------------------------------------------------


class _Head(msgspec.Struct):
    event: str
    timestamp: datetime
    broker_id: Int32


class _State(msgspec.Struct):
    topic: str
    topic_id: str
    partition: Int32
    leader: Int32
    leader_epoch: Int32
    zk_version: Int32
    isr: tuple[Int32, ...]
    replicas: tuple[Int32, ...] = ()
    min_isr: Int32 = 0
    controller_epoch: Int32 = NO_EPOCH
    why: str = ""
    log_end_offset: Int64 = NO_OFFSET
    high_watermark: Int64 = NO_OFFSET

    def events(self, kind: Kind, time_ms: int, broker_id: int) -> Iterable[Event]:
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        yield Event(kind, time_ms, broker_id, **named)


class _States(msgspec.Struct):
    topic_ids: dict[str, str]
    states: dict[str, list[str]]
    controller_epoch: Int32
    why: str = ""

    def events(self, kind: Kind, time_ms: int, broker_id: int) -> Iterable[Event]:
        for topic, states in self.states.items():
            topic_id = _id_of(topic, self.topic_ids)
            for state in states:
                partition, leader, epoch, version, isr, replicas = state.split(" ")
                yield Event(
                    kind,
                    time_ms,
                    broker_id,
                    topic,
                    topic_id,
                    _number(partition),
                    _number(leader),
                    _number(epoch),
                    _number(version),
                    _split(isr),
                    _split(replicas),
                    controller_epoch=self.controller_epoch,
                    why=self.why,
                )


class _Leading(msgspec.Struct):
    topic_ids: dict[str, str]
    leading: dict[str, list[str]]

    def events(self, kind: Kind, time_ms: int, broker_id: int) -> Iterable[Event]:
        for topic, leaderships in self.leading.items():
            topic_id = _id_of(topic, self.topic_ids)
            for leadership in leaderships:
                partition, epoch = map(_number, leadership.split(" "))
                yield Event(kind, time_ms, broker_id, topic, topic_id, partition, broker_id, epoch)


def _id_of(topic: str, topic_ids: Mapping[str, str]) -> str:
    if topic not in topic_ids:
        raise ValueError(f"topic {topic} without its id")
    return topic_ids[topic]


class _Topic(msgspec.Struct):
    topic: str
    topic_id: str
    partition: Int32 = -1

    def events(self, kind: Kind, time_ms: int, broker_id: int) -> Iterable[Event]:
        yield Event(kind, time_ms, broker_id, self.topic, self.topic_id, self.partition)


class _Own(msgspec.Struct):
    broker_epoch: Int64

    def events(self, kind: Kind, time_ms: int, broker_id: int) -> Iterable[Event]:
        yield Event(kind, time_ms, broker_id, peer=broker_id, broker_epoch=self.broker_epoch)


class _Broker(msgspec.Struct):
    broker: Int32
    broker_epoch: Int64
    session_timeout_ms: Int32 = 0
    refused_ms: Int32 = 0

    def events(self, kind: Kind, time_ms: int, broker_id: int) -> Iterable[Event]:
        yield Event(
            kind,
            time_ms,
            broker_id,
            peer=self.broker,
            broker_epoch=self.broker_epoch,
            session_timeout_ms=self.session_timeout_ms or self.refused_ms,
        )


class _Contact(msgspec.Struct):
    leader: Int32

    def events(self, kind: Kind, time_ms: int, broker_id: int) -> Iterable[Event]:
        yield Event(kind, time_ms, broker_id, peer=self.leader)


class _Term(msgspec.Struct):
    controller_epoch: Int32
    why: str = ""
    brokers: tuple[Int32, ...] = ()

    def events(self, kind: Kind, time_ms: int, broker_id: int) -> Iterable[Event]:
        epoch, why, brokers = self.controller_epoch, self.why, self.brokers
        yield Event(kind, time_ms, broker_id, controller_epoch=epoch, why=why, brokers=brokers)


_HEAD = msgspec.json.Decoder(_Head)
_MEANINGS: dict[str, tuple[type[Any], Kind]] = {
    "partition state changed": (_State, Kind.WRITTEN),
    "partition states changed": (_States, Kind.WRITTEN),
    "isr changed": (_State, Kind.CHANGED),
    "became leader": (_State, Kind.LEADS),
    "became leaders": (_Leading, Kind.LEADS),
    "became follower": (_State, Kind.TOLD),
    "replica failed": (_Topic, Kind.FAILED),
    "deleting topic": (_Topic, Kind.DELETED),
    "topic deleted": (_Topic, Kind.DELETED),
    "topic is gone": (_Topic, Kind.DELETED),
    "broker registered": (_Own, Kind.STARTED),
    "broker stopped": (_Own, Kind.STOPPED),
    "broker started": (_Broker, Kind.STARTED),
    "broker failed": (_Broker, Kind.GONE),
    "broker suspected": (_Broker, Kind.SUSPECTED),
    "broker that was suspected answers": (_Broker, Kind.CLEARED),
    "contact lost": (_Contact, Kind.LOST),
    "elected controller": (_Term, Kind.ELECTED),
    "controller": (_Term, Kind.ACTING),
    "no longer controller": (_Term, Kind.RESIGNED),
}
_RULES = {event: (msgspec.json.Decoder(shape), kind) for event, (shape, kind) in _MEANINGS.items()}
