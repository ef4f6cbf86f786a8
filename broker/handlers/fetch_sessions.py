"""Fetch sessions (KIP-227): who follows many partitions names them once, then only what changed; answers name only what
is news. Pure: no request is read or answered here.

| request's session id, epoch | what it is |
|---|---|
| any, −1 | a fetch without a session; the session that it names ends |
| any, 0 | a full fetch; the session that it names ends, and its answer begins another one, if there is room |
| n, the session's next epoch | incremental: adds and changes partitions, forgets some, is answered from all the rest |

What may be read is decided elsewhere; here stands which partitions have to be looked at. One that was looked at and had
nothing to tell leaves `FetchSession.due` and *watches*: whoever changes the partition says so once, which makes it due
again (`Partition.watches`). So a partition to which nothing happens costs nothing, however often it is asked for.

News, as in Kafka's FetchSession.scala: records, an error, a divergence, a replica to read from instead, another high
watermark or log start than was told last. After an error everything counts as not told.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from strandline.broker.handlers.session_reads import SessionReads
from strandline.broker.replication.purgatory import ParkedFetch, Watch
from strandline.broker.replication.topic_counts import TopicTraffic
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import FetchPartition, FetchPartitionData, FetchRequest, ForgottenTopic
from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.topic_name import MAX_TOPIC_NAME_LENGTH
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_OFFSET, NO_TOPIC, TopicId

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = NO_EPOCH
LAST_EPOCH = 2**31 - 1
EVICTABLE_AFTER_S = 120.0
"""Who was not used for so long gives way to anybody; who is that old, to a session of more partitions (Kafka's
MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""
MAX_PARTITIONS = 100_000
"""Of all sessions together: each takes some 0.7 KB."""


def next_epoch(epoch: int) -> int:
    return 1 if epoch == LAST_EPOCH else epoch + 1


class Read(msgspec.Struct, eq=False):
    """One partition of a fetch. `topic` is `NO_TOPIC` while no topic of that id is known."""

    topic: str
    topic_id: TopicId
    wanted: FetchPartition


class SessionPartition(Read, eq=False):
    """One partition of a session, and what was told of it last. `watched_in`: the watches among which it stands."""

    session: FetchSession
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    watched_in: dict[Watch, None] | None = None

    def is_news(self, data: FetchPartitionData, has_records: bool) -> bool:
        return bool(
            has_records
            or data.error_code
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch is not None
            or data.preferred_read_replica != NO_BROKER
        )

    def told(self, data: FetchPartitionData) -> None:
        self.high_watermark = NO_OFFSET if data.error_code else data.high_watermark
        self.log_start_offset = data.log_start_offset

    def watch(self, watches: dict[Watch, None]) -> None:
        """Have `changed` called with the next change of the partition that these watches belong to."""
        if self.watched_in is not watches:
            self.unwatch()
            self.watched_in = watches
            watches[self] = None

    def unwatch(self) -> None:
        if self.watched_in is not None:
            self.watched_in.pop(self, None)
            self.watched_in = None

    def changed(self) -> ParkedFetch | None:
        """Something happened to the partition, which watches it no longer. Returns who waits for that, if anybody."""
        self.watched_in = None
        self.session.due[self] = None
        return self.session.pending


class SessionFetch(ParkedFetch, Protocol):
    """An incremental fetch that waits."""

    def refuse(self, code: ErrorCode) -> None:
        """Answer that its session cannot be gone on with."""


class FetchSession:
    """One of `FetchSessions`. `due`: those of `partitions` to be looked at, in the order of their turns."""

    __slots__ = ("by_ids", "created_at", "due", "epoch", "last_used_at", "partitions", "pending", "reads", "session_id")

    def __init__(self, session_id: int, traffic: TopicTraffic, *, by_ids: bool, now: float) -> None:
        """traffic: where its reads are counted. by_ids: its topics are named by their ids alone."""
        self.session_id = session_id
        self.reads = SessionReads(traffic)
        self.by_ids = by_ids
        self.created_at = self.last_used_at = now
        self.epoch = next_epoch(INITIAL_EPOCH)
        """Of the next request."""
        self.partitions: dict[tuple[str | TopicId, int], SessionPartition] = {}
        self.due: dict[SessionPartition, None] = {}
        self.pending: SessionFetch | None = None
        """Its latest fetch, while that waits."""

    def set(self, topic: str, topic_id: TopicId, wanted: FetchPartition) -> SessionPartition:
        """Add a partition, or ask for it in another way: it is looked at next time."""
        key = (topic_id if self.by_ids else topic, wanted.partition)
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = SessionPartition(topic, topic_id, wanted, self)
            self.reads.change(topic, 1)
        else:
            partition.wanted = wanted
        self.due[partition] = None
        return partition

    def forget(self, topics: Iterable[ForgottenTopic]) -> None:
        for topic in topics:
            for index in topic.partitions:
                partition = self.partitions.pop((topic.topic_id if self.by_ids else topic.topic, index), None)
                if partition is not None:
                    self.reads.change(partition.topic, -1)
                    self.due.pop(partition, None)
                    partition.unwatch()

    def name(self, partition: SessionPartition, topic: str) -> None:
        """The topic of its id is known now."""
        self.reads.change(partition.topic, -1)
        self.reads.change(topic, 1)
        partition.topic = topic

    def sent(self, partition: SessionPartition) -> None:
        """Its records are on their way: it comes last from now on, so that nobody starves behind it."""
        del self.due[partition]
        self.due[partition] = None


class FetchSessions:
    """All of a broker's. Anybody who knows its id may go on with one: it moves with its consumer from one connection to
    another."""

    def __init__(self, random: random.Random, traffic: TopicTraffic) -> None:
        """traffic: where the partitions that incremental fetches read are counted."""
        self._random = random
        self._traffic = traffic
        self._sessions: dict[int, FetchSession] = {}
        """By id, the least recently used first."""
        self.partitions_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, reads: list[Read], *, by_ids: bool, slots: int, now: float) -> FetchSession | None:
        """A session of the partitions of a full fetch, which are all due; None where there is no room for it."""
        if not reads or not all(_can_be(read.topic) for read in reads) or not self._make_room(len(reads), slots, now):
            return None
        session_id = self._random.randrange(1, LAST_EPOCH)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, LAST_EPOCH)
        session = self._sessions[session_id] = FetchSession(session_id, self._traffic, by_ids=by_ids, now=now)
        for read in reads:
            session.set(read.topic, read.topic_id, read.wanted)
        self.partitions_count += len(session.partitions)
        return session

    def go_on(self, message: FetchRequest, now: float) -> FetchSession | None:
        """Do what an incremental fetch asks of its session; None where no partition is left in it, which ends it.

        BrokerError: FETCH_SESSION_ID_NOT_FOUND (also where the session has become larger than there is room for),
        INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR; the session is as it was, or has ended."""
        session = self._sessions.get(message.session_id)
        if session is None:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "")
        if message.session_epoch != session.epoch:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "")
        named = [topic.topic for topic in message.topics]
        named += [topic.topic for topic in message.forgotten_topics_data]
        if any((name == NO_TOPIC) != session.by_ids for name in named):
            raise BrokerError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "")
        session.epoch = next_epoch(session.epoch)
        session.last_used_at = now
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        if session.pending is not None:  # its client has given it up
            session.pending.refuse(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        before = len(session.partitions)
        for topic in message.topics:
            for wanted in topic.partitions:
                session.set(topic.topic, topic.topic_id, wanted)
        session.forget(message.forgotten_topics_data)
        self.partitions_count += len(session.partitions) - before
        is_kept = all(map(_can_be, named))
        if len(session.partitions) > MAX_NAMED or self.partitions_count > MAX_PARTITIONS or not is_kept:
            self.end(session.session_id)
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "")
        if not session.partitions:
            self.end(session.session_id)
            return None
        session.reads.fetches += 1
        return session

    def settle(self) -> Iterator[None]:
        """For figures: all that incremental fetches have read is in the counts of its topics. Step by step: who
        advances it may let others run between two."""
        for session in list(self._sessions.values()):
            yield from session.reads.settle()
            yield

    def end(self, session_id: int) -> None:
        """Forget a session, if there is one of that id."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self.partitions_count -= len(session.partitions)
        for _ in session.reads.settle():
            pass
        for partition in session.partitions.values():
            partition.unwatch()
        if session.pending is not None:
            session.pending.refuse(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _make_room(self, size: int, slots: int, now: float) -> bool:
        """Ends one other session at most, if that makes room."""
        if len(self._sessions) < slots and self.partitions_count + size <= MAX_PARTITIONS:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now - oldest.last_used_at > EVICTABLE_AFTER_S:
            victim = oldest
        else:
            aged = [each for each in self._sessions.values() if now - each.created_at > EVICTABLE_AFTER_S]
            if not aged:
                return False
            victim = min(aged, key=lambda each: len(each.partitions))
            if len(victim.partitions) >= size:
                return False
        room = self.partitions_count - len(victim.partitions) + size <= MAX_PARTITIONS
        if len(self._sessions) > slots or not room:
            return False
        self.end(victim.session_id)
        return True


def _can_be(topic: str) -> bool:
    """No topic has a longer name: nobody has us keep such."""
    return len(topic) <= MAX_TOPIC_NAME_LENGTH
