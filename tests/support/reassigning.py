"""Clusters in memory whose partitions move: what is asked of the controller, a load beside it, the check at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from strandline.client import TrioProducer
from strandline.client.connection import Connection
from strandline.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import ReassignPartitionsZnode, TopicZnode
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.inspection import Ledger, read_all
from support.scenario import LAG_TIME_MAX_S, numbered

TOPIC = "t"
Targets = Mapping[int, Sequence[int] | None]
"""Partition → who is to hold it; None: the way back."""


@dataclass
class Moves:
    """A cluster with topic `t`; `ledger` has what its producer was promised, `refused` what it was told instead."""

    cluster: MemoryCluster
    producer: TrioProducer
    partitions: list[TopicPartition]
    ledger: Ledger = field(default_factory=Ledger)

    async def ask(self, targets: Targets) -> dict[int, int]:
        """AlterPartitionReassignments; the error code of each partition."""
        partitions = [ReassignablePartition(p, None if to is None else list(to)) for p, to in targets.items()]
        request = AlterPartitionReassignmentsRequest([ReassignableTopic(TOPIC, partitions)])
        cluster = self.cluster
        await cluster.until(lambda: cluster.controller_id != NO_BROKER, "a controller")
        (address,) = cluster.broker(cluster.controller_id).listeners.addresses.values()
        connection = await Connection.open(cluster.network.node("client"), address)
        try:
            response = await connection.call(request, AlterPartitionReassignmentsResponse)
        finally:
            connection.close()
        assert response.error_code == 0
        return {each.partition_index: each.error_code for each in response.responses[0].partitions}

    def znode(self) -> TopicZnode:
        path = TopicZnode.path(TOPIC)
        return TopicZnode.decode(path, self.cluster.zookeeper.tree.get(path).data)

    def is_moving(self, partition: int = 0) -> bool:
        znode = self.znode()
        return partition in znode.adding_replicas or partition in znode.removing_replicas

    def has_arrived(self, partition: int, target: Sequence[int]) -> bool:
        return not self.is_moving(partition) and self.znode().partitions[partition] == list(target)

    def folders(self, partition: int = 0) -> list[int]:
        """Brokers that have a folder of it, by whatever name."""
        name = f"{TOPIC}-{partition}"
        nodes = self.cluster.nodes.items()
        return [n for n, node in nodes if any(found.startswith(name) for found in node.disk.listdir(LOG_DIR))]

    def _leads(self, tp: TopicPartition, target: Sequence[int]) -> bool:
        """Who leads by ZooKeeper does so, with these replicas."""
        leader = self.cluster.leader(tp)
        leadership = self.cluster.partition(leader, tp).leadership if self.cluster.leads(leader, tp) else None
        if leadership is None or sorted(leadership.replicas) != sorted(target):
            return False
        return leadership.replication_factor == len(target)

    @asynccontextmanager
    async def under_load(self, pause_s: float = 0.02) -> AsyncIterator[None]:
        """Every partition is produced to, with acks=all, in order."""
        stopped = False

        async def produce(tp: TopicPartition) -> None:
            round_ = 0
            while not stopped:
                await self.ledger.produce(self.producer, tp, numbered(f"{tp.partition}-{round_}", 3), one_by_one=True)
                round_ += 1
                await trio.sleep(pause_s)

        async with trio.open_nursery() as nursery:
            for tp in self.partitions:
                nursery.start_soon(produce, tp)
            yield
            stopped = True

    async def check(self, targets: Mapping[int, Sequence[int]], *, away: Sequence[int] = ()) -> None:
        """Exactly the target holds each partition, in ZooKeeper, in sync and on the disks (but for brokers that are
        `away`); nothing is lost, everything in order, nothing is left to be done."""
        cluster = self.cluster
        for partition, target in targets.items():
            tp = TopicPartition(TOPIC, partition)
            await cluster.until(lambda p=partition, t=target: self.has_arrived(p, t), "moved", within_s=120)
            await cluster.until(lambda t=tp, to=target: cluster.isr(t) == sorted(to), "the target is in sync")
            hold = sorted({*target, *away})
            await cluster.until(
                lambda p=partition, h=hold, t=target: set(t) <= set(self.folders(p)) <= set(h),
                "old folders are gone",
                within_s=120,
            )
            state = cluster.state(tp)
            assert state.leader in target
            assert state.elr == []
            await cluster.until(lambda t=tp, to=target: self._leads(t, to), "the leader knows its replicas")
            async with cluster.consumer() as consumer:
                found = await read_all(consumer, tp)
            self.ledger.assert_kept(tp, found)
            cluster.assert_replicas_equal(tp)
            values = [value for value in found.values() if value is not None]
            assert len(set(values)) == len(values), "nothing stands there twice"
        await cluster.until(
            lambda: cluster.zookeeper.tree.exists(ReassignPartitionsZnode.PATH) is None, "nothing is asked for"
        )
        znode = self.znode()
        assert not (znode.adding_replicas or znode.removing_replicas)


@asynccontextmanager
async def moves(
    *assignment: Sequence[int],
    brokers: int = 6,
    min_insync_replicas: int = 2,
    properties: Mapping[str, str] | None = None,
) -> AsyncIterator[Moves]:
    """Broker 1 is controller; topic `t` has a partition for each of the assignments."""
    config = {
        "replica.lag.time.max.ms": str(int(LAG_TIME_MAX_S * 1000)),
        "min.insync.replicas": str(min_insync_replicas),
        "file.delete.delay.ms": "100",
        "log.segment.delete.delay.ms": "100",
        **(properties or {}),
    }
    config.pop("file.delete.delay.ms")
    partitions = [TopicPartition(TOPIC, number) for number in range(len(assignment))]
    async with (
        MemoryCluster(brokers, config=config).running() as cluster,
        cluster.producer(linger_ms=0, request_timeout_ms=2_000, enable_idempotence=True) as producer,
    ):
        async with cluster.admin() as admin:
            by_partition = {tp.partition: list(each) for tp, each in zip(partitions, assignment, strict=True)}
            await admin.create_topic(TOPIC, assignments=by_partition)
        yield Moves(cluster, producer, partitions)
