"""Which partition a row goes to. Pure.

Under exactly once the same row goes to the same partition in every attempt, so it depends on the row and on the number
of partitions only: rows with a key go where every producer of Kafka puts them, those without by a checksum of their
value. (Otherwise the producer chooses for the latter: a batch of rows at a time.)
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from strandline.client.accumulator import ToSend
from strandline.client.partitioner import partition_for_key
from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import WriteFailed
from strandline.spark_connector.writing.columns import Rows

Unplaced = tuple[str, int | None]
"""Topic and partition; None: the producer chooses."""


def placed(rows: Rows, partitions_count: Callable[[str], int]) -> dict[TopicPartition, list[ToSend]]:
    """Rows by partition, in order. WriteFailed: a row names a partition that its topic does not have."""
    groups: dict[TopicPartition, list[ToSend]] = {}
    for (topic, given), records in unplaced(rows).items():
        count = partitions_count(topic)
        if given is not None:
            if given >= count:
                raise WriteFailed(f"topic {topic!r} has no partition {given}, only {count} of them")
            groups.setdefault(TopicPartition(topic, given), []).extend(records)
            continue
        by_number: list[list[ToSend]] = [[] for _ in range(count)]
        for record in records:
            key = record[0]
            if key is None:
                by_number[crc32(record[1] or b"") % count].append(record)
            else:
                by_number[partition_for_key(key, count)].append(record)
        for number, chosen in enumerate(by_number):
            if chosen:
                groups.setdefault(TopicPartition(topic, number), []).extend(chosen)
    return groups


def unplaced(rows: Rows) -> dict[Unplaced, list[ToSend]]:
    """Rows by topic and by the partition that they name, in order."""
    if isinstance(rows.topics, str) and rows.partitions is None:
        return {(rows.topics, None): rows.records} if rows.records else {}
    size = len(rows.records)
    topics = [rows.topics] * size if isinstance(rows.topics, str) else rows.topics
    groups: dict[Unplaced, list[ToSend]] = {}
    for topic, partition, record in zip(topics, rows.partitions or [None] * size, rows.records, strict=True):
        groups.setdefault((topic, partition), []).append(record)
    return groups
