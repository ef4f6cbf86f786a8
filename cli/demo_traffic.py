"""The demo's producer and consumer: everything in, everything out, and what the producer was told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio

from strandline.cli.demo_check import Acknowledged, Consumed, DemoFailed
from strandline.cli.demo_source import SourceFile
from strandline.client.consumer import TrioConsumer
from strandline.client.delivery import DeliveredBatch, FailedBatch
from strandline.client.producer import TrioProducer
from strandline.protocol.types import TopicPartition

_SILENCE_LIMIT_S = 60.0
_POLL_MS = 1000
_POLL_RECORDS = 20_000

PRODUCER_SETTINGS: dict[str, Any] = {
    "acks": "all",
    "linger_ms": 10,
    "batch_size": 64 * 1024,
    # Small, so that what is accepted is not far ahead of what is acknowledged: half-way is then half-way.
    "buffer_memory": 4 * 1024 * 1024,
}


class Ledger:
    """What the producer was told: acknowledgements by partition; failures end the demo."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, list[Acknowledged]] = {}
        self.records = 0
        self.failure: FailedBatch | None = None

    def settle(self, batch: DeliveredBatch | FailedBatch) -> None:
        if isinstance(batch, FailedBatch):
            self.failure = self.failure or batch
            return
        self.acknowledged.setdefault(batch.partition, []).append(Acknowledged(batch.base_offset, batch.records_count))
        self.records += batch.records_count

    def require_no_failure(self) -> None:
        """DemoFailed naming the first batch that was given up."""
        if self.failure is not None:
            raise DemoFailed(
                f"{self.failure.records_count} records for partition {self.failure.partition} were given up: "
                f"{self.failure.error}"
            )


async def produce(bootstrap_servers: str, topic: str, files: Sequence[SourceFile], ledger: Ledger) -> None:
    """Send every line of every file and wait until all are acknowledged. DemoFailed if one was given up."""
    async with TrioProducer(bootstrap_servers, on_batch=ledger.settle, **PRODUCER_SETTINGS) as producer:
        for file in files:
            await producer.send_many(topic, [(file.key, line) for line in file.lines])
            ledger.require_no_failure()
        await producer.flush()
    ledger.require_no_failure()
    expected = sum(file.lines_count for file in files)
    if ledger.records != expected:
        raise DemoFailed(f"{ledger.records} records were acknowledged instead of {expected}")


async def consume(
    bootstrap_servers: str, topic: str, progress: Callable[[int, int], None]
) -> dict[int, list[Consumed]]:
    """Partition → all its records from the first to the end as it is now. `progress` is told how many were read and how
    many there are. DemoFailed when nothing comes for long."""
    async with TrioConsumer(bootstrap_servers, max_poll_records=_POLL_RECORDS) as consumer:
        partitions = [TopicPartition(topic, number) for number in await consumer.partitions_for_topic(topic)]
        await consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        logs: dict[int, list[Consumed]] = {partition.partition: [] for partition in partitions}
        left = {partition: end for partition, end in ends.items() if end > 0}
        silent_since, total = trio.current_time(), sum(ends.values())
        while left:
            polled = await consumer.poll(timeout_ms=_POLL_MS, max_records=_POLL_RECORDS)
            for partition, records in polled.items():
                logs[partition.partition] += [Consumed(record.offset, record.key, record.value) for record in records]
                if records[-1].offset + 1 >= left.get(partition, 0):
                    left.pop(partition, None)
            progress(sum(len(log) for log in logs.values()), total)
            now = trio.current_time()
            silent_since = now if polled else silent_since
            if now - silent_since > _SILENCE_LIMIT_S:
                raise DemoFailed(f"no record came for {_SILENCE_LIMIT_S:.0f} s; unread: {sorted(left)}")
    return logs
