"""What is counted of each topic's traffic on this broker: plain integers, since it began to have a replica of it.

A row stands for as long as this broker has a replica of the topic; what goes with a row stays in the totals, which
never fall (Kafka's BrokerTopicStats). Requests that name topics which are not here are counted in one row of their own,
so that no client makes rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from strandline.protocol.errors import ErrorCode

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_AFTER_APPEND = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Such a request was counted when its records were appended."""
_NO_FAILURES = (
    *_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
COUNTED = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "bytes_rejected",
    "produce_requests",
    "fetch_requests",
    "failed_produce_requests",
    "failed_fetch_requests",
)


class TopicCounts:
    """Of one topic. Requests are counted per partition that they name, as Kafka does; bytes out are what consumers get.

    bytes_rejected: of batches that are larger than the topic takes."""

    __slots__ = COUNTED

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0

    def add(self, other: TopicCounts) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TopicRows(dict[str, TopicCounts]):
    """By topic; of one that is not here it is the row of all those (`others`), which stands under no name."""

    def __init__(self) -> None:
        self.others = TopicCounts()

    def __missing__(self, topic: str) -> TopicCounts:
        return self.others


class TopicTraffic:
    """A row for each topic that is here."""

    def __init__(self) -> None:
        self.rows = TopicRows()
        self.replication_bytes_in = 0
        """What this broker appended as a follower."""
        self.replication_bytes_out = 0
        """What it sent to followers."""

    def enter(self, topic: str) -> TopicCounts:
        """The row of a topic of which this broker has a replica now."""
        row = self.rows.get(topic)
        if row is None:
            row = self.rows[topic] = TopicCounts()
        return row

    def produce_refused(self, topic: str, code: int, size_bytes: int) -> None:
        """Nothing of a partition's batches is acknowledged. As in Kafka what asked the wrong broker, was damaged or hit
        a bad disk is no failure of the topic, and what is too large is counted in bytes."""
        row = self.rows[topic]
        if code in _TOO_LARGE:
            row.bytes_rejected += size_bytes
        elif code not in _NO_FAILURES:
            row.failed_produce_requests += 1
        if code not in _AFTER_APPEND:
            row.produce_requests += 1

    def keep(self, topics: Iterable[str]) -> None:
        """These are here now; the rows of others are given up."""
        for topic in sorted(self.rows.keys() - set(topics)):
            self.rows.others.add(self.rows.pop(topic))

    def total(self, name: str) -> int:
        """Of all topics there ever were. name: one of `COUNTED`. A scrape asks for one after the other, between which
        the loop turns: with a great many topics each is a millisecond, as long as no Python is run for a row."""
        total: int = sum(map(attrgetter(name), self.rows.values()), getattr(self.rows.others, name))
        return total
