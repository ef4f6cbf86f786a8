"""The fetch request of a follower: what it asks of one leader, and what the answer is to be compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.broker.replication.partition import Partition
from strandline.protocol.messages import FetchPartition, FetchRequest, FetchTopic
from strandline.runtime.config.broker import BrokerConfig

Asked = dict[tuple[str, int], tuple[Partition, int, int]]
"""(topic, partition) → (the replica, its leader epoch, its LEO) as a fetch named them, to compare with later."""


def build_fetch(
    partitions: Iterable[Partition],
    config: BrokerConfig,
    broker_id: int,
    incarnation: int,
    max_wait_ms: int,
    is_idle: bool = False,
    max_bytes: Mapping[Partition, int] | None = None,
) -> tuple[FetchRequest, Asked]:
    """Ask for what follows each log's end, and tell where each begins as far as that is on the disk: a leader answers
    DeleteRecords by it. incarnation: of this broker (KIP-903). max_bytes: of those that get less than is usual."""
    usual_bytes = config.replica_fetch_max_bytes
    topics: dict[str, FetchTopic] = {}
    asked: Asked = {}
    for partition in partitions:
        name, index = partition.topic_partition
        log = partition.log
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(name, [], partition.topic_id)
        offset = log.log_end_offset
        topic.partitions.append(
            FetchPartition(
                index,
                offset,
                max_bytes.get(partition, usual_bytes) if max_bytes else usual_bytes,
                partition.leader_epoch,
                log.last_epoch,
                partition.durable_log_start_offset,
            )
        )
        asked[partition.topic_partition] = (partition, partition.leader_epoch, offset)
    request = FetchRequest(
        max_wait_ms,
        config.replica_fetch_min_bytes,
        config.replica_fetch_response_max_bytes,
        list(topics.values()),
        broker_id,
        incarnation,
        is_idle=is_idle,
    )
    return request, asked
