"""confluent-kafka, thus the newest librdkafka."""

from __future__ import annotations

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from compat.clients.driver import Record, Shown, arguments, given_records, headers_or_none, show_acks

_BATCH = 1000


def produce(bootstrap: str, topic: str, codec: str, idempotent: bool) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 5,
        }
    )
    acks: list[tuple[int, int]] = []

    def on_delivery(error, message, place: int) -> None:
        if error is not None:
            sys.exit(f"record {place} was not acknowledged: {error}")
        acks[place] = (message.partition(), message.offset())

    for place, record in enumerate(given_records()):
        acks.append((-1, -1))
        while True:
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=headers_or_none(record),
                    timestamp=record.timestamp,
                    on_delivery=lambda error, message, place=place: on_delivery(error, message, place),
                )
                break
            except BufferError:  # its queue is full
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60):
        sys.exit("not everything was acknowledged")
    show_acks(acks)


def consume(
    bootstrap: str, topics: list[str], count: int, group: str | None, timeout_s: float, assignor: str | None
) -> None:
    shown = Shown(count, timeout_s)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group or "none",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        **({"partition.assignment.strategy": assignor} if assignor else {}),
    }
    consumer = Consumer(settings)
    if group is None:
        found = consumer.list_topics(timeout=30).topics
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for topic in topics for number in found[topic].partitions]
        )
    else:
        consumer.subscribe(
            topics,
            on_assign=lambda _, partitions: shown.assigned((each.topic, each.partition) for each in partitions),
        )
    while not shown.is_done():
        messages = consumer.consume(_BATCH, timeout=0.5)
        for message in messages:
            if (error := message.error()) is not None:
                if error.code() == KafkaError._MAX_POLL_EXCEEDED or error.fatal():
                    sys.exit(str(error))
                continue
            record = Record(message.key(), message.value(), message.headers() or [], message.timestamp()[1])
            shown.record(message.topic(), message.partition(), message.offset(), record)
        if messages and group is not None:
            shown.flush()
            _commit(consumer)
    consumer.close()


def _commit(consumer: Consumer) -> None:
    """What a rebalance refuses, whoever gets the partitions reads again."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as failure:
        sys.stderr.write(f"not committed: {failure}\n")


def main() -> None:
    asked = arguments()
    if asked.command == "produce":
        produce(asked.bootstrap, asked.topic, asked.codec, asked.idempotent)
    else:
        consume(asked.bootstrap, asked.topics, asked.count, asked.group, asked.timeout, asked.assignor)


if __name__ == "__main__":
    main()
