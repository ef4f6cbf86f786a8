"""kafka-python."""

from __future__ import annotations

import sys

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError

from compat.clients.driver import Record, Shown, arguments, given_records, show_acks

_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


def produce(bootstrap: str, topic: str, codec: str, idempotent: bool) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        acks="all",
        linger_ms=5,
    )
    sent = [
        producer.send(topic, value=record.value, key=record.key, headers=record.headers, timestamp_ms=record.timestamp)
        for record in given_records()
    ]
    producer.flush(60)
    where = [future.get(timeout=60) for future in sent]
    show_acks((each.partition, each.offset) for each in where)
    producer.close()


def consume(
    bootstrap: str, topics: list[str], count: int, group: str | None, timeout_s: float, assignor: str | None
) -> None:
    shown = Shown(count, timeout_s)
    chosen = {} if assignor is None else {"partition_assignment_strategy": (_ASSIGNORS[assignor],)}
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        **chosen,
    )
    if group is None:
        consumer.assign(
            [TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)]
        )
        consumer.seek_to_beginning()
    else:
        consumer.subscribe(topics, listener=_Listener(shown))
    while not shown.is_done():
        found = consumer.poll(timeout_ms=500)
        for partition, records in found.items():
            for each in records:
                record = Record(each.key, each.value, each.headers, each.timestamp)
                shown.record(partition.topic, partition.partition, each.offset, record)
        if found and group is not None:
            shown.flush()
            try:
                consumer.commit()
            except KafkaError as failure:  # whoever gets the partitions reads them again
                sys.stderr.write(f"not committed: {failure}\n")
    consumer.close()


class _Listener(ConsumerRebalanceListener):
    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def on_partitions_revoked(self, revoked) -> None:
        pass

    def on_partitions_assigned(self, assigned) -> None:
        self._shown.assigned((each.topic, each.partition) for each in assigned)


def main() -> None:
    asked = arguments()
    if asked.command == "produce":
        produce(asked.bootstrap, asked.topic, asked.codec, asked.idempotent)
    else:
        consume(asked.bootstrap, asked.topics, asked.count, asked.group, asked.timeout, asked.assignor)


if __name__ == "__main__":
    main()
