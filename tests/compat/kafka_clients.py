"""What programs do with a real Kafka, or with us: transactions, groups, moves between directories, configurations.

All of it by clients in this process (aiokafka, and requests of our own where it has none), since a tool of Kafka's
costs a Java virtual machine each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String
from kazoo.exceptions import NoNodeError

from compat.real_kafka import Kafka, Site, Turn, wait_until

T = TypeVar("T")
TRANSACTION_TIMEOUT_MS = 600_000
"""What is left open stays open until its producer comes back."""
BROKER_DEFAULTS = "brokers/<default>"
MOVE_BYTES_PER_SECOND = "replica.alter.log.dirs.io.max.bytes.per.second"


class AlterReplicaLogDirsResponse_v1(Response):
    API_KEY = 34
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            Array(("topic", String("utf-8")), ("partitions", Array(("partition", Int32), ("error_code", Int16)))),
        ),
    )


class AlterReplicaLogDirsRequest_v1(RequestStruct):
    """What `kafka-reassign-partitions` sends for a `log_dirs` entry; aiokafka has no class for it."""

    API_KEY = 34
    API_VERSION = 1
    RESPONSE_TYPE = AlterReplicaLogDirsResponse_v1
    SCHEMA = Schema(
        (
            "dirs",
            Array(
                ("path", String("utf-8")), ("topics", Array(("topic", String("utf-8")), ("partitions", Array(Int32))))
            ),
        )
    )


def move(kafka: Kafka, topic: str, directory: Path) -> None:
    """Begin to move partition 0 to this directory; it goes on behind the answer."""
    kafka.bounds(topic)
    answer = kafka.ask(AlterReplicaLogDirsRequest_v1([(str(directory), [(topic, [0])])]))
    assert answer.results[0][1] == [(0, 0)], f"{topic}-0 is not moved to {directory}: {answer}"


def futures(site: Site) -> list[Path]:
    """The folders of moves that are not done."""
    return sorted(path for directory in site.directories for path in directory.glob("*-future"))


def transact(
    kafka: Kafka, name: str, topic: str, batches: Sequence[Sequence[bytes]], end: str, partition: int = 0
) -> None:
    """One transaction of producer `name`; each of `batches` is acknowledged before the next is sent. `end`: commit,
    abort, or open (nothing is said; the producer is gone)."""

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka.address,
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=1,
        )
        await producer.start()
        try:
            await producer.begin_transaction()
            for batch in batches:
                await asyncio.gather(*[await producer.send(topic, value, partition=partition) for value in batch])
            if end == "commit":
                await producer.commit_transaction()
            elif end == "abort":
                await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())


def abort_what_is_open(kafka: Kafka, name: str) -> None:
    """Producer `name` comes back, which ends the transaction that its past life left open."""

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.address, transactional_id=name)
        await producer.start()
        await producer.stop()

    asyncio.run(run())


def read_values(kafka: Kafka, topic: str, isolation_level: str, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """(offset, value) of what Kafka's protocol shows to a consumer of this isolation level."""

    async def run() -> list[tuple[int, bytes | None]]:
        at = TopicPartition(topic, partition)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=kafka.address,
            isolation_level=isolation_level,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            consumer.assign([at])
            end = (await consumer.end_offsets([at]))[at]
            found: list[tuple[int, bytes | None]] = []
            async with asyncio.timeout(60):
                while await consumer.position(at) < end:
                    records = (await consumer.getmany(at, timeout_ms=200)).get(at, [])
                    found += [(record.offset, record.value) for record in records if record.offset < end]
            return found
        finally:
            await consumer.stop()

    kafka.bounds(topic, partition)
    return asyncio.run(run())


def commit_group(broker: Turn, group: str, topic: str, offset: int) -> None:
    """Group `group` commits this offset of partition 0."""

    async def run() -> None:
        async with _group(broker, group) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.commit({TopicPartition(topic, 0): offset})

    asyncio.run(run())


def committed_of_group(broker: Turn, group: str, topic: str) -> int | None:
    """What group `group` had committed of partition 0."""

    async def run() -> int | None:
        async with _group(broker, group) as consumer:
            return await consumer.committed(TopicPartition(topic, 0))

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def _group(broker: Turn, group: str) -> Any:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


def delete_records(kafka: Kafka, topic: str, before: int) -> None:
    """Of partition 0. Returns when a SIGKILL does not undo it any more: Kafka answers before it is on the disk."""
    records = {TopicPartition(topic, 0): RecordsToDelete(before)}
    _as_admin(kafka, lambda admin: admin.delete_records(records))

    def is_lasting() -> bool:
        bases = [int(path.stem) for where in kafka.site.directories for path in where.glob(f"{topic}-0/*.log")]
        checkpoints = [where / "log-start-offset-checkpoint" for where in kafka.site.directories]
        starts = [path.read_text() for path in checkpoints if path.exists()]
        return min(bases) >= before or any(f"{topic} 0 {before}\n" in text for text in starts)

    wait_until(is_lasting, f"Kafka wrote that {topic} begins at {before}")


def delete_topic(kafka: Kafka, topic: str) -> None:
    """Returns when its znode is gone."""
    _as_admin(kafka, lambda admin: admin.delete_topics([topic]))
    with kafka.site.znodes() as client:
        wait_until(lambda: client.exists(f"/brokers/topics/{topic}") is None, f"Kafka deleted {topic}")


def _as_admin(kafka: Kafka, do: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
    async def run() -> T:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.address)
        await admin.start()
        try:
            return await do(admin)
        finally:
            await admin.close()

    return asyncio.run(run())


def configure(site: Site, entity: str, config: Mapping[str, str]) -> None:
    """Overrides of `topics/<name>`, `brokers/<id>` or `brokers/<default>`, written as Kafka's controller writes them;
    who runs is told by the change znode."""
    with site.znodes() as client:
        path, data = f"/config/{entity}", json.dumps({"version": 1, "config": dict(config)}).encode()
        client.ensure_path(path)
        client.set(path, data)
        with contextlib.suppress(NoNodeError):  # nobody was ever there to be told
            change = json.dumps({"version": 2, "entity_path": entity}).encode()
            client.create("/config/changes/config_change_", change, sequence=True)
