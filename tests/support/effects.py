"""What a broker does by its configuration, looked at from outside: one broker in memory whose dynamic keys change.

Each look makes a topic of its own, so that nothing of an earlier one is seen again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from strandline.client import TrioProducer
from strandline.client.connection import Connection
from strandline.client.errors import ClientError
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import ConfigChangeZnode, ConfigZnode
from strandline.runtime.coordination import NoNode
from strandline.storage.log.log import Log
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.inspection import read_all

FOR_ALL = "brokers/<default>"
ONE = "brokers/1"
TAKEN_OVER_S = 1.0


async def put(cluster: MemoryCluster, entity: str, configs: Mapping[str, str]) -> None:
    """As Kafka's tools do: the znode, then a word about it."""
    client, path, data = cluster.zookeeper.client(), f"/config/{entity}", ConfigZnode(dict(configs)).encode()
    await client.start()
    try:
        await client.set(path, data, -1)
    except NoNode:
        await client.create(path, data)
    await client.create(ConfigChangeZnode.SEQUENCE_PATH, ConfigChangeZnode(entity).encode(), sequence=True)
    await client.close()
    await trio.sleep(TAKEN_OVER_S)


class Site:
    """See the module."""

    def __init__(self, cluster: MemoryCluster, producer: TrioProducer) -> None:
        self.cluster = cluster
        self.changes: dict[str, str] = {}
        """What is set for each topic after it was made."""
        self._producer = producer
        self._topics = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, properties: Mapping[str, str], *, brokers: int = 1) -> AsyncIterator[Site]:
        cluster = MemoryCluster(brokers, config={"min.insync.replicas": "1", **properties})
        settings = {"linger_ms": 0, "delivery_timeout_ms": 3000, "request_timeout_ms": 2000}
        async with cluster.running(), cluster.producer(**settings) as producer:
            yield cls(cluster, producer)

    async def topic(self, *, partitions: int = 1, replicas: Sequence[int] = (1,), **configs: str) -> TopicPartition:
        """The first partition of a topic of its own, led by the first of `replicas`. configs: underscores for dots."""
        self._topics += 1
        name = f"t{self._topics}"
        assignments = {number: list(replicas) for number in range(partitions)}
        own = {key.replace("_", "."): value for key, value in configs.items()}
        async with self.cluster.admin() as admin:
            await admin.create_topic(name, assignments=assignments, configs=own)
        tp = TopicPartition(name, 0)
        await self.cluster.until(lambda: all(self.cluster.hosts(each, tp) for each in replicas), "it is hosted")
        if self.changes:
            await put(self.cluster, f"topics/{name}", own | self.changes)
        return tp

    async def is_taken(
        self,
        tp: TopicPartition,
        value: bytes | None = b"v",
        *,
        key: bytes | None = b"k",
        timestamp_ms: int | None = None,
    ) -> bool:
        """Whether the broker takes that record."""
        try:
            delivery = await self._producer.send(
                tp.topic, value, key=key, partition=tp.partition, timestamp_ms=timestamp_ms
            )
            await delivery
        except ClientError:
            return False
        return True

    async def produce(self, tp: TopicPartition, count: int = 5, *, every_s: float = 0.0) -> None:
        """A batch for each record, all with one key."""
        for number in range(count):
            assert await self.is_taken(tp, b"value %d" % number)
            await trio.sleep(every_s)

    async def records(self, tp: TopicPartition) -> int:
        async with self.cluster.consumer() as consumer:
            return len(await read_all(consumer, tp))

    def log(self, tp: TopicPartition, broker: int = 1) -> Log:
        return self.cluster.partition(broker, tp).log

    def attributes(self, tp: TopicPartition) -> int:
        """Of the first batch: codec in the lowest three bits, then the kind of timestamps."""
        return self.cluster.nodes[1].disk.read(f"{LOG_DIR}/{tp}/{0:020}.log")[22]

    def files(self, folder: str, ending: str = "") -> list[str]:
        """Their names, in folders of the log directory whose names begin so."""
        disk = self.cluster.nodes[1].disk
        folders = [name for name in disk.listdir(LOG_DIR) if name.startswith(folder)]
        return [file for name in folders for file in disk.listdir(f"{LOG_DIR}/{name}") if file.endswith(ending)]

    async def connections(self, host: str = "client", at_most: int = 6) -> int:
        """How many a client gets at once, at the listener named last."""
        *_, address = self.cluster.broker(1).listeners.addresses.values()
        opened: list[Connection] = []
        try:
            for _ in range(at_most):
                opened.append(await Connection.open(self.cluster.network.node(host), address, timeout_ms=1000))
        except ClientError:
            pass
        finally:
            for connection in opened:
                connection.close()
            await trio.sleep(1)
        return len(opened)


def tasks(beginning: str) -> int:
    """How many tasks with such a name run in this loop."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return sum(task.name.startswith(beginning) for task in _below(root))


def _below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from _below(child)
