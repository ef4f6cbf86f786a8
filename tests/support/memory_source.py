"""A cluster as Spark's source sees it (`reader.Cluster`), made of real record batches in memory."""

from __future__ import annotations

from typing import Any

from strandline.protocol.records import assign_offset, build_batch, scan
from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.spark_connector.errors import OffsetGone
from strandline.spark_connector.reading.planning import Held

T0 = TopicPartition("t", 0)


class MemoryCluster:
    """Partitions as lists of batches; each fetch returns at most `batches_per_fetch`."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.log_start: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.timed: dict[TopicPartition, int | None] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.leading: dict[TopicPartition, int] = {}
        self.batches_per_fetch = 2
        self.fetches = 0

    def add(self, partition: TopicPartition, base_offset: int, values: list[Any], codec: str = "none") -> None:
        batch = bytearray(build_batch([(1000 + index, b"k", value) for index, value in enumerate(values)], codec))
        assign_offset(batch, base_offset, 0)
        self.batches.setdefault(partition, []).append(bytes(batch))
        self.high_watermarks[partition] = base_offset + len(values)

    def topics(self) -> list[str]:
        return sorted({partition.topic for partition in self.batches})

    def partitions(self, topic: str) -> list[int]:
        return [partition.partition for partition in self.batches if partition.topic == topic]

    def topic_id(self, topic: str) -> bytes:
        return self.topic_ids.get(topic, NO_TOPIC_ID)

    def leaders(self, topic: str) -> dict[int, int]:
        return {each.partition: leader for each, leader in self.leading.items() if each.topic == topic}

    def held(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Held]:
        return {each: Held(self.log_start.get(each, 0), self.high_watermarks.get(each, 0)) for each in partitions}

    def offsets_at(self, timestamps_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {partition: self.timed.get(partition) for partition in timestamps_ms}

    def fetch(self, partition: TopicPartition, offset: int, timeout_ms: int) -> bytes:
        self.fetches += 1
        if not self.log_start.get(partition, 0) <= offset <= self.high_watermarks[partition]:
            raise OffsetGone(f"{offset}")
        whole = [batch for batch in self.batches[partition] if next(scan(batch))[1].next_offset > offset]
        return b"".join(whole[: self.batches_per_fetch])
