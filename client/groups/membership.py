"""One member of a consumer group: a pure state machine. It says what to ask the coordinator next (`wish`), and what
the program has to be told by its next poll (`begin`, `finish`).

```
           poll       joined         synced
      OUT ──────> JOINING ────> SYNCING ────> IN ──rebalance, other topics──> JOINING …
       ^             │             │          │
       └─────────────┴─────────────┴──────────┴── the group let it go; no poll for too long
```

A rebalance, eager:    1 revoke all   2 join, sync   3 assign
  … cooperative:       1 join, sync   2 revoke what is another's now   3 assign what is new; after 2: all of it again,
                       so that the others get it

Rules:
* What the program is told is told inside a poll, one change at a time, and no join is sent while there is something to
  tell: who joins says what it owns, and that has to be true.
* Partitions are lost, not revoked, where the group may have given them away already: nothing can be committed for them.
* Who does not poll leaves, and joins again with its next poll.

Times are monotonic seconds and come from outside. Source of the rules: Kafka's AbstractCoordinator and
ConsumerCoordinator, KIP-62 (polls), 345 (static members), 394 (member ids), 429 (cooperative), 792 (owned partitions
count for the generation in which they were assigned).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import NamedTuple

from strandline.client.errors import error_for
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import NO_GENERATION, NO_MEMBER, JoinGroupResponse
from strandline.protocol.types import TopicPartition


class Phase(enum.Enum):
    OUT = enum.auto()
    JOINING = enum.auto()
    SYNCING = enum.auto()
    IN = enum.auto()


class Wish(enum.Enum):
    """The request that the coordinator is to be sent now."""

    JOIN = enum.auto()
    SYNC = enum.auto()
    HEARTBEAT = enum.auto()
    LEAVE = enum.auto()


class Told(enum.Enum):
    ASSIGNED = enum.auto()
    REVOKED = enum.auto()
    LOST = enum.auto()


class Change(NamedTuple):
    """Of what the member owns. ASSIGNED ends each rebalance, also with no partition."""

    what: Told
    partitions: tuple[TopicPartition, ...]


class Identity(NamedTuple):
    """Who the coordinator takes this member for."""

    member_id: str
    generation: int


class Said(NamedTuple):
    """What a join says: topics that are wanted, partitions that are owned. `had`: what was assigned last, and in which
    generation."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    had: tuple[TopicPartition, ...]
    generation: int


NOBODY = Identity(NO_MEMBER, NO_GENERATION)


