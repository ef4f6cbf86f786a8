"""One consumed record, and some of them that are lent to a loop over a consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from strandline.protocol.types import TopicPartition


class ConsumerRecord(NamedTuple):
    """One consumed record. `timestamp_ms`: since 1970; `timestamp_type` 0: CreateTime, 1: LogAppendTime. `key` and
    `value`: bytes or None, or what the consumer's deserializers have made of them."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]

    @property
    def topic_partition(self) -> TopicPartition:
        """Where it stands, as `seek`, `commit` and the like take it."""
        return TopicPartition(self.topic, self.partition)

    @property
    def timestamp(self) -> int:
        """`timestamp_ms`, by the name that it has in Kafka's clients."""
        return self.timestamp_ms

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name; None where there is none, or it has none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


class Loan:
    """Records of one partition, lent to a loop. The program's thread moves `taken`; the event loop's looks at it, and
    ends the loan where the program shall go on elsewhere."""

    __slots__ = ("generation", "is_over", "parts_at", "records", "taken")

    def __init__(self, records: Sequence[ConsumerRecord], generation: int) -> None:
        self.records = records
        self.taken = 0
        self.is_over = False
        self.generation = generation
        """Of the partition's state."""
        self.parts_at: int | None = None
        """Where the log has other records by now."""

    @property
    def next_offset(self) -> int | None:
        """Of the first that was not taken, and from where on the log has others at the latest; None: all were."""
        taken, parts_at = self.taken, self.parts_at
        if taken >= len(self.records):
            return None
        offset: int = self.records[taken].offset
        return offset if parts_at is None else min(offset, parts_at)
