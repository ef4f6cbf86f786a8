"""What `clients.py` has other people's clients do: the same loads, run by an interpreter that has these clients.

    python other_client_loads.py CLIENT LOAD BOOTSTRAP TOPIC COUNT

Prints one figure: records per second, or the median of microseconds. It imports nothing of ours. Settings are each
client's own defaults but for acks=all.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

VALUES = [b"%d" % number * 25 for number in range(1000, 2000)]
POLL_RECORDS = 5_000
TIMEOUT_S = 30.0


class ConfluentKafka:
    """librdkafka with its Python binding."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        import confluent_kafka

        self.library = confluent_kafka
        self.bootstrap = bootstrap
        self.topic = topic

    def _producer(self, **settings: object):
        named = {key.replace("_", "."): value for key, value in settings.items()}
        producer = self.library.Producer({"bootstrap.servers": self.bootstrap, "acks": "all", **named})
        producer.list_topics(self.topic, TIMEOUT_S)
        return producer

    def produce(self, records: int) -> float:
        producer = self._producer()
        values = [VALUES[place % 1000] for place in range(records)]
        began = time.perf_counter()
        for value in values:
            while True:
                try:
                    producer.produce(self.topic, value)
                    break
                except BufferError:  # its queue is full
                    producer.poll(0.1)
        producer.flush(TIMEOUT_S)
        return records / (time.perf_counter() - began)

    def consume(self, records: int) -> float:
        consumer = self.library.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "bench", "enable.auto.commit": False}
        )
        partitions = consumer.list_topics(self.topic, TIMEOUT_S).topics[self.topic].partitions
        consumer.assign([self.library.TopicPartition(self.topic, number, 0) for number in partitions])
        first = left = len(consumer.consume(POLL_RECORDS, TIMEOUT_S))
        began = time.perf_counter()
        while left < records:
            wanted = min(POLL_RECORDS, records - left)  # it waits for as many as it is asked for
            left += len([message.value() for message in consumer.consume(wanted, TIMEOUT_S)])
        took = time.perf_counter() - began
        consumer.close()
        return (records - first) / took

    def send_and_wait(self, times: int) -> float:
        producer = self._producer(linger_ms=0)
        took = []
        for _ in range(times):
            began = time.perf_counter()
            producer.produce(self.topic, VALUES[0], partition=0)
            producer.flush()
            took.append(time.perf_counter() - began)
        return statistics.median(took) * 1e6


class AioKafka:
    """aiokafka, of asyncio."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        import aiokafka

        self.library = aiokafka
        self.bootstrap = bootstrap
        self.topic = topic

    def produce(self, records: int) -> float:
        async def main() -> float:
            async with self.library.AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all") as producer:
                await producer.partitions_for(self.topic)
                values = [VALUES[place % 1000] for place in range(records)]
                began = time.perf_counter()
                for value in values:
                    await producer.send(self.topic, value)
                await producer.flush()
                return records / (time.perf_counter() - began)

        return asyncio.run(main())

    def consume(self, records: int) -> float:
        async def main() -> float:
            consumer = self.library.AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
            async with consumer:
                await consumer._client.force_metadata_update()
                partitions = sorted(await self._partitions(consumer))
                consumer.assign([self.library.TopicPartition(self.topic, number) for number in partitions])
                first = left = await self._take(consumer)
                began = time.perf_counter()
                while left < records:
                    left += await self._take(consumer)
                return (records - first) / (time.perf_counter() - began)

        return asyncio.run(main())

    async def _partitions(self, consumer) -> set[int]:
        await consumer.topics()
        return consumer.partitions_for_topic(self.topic)

    async def _take(self, consumer) -> int:
        return sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=POLL_RECORDS)).values()))

    def send_and_wait(self, times: int) -> float:
        async def main() -> float:
            took = []
            async with self.library.AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all") as producer:
                for _ in range(times):
                    began = time.perf_counter()
                    await producer.send_and_wait(self.topic, VALUES[0], partition=0)
                    took.append(time.perf_counter() - began)
            return statistics.median(took) * 1e6

        return asyncio.run(main())


CLIENTS = {"confluent_kafka": ConfluentKafka, "aiokafka": AioKafka}

if __name__ == "__main__":
    client, load, bootstrap, topic, count = sys.argv[1:]
    print(getattr(CLIENTS[client](bootstrap, topic), load)(int(count)))
