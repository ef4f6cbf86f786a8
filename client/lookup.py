"""Questions to particular brokers, one at a time each, apart from the connections that carry records.

`BrokerCalls` keeps a lock-step connection per broker; `OffsetLookup` asks leaders for offsets (by time, or where a
leader epoch ends), in several requests where there are many, and sorts the answers per partition into results and
errors.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

import trio

from strandline.client.connection import Connection
from strandline.client.errors import BrokerMisbehaved, ClientError, RequestTimedOut, error_for
from strandline.client.links import Links
from strandline.client.metadata import Metadata, backoff_ms
from strandline.client.request_bounds import ALL_ASKED, in_parts, of
from strandline.client.settings import ClientSettings
from strandline.client.timed import RequestTimes
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    Message,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    Request,
)
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment

R = TypeVar("R", bound=Message)
T = TypeVar("T")

Asked = Mapping[TopicPartition, tuple[int, int]]
"""Partition → (what is asked, the leader epoch that this client believes in)."""

Answers = dict[TopicPartition, T | Exception]


class BrokerCalls:
    """One request at a time per broker; connections open on demand."""

    def __init__(self, links: Links) -> None:
        self.times = RequestTimes()
        self.in_flight = 0
        self._links = links
        self._connections: dict[int, Connection] = {}
        self._locks: dict[int, trio.Lock] = {}

    async def call(self, broker_id: int, message: Request, answer: type[R], *, timeout_ms: float | None = None) -> R:
        """Ask that broker. `timeout_ms` bounds waiting for its turn, connecting and asking together; without it each of
        the last two has its own limit. Errors: those of `Connection.open` and `Connection.roundtrip`."""
        return (await self.call_for_records(broker_id, message, answer, timeout_ms=timeout_ms))[0]

    async def call_for_records(
        self, broker_id: int, message: Request, answer: type[R], *, timeout_ms: float | None = None
    ) -> tuple[R, bytes]:
        """`call`, and what is attached to the answer."""
        with trio.move_on_after(math.inf if timeout_ms is None else max(0.0, timeout_ms) / 1000):
            async with self._locks.setdefault(broker_id, trio.Lock()):
                connection = self._connections.get(broker_id)
                if connection is None or connection.closed:
                    self._connections.pop(broker_id, None)
                    connection = self._connections[broker_id] = await self._links.open(broker_id)
                response, attachments = await self._timed(connection, message, timeout_ms)
                assert isinstance(response, answer)
                return response, bytes(attachments)  # the view ends with the next request
        raise self.late(broker_id, message, f"within {timeout_ms:g} ms")

    async def _timed(
        self, connection: Connection, message: Request, timeout_ms: float | None
    ) -> tuple[Message, memoryview]:
        began = trio.current_time()
        self.in_flight += 1
        try:
            answer = await connection.roundtrip(message, timeout_ms=timeout_ms)
        finally:
            self.in_flight -= 1
        self.times.add(answer[0], began, trio.current_time())
        return answer

    def late(self, broker_id: int, message: Request, limit: str) -> RequestTimedOut:
        """The error of a call that had so long. That the broker is silent is told where there was a connection: before
        it has told its versions there is none, and the time went by in connecting."""
        error = RequestTimedOut(f"broker {broker_id} did not answer {type(message).__name__} {limit}")
        error.is_silence = broker_id in self._connections
        return error

    def connections(self) -> list[Connection]:
        """Those that are open."""
        return [connection for connection in list(self._connections.values()) if not connection.closed]

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


class FoundOffset(NamedTuple):
    """`offset` −1: no record has such a timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The largest epoch up to the asked one that the leader knows (−1: none) and the offset where it ends."""

    leader_epoch: int
    end_offset: int


class OffsetLookup:
    """Asks leaders about offsets, all leaders at the same time."""

    def __init__(
        self, settings: ClientSettings, environment: ClientEnvironment, metadata: Metadata, calls: BrokerCalls
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._metadata = metadata
        self._calls = calls

    async def until_found(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, FoundOffset]:
        """`by_timestamp`, repeated while errors are retriable. The last error after `timeout_ms`."""
        deadline = trio.current_time() + timeout_ms / 1000
        left = dict(timestamps)
        found: dict[TopicPartition, FoundOffset] = {}
        attempt = 0
        while True:
            attempt += 1
            last: Exception | None = None
            for topic_partition, result in (await self.by_timestamp(left)).items():
                if isinstance(result, FoundOffset):
                    found[topic_partition] = result
                    del left[topic_partition]
                    continue
                last = result
                if not is_retriable(result):
                    raise result
            if last is None:
                return found
            self._metadata.request_update()
            wait_s = backoff_ms(self._settings, attempt, self._environment) / 1000
            if trio.current_time() + wait_s >= deadline:
                raise last
            await trio.sleep(wait_s)

    async def by_timestamp(self, timestamps: Mapping[TopicPartition, int]) -> Answers[FoundOffset]:
        """One attempt: the first offset whose record has at least that timestamp (ms, or EARLIEST/LATEST)."""

        async def ask(leader: int, asked: Asked) -> Answers[FoundOffset]:
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for (topic, partition), (timestamp, epoch) in asked.items():
                topics.setdefault(topic, []).append(ListOffsetsPartition(partition, timestamp, epoch))
            request = ListOffsetsRequest([ListOffsetsTopic(name, parts) for name, parts in topics.items()])
            answer = await self._calls.call(leader, request, ListOffsetsResponse)
            return {
                (asked_of := TopicPartition(topic.name, part.partition_index)): error_for(
                    part.error_code, f"looking for an offset{of(asked_of)}", f"broker {leader}", answer.error_message
                )
                if part.error_code
                else FoundOffset(part.offset, part.timestamp, part.leader_epoch)
                for topic in answer.topics
                for part in topic.partitions
            }

        return await self._per_leader(timestamps, ask)

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Answers[EpochEnd]:
        """One attempt: where each leader epoch ends in the leader's log."""

        async def ask(leader: int, asked: Asked) -> Answers[EpochEnd]:
            topics: dict[str, list[OffsetForLeaderPartition]] = {}
            for (topic, partition), (epoch, current) in asked.items():
                topics.setdefault(topic, []).append(OffsetForLeaderPartition(partition, epoch, current))
            request = OffsetForLeaderEpochRequest([OffsetForLeaderTopic(name, parts) for name, parts in topics.items()])
            answer = await self._calls.call(leader, request, OffsetForLeaderEpochResponse)
            return {
                (asked_of := TopicPartition(topic.topic, part.partition)): error_for(
                    part.error_code, f"checking the position{of(asked_of)}", f"broker {leader}", answer.error_message
                )
                if part.error_code
                else EpochEnd(part.leader_epoch, part.end_offset)
                for topic in answer.topics
                for part in topic.partitions
            }

        return await self._per_leader(epochs, ask)

    async def _per_leader(
        self, wanted: Mapping[TopicPartition, int], ask: Callable[[int, Asked], Awaitable[Answers[T]]]
    ) -> Answers[T]:
        """Split by leader, ask all of them, put the answers together; partitions without an answer get an error."""
        results: Answers[T] = {}
        by_leader: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for topic_partition, value in wanted.items():
            partition = self._metadata.view.partition(topic_partition)
            if partition is None or partition.leader == NO_BROKER:
                results[topic_partition] = self._metadata.view.no_leader(topic_partition)
            else:
                by_leader.setdefault(partition.leader, {})[topic_partition] = (value, partition.leader_epoch)

        async def one(leader: int, asked: Asked) -> None:
            answers: Answers[T] = {}
            failure: Exception | None = None
            for part in in_parts(asked.items()):
                try:
                    answers.update(await ask(leader, dict(part)))
                except ClientError as error:
                    failure = error
                if isinstance(refusal := answers.get(ALL_ASKED), Exception):
                    failure = refusal
                if failure is not None:
                    break
            for topic_partition in asked:
                missing = failure or BrokerMisbehaved(f"broker {leader} answered nothing about {topic_partition}")
                results[topic_partition] = answers.get(topic_partition, missing)

        async with trio.open_nursery() as nursery:
            for leader, asked in by_leader.items():
                nursery.start_soon(one, leader, asked)
        return results


def is_retriable(error: Exception) -> bool:
    """The same question may be answered later, perhaps by another broker."""
    return bool(getattr(error, "retriable", isinstance(error, RemoteProtocolError)))
