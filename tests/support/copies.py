"""Topics that are written, copied by a pipeline, and compared record by record: as multisets, so that nothing may be
missing and nothing may stand twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from strandline import Consumer, Producer, TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK = 500
KEPT = {"min.insync.replicas": "2", "retention.ms": "-1"}
"""Of a topic whose records have times of long ago."""
FIRST_MS = 1_700_000_000_000


class Content(NamedTuple):
    """All of a record but its place."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def content(number: int, keys: int = 0) -> Content:
    """Of record `number`, which no other record has; `keys`: so many, which come again (every record has one)."""
    key = b"%d" % (number % keys) if keys else None if number % 7 == 0 else b"key %d" % (number % 100)
    value = None if number % 11 == 3 and not keys else b"\xff\x00%d " % number + b"x" * (number % 150)
    return Content(key, value, FIRST_MS + number, (("n", b"%d" % number), ("null", None)) if number % 5 == 0 else ())


def write(bootstrap: str, topic: str, numbers: Sequence[int], codec: str = "none", keys: int = 0) -> None:
    """In chunks, whatever happens to brokers meanwhile; returns when all are acknowledged."""
    with Producer(bootstrap, acks="all", compression_type=codec, delivery_timeout_ms=120_000) as producer:
        sent = []
        for first in range(0, len(numbers), CHUNK):
            rows = [
                (each.key, each.value, each.headers, each.timestamp_ms)
                for each in (content(number, keys) for number in numbers[first : first + CHUNK])
            ]
            sent.append(producer.send_many(topic, rows))
        for future in sent:
            future.result()


def expected(numbers: Sequence[int], keys: int = 0) -> Counter[Content]:
    return Counter(content(number, keys) for number in numbers)


def standing(bootstrap: str, topic: str) -> Counter[Content]:
    """All records of a topic."""
    found: Counter[Content] = Counter()
    for record in _records(bootstrap, topic):
        found[Content(record.key, record.value, record.timestamp_ms, tuple(map(tuple, record.headers)))] += 1
    return found


def values(bootstrap: str, topic: str) -> Counter[bytes | None]:
    """All values of a topic, with how often each stands."""
    return Counter(record.value for record in _records(bootstrap, topic))


def _records(bootstrap: str, topic: str) -> Iterator[Any]:
    with Consumer(bootstrap) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < end for each, end in ends.items()):
            for records in consumer.poll(timeout_ms=500).values():
                yield from records


def contents(rows: Any) -> Counter[Content]:
    """Of the rows of a source of Spark (with headers)."""
    return Counter(
        Content(
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            round(row.timestamp.timestamp() * 1000),
            tuple((each.key, None if each.value is None else bytes(each.value)) for each in row.headers or ()),
        )
        for row in rows
    )


def unlike(found: Counter[Content], wanted: Counter[Content]) -> str:
    """What is missing and what stands too often; empty where nothing is."""
    missing, doubled = wanted - found, found - wanted
    if not missing and not doubled:
        return ""
    return (
        f"{missing.total()} of {wanted.total()} missing, such as {_some(missing)}; {doubled.total()} too many, such as "
        f"{_some(doubled)}"
    )


def _some(counted: Counter[Content]) -> list[Content]:
    return random.Random(0).sample(sorted(counted, key=repr), min(3, len(counted)))
