"""Deleting records from the head of partitions: each leader is asked for what it leads, until all have answered.

A leader that moved is looked up anew and asked again; asking twice for the same offset changes nothing. Only "all that
is committed" (−1) means more each time, so an answer that was lost may have deleted what a repetition deletes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

import trio

from strandline.client.errors import AnsweredError, BrokerMisbehaved, ClientError, error_for
from strandline.client.lookup import is_retriable
from strandline.client.metadata import ClusterView
from strandline.client.request_bounds import ALL_ASKED, in_parts, of
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from strandline.protocol.types import NO_BROKER, TopicPartition

_REASONS: Mapping[int, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "only what is committed can be deleted, and this offset lies above it",
    ErrorCode.POLICY_VIOLATION: "its cleanup.policy is compact; write a record without a value for each key that is "
    "to go, or add delete to the policy",
}
"""What these codes mean here (their general texts are for consumers and for limits); the answer has no words."""


class Attempts(Protocol):
    """One call of the admin client: its deadline, its attempts, its last cause."""

    last_error: Exception | None

    def left_ms(self) -> float: ...

    async def ask(
        self, broker_id: int, request: DeleteRecordsRequest, answer: type[DeleteRecordsResponse]
    ) -> DeleteRecordsResponse | None:
        """None: it failed in a way that another attempt may mend. The last cause once the time is over."""

    async def learn(self) -> None:
        """Wait a moment. The last cause once the time is over."""


async def delete_records(
    offsets: Mapping[TopicPartition, int],
    attempts: Attempts,
    describe: Callable[[Iterable[str]], Awaitable[ClusterView]],
) -> dict[TopicPartition, int | ClientError]:
    """Low watermark or error of each partition. `describe` gives the topics as a broker sees them now."""
    left = dict(offsets)
    results: dict[TopicPartition, int | ClientError] = {}
    try:
        while left:
            view = await describe(dict.fromkeys(tp.topic for tp in left))
            by_leader: dict[int, dict[TopicPartition, int]] = {}
            for tp, offset in left.items():
                leader = _leader(view, tp)
                if isinstance(leader, int):
                    by_leader.setdefault(leader, {})[tp] = offset
                else:
                    results[tp] = leader
            async with trio.open_nursery() as nursery:
                for leader, asked in by_leader.items():
                    nursery.start_soon(_ask_for_all, leader, asked, attempts, results)
            left = {tp: offset for tp, offset in left.items() if _is_open(results.get(tp))}
            if left:
                attempts.last_error = next(error for error in map(results.get, left) if isinstance(error, ClientError))
                await attempts.learn()
    except ClientError as error:  # the time is over: what is known stays known
        for tp in left:
            results[tp] = error
    return {tp: results[tp] for tp in offsets}


def _leader(view: ClusterView, tp: TopicPartition) -> int | AnsweredError:
    topic = view.topics.get(tp.topic)
    if topic is not None and topic.error_code:
        return error_for(topic.error_code, f"topic {tp.topic!r}")
    if topic is None or tp.partition not in topic.partitions:
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp}")
    leader = topic.partitions[tp.partition].leader
    if leader == NO_BROKER:
        return view.no_leader(tp)
    return leader


async def _ask_for_all(
    leader: int,
    asked: Mapping[TopicPartition, int],
    attempts: Attempts,
    results: dict[TopicPartition, int | ClientError],
) -> None:
    for part in in_parts(asked.items()):
        await _ask(leader, dict(part), attempts, results)


async def _ask(
    leader: int,
    asked: Mapping[TopicPartition, int],
    attempts: Attempts,
    results: dict[TopicPartition, int | ClientError],
) -> None:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for tp, offset in asked.items():
        topics.setdefault(tp.topic, []).append(DeleteRecordsPartition(tp.partition, offset))
        results[tp] = BrokerMisbehaved(f"broker {leader} answered nothing about {tp}")
    request = DeleteRecordsRequest(
        [DeleteRecordsTopic(name, parts) for name, parts in topics.items()], int(attempts.left_ms())
    )
    try:
        answer = await attempts.ask(leader, request, DeleteRecordsResponse)
    except ClientError as error:
        results.update(dict.fromkeys(asked, error))
        return
    if answer is None:
        failure = attempts.last_error
        if isinstance(failure, ClientError):
            results.update(dict.fromkeys(asked, failure))
        return
    for topic in answer.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            result = (
                error_for(
                    part.error_code,
                    f"deleting records{of(tp)}",
                    f"broker {leader}",
                    answer.error_message or _REASONS.get(part.error_code),
                )
                if part.error_code
                else part.low_watermark
            )
            if tp in asked:
                results[tp] = result
            elif tp == ALL_ASKED and isinstance(result, ClientError):
                results.update(dict.fromkeys(asked, result))


def _is_open(result: int | ClientError | None) -> bool:
    """Worth another attempt. A topic that is not there is taken at its word: deletion is for those who know it."""
    if not isinstance(result, ClientError):
        return False
    unknown = isinstance(result, AnsweredError) and result.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return is_retriable(result) and not unknown
