"""aiokafka."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from compat.clients.driver import Record, Shown, arguments, given_records, headers_or_none, show_acks

_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


async def produce(bootstrap: str, topic: str, codec: str, idempotent: bool) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        acks="all",
        linger_ms=5,
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=headers_or_none(record),
                timestamp_ms=record.timestamp,
            )
            for record in given_records()
        ]
        where = await asyncio.wait_for(asyncio.gather(*sent), 60)
        show_acks((each.partition, each.offset) for each in where)
    finally:
        await producer.stop()


async def consume(
    bootstrap: str, topics: list[str], count: int, group: str | None, timeout_s: float, assignor: str | None
) -> None:
    shown = Shown(count, timeout_s)
    chosen = {} if assignor is None else {"partition_assignment_strategy": (_ASSIGNORS[assignor],)}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        **chosen,
    )
    if group is not None:
        consumer.subscribe(topics, listener=_Listener(shown))
    await consumer.start()
    try:
        if group is None:
            cluster = await consumer._client.fetch_all_metadata()  # it has no question for topics not subscribed
            consumer.assign(
                [TopicPartition(topic, number) for topic in topics for number in cluster.partitions_for_topic(topic)]
            )
            await consumer.seek_to_beginning()
        while not shown.is_done():
            found = await consumer.getmany(timeout_ms=500)
            for partition, records in found.items():
                for each in records:
                    record = Record(each.key, each.value, list(each.headers), each.timestamp)
                    shown.record(partition.topic, partition.partition, each.offset, record)
            if found and group is not None:
                shown.flush()
                try:
                    await consumer.commit()
                except KafkaError as failure:  # whoever gets the partitions reads them again
                    sys.stderr.write(f"not committed: {failure}\n")
    finally:
        await consumer.stop()


class _Listener(ConsumerRebalanceListener):
    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    async def on_partitions_revoked(self, revoked) -> None:
        pass

    async def on_partitions_assigned(self, assigned) -> None:
        self._shown.assigned((each.topic, each.partition) for each in assigned)


def main() -> None:
    asked = arguments()
    if asked.command == "produce":
        asyncio.run(produce(asked.bootstrap, asked.topic, asked.codec, asked.idempotent))
    else:
        asyncio.run(consume(asked.bootstrap, asked.topics, asked.count, asked.group, asked.timeout, asked.assignor))


if __name__ == "__main__":
    main()
