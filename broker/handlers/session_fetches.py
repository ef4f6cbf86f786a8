"""Incremental fetches: looks at the partitions of their sessions that are due, answers what is news, or waits for it.

A fetch that waits stands in no partition: its session watches them from one fetch to the next (`fetch_sessions`).
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from strandline.broker.handlers.fetch_reads import Answer, FetchReads
from strandline.broker.handlers.fetch_sessions import FetchSession, FetchSessions, Read, SessionPartition
from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.deadlines import NEVER, Deadlines
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import FetchPartitionData, FetchRequest, FetchResponse
from strandline.protocol.types import NO_TOPIC
from strandline.runtime.disk import FileRegion


class SessionFetches:
    """See the module."""

    def __init__(
        self,
        reads: FetchReads,
        random: random.Random,
        burst: Burst,
        deadlines: Deadlines,
        send: Callable[[RequestInHand[FetchRequest], Answer], None],
    ) -> None:
        self._reads = reads
        self._replicas = reads.replicas
        self.sessions = FetchSessions(random, reads.replicas.traffic)
        self._burst = burst
        self.deadlines = deadlines
        self._send = send

    def begin(self, message: FetchRequest, reads: list[Read], answer: Answer) -> None:
        """Have the answer to a full fetch name a session of its partitions, if there is room for one."""
        by_ids = {topic.topic == NO_TOPIC for topic in message.topics}
        if len(by_ids) != 1:
            return
        slots = self._replicas.config.max_incremental_fetch_session_cache_slots
        session = self.sessions.create(reads, by_ids=by_ids.pop(), slots=slots, now=self._burst.now())
        if session is None:
            return
        told = (data for topic in answer.response.responses for data in topic.partitions)
        for partition, data in zip(session.partitions.values(), told, strict=True):
            partition.told(data)
        answer.response = msgspec.structs.replace(answer.response, session_id=session.session_id)

    def end(self, session_id: int) -> None:
        """A full fetch names a session that it takes the place of, or that its client wants to end."""
        self.sessions.end(session_id)

    def go_on(self, request: RequestInHand[FetchRequest]) -> None:
        """Answer an incremental fetch, or let it wait."""
        message, now = request.message, self._burst.now()
        try:
            session = self.sessions.go_on(message, now)
        except BrokerError as error:
            request.respond(FetchResponse([], error.code))
            return
        if session is None:
            request.respond(FetchResponse([]))
            return
        if not self.answer(request, session, at_once=message.max_wait_ms <= 0):
            limit_ms = min(message.max_wait_ms, self._replicas.config.connections_max_idle_ms)
            self.deadlines.enter(PendingSessionFetch(self, request, session), now + limit_ms / 1000)

    def answer(self, request: RequestInHand[FetchRequest], session: FetchSession, *, at_once: bool) -> bool:
        """Answer with what is there, if that is enough or it is to be done at once; else watch. Whether it is done."""
        message = request.message
        news: list[tuple[SessionPartition, FetchPartitionData, bool]] = []  # the last: whether it has records

        def is_news(partition: SessionPartition, data: FetchPartitionData, region: FileRegion | None) -> bool:
            if partition.is_news(data, region is not None):
                news.append((partition, data, region is not None))
                return True
            if data.high_watermark <= partition.wanted.fetch_offset:  # else there was no room for its records
                del session.due[partition]
                self._watch(partition)
            return False

        if session.by_ids:
            self._resolve(session)
        answer = self._reads.read(message, list(session.due), is_news)
        if not at_once and not answer.is_enough:
            for partition in session.due:
                self._watch(partition)
            return False
        for partition, data, has_records in news:
            partition.told(data)
            if has_records:
                session.sent(partition)
        answer.response = msgspec.structs.replace(answer.response, session_id=session.session_id)
        self._send(request, answer)
        return True

    def _resolve(self, session: FetchSession) -> None:
        for partition in session.due:
            if partition.topic == NO_TOPIC:
                topic = self._replicas.metadata.name_of.get(partition.topic_id, NO_TOPIC)
                if topic != NO_TOPIC:
                    session.name(partition, topic)

    def _watch(self, partition: SessionPartition) -> None:
        """It has been read without an error, so it is here."""
        partition.watch(self._replicas.partitions[(partition.topic, partition.wanted.partition)].watches)


class PendingSessionFetch:
    """An incremental fetch that waits for `min_bytes`."""

    __slots__ = ("_fetches", "_request", "_session", "due_at")

    def __init__(self, fetches: SessionFetches, request: RequestInHand[FetchRequest], session: FetchSession) -> None:
        self._fetches = fetches
        self._request = request
        self._session = session
        self.due_at = NEVER
        session.pending = self

    @property
    def watched_count(self) -> int:
        """For how many partitions it waits."""
        return len(self._session.partitions)

    def look(self) -> None:
        self._try(at_once=False)

    def answer(self) -> None:
        self._try(at_once=True)

    def expire(self, now: float) -> float:
        self._try(at_once=True)
        return NEVER

    def refuse(self, code: ErrorCode) -> None:
        self._end()
        self._request.respond(FetchResponse([], code))

    def _try(self, *, at_once: bool) -> None:
        if self._session.pending is not self:
            return  # it ended after it was told of a change, and before its turn to look
        if self._request.is_abandoned or self._fetches.answer(self._request, self._session, at_once=at_once):
            self._end()

    def _end(self) -> None:
        self._session.pending = None
        self._fetches.deadlines.leave(self)
