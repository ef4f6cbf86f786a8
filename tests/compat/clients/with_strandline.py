"""Our own client, in the native dialect."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

from compat.clients.driver import Record, Shown, arguments, given_records, show_acks
from strandline import Consumer, Producer, TopicPartition
from strandline.client.errors import CommitFailed

IN_GROUP = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000, "auto_commit_interval_ms": 500}


def produce(bootstrap: str, topic: str, codec: str, idempotent: bool) -> None:
    with Producer(
        bootstrap, acks="all", linger_ms=5, compression_type=codec, enable_idempotence=idempotent
    ) as producer:
        sent = [
            producer.send(topic, each.value, each.key, headers=each.headers, timestamp_ms=each.timestamp)
            for each in given_records()
        ]
        where = [future.result() for future in sent]
        show_acks((each.partition, each.offset) for each in where)


def consume(asked: argparse.Namespace) -> None:
    shown = Shown(asked.count, asked.timeout)
    topics, commits = asked.topics, asked.group is not None and not asked.auto_commit
    in_group: dict[str, Any] = {}
    if asked.group is not None:
        in_group = {"group_id": asked.group, "enable_auto_commit": asked.auto_commit, **IN_GROUP}
    if asked.assignor is not None:
        in_group["partition_assignment_strategy"] = asked.assignor
    with Consumer(asked.bootstrap, auto_offset_reset="earliest", **in_group) as consumer:
        if asked.group is None:
            consumer.assign(
                [TopicPartition(topic, n) for topic in topics for n in consumer.partitions_for_topic(topic)]
            )
        else:
            consumer.subscribe(topics, on_assigned=lambda given: shown.assigned(given) if given else None)
        while not shown.is_done():
            polled = consumer.poll(timeout_ms=500)
            for tp, records in polled.items():
                for each in records:
                    record = Record(each.key, each.value, list(each.headers), each.timestamp_ms)
                    shown.record(tp.topic, tp.partition, each.offset, record)
            shown.flush()  # the next poll may commit
            if polled and commits:
                with suppress(CommitFailed):  # others show these records, too
                    consumer.commit()


def main() -> None:
    asked = arguments()
    if asked.command == "produce":
        produce(asked.bootstrap, asked.topic, asked.codec, asked.idempotent)
    else:
        consume(asked)


if __name__ == "__main__":
    main()
