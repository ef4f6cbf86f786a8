"""What one replica has, whoever leads it: asked as `ANY_REPLICA`, which any replica answers from its own log.

A replica hands out what it knows to be committed. Nothing at the leader changes by it: these requests acknowledge
nothing, and nobody counts as caught up because of them. Both name the leader epoch that the asking side believes in, so
an answer of another time is refused (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH) and not taken for a difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from strandline.client.errors import AnsweredError, BrokerMisbehaved, CannotReachBroker, ClientError, error_for
from strandline.client.lookup import BrokerCalls
from strandline.client.owners import Attempts, is_open, of_each
from strandline.client.request_bounds import ALL_ASKED, of
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from strandline.protocol.types import ANY_REPLICA, NO_EPOCH, TopicPartition

READ_BYTES = 2 << 20
"""Of one replica at a time, unless its next batch is larger."""


class ReplicaPart(NamedTuple):
    """What a replica handed out: whole batches from the one that holds the asked offset, or follows it; none where the
    offset lies outside of [log_start_offset, high_watermark), which are the replica's own."""

    records: bytes
    high_watermark: int
    log_start_offset: int


class Replica(NamedTuple):
    """One broker's copy of a partition."""

    partition: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.partition} on broker {self.broker_id}"


ReplicaOffsets = dict[Replica, "int | ClientError"]


class ReplicaReading(ABC):
    """The part of `TrioAdmin` that is about single replicas."""

    _calls: BrokerCalls

    @abstractmethod
    def _attempts(self, timeout_ms: float | None) -> Attempts:
        """Begin a call; None: with the time that calls have by default."""

    async def replica_offsets(
        self, epochs: Mapping[Replica, int], timestamp: int = LATEST_TIMESTAMP, *, timeout_ms: float | None = None
    ) -> ReplicaOffsets:
        """Where the log of each replica ends, leader or not, committed or not, or where it begins (EARLIEST_TIMESTAMP).
        epochs: the leader epoch of each, −1: any. What cannot be told in `timeout_ms` is an error in the result."""
        attempts = self._attempts(timeout_ms)

        async def owners(left: list[Replica]) -> Mapping[Replica, int | ClientError]:
            return {replica: replica.broker_id for replica in left}

        async def ask(broker_id: int, asked: list[Replica]) -> ReplicaOffsets:
            return await _ask(broker_id, {replica: epochs[replica] for replica in asked}, timestamp, attempts)

        return await of_each(epochs, attempts, owners, ask, is_open=_is_open)

    async def read_replica(
        self,
        replica: Replica,
        offset: int,
        *,
        leader_epoch: int = NO_EPOCH,
        max_bytes: int = READ_BYTES,
        max_wait_ms: int = 0,
        timeout_ms: float | None = None,
    ) -> ReplicaPart:
        """The batches that one replica has from `offset` on, up to the high watermark that it knows. It waits up to
        `max_wait_ms` where there are none. leader_epoch: an answer of another one is refused. One attempt, but that a
        broker that cannot be reached is looked up anew; ClientError."""
        attempts = self._attempts(timeout_ms)
        (topic, index), broker_id = replica
        request = FetchRequest(
            max_wait_ms,
            1,
            max_bytes,
            [FetchTopic(topic, [FetchPartition(index, offset, max_bytes, leader_epoch)])],
            replica_id=ANY_REPLICA,
        )
        try:
            answer, records = await self._calls.call_for_records(
                broker_id, request, FetchResponse, timeout_ms=timeout_ms
            )
        except CannotReachBroker:  # this client may not have heard of it yet
            await attempts.learn()
            answer, records = await self._calls.call_for_records(
                broker_id, request, FetchResponse, timeout_ms=attempts.left_ms()
            )
        return _part(replica, answer, records)


def _part(replica: Replica, answer: FetchResponse, records: bytes) -> ReplicaPart:
    """What the answer says of this replica. BrokerMisbehaved, AnsweredError."""
    what, who = f"reading {replica.partition}", f"broker {replica.broker_id}"
    if answer.error_code:
        raise error_for(answer.error_code, what, who, answer.error_message)
    parts = [
        (TopicPartition(each.topic, part.partition_index), part)
        for each in answer.responses
        for part in each.partitions
    ]
    if [partition for partition, _ in parts] != [replica.partition]:
        raise BrokerMisbehaved(f"{who} did not answer about {replica.partition}, which it was asked for")
    [(_, part)] = parts
    # Outside of the log it tells where that begins and ends, which is what the caller goes by.
    if part.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE):
        raise error_for(part.error_code, what, who)
    return ReplicaPart(records, part.high_watermark, part.log_start_offset)


async def _ask(broker_id: int, epochs: Mapping[Replica, int], timestamp: int, attempts: Attempts) -> ReplicaOffsets:
    """One attempt at one broker; what it does not answer about is left out."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for ((topic, index), _), epoch in epochs.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(index, timestamp, epoch))
    request = ListOffsetsRequest([ListOffsetsTopic(*each) for each in topics.items()], ANY_REPLICA)
    answer = await attempts.ask(broker_id, request, ListOffsetsResponse)
    found: ReplicaOffsets = {}
    for topic_answer in answer.topics if answer is not None else ():
        for part in topic_answer.partitions:
            partition = TopicPartition(topic_answer.name, part.partition_index)
            result: int | ClientError = part.offset
            if part.error_code:
                what = f"asking where a replica{of(partition)} begins or ends"
                detail = answer.error_message if answer is not None else None
                result = error_for(part.error_code, what, f"broker {broker_id}", detail)
            if partition == ALL_ASKED:
                found.update(dict.fromkeys(epochs, result))
            else:
                found[Replica(partition, broker_id)] = result
    return found


def _is_open(result: object) -> bool:
    """Another attempt at the same epoch may help; where the leader has changed only a look at the cluster does."""
    moved = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return is_open(result) and not (isinstance(result, AnsweredError) and result.code in moved)
