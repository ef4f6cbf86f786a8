"""Deleting records from the head of partitions: each leader is asked for what it leads, until all have answered.

A leader that moved is looked up anew and asked again; asking twice for the same offset changes nothing. Only "all that
is committed" (−1) means more each time, so an answer that was lost may have deleted what a repetition deletes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from strandline.client.errors import BrokerMisbehaved, ClientError, error_for
from strandline.client.metadata import ClusterView
from strandline.client.owners import Attempts, is_open_if_known, leaders, of_each
from strandline.client.request_bounds import ALL_ASKED, of
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from strandline.protocol.types import TopicPartition

_REASONS: Mapping[int, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "only what is committed can be deleted, and this offset lies above it",
    ErrorCode.POLICY_VIOLATION: "its cleanup.policy is compact; write a record without a value for each key that is "
    "to go, or add delete to the policy",
}
"""What these codes mean here (their general texts are for consumers and for limits); the answer has no words."""


async def delete_records(
    offsets: Mapping[TopicPartition, int],
    attempts: Attempts,
    describe: Callable[[Iterable[str]], Awaitable[ClusterView]],
) -> dict[TopicPartition, int | ClientError]:
    """Low watermark or error of each partition. `describe` gives the topics as a broker sees them now."""

    async def ask(leader: int, asked: list[TopicPartition]) -> Mapping[TopicPartition, int | ClientError]:
        return await _ask(leader, {tp: offsets[tp] for tp in asked}, attempts)

    return await of_each(offsets, attempts, leaders(describe), ask, is_open=is_open_if_known)


async def _ask(
    leader: int, asked: Mapping[TopicPartition, int], attempts: Attempts
) -> dict[TopicPartition, int | ClientError]:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for tp, offset in asked.items():
        topics.setdefault(tp.topic, []).append(DeleteRecordsPartition(tp.partition, offset))
    request = DeleteRecordsRequest(
        [DeleteRecordsTopic(name, parts) for name, parts in topics.items()], int(attempts.left_ms())
    )
    answer = await attempts.ask(leader, request, DeleteRecordsResponse)
    if answer is None:
        return {}
    results: dict[TopicPartition, int | ClientError] = {
        tp: BrokerMisbehaved(f"broker {leader} answered nothing about {tp}") for tp in asked
    }
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
    return results
