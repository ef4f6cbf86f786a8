"""Fetch: the one request that consumers and followers read with.

    consumer   sees [log start, high watermark); may name an epoch, and is fenced if it is not the current one
    follower   sees everything; its fetch offset acknowledges all below it; it must name the current epoch
               (invariant 13)

Order for a follower (reference text 000, "Follower 从 Leader Fetch 数据"): fence, divergence (a diverged fetch changes
nothing here), then progress and HW, then data. A fetch that finds too little is parked and served once at the end of
the burst that brings data (no linger, no timer per fetch).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from strandline.broker.network.regions import Warm, is_cold
from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.deadlines import NEVER, Deadlines
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.stalled_followers import StalledFollowers, is_look_due
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from strandline.protocol.types import NO_BROKER, NO_EPOCH, NO_TOPIC, NO_TOPIC_ID, TopicId
from strandline.runtime.disk import FileRegion
from strandline.storage.errors import LogStorageError, OffsetOutOfRange


class _Read(msgspec.Struct):
    """One partition of a fetch."""

    topic: str
    topic_id: TopicId
    wanted: FetchPartition


class _Answer(msgspec.Struct):
    """What a fetch would be answered with now. `regions`: of each partition, in order; None where there is nothing to
    read. `must_send`: an error or a divergence stands in it."""

    response: FetchResponse
    regions: list[FileRegion | None]
    size_bytes: int
    must_send: bool


class PendingFetch:
    """A fetch that waits for `min_bytes`, watched by every partition that it reads."""

    __slots__ = ("_handler", "_partitions", "_reads", "_request", "_waits_long", "due_at")

    def __init__(
        self,
        handler: FetchHandler,
        request: RequestInHand[FetchRequest],
        reads: list[_Read],
        partitions: list[Partition],
        *,
        waits_long: bool,
    ) -> None:
        """waits_long: a follower's that knows of nothing to come, and is answered as soon as anything comes."""
        self._handler = handler
        self._request = request
        self._reads = reads
        self._partitions = partitions
        self._waits_long = waits_long
        self.due_at = NEVER
        for partition in partitions:
            partition.parked_fetches[self] = request.message.replica_id >= 0

    def look(self) -> None:
        if self._is_abandoned():
            return
        answer = self._handler.read(self._request, self._reads)
        if answer.must_send or answer.size_bytes >= self._request.message.min_bytes:
            self._send(answer)

    def answer(self) -> None:
        if not self._is_abandoned():
            self._send(self._handler.read(self._request, self._reads))

    def _is_abandoned(self) -> bool:
        """Its connection is gone: nobody is told, and nobody counts as having waited."""
        if self._request.is_abandoned:
            self._end()
        return self._request.is_abandoned

    def _send(self, answer: _Answer) -> None:
        self._end()
        if self._waits_long:
            self._handler.note_wait(self._request.message.replica_id, self._partitions)
        self._handler.send(self._request, answer)

    def expire(self, now: float) -> float:
        if not self._waits_long:
            self.answer()
        elif not self._is_abandoned():  # nobody looked at it: nothing changed in any of its partitions
            self._send(_Answer(FetchResponse([]), [], 0, False))
        return NEVER

    def _end(self) -> None:
        for partition in self._partitions:
            del partition.parked_fetches[self]
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
    ) -> None:
        """`submit` has work done by a handler task."""
        self._replicas = replicas
        self._burst = burst
        self.deadlines = deadlines
        self._stalled = stalled
        self._warm = warm
        self._submit = submit

    def handle(self, request: RequestInHand[FetchRequest]) -> None:
        message = request.message
        replicas = self._replicas
        is_follower = message.replica_id >= 0
        if is_follower and not request.context.is_inter_broker:
            request.respond(FetchResponse([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            return
        name_of = replicas.metadata.name_of
        reads = [
            _Read(topic.topic or name_of.get(topic.topic_id, NO_TOPIC), topic.topic_id, wanted)
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
                at_end &= self._record_follower(read, message.replica_id, message.replica_epoch, now)
        if not at_end:  # else there is nothing to read: the usual case of a follower that keeps up
            answer = self.read(request, reads)
            if answer.must_send or answer.size_bytes >= message.min_bytes or not may_wait:
                self.send(request, answer)
                return
        partitions = [replicas.partitions[(read.topic, read.wanted.partition)] for read in reads]
        limit_ms = min(message.max_wait_ms, replicas.config.connections_max_idle_ms)
        waits_long = message.is_idle and _may_wait_long(message, reads, partitions)
        if is_follower and not waits_long:
            limit_ms = min(limit_ms, replicas.config.replica_fetch_wait_max_ms)
        fetch = PendingFetch(self, request, reads, partitions, waits_long=waits_long)
        self.deadlines.enter(fetch, now + limit_ms / 1000)

    def _record_follower(self, read: _Read, replica_id: int, incarnation: int, now: float) -> bool:
        """The progress that a follower's fetch proves: only in this epoch, only undiverged, only if assigned.

        Returns whether it has all that there is; False also when there is an error to answer."""
        wanted = read.wanted
        partition = self._replicas.partitions.get((read.topic, wanted.partition))
        if partition is None or self._fence(partition, read, True) is not None:
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

    def _fence(self, partition: Partition, read: _Read, is_follower: bool) -> ErrorCode | None:
        """Why this fetch may not be served here, or None (KIP-320)."""
        if read.topic_id != NO_TOPIC_ID and read.topic_id != partition.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        epoch = read.wanted.current_leader_epoch
        if epoch != NO_EPOCH or is_follower:
            if epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            # Nobody who follows at this epoch can have records of a later one: it must not be told to cut them.
            if epoch > partition.leader_epoch or (is_follower and read.wanted.last_fetched_epoch > epoch):
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if partition.leadership is None:
            return ErrorCode.KAFKA_STORAGE_ERROR if partition.failed else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None

    def read(self, request: RequestInHand[FetchRequest], reads: list[_Read]) -> _Answer:
        """Read every partition within the limits of the request; changes nothing."""
        message = request.message
        remaining_bytes = message.max_bytes
        if message.replica_id < 0:
            remaining_bytes = min(remaining_bytes, self._replicas.config.fetch_max_bytes)
        regions: list[FileRegion | None] = []
        size_bytes = 0
        must_send = False
        topics: list[FetchTopicResponse] = []
        data_of_topic: list[FetchPartitionData] = []
        current: _Read | None = None
        for read in reads:
            if current is None or read.topic != current.topic or read.topic_id != current.topic_id:
                current = read
                data_of_topic = []
                topics.append(FetchTopicResponse(read.topic, data_of_topic, read.topic_id))
            data, region = self._read_partition(read, message.replica_id, remaining_bytes, not size_bytes)
            data_of_topic.append(data)
            regions.append(region)
            if region is not None:
                size_bytes += region.length
                remaining_bytes -= region.length
            elif data.error_code or data.diverging_epoch is not None:
                must_send = True
        return _Answer(FetchResponse(topics), regions, size_bytes, must_send)

    def _read_partition(
        self, read: _Read, replica_id: int, remaining_bytes: int, is_first: bool
    ) -> tuple[FetchPartitionData, FileRegion | None]:
        wanted = read.wanted
        index = wanted.partition
        partition = self._replicas.partitions.get((read.topic, index))
        is_follower = replica_id >= 0
        if partition is None:
            if read.topic_id != NO_TOPIC_ID and not self._replicas.metadata.has_topic(read.topic, read.topic_id):
                return _refusal(index, ErrorCode.UNKNOWN_TOPIC_ID, NO_BROKER, NO_EPOCH), None
            why, leader_id, leader_epoch = self._replicas.why_not_leading(read.topic, index, None)
            return _refusal(index, why, leader_id, leader_epoch), None
        fenced = self._fence(partition, read, is_follower)
        if fenced is not None:
            return _refusal(index, fenced, partition.leader_id, partition.leader_epoch), None
        leadership = partition.leadership
        assert leadership is not None
        if is_follower and replica_id not in leadership.followers:
            return _refusal(index, ErrorCode.REPLICA_NOT_AVAILABLE, partition.leader_id, partition.leader_epoch), None
        log = partition.log
        high_watermark = leadership.high_watermark  # read once: this snapshot holds for the whole answer (invariant 9)
        diverging = partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset)
        if diverging is not None:
            return _data(index, 0, high_watermark, log.log_start_offset, diverging), None
        limit = log.log_end_offset if is_follower else high_watermark
        region: FileRegion | None = None
        code: int = 0
        if wanted.fetch_offset < limit or wanted.fetch_offset < log.log_start_offset:
            max_bytes = min(wanted.partition_max_bytes, remaining_bytes)
            if max_bytes > 0 or is_first:
                try:
                    region = log.read(wanted.fetch_offset, max(max_bytes, 0), limit)
                except OffsetOutOfRange:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                except (LogStorageError, OSError) as error:
                    self._replicas.partition_failed(partition, error)
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                if region is not None and not is_first and region.length > max_bytes:
                    region = None  # a batch larger than what is left: only the first partition's is sent whole (KIP-74)
        elif wanted.fetch_offset > log.log_end_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif not is_follower and high_watermark < leadership.leading_since_offset:
            # Its predecessor may have shown more: this leader's HW would seem to go back (invariant 8).
            code = ErrorCode.OFFSET_NOT_AVAILABLE
        return _data(index, code, high_watermark, log.log_start_offset), region

    def note_wait(self, replica_id: int, partitions: list[Partition]) -> None:
        """This follower's fetch was parked until now on a connection that lives: it must not count as lagging since it
        came, when the log grows at last."""
        now = trio.current_time()
        for partition in partitions:
            progress = partition.leadership and partition.leadership.followers.get(replica_id)
            if progress:
                progress.waited_until(now)

    def send(self, request: RequestInHand[FetchRequest], answer: _Answer) -> None:
        """Answer now, or through a handler task when the disk would make the loop wait."""
        if any(region is not None and is_cold(region) for region in answer.regions):
            self._submit(partial(self._warm_and_send, request, answer))
            return
        request.respond(answer.response, answer.regions if answer.size_bytes else ())

    async def _warm_and_send(self, request: RequestInHand[FetchRequest], answer: _Answer) -> None:
        for region in answer.regions:
            if region is not None and is_cold(region):
                try:
                    await self._warm(region)
                except OSError as error:
                    self._cold_read_failed(request, answer, region, error)
                    return
        request.respond(answer.response, answer.regions if answer.size_bytes else ())
        self._burst.end()

    def _cold_read_failed(
        self, request: RequestInHand[FetchRequest], answer: _Answer, failed: FileRegion, error: OSError
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


def _data(
    index: int, code: int, high_watermark: int, log_start_offset: int, diverging: EpochEndOffset | None = None
) -> FetchPartitionData:
    return FetchPartitionData(
        index,
        code,
        high_watermark,
        log_start_offset=log_start_offset,
        last_stable_offset=high_watermark,
        diverging_epoch=diverging,
    )


def _may_wait_long(message: FetchRequest, reads: list[_Read], partitions: list[Partition]) -> bool:
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


def _refusal(index: int, code: int, leader_id: int, leader_epoch: int) -> FetchPartitionData:
    return FetchPartitionData(index, code, -1, current_leader_id=leader_id, current_leader_epoch=leader_epoch)
