"""The topics that all cases share, and how a case makes its own: what is in them is the same whoever reads."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle

from strandline import Admin, Consumer, Producer, TopicPartition
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import GroupOffset
from strandline.client.errors import UnknownTopic

FIRST_MS = 1_700_000_000_000
STEP_MS = 1000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACTED_KEYS, ONCE_OF = 7, 50
KEPT = {"retention.ms": "-1"}
"""Whatever times their records have."""
BATCH_BYTES = "2000"
"""Many small batches: there are edges within every range."""
BROKERS = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.01"}


@dataclass(frozen=True, slots=True)
class Topic:
    """`records` go round the partitions; `deleted`: by partition, where DeleteRecords lets it begin."""

    partitions: int = 1
    records: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    codecs: Sequence[str] = ("none",)
    deleted: Mapping[int, int] = field(default_factory=dict)


TOPICS = {
    "plain": Topic(3, 90),
    "more": Topic(2, 10),
    "empty": Topic(2),
    "one-record": Topic(3, 1),
    "set-by-brokers": Topic(2, 20, {"message.timestamp.type": "LogAppendTime"}),
    "every-codec": Topic(5, 100, codecs=CODECS),
    "truncated": Topic(3, 90, deleted={0: 10, 1: 30}),
    "compacted": Topic(1, 600, {"cleanup.policy": "compact", "segment.bytes": "4000"}),
    "large": Topic(1),
    "uneven": Topic(3),
}


def build(cluster: EmbeddedCluster) -> None:
    """Everything that the cases share."""
    bootstrap = cluster.bootstrap_servers
    with Admin(bootstrap) as admin:
        for name, topic in TOPICS.items():
            admin.create_topic(name, topic.partitions, 3, {**KEPT, **topic.configs})
        for name, topic in TOPICS.items():
            write(bootstrap, name, range(topic.records), topic.partitions, topic.codecs)
            if topic.deleted:
                admin.delete_records({TopicPartition(name, each): upto for each, upto in topic.deleted.items()})
        # A group's offsets make the internal topic, which no pattern may find.
        admin.alter_group_offsets("somebody", {TopicPartition("plain", 0): GroupOffset(1)})
    with Producer(bootstrap, max_request_size=2**20) as producer:
        for number, size in enumerate((900_000, 10, 900_000)):
            producer.send("large", random.Random(number).randbytes(size), timestamp_ms=FIRST_MS)
        for partition, count in enumerate((100, 10, 1)):
            for number in range(count):
                producer.send("uneven", b"%d" % number, partition=partition, timestamp_ms=FIRST_MS)
    until_compacted(cluster)


def write(
    bootstrap: str, topic: str, numbers: Iterable[int], partitions: int, codecs: Sequence[str] = ("none",)
) -> None:
    """Keys and values of which some are null and none is text, headers of all kinds; partition n has codec n. Batches
    leave when they are full, never because time is over."""
    settings = {"batch_size": BATCH_BYTES, "linger_ms": 60_000}
    producers = [Producer(bootstrap, compression_type=codec, **settings) for codec in codecs]
    turns = list(zip(range(partitions), cycle(producers)))
    try:
        for number in numbers:
            partition, producer = turns[number % partitions]
            producer.send(
                topic,
                None if number % 11 == 3 and topic != "compacted" else b"\xff\x00%d\r" % number,
                key=_key(topic, number),
                partition=partition,
                headers=_headers(number),
                timestamp_ms=FIRST_MS + STEP_MS * number,
            )
    finally:
        for producer in producers:
            producer.close()


def _key(topic: str, number: int) -> bytes | None:
    if topic == "compacted":
        return b"once %d" % number if number % ONCE_OF == 0 else b"key %d" % (number % COMPACTED_KEYS)
    return None if number % 7 == 2 else b"key %d" % (number % 5)


def _headers(number: int) -> list[tuple[str, bytes | None]]:
    if number % 5 == 0:
        return [("n", b"%d" % number), ("null", None), ("empty", b""), ("n", b"\xff"), ("", b"nameless")]
    return [("one", b"1")] if number % 5 == 1 else []


def until_compacted(cluster: EmbeddedCluster) -> None:
    """Reads until one record of each key is left in front of the leader's newest segment. Where that begins depends on
    where batches were cut: a flush cuts one while the first records of a topic are handed over."""
    partition = TopicPartition("compacted", 0)
    with Admin(cluster.bootstrap_servers) as admin:
        leader = admin.describe_topics(["compacted"])["compacted"].partitions[0].leader
    segments = (cluster.log_dir(leader) / str(partition)).glob("*.log")
    front = range(max(int(each.stem) for each in segments))
    while True:
        with Consumer(cluster.bootstrap_servers) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found = []
            while consumer.position(partition) < front.stop:
                for records in consumer.poll(timeout_ms=500).values():
                    found += [each.offset for each in records if each.offset in front]
        if len(found) == len(front[::ONCE_OF]) + COMPACTED_KEYS:
            return


def delete(bootstrap: str, topic: str) -> None:
    """Until nobody knows it any more."""
    with Admin(bootstrap) as admin:
        admin.delete_topic(topic)
        with suppress(UnknownTopic):
            while topic in admin.describe_topics([topic]):
                pass
