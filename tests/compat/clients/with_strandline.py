"""Our own client, in the native dialect."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from compat.clients.driver import Record, Shown, arguments, given_records, show_acks
from strandline import Consumer, Producer, TopicPartition
from strandline.client.errors import CommitFailed

IN_GROUP = {"enable_auto_commit": False, "session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}


def produce(bootstrap: str, topic: str, codec: str) -> None:
    with Producer(bootstrap, acks="all", linger_ms=5, compression_type=codec) as producer:
        sent = [
            producer.send(topic, each.value, each.key, headers=each.headers, timestamp_ms=each.timestamp)
            for each in given_records()
        ]
        where = [future.result() for future in sent]
        show_acks((each.partition, each.offset) for each in where)


def consume(
    bootstrap: str, topics: list[str], count: int, timeout_s: float, group: str | None, assignor: str | None
) -> None:
    shown = Shown(count, timeout_s)
    in_group: dict[str, Any] = {} if group is None else {"group_id": group, **IN_GROUP}
    if assignor is not None:
        in_group["partition_assignment_strategy"] = assignor
    with Consumer(bootstrap, auto_offset_reset="earliest", **in_group) as consumer:
        if group is None:
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
            if polled and group is not None:
                shown.flush()
                with suppress(CommitFailed):  # others show these records, too
                    consumer.commit()


def main() -> None:
    asked = arguments()
    if asked.command == "produce":
        produce(asked.bootstrap, asked.topic, asked.codec)
    else:
        consume(asked.bootstrap, asked.topics, asked.count, asked.timeout, asked.group, asked.assignor)


if __name__ == "__main__":
    main()
