"""Deleting records from the head of partitions: each leader is asked for what it leads, until all have answered.

A leader that moved is looked up anew and asked again. TCP may deliver a request late, when records have come since, or
when the topic has been made anew. So a topic is asked for by the id that it has by then, and "all that is committed"
(−1) by the end that the leader of that topic told at first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from strandline.client.errors import BrokerMisbehaved, ClientError, error_for
from strandline.client.metadata import ClusterView
from strandline.client.owners import Attempts, is_open_if_known, leaders, of_each
from strandline.client.request_bounds import ALL_ASKED, of
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LATEST_TIMESTAMP,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition

ALL_COMMITTED = -1
_REASONS: Mapping[int, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "only what is committed can be deleted, and this offset lies above it",
    ErrorCode.POLICY_VIOLATION: "its cleanup.policy is compact; write a record without a value for each key that is "
    "to go, or add delete to the policy",
}
"""What these codes mean here (their general texts are for consumers and for limits); the answer has no words."""

Outcomes = dict[TopicPartition, int | ClientError]


async def delete_records(
    offsets: Mapping[TopicPartition, int],
    attempts: Attempts,
    describe: Callable[[Iterable[str]], Awaitable[ClusterView]],
) -> Outcomes:
    """Low watermark or error of each partition. `describe` gives the topics as a broker sees them now."""
    deletion = _Deletion(offsets, attempts, describe)
    return await of_each(offsets, attempts, leaders(deletion.describe), deletion.ask, is_open=is_open_if_known)


class _Deletion:
    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        attempts: Attempts,
        describe: Callable[[Iterable[str]], Awaitable[ClusterView]],
    ) -> None:
        self._offsets = offsets
        self._topic_ids: dict[str, TopicId] = {}
        """As brokers told them last: who was asked first may not have heard yet that a topic was made anew."""
        self._ends: dict[tuple[TopicId, TopicPartition], int] = {}
        self._attempts = attempts
        self._describe = describe

    async def describe(self, topics: Iterable[str]) -> ClusterView:
        view = await self._describe(topics)
        self._topic_ids.update({name: topic.topic_id for name, topic in view.topics.items()})
        return view

    async def ask(self, leader: int, asked: list[TopicPartition]) -> Outcomes:
        outcomes = await self._learn_ends(leader, [tp for tp in asked if self._offset(tp) == ALL_COMMITTED])
        left = {tp: offset for tp in asked if (offset := self._offset(tp)) != ALL_COMMITTED}
        return {**outcomes, **(await self._delete(leader, left) if left else {})}

    def _offset(self, tp: TopicPartition) -> int:
        """−1: its end is not known yet."""
        asked = self._offsets[tp]
        return asked if asked != ALL_COMMITTED else self._ends.get((self._topic_ids[tp.topic], tp), ALL_COMMITTED)

    def _forget_end(self, tp: TopicPartition) -> None:
        """It was told by the name, and may be that of another topic than the one that was asked for."""
        self._ends.pop((self._topic_ids.get(tp.topic, NO_TOPIC_ID), tp), None)

    async def _learn_ends(self, leader: int, partitions: list[TopicPartition]) -> Outcomes:
        """Why it tells none, of each of which it does not."""
        if not partitions:
            return {}
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(ListOffsetsPartition(tp.partition, LATEST_TIMESTAMP))
        request = ListOffsetsRequest([ListOffsetsTopic(name, parts) for name, parts in topics.items()])
        answer = await self._attempts.ask(leader, request, ListOffsetsResponse)
        if answer is None:
            return {}
        outcomes: Outcomes = {}
        for topic in answer.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                if part.error_code:
                    what = f"asking for the end{of(tp)}"
                    outcomes[tp] = error_for(part.error_code, what, f"broker {leader}", answer.error_message)
                elif tp in self._offsets:
                    self._ends[self._topic_ids[tp.topic], tp] = part.offset
        refusal = outcomes.pop(ALL_ASKED, None)
        return outcomes if refusal is None else dict.fromkeys(partitions, refusal)

    async def _delete(self, leader: int, offsets: Mapping[TopicPartition, int]) -> Outcomes:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for tp, offset in offsets.items():
            topics.setdefault(tp.topic, []).append(DeleteRecordsPartition(tp.partition, offset))
        named = [DeleteRecordsTopic(name, parts, self._topic_ids[name]) for name, parts in topics.items()]
        request = DeleteRecordsRequest(named, int(self._attempts.left_ms()))
        answer = await self._attempts.ask(leader, request, DeleteRecordsResponse)
        if answer is None:
            return {}
        results: Outcomes = {tp: BrokerMisbehaved(f"broker {leader} answered nothing about {tp}") for tp in offsets}
        for topic in answer.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                if part.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                    self._forget_end(tp)
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
                if tp in offsets:
                    results[tp] = result
                elif tp == ALL_ASKED and isinstance(result, ClientError):
                    results.update(dict.fromkeys(offsets, result))
        return results
