"""An event of a change log as a line for people, and as an object for programs. Pure."""

from __future__ import annotations

from typing import Any

from strandline.protocol.history.lines import NO_VERSION, Event, Kind
from strandline.protocol.types import NO_BROKER, NO_EPOCH
from strandline.spark_connector.pipelines.pictures import duration_text, time_text

_OF_PARTITIONS = {
    Kind.WRITTEN: "the controller wrote",
    Kind.CHANGED: "the leader changed the ISR",
    Kind.TOLD: "it follows",
    Kind.LEADS: "it leads",
    Kind.FAILED: "its log failed",
    Kind.DELETED: "deleted",
}
_OF_BROKERS = {
    Kind.STARTED: "started",
    Kind.STOPPED: "stopped in order",
    Kind.GONE: "is gone",
    Kind.LOST: "closed its connection, or was cut off",
    Kind.SUSPECTED: "refuses connections",
    Kind.CLEARED: "answers again",
}
_OF_CONTROLLERS = {Kind.ELECTED: "elected", Kind.ACTING: "acts", Kind.RESIGNED: "resigned"}


def event_text(event: Event) -> str:
    """`2026-11-24 12:05:10.250 broker 1: clicks-0: the controller wrote: leader 2, epoch 7, version 14, ISR 2,3`"""
    return f"{time_text(event.time_ms)} broker {event.broker_id}: {event_what(event)}"


def event_what(event: Event) -> str:
    if event.topic:
        name = event.topic if event.partition < 0 else f"{event.topic}-{event.partition}"
        state = ", ".join(_state(event))
        return f"{name}: {_OF_PARTITIONS[event.kind]}" + (f": {state}" if state else "")
    if event.kind in _OF_BROKERS:
        late = f", {duration_text(event.session_timeout_ms)} late at most" if event.session_timeout_ms else ""
        return f"broker {event.peer} {_OF_BROKERS[event.kind]}{late}"
    why = f": {event.why}" if event.why else ""
    living = f", found alive: {_brokers(event.brokers)}" if event.brokers else ""
    return f"controller {_OF_CONTROLLERS[event.kind]}, controller epoch {event.controller_epoch}{living}{why}"


def _state(event: Event) -> list[str]:
    parts = []
    if event.leader_epoch != NO_EPOCH:
        parts.append(f"leader {'none' if event.leader == NO_BROKER else event.leader}, epoch {event.leader_epoch}")
    if event.zk_version != NO_VERSION:
        parts.append(f"version {event.zk_version}")
        parts.append(f"ISR {_brokers(event.isr)}" + (f" of {_brokers(event.replicas)}" if event.replicas else ""))
    if event.controller_epoch != NO_EPOCH:
        parts.append(f"controller epoch {event.controller_epoch}")
    return parts + ([event.why] if event.why else [])


def _brokers(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "none"


def event_fields(event: Event, file: str, number: int) -> dict[str, Any]:
    """What the line says of it: fields without a word are left out."""
    said = {
        name: value
        for name, value in event._asdict().items()
        if name not in Event._field_defaults or value != Event._field_defaults[name]
    }
    if event.kind in _OF_PARTITIONS and event.leader_epoch != NO_EPOCH:
        said["leader"] = event.leader
    return {**said, "file": file, "line": number}
