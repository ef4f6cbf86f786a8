"""Fetch: the one request that consumers and followers read with.

    consumer   sees [log start, high watermark); may name an epoch, and is fenced if it is not the current one
    follower   sees everything; its fetch offset acknowledges all below it; it must name the current epoch
               (invariant 13)

Order for a follower (reference text 000, "Follower 从 Leader Fetch 数据"): fence, divergence (a diverged fetch changes
nothing here), then progress and HW, then data. A fetch that finds too little is parked and served once at the end of
the burst that brings data (no linger, no timer per fetch).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import trio

from strandline.broker.handlers.fetch_reads import Answer, FetchReads
from strandline.broker.handlers.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Read
from strandline.broker.handlers.session_fetches import SessionFetches
from strandline.broker.network.dialects import Regions
from strandline.broker.network.regions import Warm, is_cold
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.deadlines import NEVER, Deadlines
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.replication_quota import ReplicationQuota
from strandline.broker.replication.stalled_followers import StalledFollowers, is_look_due
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import FetchRequest, FetchResponse, Message
from strandline.protocol.types import NO_TOPIC
from strandline.runtime.disk import FileRegion
from strandline.runtime.logging import Logger


class PendingFetch:
    """A fetch that waits for `min_bytes`, watched by every partition that it reads."""

    __slots__ = ("_deadline", "_handler", "_partitions", "_reads", "_request", "_waits_long", "due_at")

    def __init__(
        self,
        handler: FetchHandler,
        request: RequestInHand[FetchRequest],
        reads: list[Read],
        partitions: list[Partition],
        deadline: float,
        *,
        waits_long: bool,
    ) -> None:
        """deadline: by the loop's clock. waits_long: a follower's that knows of nothing to come, and is answered as
        soon as anything comes."""
        self._handler = handler
        self._request = request
        self._reads = reads
        self._partitions = partitions
        self._waits_long = waits_long
        self._deadline = deadline
        self.due_at = NEVER
        self._watch()

    @property
    def watched_count(self) -> int:
        """For how many partitions it waits."""
        return len(self._partitions)

    def wait(self, answer: Answer | None) -> None:
        """answer: what is there now, which is not enough; None where there is nothing."""
        self._handler.deadlines.enter(self, self._deadline if answer is None else self._next_look(answer))

    def look(self) -> None:
        at = self._look()
        if at < self.due_at != NEVER:
            self._handler.deadlines.enter(self, at)

    def _look(self) -> float:
        """Returns when to look again if nothing happens before; NEVER: it is answered."""
        if self._is_abandoned():
            return NEVER
        answer = self._handler.reads.read(self._request.message, self._reads)
        if not answer.is_enough:
            return self._next_look(answer)
        self._send(answer)
        return NEVER

    def _next_look(self, answer: Answer) -> float:
        """Partitions that a throttle holds back are not watched until it has room: it matters little how they grow."""
        for partition in answer.held:
            partition.parked_fetches.pop(self, None)
        return min(self._deadline, answer.ready_at)

    def _watch(self) -> None:
        for partition in self._partitions:
            partition.parked_fetches[self] = self._request.message.replica_id >= 0

    def answer(self) -> None:
        if not self._is_abandoned():
            self._send(self._handler.reads.read(self._request.message, self._reads))

    def _is_abandoned(self) -> bool:
        """Its connection is gone: nobody is told, and nobody counts as having waited."""
        if self._request.is_abandoned:
            self._end()
        return self._request.is_abandoned

    def _send(self, answer: Answer) -> None:
        self._end()
        if self._waits_long:
            self._handler.note_wait(self._request.message.replica_id, self._partitions)
        self._handler.finish(self._request, self._reads, answer)

    def expire(self, now: float) -> float:
        if now < self._deadline:
            self._watch()
            return self._look()
        if not self._waits_long:
            self.answer()
        elif not self._is_abandoned():  # nobody looked at it: nothing changed in any of its partitions
            self._send(Answer(FetchResponse([]), [], 0, False))
        return NEVER

    def _end(self) -> None:
        for partition in self._partitions:
            partition.parked_fetches.pop(self, None)
        self._handler.deadlines.leave(self)


class FetchHandler:
    """Serves fetches inline; cold reads are warmed by the handler tasks first."""

    def __init__(
        self,
        replicas: Replicas,
        burst: Burst,
        deadlines: Deadlines,
        stalled: StalledFollowers,
        warm: Warm,
        submit: Callable[[Remainder], None],
        random: random.Random,
        quota: ReplicationQuota,
        log: Logger,
    ) -> None:
        """`submit` has work done by a handler task. `random` draws the ids of sessions. `quota`: see `FetchReads`."""
        self._replicas = replicas
        self._traffic = replicas.traffic
        self._rows = replicas.traffic.rows
        self._burst = burst
        self.deadlines = deadlines
        self._stalled = stalled
        self._warm = warm
        self._submit = submit
        self.reads = FetchReads(replicas, quota, log)
        self.sessions = SessionFetches(self.reads, random, burst, deadlines, self.send)

    def handle(self, request: RequestInHand[FetchRequest]) -> None:
        message = request.message
        replicas = self._replicas
        is_follower = message.replica_id >= 0
        if is_follower and not request.context.is_inter_broker:
            request.respond(FetchResponse([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            return
        if message.session_epoch != FINAL_EPOCH or message.session_id != NO_SESSION:
            if message.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
                self._burst.write_appends()
                self._burst.changes.tell_watches()
                self.sessions.go_on(request)
                return
            self.sessions.end(message.session_id)
        name_of = replicas.metadata.name_of
        reads = [
            Read(topic.topic or name_of.get(topic.topic_id, NO_TOPIC), topic.topic_id, wanted)
            for topic in message.topics
            for wanted in topic.partitions
        ]
        if len(reads) > 1 and len({(read.topic or read.topic_id, read.wanted.partition) for read in reads}) < len(
            reads
        ):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a fetch names a partition twice")
        self._burst.write_appends()  # an earlier produce of the same burst is visible to this fetch
        now = self._burst.now()
        may_wait = message.max_wait_ms > 0 and message.min_bytes > 0 and bool(reads)
        at_end = is_follower and may_wait
        if is_follower:
            for read in reads:
                try:
                    at_end &= self._record_follower(read, message.replica_id, message.replica_epoch, now)
                except Exception as error:
                    self.reads.note_bug(read, error)
                    at_end = False
        answer = None
        if not at_end:  # else there is nothing to read: the usual case of a follower that keeps up
            answer = self.reads.read(message, reads)
            if answer.is_enough or not may_wait:
                self.finish(request, reads, answer)
                return
        partitions = [replicas.partitions[(read.topic, read.wanted.partition)] for read in reads]
        limit_ms = min(message.max_wait_ms, replicas.config.connections_max_idle_ms)
        waits_long = message.is_idle and _may_wait_long(message, reads, partitions)
        if is_follower and not waits_long:
            limit_ms = min(limit_ms, replicas.config.replica_fetch_wait_max_ms)
        PendingFetch(self, request, reads, partitions, now + limit_ms / 1000, waits_long=waits_long).wait(answer)

    def _record_follower(self, read: Read, replica_id: int, incarnation: int, now: float) -> bool:
        """The progress that a follower's fetch proves: only in this epoch, only undiverged, only if assigned.

        Returns whether it has all that there is; False also when there is an error to answer."""
        wanted = read.wanted
        partition = self._replicas.partitions.get((read.topic, wanted.partition))
        if partition is None or self.reads.fence(partition, read, True) is not None:
            return False
        leadership = partition.leadership
        assert leadership is not None
        progress = leadership.followers.get(replica_id)
        if (
            progress is None
            or not partition.log.log_start_offset <= wanted.fetch_offset <= partition.log.log_end_offset
        ):
            return False
        if partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset) is not None:
            return False
        progress.log_start_offset = wanted.log_start_offset
        if partition.deletions.waiting:
            partition.complete_deletions()
        if partition.record_follower_fetch(progress, wanted.fetch_offset, incarnation, now):
            self._burst.changes.committed(partition)
        if progress.stalled_fetches and is_look_due(progress):
            self._submit(partial(self._stalled.look, partition, wanted.fetch_offset))
        return wanted.fetch_offset == partition.log.log_end_offset

    def note_wait(self, replica_id: int, partitions: list[Partition]) -> None:
        """This follower's fetch was parked until now on a connection that lives: it must not count as lagging since it
        came, when the log grows at last."""
        now = trio.current_time()
        for partition in partitions:
            progress = partition.leadership and partition.leadership.followers.get(replica_id)
            if progress:
                progress.waited_until(now)

    def finish(self, request: RequestInHand[FetchRequest], reads: list[Read], answer: Answer) -> None:
        """Send the answer of a fetch that is not part of a session, but may begin one."""
        message = request.message
        if answer.throttled_bytes:
            self.reads.quota.take(answer.throttled_bytes, trio.current_time())
        is_consumer = message.replica_id < 0
        if is_consumer and message.session_epoch == INITIAL_EPOCH:
            self.sessions.begin(message, reads, answer)
        if (len(reads) == 1 or (reads and len(message.topics) == 1)) and not request.hooks:
            # As `_count` does for one topic. Nearly all fetches come here, and a call would cost as much again.
            row = self._rows[reads[0].topic]
            row.fetch_requests += len(reads)
            if is_consumer:
                row.bytes_out += answer.size_bytes
            else:
                self._traffic.replication_bytes_out += answer.size_bytes
        else:
            self._count_when_sent(request, reads, answer)
        self._send(request, answer)

    def send(self, request: RequestInHand[FetchRequest], answer: Answer) -> None:
        """Send what an incremental fetch of a session has found. What that has read is counted by the session."""
        self._count_when_sent(request, (), answer)
        self._send(request, answer)

    def _send(self, request: RequestInHand[FetchRequest], answer: Answer) -> None:
        """Now, or through a handler task when the disk would make the loop wait."""
        if any(region is not None and is_cold(region) for region in answer.regions):
            self._submit(partial(self._warm_and_send, request, answer))
            return
        request.respond(answer.response, answer.regions if answer.size_bytes else (), is_clean=answer.is_clean)

    def _count_when_sent(self, request: RequestInHand[FetchRequest], reads: Sequence[Read], answer: Answer) -> None:
        if request.hooks:  # a quota may withhold what was read
            request.hooks = (*request.hooks, partial(self._count_answered, request.message, reads, answer))
        else:
            self._count(request.message, reads, answer)

    def _count_answered(
        self,
        request: FetchRequest,
        reads: Sequence[Read],
        answer: Answer,
        message: Message | None,
        regions: Regions,
    ) -> None:
        """The last hook: what is sent is what the others left. None: to nobody."""
        if message is not None:
            withheld = not regions
            self._count(request, reads, Answer(answer.response, [], 0, True) if withheld else answer)

    def _count(self, message: FetchRequest, reads: Sequence[Read], answer: Answer) -> None:
        for read in reads:
            self._rows[read.topic].fetch_requests += 1
        if message.replica_id >= 0:
            self._traffic.replication_bytes_out += answer.size_bytes
            return
        position = 0
        for topic in answer.response.responses if answer.size_bytes else ():
            end = position + len(topic.partitions)
            regions = answer.regions[position:end]
            self._rows[topic.topic].bytes_out += sum([each.length for each in regions if each is not None])
            position = end

    async def _warm_and_send(self, request: RequestInHand[FetchRequest], answer: Answer) -> None:
        for region in answer.regions:
            if region is not None and is_cold(region):
                try:
                    await self._warm(region)
                except OSError as error:
                    self._cold_read_failed(request, answer, region, error)
                    return
        request.respond(answer.response, answer.regions if answer.size_bytes else (), is_clean=answer.is_clean)
        self._burst.end()

    def _cold_read_failed(
        self, request: RequestInHand[FetchRequest], answer: Answer, failed: FileRegion, error: OSError
    ) -> None:
        """The disk failed under one replica (invariant 24), which ends; so does the connection, whose later answers
        would wait for this one for ever. The client asks again and gets the typed error."""
        regions = iter(answer.regions)
        for topic in answer.response.responses:
            for data in topic.partitions:
                if next(regions) is failed:
                    partition = self._replicas.partitions.get((topic.topic, data.partition_index))
                    if partition is not None:
                        self._replicas.partition_failed(partition, partition.log.fail("reading failed", error))
        request.hang_up(f"a fetch cannot be answered: {error}")


def _may_wait_long(message: FetchRequest, reads: list[Read], partitions: list[Partition]) -> bool:
    """It takes whatever comes. It is in sync, and stays so, in all of them (whether it may join is asked at each
    fetch), and its disk has where they begin (until then each answer tells it)."""
    replica_id = message.replica_id
    if message.min_bytes > 1:
        return False
    for read, partition in zip(reads, partitions, strict=True):
        leadership = partition.leadership
        if leadership is None or replica_id not in leadership.isr:
            return False
        if leadership.proposal is not None and replica_id not in leadership.proposal.isr:
            return False
        if read.wanted.log_start_offset < partition.log.log_start_offset:
            return False
    return True
