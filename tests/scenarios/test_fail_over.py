"""Whole brokers: create, produce, crash, fail over, heal, and read everything back."""

from __future__ import annotations

from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger, read_all

T0 = TopicPartition("t", 0)
CONFIG = {"replica.lag.time.max.ms": "4000", "min.insync.replicas": "2"}


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number}".encode() for number in range(count)]


async def test_a_leader_dies_and_comes_back_and_nothing_acked_is_lost() -> None:
    ledger = Ledger()
    async with MemoryCluster(config=CONFIG).running() as cluster, cluster.producer(linger_ms=0) as producer:
        async with cluster.admin() as admin:
            await admin.create_topic("t", 1, 3)
        await ledger.produce(producer, T0, numbered("before", 20), one_by_one=True)
        leader = cluster.leader(T0)
        cluster.crash(leader)
        await ledger.produce(producer, T0, numbered("without", 20))
        assert cluster.leader(T0) not in (leader, -1)
        assert leader not in cluster.isr(T0)
        await cluster.start_broker(leader)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "the ISR is whole again")
        await ledger.produce(producer, T0, numbered("after", 20))
        assert not ledger.unknown
        async with cluster.consumer() as consumer:
            found = await read_all(consumer, T0)
        ledger.assert_kept(T0, found)
        assert len(found) >= 60
        cluster.assert_replicas_equal(T0)
