"""What brokers logged of a topic, as `strandline watch` would have seen it. Pure.

Lines are taken as they come, by their times, and none is kept: what logs have of weeks before the time asked for costs
reading alone. A state (leader, epoch, ISR) counts where it is newer than the one that is known, by leader epoch and
znode version, whoever tells of it; a line that says how far a log reaches moves the offsets of that broker's replica,
and of the partition's high watermark where that broker leads. Between such lines the logs say nothing of offsets. How
long a broker was away is what lines said at the time: `strandline history` knows better, afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from strandline.cli.watch_seen import PartitionSeen, TopicSeen
from strandline.protocol.history.lines import NO_OFFSET, NO_VERSION, OF_STATES, Event, Kind

LONGEST_PAUSE_S = 5.0
"""So long nothing happens in a replay at most, however long nothing has happened."""

_GONE = {
    Kind.STOPPED: "broker {} has stopped",
    Kind.GONE: "broker {} is gone",
    Kind.SUSPECTED: "broker {} refuses connections",
}
_BACK = (Kind.STARTED, Kind.CLEARED)
KINDS = frozenset({*OF_STATES, Kind.FAILED, Kind.DELETED, *_GONE, *_BACK, Kind.ACTING})
"""Of events that `replayed` makes something of."""


def pause_s(before_ms: int, now_ms: int, speed: float) -> float:
    """How long to wait between two moments. speed: so many seconds of then in one of now; 0: do not wait."""
    return 0.0 if not speed else min(max(0, now_ms - before_ms) / 1000 / speed, LONGEST_PAUSE_S)


def replayed(events: Iterable[Event], topic: str, since_ms: int | None, until_ms: int | None) -> Iterator[TopicSeen]:
    """The topic at each moment of which something is told, the first one as it was at `since_ms`. events: of
    the topic, of brokers and of controllers, of these `KINDS`, by time; all are taken, those of later on, too."""
    told = _Told(topic)
    begun = False
    for time_ms, together in groupby(events, key=lambda event: event.time_ms):
        if until_ms is not None and time_ms >= until_ms:
            continue
        if since_ms is not None and time_ms >= since_ms and not begun and told.is_known:
            yield told.seen(since_ms)
        begun = begun or since_ms is None or time_ms >= since_ms
        for event in together:
            told.take(event)
        if begun and told.is_known:
            yield told.seen(time_ms)
    if not begun and since_ms is not None and told.is_known:
        yield told.seen(since_ms)


class _Told:
    def __init__(self, topic: str) -> None:
        self.is_known = False
        """Something was said of the topic."""
        self._topic = topic
        self._topic_id = ""
        self._problem = ""
        self._states: dict[int, PartitionSeen] = {}
        self._versions: dict[int, tuple[int, int]] = {}
        self._failed: dict[int, set[int]] = {}
        self._gone: dict[int, str] = {}
        self._living: set[int] = set()
        """Whom the last controller found alive when it took over, and who came since; empty where none has said."""
        self._deleted: set[str] = set()
        self._seen: dict[int, PartitionSeen] = {}
        """As it was told last."""
        self._touched: set[int] | None = None
        """Partitions that something was said of since then; None: of all."""

    def take(self, event: Event) -> None:
        if event.kind in _GONE:
            self._touched = None
            self._gone[event.peer] = _GONE[event.kind].format(event.peer)
        elif event.kind in _BACK:
            self._touched = None
            self._gone.pop(event.peer, None)
            if self._living:
                self._living.add(event.peer)
            for brokers in self._failed.values():
                brokers.discard(event.peer)
        elif event.kind is Kind.ACTING:
            self._touched = None
            self._living = set(event.brokers)
        elif event.kind is Kind.DELETED:
            self._delete(event)
        elif event.kind is Kind.FAILED and event.topic_id == self._topic_id:
            self._touch(event.partition)
            self._failed.setdefault(event.partition, set()).add(event.broker_id)
        elif event.kind in OF_STATES and event.topic_id not in self._deleted:
            self._take_state(event)

    def _delete(self, event: Event) -> None:
        self._deleted.add(event.topic_id)
        if event.topic_id == self._topic_id or not self.is_known:
            self.is_known, self._topic_id, self._problem = True, event.topic_id, "was deleted"
            self._forget()

    def _touch(self, number: int) -> None:
        if self._touched is not None:
            self._touched.add(number)

    def _forget(self) -> None:
        self._touched = None
        for known in (self._states, self._versions, self._failed):
            known.clear()

    def _take_state(self, event: Event) -> None:
        if event.topic_id != self._topic_id:
            self._deleted.add(self._topic_id)  # late lines of the old topic say nothing of the new one
            self._forget()
            self._topic_id, self._problem = event.topic_id, ""
        self.is_known = True
        number = event.partition
        self._touch(number)
        known = self._states.get(number, PartitionSeen())
        version = event.leader_epoch, event.zk_version
        if event.zk_version != NO_VERSION and version >= self._versions.get(number, (-1, -1)):
            self._versions[number] = version
            known = replace(
                known,
                leader=event.leader,
                leader_epoch=event.leader_epoch,
                isr=event.isr,
                replicas=event.replicas or known.replicas,
            )
        if event.log_end_offset != NO_OFFSET:
            known = replace(known, log_end_offsets={**known.log_end_offsets, event.broker_id: event.log_end_offset})
        if event.high_watermark != NO_OFFSET and event.broker_id == known.leader:
            known = replace(known, high_watermark=event.high_watermark)
        if number in self._versions:
            self._states[number] = known

    def seen(self, time_ms: int) -> TopicSeen:
        touched, self._touched = self._touched, set()
        partitions = {} if touched is None else dict(self._seen)
        for number in self._states if touched is None else touched & self._states.keys():
            partitions[number] = self._with_away(number, self._states[number])
        self._seen = partitions
        return TopicSeen(time_ms, self._topic, self._topic_id, partitions, self._problem, touched)

    def _with_away(self, number: int, state: PartitionSeen) -> PartitionSeen:
        away = {broker: why for broker in state.replicas if (why := self._why_away(broker))}
        for broker in self._failed.get(number, ()):
            away.setdefault(broker, f"the log of broker {broker} has failed")
        return replace(state, away=away)

    def _why_away(self, broker: int) -> str:
        is_absent = bool(self._living) and broker not in self._living
        return self._gone.get(broker, _GONE[Kind.GONE].format(broker) if is_absent else "")
