"""How much a client asks of one broker at a time, and the answer that refuses a request as a whole.

A broker refuses a request that names more than it takes (INVALID_REQUEST) and ends the connection. What is beyond
`MAX_ASKED` is asked in further requests; in fetches, which wait at the broker, partitions take turns.

Where a request could not be read, an answer without an error of its own has one element that names no topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.types import NO_PARTITION, NO_TOPIC, TopicPartition

T = TypeVar("T")

MAX_ASKED = MAX_NAMED // 2
"""Topics, or partitions, in one request: half of what brokers take, so that its body stays within their 2 MiB however
long the names are."""

ALL_ASKED = TopicPartition(NO_TOPIC, NO_PARTITION)
"""What an answer names that refuses everything that was asked."""


def in_parts(items: Iterable[T], most: int | None = None) -> Iterator[list[T]]:
    """The items in lists of at most so many (`MAX_ASKED`); none for no items."""
    rest = iter(items)
    while part := list(islice(rest, most or MAX_ASKED)):
        yield part


def of(topic_partition: TopicPartition) -> str:
    """For an error's text: " of t-0", or nothing where the error is about all that was asked."""
    return "" if topic_partition == ALL_ASKED else f" of {topic_partition}"
