"""Our own client, in the native dialect."""

from __future__ import annotations

import sys

from compat.clients.driver import Record, Shown, arguments, given_records, show_acks
from strandline import Consumer, Producer, TopicPartition


def produce(bootstrap: str, topic: str, codec: str) -> None:
    with Producer(bootstrap, acks="all", linger_ms=5, compression_type=codec) as producer:
        sent = [
            producer.send(topic, each.value, each.key, headers=each.headers, timestamp_ms=each.timestamp)
            for each in given_records()
        ]
        where = [future.result() for future in sent]
        show_acks((each.partition, each.offset) for each in where)


def consume(bootstrap: str, topics: list[str], count: int, timeout_s: float) -> None:
    shown = Shown(count, timeout_s)
    with Consumer(bootstrap) as consumer:
        partitions = [
            TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)
        ]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while not shown.is_done():
            for tp, records in consumer.poll(timeout_ms=500).items():
                for each in records:
                    record = Record(each.key, each.value, list(each.headers), each.timestamp_ms)
                    shown.record(tp.topic, tp.partition, each.offset, record)


def main() -> None:
    asked = arguments()
    if asked.command == "produce":
        produce(asked.bootstrap, asked.topic, asked.codec)
    elif asked.group is not None:
        sys.exit("groups are for others")
    else:
        consume(asked.bootstrap, asked.topics, asked.count, asked.timeout)


if __name__ == "__main__":
    main()
