"""Small value types that every layer shares: integers with their wire width, topic ids, partitions."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from msgspec import Meta

Int8 = Annotated[int, Meta(ge=-(2**7), le=2**7 - 1)]
Int16 = Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

TopicId = bytes
"""16 bytes (a random UUID); `NO_TOPIC_ID` where the sender does not know it."""

NO_TOPIC_ID: TopicId = bytes(16)

NO_EPOCH = -1
"""Leader epoch, producer epoch or broker epoch that is not known."""

NO_PRODUCER_ID = -1
"""The producer id of batches, and of producers, that are not idempotent."""

NO_TOPIC = ""
NO_PARTITION = -1
"""What the one element of an answer is about that refuses a request as a whole."""

NO_OFFSET = -1
"""An offset that does not exist."""

NO_BROKER = -1
"""The "leader" of a partition that has none, and the replica id of a consumer."""

ANY_REPLICA = -2
"""The replica id of a request that any replica answers from its own log, leader or not (Kafka's debugging id)."""


class TopicPartition(NamedTuple):
    """One partition of one topic; `str()` gives the folder name, `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
