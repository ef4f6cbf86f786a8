"""What lines of the state-change log about a partition have in common; `protocol/history/lines.py` reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from strandline.broker.replication.partition import Partition
from strandline.protocol.history.lines import packed_leadership
from strandline.protocol.types import TopicId
from strandline.protocol.znodes import encode_uuid

PARTITIONS_PER_LINE = 1000


def partition_fields(partition: Partition) -> dict[str, Any]:
    """Which partition a line is about."""
    return named_fields(*partition.topic_partition, partition.topic_id)


def named_fields(topic: str, index: int, topic_id: TopicId) -> dict[str, Any]:
    return {"topic": topic, "topic_id": encode_uuid(topic_id), "partition": index}


def packed_leaders(partitions: Sequence[Partition]) -> Iterator[dict[str, Any]]:
    """For each line: which of the partitions are led here, and since which epoch."""
    led = [partition for partition in partitions if partition.leadership is not None]
    for first in range(0, len(led), PARTITIONS_PER_LINE):
        topic_ids: dict[str, str] = {}
        leading: dict[str, list[str]] = {}
        for partition in led[first : first + PARTITIONS_PER_LINE]:
            topic, index = partition.topic_partition
            if topic not in topic_ids:
                topic_ids[topic] = encode_uuid(partition.topic_id)
            leading.setdefault(topic, []).append(packed_leadership(index, partition.leader_epoch))
        yield {"topic_ids": topic_ids, "leading": leading}