class Membership:
    """See the module. What is public is to be read only."""

    def __init__(
        self, topics: Iterable[str], *, is_cooperative: bool, heartbeat_interval_s: float, max_poll_interval_s: float
    ) -> None:
        self.phase = Phase.OUT
        self.identity = NOBODY
        self.protocol = ""
        """The way of assigning that the group has chosen."""
        self.is_leader = False
        self.topics = frozenset(topics)
        self.owned: dict[TopicPartition, None] = {}
        self.failure: Exception | None = None
        """What the next poll is to raise."""
        self.is_leaving = False
        self._is_cooperative = is_cooperative
        self._heartbeat_interval_s = heartbeat_interval_s
        self._max_poll_interval_s = max_poll_interval_s
        self._had: tuple[TopicPartition, ...] = ()
        self._had_since = NO_GENERATION
        self._given: tuple[TopicPartition, ...] | None = None
        """What the leader has assigned, until the program has been told all of it."""
        self.in_hand: Change | None = None
        self._is_lost = False
        self._must_join = True
        self._said_topics: frozenset[str] = frozenset()
        self._heartbeat_at = math.inf
        self._retry_at = -math.inf
        self._join_at = -math.inf
        self._idle_at = -math.inf
        """From when on the program counts as one that does not poll; it has not yet."""

    # --- what to ask -------------------------------------------------------------------------------------------

    def wish(self, now: float) -> Wish | None:
        """The next request, once the last one is answered."""
        if now >= self._idle_at and not self.is_leaving:
            return Wish.LEAVE if self.phase is not Phase.OUT else None
        if self.failure is not None or now < self._retry_at:
            return None
        if self.phase is Phase.SYNCING:
            return Wish.SYNC
        may_join = not self.is_leaving and self.in_hand is None and now >= self._join_at
        if self._must_join and may_join and self._change() is None:
            return Wish.JOIN
        if self.phase is Phase.IN and now >= self._heartbeat_at:
            return Wish.HEARTBEAT
        return None

    def next_time(self, now: float) -> float:
        """When `wish` may have one, if nothing happens before."""
        times = (self._idle_at, self._retry_at, self._join_at, self._heartbeat_at)
        return min((at for at in times if at > now), default=math.inf)

    def postpone(self, until: float) -> None:
        """The last request failed: the next one not before then."""
        self._retry_at = until

    def commits(self, until: float) -> None:
        """What the program commits before it gives partitions up is of this generation: no join before that is done,
        or before that time."""
        self._join_at = until

    def has_committed(self) -> None:
        self._join_at = -math.inf

    # --- joining -----------------------------------------------------------------------------------------------

    def join(self) -> Said:
        """A join is being sent."""
        self.phase = Phase.JOINING
        self._said_topics = self.topics
        return Said(tuple(sorted(self.topics)), tuple(self.owned), self._had, self._had_since)

    def joined(self, answer: JoinGroupResponse) -> None:
        code = answer.error_code
        if code == ErrorCode.NONE:
            self.identity = Identity(answer.member_id, answer.generation_id)
            self.protocol = answer.protocol_name or ""
            self.is_leader = answer.leader == answer.member_id
            self.phase = Phase.SYNCING
            self._must_join = self.topics != self._said_topics
        elif code == ErrorCode.MEMBER_ID_REQUIRED:
            self.identity = Identity(answer.member_id, NO_GENERATION)
        else:
            self.refused(code)

    def synced(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """The leader has assigned this member these."""
        self.phase = Phase.IN
        self._given = tuple(dict.fromkeys(partitions))
        self._heartbeat_at = now + self._heartbeat_interval_s

    def not_synced(self, code: int = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
        """No assignment came: whatever the reason, it has to join again."""
        self.phase = Phase.JOINING
        self._must_join = True
        if not error_code(code).retriable:
            self.refused(code)

    # --- being in ----------------------------------------------------------------------------------------------

    def beat(self, now: float) -> None:
        """A heartbeat was answered."""
        self._heartbeat_at = now + self._heartbeat_interval_s

    def refused(self, code: int) -> None:
        """Any request was refused, other than because of a coordinator that moves."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._fall_out(NOBODY)
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._fall_out(Identity(self.identity.member_id, NO_GENERATION))
        else:
            self.fail(error_for(code, "joining the group"))

    def fail(self, error: Exception) -> None:
        """The program has to know. It joins again by the poll after the one that raises this."""
        self.failure = error
        self._fall_out(NOBODY)

    def left(self) -> None:
        self._fall_out(NOBODY)

    def _fall_out(self, identity: Identity) -> None:
        self.identity = identity
        self.phase = Phase.OUT
        self.is_leader = False
        self._must_join = True
        self._given = None
        self._is_lost = bool(self.owned)
        self._heartbeat_at = math.inf
        self._join_at = -math.inf

    # --- the program -------------------------------------------------------------------------------------------

    def polled(self, now: float) -> None:
        """A poll has ended: the program works on what it gave."""
        self._idle_at = now + self._max_poll_interval_s

    def waits_in_poll(self) -> None:
        """A poll has begun, and lasts for as long as the program likes."""
        self._idle_at = math.inf

    def subscribe(self, topics: Iterable[str]) -> None:
        """These topics from now on."""
        self.topics = frozenset(topics)
        if self.topics != self._said_topics:
            self._must_join = True

    def layout_changed(self) -> None:
        """The topics have other partitions than those that were assigned: the leader has to assign again."""
        if self.is_leader:
            self._must_join = True

    def leave(self) -> None:
        """Have all that it owns revoked, and join no more."""
        self.is_leaving = True

    @property
    def is_in_generation(self) -> bool:
        """Otherwise it has not joined yet, or the group has let it go; nothing can be committed for it."""
        return self.identity.generation != NO_GENERATION

    def take_failure(self) -> Exception | None:
        """What the poll raises. Of a fenced instance every one does."""
        failure = self.failure
        if getattr(failure, "code", None) is not ErrorCode.FENCED_INSTANCE_ID:
            self.failure = None
        return failure

    def begin(self) -> Change | None:
        """What the program has to be told next; `finish` when it has been. Until then it is the same, but that what was
        to be revoked may be lost meanwhile."""
        if self.in_hand is None or (self._is_lost and self.in_hand.what is Told.REVOKED):
            self.in_hand = self._change()
        change = self.in_hand
        if change is not None and change.what is Told.ASSIGNED:
            self.owned.update(dict.fromkeys(change.partitions))
        return change

    def finish(self) -> None:
        assert self.in_hand is not None
        change, self.in_hand = self.in_hand, None
        if change.what is Told.ASSIGNED:
            if self._given is not None:  # else the group has let it go meanwhile
                self._had, self._had_since = self._given, self.identity.generation
                self._given = None
        else:
            for partition in change.partitions:
                self.owned.pop(partition, None)
            if change.what is Told.REVOKED and self._given is not None:
                self._must_join = True
        self._is_lost = self._is_lost and bool(self.owned)

    def _change(self) -> Change | None:
        if self._is_lost:
            return Change(Told.LOST, tuple(self.owned))
        given = self._given
        if self.is_leaving:
            gone = tuple(self.owned)
        elif given is not None:
            kept = set(given)
            gone = tuple(each for each in self.owned if each not in kept)
        elif self._must_join and self.phase is Phase.IN:
            gone = tuple(each for each in self.owned if not self._is_cooperative or each.topic not in self.topics)
        else:
            gone = ()
        if gone:
            return Change(Told.REVOKED, gone)
        if given is not None and not self.is_leaving:
            return Change(Told.ASSIGNED, tuple(each for each in given if each not in self.owned))
        return None
