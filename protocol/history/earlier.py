"""What is kept of the events of one partition before a range of time begins: as it was then. Pure.

However often it changed before, there are left: the last states of its last two leader epochs, when each of these two
leaders last said that it leads, and each broker's last failure. Of that the timeline from then on is the same, also of
an outage that has begun before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from strandline.protocol.history.lines import NO_VERSION, OF_STATES, Event, Kind
from strandline.protocol.history.timeline import OF_LEADING, merged

EPOCHS_KEPT = 2


def as_it_was(events: Collection[Event]) -> list[Event]:
    """What is kept of these, or of what was kept of some and came then."""
    states = [event for event in events if event.kind in OF_STATES and event.zk_version != NO_VERSION]
    if not states:
        return list(events)
    topic_id = max(states, key=lambda event: event.time_ms).topic_id  # an earlier topic of this name has ended
    told: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in states:
        if event.topic_id == topic_id:
            told[event.leader_epoch, event.zk_version].append(event)
    last: dict[int, Event] = {}
    replicas: tuple[int, ...] = ()
    min_isr = 0
    for epoch, version in sorted(told):
        state = merged(told[epoch, version])
        replicas, min_isr = state.replicas or replicas, state.min_isr or min_isr
        last[epoch] = state._replace(replicas=replicas, min_isr=min_isr)
    kept = dict(sorted(last.items())[-EPOCHS_KEPT:])
    led: dict[int, Event] = {}
    failed: dict[int, Event] = {}
    for event in sorted(events, key=lambda event: event.time_ms):
        if event.topic_id != topic_id:
            continue
        if event.kind in OF_LEADING and event.leader_epoch in kept:
            led[event.leader_epoch] = event._replace(kind=Kind.LEADS, zk_version=NO_VERSION)
        elif event.kind is Kind.FAILED:
            failed[event.broker_id] = event
    return [*kept.values(), *led.values(), *failed.values()]
