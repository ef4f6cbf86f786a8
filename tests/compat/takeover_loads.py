"""Records for a topic, sent by whichever broker has its turn; what is acknowledged is noted in the topic at once."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from compat.real_kafka import Kafka, Turn
from compat.takeover_topics import Shown, Topic
from strandline.client.errors import ClientError
from strandline.client.sync_producer import Producer

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
OLD_CODECS = (None, "gzip", "snappy")
"""Of formats 0 and 1."""
TEN_DAYS_MS = 10 * 86_400_000
TIMEOUT_S = 60.0
KILLED_AFTER_S = 3.0


@dataclass
class Load:
    """Records that differ from all others, and how they are sent."""

    topic: Topic
    records: list[tuple[bytes | None, bytes]]
    codec: str | None
    batch_bytes: int
    is_idempotent: bool

    def send(self, turn: Turn) -> None:
        """Every record is acknowledged."""
        known = len(self.topic.acknowledged)
        self._send_to(turn, TIMEOUT_S)
        assert len(self.topic.acknowledged) - known == len(self.records)
        if self.topic.kind == "transactional":
            self.topic.shown += [Shown(value, "commit") for _, value in self.records]

    def send_until_killed(self, turn: Turn) -> None:
        """What was acknowledged by then counts; what was not may be there or not."""
        with contextlib.suppress(KafkaError, TimeoutError, ClientError):
            self._send_to(turn, KILLED_AFTER_S)

    def _send_to(self, turn: Turn, timeout_s: float) -> None:
        if isinstance(turn, Kafka):
            asyncio.run(asyncio.wait_for(self._send_to_kafka(turn.address), timeout_s))
        else:
            self._send_to_ours(turn.address, timeout_s)

    async def _send_to_kafka(self, address: str) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            acks="all",
            compression_type=self.codec,
            enable_idempotence=self.is_idempotent,
            max_batch_size=self.batch_bytes,
        )
        await producer.start()
        sent: list[asyncio.Task[None]] = []
        try:
            for key, value in self.records:
                future = await producer.send(self.topic.name, value, key, 0, self._timestamp_ms())
                sent.append(asyncio.create_task(self._acknowledge(future, key, value)))
            await asyncio.gather(*sent)
        finally:
            for task in sent:
                task.cancel()
            with contextlib.suppress(TimeoutError, KafkaError):
                await asyncio.wait_for(producer.stop(), 1)

    async def _acknowledge(self, future: asyncio.Future[Any], key: bytes | None, value: bytes) -> None:
        self.topic.acknowledged[(await future).offset] = (key, value)

    def _send_to_ours(self, address: str, timeout_s: float) -> None:
        with Producer(
            address,
            acks="all",
            compression_type=self.codec or "none",
            batch_size=self.batch_bytes,
            delivery_timeout_ms=timeout_s * 1000,
            request_timeout_ms=timeout_s * 500,
            linger_ms=1,
        ) as producer:
            sent = [
                (producer.send(self.topic.name, value, key, 0, timestamp_ms=self._timestamp_ms()), key, value)
                for key, value in self.records
            ]
            for future, key, value in sent:
                self.topic.acknowledged[future.result().offset] = (key, value)

    def _timestamp_ms(self) -> int:
        return int(time.time() * 1000) - (TEN_DAYS_MS if self.topic.old_records else 0)


def random_load(topic: Topic, rng: random.Random, count: int, size: int) -> Load:
    """`count` records with seven keys and values of `size` bytes."""
    return Load(
        topic,
        [(b"k%d" % (place % 7), rng.randbytes(size)) for place in range(count)],
        rng.choice(OLD_CODECS if topic.kind == "old format" else CODECS),
        rng.choice((300, 2000, 10_000)),
        topic.kind != "old format" and rng.random() < 0.5,
    )
