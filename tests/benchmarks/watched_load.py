"""What a producer with acks=all notices while something happens to its cluster: the pauses of each of its partitions,
and its errors; and a load beside it, since nothing happens to a cluster that does nothing else."""

from __future__ import annotations

import time
from functools import partial as bound

import trio

from strandline.client import TrioAdmin, TrioProducer
from strandline.client.delivery import Delivery
from support.pace import Pace
from support.pauses import Pauses

INTERVAL_S = 0.02
LOAD_TOPIC, LOAD_PARTITIONS = "load", 6
LOAD_RECORD_BYTES = 10_000
LOAD_CONFIGS = {"min.insync.replicas": "2", "segment.bytes": str(16 * 2**20), "retention.bytes": str(64 * 2**20)}
"""Of the load's topic: it takes 500 MB on each broker at most, however long it runs."""
LOAD_PROPERTIES = {"log.retention.check.interval.ms": "10000"}
"""Of brokers, so that retention keeps up with it."""
LOAD_PATIENCE_MS = 120_000
TICK_S = 0.02


class WatchedLoad:
    """One record to each partition of a topic every 20 ms. Pauses are in seconds of the wall clock, as the brokers'
    logs have it."""

    def __init__(self, topic: str, partitions: int) -> None:
        self.pauses = Pauses(partitions)
        self.errors: list[str] = []
        self._topic = topic
        self._partitions = partitions

    def begin(self) -> None:
        """Forget the pauses and errors that were."""
        self.pauses.begin()
        self.errors = []

    async def produce(self, producer: TrioProducer) -> None:
        while True:
            for partition in range(self._partitions):
                delivery = await producer.send(self._topic, b"x" * 100, partition=partition)
                delivery.add_done_callback(bound(self._settled, partition))
            await trio.sleep(INTERVAL_S)

    def _settled(self, partition: int, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self.pauses.came(partition, time.time())
        else:
            self.errors.append(repr(error))


class LoadBeside:
    """Records of 10 KB to a topic of its own, with acks=all, at a bounded rate: what a stall held back is not sent
    afterwards."""

    def __init__(self, bootstrap_servers: str, megabytes_per_s: float) -> None:
        self.acked_bytes = 0
        self._bootstrap_servers = bootstrap_servers
        self._records_per_s = megabytes_per_s * 1e6 / LOAD_RECORD_BYTES

    async def create_topic(self, admin: TrioAdmin, replication_factor: int) -> None:
        await admin.create_topic(
            LOAD_TOPIC,
            num_partitions=LOAD_PARTITIONS,
            replication_factor=replication_factor,
            configs=LOAD_CONFIGS,
        )

    async def run(self) -> None:
        """Until it is cancelled. It has connections of its own."""
        async with TrioProducer(
            self._bootstrap_servers, acks="all", linger_ms=5, max_block_ms=LOAD_PATIENCE_MS
        ) as producer:
            pace, number = Pace(self._records_per_s), 0
            while True:
                for _ in range(pace.due()):
                    number += 1
                    delivery = await producer.send(
                        LOAD_TOPIC, b"x" * LOAD_RECORD_BYTES, partition=number % LOAD_PARTITIONS
                    )
                    delivery.add_done_callback(self._settled)
                await trio.sleep(TICK_S)

    def _settled(self, delivery: Delivery) -> None:
        if delivery.exception() is None:
            self.acked_bytes += LOAD_RECORD_BYTES
