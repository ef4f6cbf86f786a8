"""One line in the driver's log for each batch that is planned: what it reads, and how far a stream is behind.

Spark's progress has no place for figures of a source in Python, so they are told here. They are known before anything
is read: records are counted by offsets, of which compaction may have removed some, and bytes are an estimate.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.reading.planning import OffsetRange

LOGGER = "strandline.spark"

MOST_TOPICS = 10
"""So many are named in one line, those that are furthest behind first."""


class PlannedBatch(NamedTuple):
    """`lag`: topic → offsets that are left behind the batch, up to the latest ones; None of a read that is no stream.
    `size_bytes`: about what the batch reads of the log; None where nobody asked how large records are."""

    tasks: int
    partitions: int
    offsets: int
    lag: Mapping[str, int] | None = None
    size_bytes: int | None = None

    def line(self, took_ms: float) -> str:
        """In words."""
        kind = "a read" if self.lag is None else "a batch"
        text = (
            f"planned {kind} of {_counted(self.offsets, 'offset')} of {_counted(self.partitions, 'partition')} "
            f"in {_counted(self.tasks, 'task')} within {took_ms:.0f} ms"
        )
        if self.size_bytes is not None:
            text += f", about {self.size_bytes} bytes"
        if self.lag is not None:
            text += f"; then behind the latest offsets: {_lag(self.lag)}"
        return text


def planned_batch(
    tasks: Iterable[OffsetRange],
    left: Mapping[TopicPartition, int] | None = None,
    bytes_per_offset: Mapping[TopicPartition, float] | None = None,
) -> PlannedBatch:
    """`left`: how many offsets of each partition are behind the batch; `bytes_per_offset`: of all that it reads, or it
    tells no bytes."""
    sizes: dict[TopicPartition, int] = {}
    count = 0
    for each in tasks:
        count += 1
        partition = TopicPartition(each.topic, each.partition)
        sizes[partition] = sizes.get(partition, 0) + each.size
    lag: dict[str, int] | None = None
    if left is not None:
        lag = {}
        for partition, offsets in sorted(left.items()):
            lag[partition.topic] = lag.get(partition.topic, 0) + offsets
    size_bytes = None
    if bytes_per_offset and sizes.keys() <= bytes_per_offset.keys():
        size_bytes = round(sum(size * bytes_per_offset[each] for each, size in sizes.items()))
    return PlannedBatch(count, len(sizes), sum(sizes.values()), lag, size_bytes)


def tell(text: str) -> None:
    """Write a line where Spark shows what its Python processes on the driver say: to standard error, unless logging was
    set up for this process, as Spark does it where `spark.sql.pyspark.worker.logging.enabled` is set."""
    logger = logging.getLogger(LOGGER)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S"))
        logger.addHandler(handler)
    logger.info(text)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _lag(lag: Mapping[str, int]) -> str:
    furthest = sorted(lag.items(), key=lambda each: (-each[1], each[0]))
    more = f", and {_counted(len(furthest) - MOST_TOPICS, 'more topic')}" if len(furthest) > MOST_TOPICS else ""
    return ", ".join(f"{topic} {offsets}" for topic, offsets in furthest[:MOST_TOPICS]) + more
