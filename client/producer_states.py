"""What the leaders of partitions know of idempotent producers: each is asked once for all that it leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from strandline.client.errors import BrokerMisbehaved, ClientError, error_for
from strandline.client.metadata import ClusterView
from strandline.client.owners import Attempts, is_open_if_known, leaders, of_each
from strandline.client.request_bounds import ALL_ASKED, in_parts, of
from strandline.protocol.messages import DescribeProducersRequest, DescribeProducersResponse, DescribeProducersTopic
from strandline.protocol.types import TopicPartition


class KnownProducer(NamedTuple):
    """What a log knows of a producer. `last_sequence`, `last_offset`: of its last record there, −1 where no batch is
    known; `last_timestamp_ms`: the largest of its last batch. The record may not be committed yet."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp_ms: int


KnownProducers = dict[TopicPartition, "list[KnownProducer] | ClientError"]


async def describe_producers(
    partitions: Iterable[TopicPartition],
    producer_ids: Iterable[int] | None,
    attempts: Attempts,
    describe: Callable[[Iterable[str]], Awaitable[ClusterView]],
) -> KnownProducers:
    """Producers, or the error, of each partition. `describe` gives the topics as a broker sees them now."""
    wanted = [None] if producer_ids is None else list(in_parts(dict.fromkeys(producer_ids)))

    async def ask(leader: int, asked: list[TopicPartition]) -> KnownProducers:
        found: KnownProducers = {tp: [] for tp in asked}
        for ids in wanted:
            part = await _ask(leader, asked, ids, attempts)
            for tp in asked:
                before, more = found.get(tp), part.get(tp)
                if more is None:
                    found.pop(tp, None)
                elif isinstance(before, list):
                    found[tp] = more if isinstance(more, ClientError) else before + more
        return found

    return await of_each(partitions, attempts, leaders(describe), ask, is_open=is_open_if_known)


async def _ask(
    leader: int, asked: list[TopicPartition], producer_ids: list[int] | None, attempts: Attempts
) -> Mapping[TopicPartition, list[KnownProducer] | ClientError]:
    topics: dict[str, list[int]] = {}
    for tp in asked:
        topics.setdefault(tp.topic, []).append(tp.partition)
    request = DescribeProducersRequest(
        [DescribeProducersTopic(name, numbers) for name, numbers in topics.items()], producer_ids
    )
    answer = await attempts.ask(leader, request, DescribeProducersResponse)
    if answer is None:
        return {}
    found: KnownProducers = {tp: BrokerMisbehaved(f"broker {leader} answered nothing about {tp}") for tp in asked}
    for topic in answer.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.name, part.partition_index)
            if part.error_code:
                what = f"asking for producers{of(tp)}"
                error = error_for(part.error_code, what, f"broker {leader}", part.error_message)
                found.update(dict.fromkeys(asked if tp == ALL_ASKED else [tp], error))
            elif tp in found:
                found[tp] = [
                    KnownProducer(
                        each.producer_id,
                        each.producer_epoch,
                        each.last_sequence,
                        each.last_offset,
                        each.last_timestamp,
                    )
                    for each in part.active_producers
                ]
    return found
