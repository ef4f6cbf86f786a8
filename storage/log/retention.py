"""Which segments may leave the head of a log, and why. Pure: facts in, a decision out.

Kafka's rules, oldest segment first, up to the first one that must stay:

| reason | a segment goes when | asked where |
|---|---|---|
| log start | everything in it lies below the log start offset (DeleteRecords, the leader's log start) | always |
| size | without it the log still has at least `retention.bytes` | `cleanup.policy` contains delete |
| time | its largest timestamp is more than `retention.ms` ago | `cleanup.policy` contains delete |

* Nothing at or above the high watermark goes, whatever the reason.
* The active segment goes, too, when a rule takes all of it: the log rolls first, then all that is left is one empty
  segment. (Kafka keeps an active segment that lies below the log start; here its bytes go as well, so that deleting
  all records frees the disk.)
* A segment's time is the largest timestamp in it; where no record has one, the file's last modification.
* A timestamp in the future keeps its segment, and with it all younger ones, until that time is reached. It is named in
  the decision, so that somebody can be told. A timestamp in the far past makes its segment expire at once, as in Kafka:
  `message.timestamp.before.max.ms` is what bounds it.

The clock. What the wall clock says decides, so a clock that jumps ahead by years would empty every log at once.
`ClockGuard` compares it with a clock that cannot jump, and suspends retention by time for `HOLD_MS` after a jump ahead
of more than `JUMP_MS`: long enough for an operator or NTP to put it right. If it stays, the new time is believed (a
machine without a battery clock starts in 1970 and jumps for good reason). Back in time only keeps more.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

JUMP_MS = 3_600_000
"""A wall clock that moved further ahead than this against the monotonic one has jumped."""
HOLD_MS = 3_600_000
"""So long after a jump ahead no record is taken as too old."""


class Reason(enum.Enum):
    """Why a segment goes."""

    LOG_START = "below the log start"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


class SegmentFacts(NamedTuple):
    """One segment: records `[base_offset, end_offset)`; `end_offset`: where the next segment begins or the log ends."""

    base_offset: int
    end_offset: int
    size_bytes: int
    time_ms: int | None
    """Its largest timestamp, or last modification; None: not known yet."""
    is_active: bool = False


class Rule(NamedTuple):
    """The topic's configuration. −1: no limit."""

    retention_ms: int
    retention_bytes: int
    deletes: bool
    """`cleanup.policy` contains delete."""


class Removed(NamedTuple):
    base_offset: int
    reason: Reason


class FutureTimestamp(NamedTuple):
    base_offset: int
    timestamp_ms: int


@dataclass(slots=True)
class Decision:
    """What may go now."""

    log_start_offset: int
    """Where the log begins then; never lower than before."""
    removed: list[Removed] = field(default_factory=list)
    """Oldest first."""
    takes_active: bool = False
    """The last of them is the active segment: roll first."""
    needs_time_of: int | None = None
    """Base offset of a segment whose time has to be known before anything beyond `removed` can be decided."""
    future: FutureTimestamp | None = None
    """The segment that stays, and all younger ones with it, since its time lies in the future."""


def decide(
    segments: Iterable[SegmentFacts],
    rule: Rule,
    *,
    size_bytes: int,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int | None,
) -> Decision:
    """`segments`: oldest first, asked only as far as needed. `size_bytes`: of all of them. `now_ms`: wall clock; None:
    it is not to be trusted now, so nothing goes by time."""
    decision = Decision(log_start_offset)
    excess_bytes = size_bytes - rule.retention_bytes
    limits_size = rule.deletes and rule.retention_bytes >= 0
    limits_time = rule.deletes and rule.retention_ms >= 0 and now_ms is not None
    for segment in segments:
        if segment.end_offset > high_watermark or (segment.is_active and segment.size_bytes == 0):
            break
        if segment.end_offset <= log_start_offset:
            reason = Reason.LOG_START
        elif limits_size and excess_bytes >= segment.size_bytes:
            reason = Reason.SIZE
        elif limits_time and _is_expired(segment, rule, now_ms, decision):
            reason = Reason.TIME
        else:
            break
        decision.removed.append(Removed(segment.base_offset, reason))
        decision.log_start_offset = max(log_start_offset, segment.end_offset)
        decision.takes_active = segment.is_active
        excess_bytes -= segment.size_bytes
    return decision


def _is_expired(segment: SegmentFacts, rule: Rule, now_ms: int | None, decision: Decision) -> bool:
    assert now_ms is not None
    if segment.time_ms is None:
        decision.needs_time_of = segment.base_offset
        return False
    if segment.time_ms > now_ms:
        decision.future = FutureTimestamp(segment.base_offset, segment.time_ms)
    return now_ms - segment.time_ms > rule.retention_ms


class ClockGuard:
    """Says which wall clock readings retention and compaction may act on; see the module."""

    __slots__ = ("_ahead_ms", "_held_until_ms")

    def __init__(self) -> None:
        self._ahead_ms: int | None = None
        """Wall clock less monotonic clock, as believed."""
        self._held_until_ms: int | None = None

    @property
    def is_holding(self) -> bool:
        return self._held_until_ms is not None

    def believe(self, wall_ms: int, monotonic_ms: int) -> int | None:
        """The wall clock's reading, or None while it is not to be trusted. Ask at each check: between two of them a
        jump shows as the difference."""
        ahead_ms = wall_ms - monotonic_ms
        if self._ahead_ms is None or ahead_ms - self._ahead_ms <= JUMP_MS:
            self._ahead_ms, self._held_until_ms = ahead_ms, None
            return wall_ms
        if self._held_until_ms is None:
            self._held_until_ms = monotonic_ms + HOLD_MS
        if monotonic_ms < self._held_until_ms:
            return None
        self._ahead_ms, self._held_until_ms = ahead_ms, None
        return wall_ms
