"""What scenarios of whole brokers share: a cluster with one partition, a producer with a ledger, the final check."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from strandline.client import TrioProducer
from strandline.protocol.types import TopicPartition
from strandline.storage.manager.identity import META_PROPERTIES
from strandline.storage.manager.log_directory import BOOT_ID_KEY
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.inspection import Ledger, read_all

T0 = TopicPartition("t", 0)
LAG_TIME_MAX_S = 4.0
SESSIONS_ALONE = {"failure.detection.refused.ms": "0"}
"""Properties for brokers that are to be missed when their sessions end, and not before."""
BY_REFUSALS: dict[str, str] = {}
"""As it is by default: who refuses connections is missed after 0.3 s."""
BOTH_WAYS = pytest.mark.parametrize(
    "properties", [SESSIONS_ALONE, BY_REFUSALS], ids=["sessions alone tell", "refusals tell"]
)
"""For what has to hold whether a dead broker is missed by its address or by its session."""


def numbered(prefix: str, count: int) -> list[bytes]:
    """`count` values that stand nowhere else."""
    return [f"{prefix}-{number}".encode() for number in range(count)]


@asynccontextmanager
async def cluster_with_topic(
    replicas: Sequence[int] = (1, 2, 3),
    *,
    brokers: int = 3,
    min_insync_replicas: int = 2,
    configs: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    seed: int = 0,
) -> AsyncIterator[tuple[MemoryCluster, TrioProducer, Ledger]]:
    """Broker 1 is controller; topic `t` has one partition on `replicas`, led by the first of them; a producer without
    linger. configs: of the topic; properties: of every broker."""
    config = {
        "replica.lag.time.max.ms": str(int(LAG_TIME_MAX_S * 1000)),
        "min.insync.replicas": str(min_insync_replicas),
        **(properties or {}),
    }
    async with (
        MemoryCluster(brokers, config=config, seed=seed).running() as cluster,
        cluster.producer(linger_ms=0, request_timeout_ms=2_000) as producer,
    ):
        async with cluster.admin() as admin:
            await admin.create_topic(T0.topic, assignments={0: list(replicas)}, configs=configs)
        await cluster.until(lambda: all(cluster.hosts(replica, T0) for replica in replicas), "every replica is hosted")
        yield cluster, producer, Ledger()


def die(cluster: MemoryCluster, *broker_ids: int) -> None:
    """SIGKILL, and their sessions end with them."""
    for broker_id in broker_ids:
        cluster.crash(broker_id)
    for broker_id in broker_ids:
        cluster.expire_session(broker_id)


def crash_after_a_loss(cluster: MemoryCluster, broker_id: int) -> None:
    """SIGKILL of a broker that has noted that it lost something. Its next start counts as a lossy one, and registers
    at once: the machine is not started anew."""
    cluster.crash(broker_id)
    path, disk = f"{LOG_DIR}/{META_PROPERTIES}", cluster.nodes[broker_id].disk
    lines = disk.read(path).decode().splitlines(keepends=True)
    disk.write(path, "".join(line for line in lines if not line.startswith(BOOT_ID_KEY)).encode())


async def check_at_the_end(cluster: MemoryCluster, ledger: Ledger, replicas: Sequence[int] = (1, 2, 3)) -> None:
    """The ISR is whole, nothing acked is lost, the replicas are byte-equal below the high watermark."""
    await cluster.until(lambda: cluster.isr(T0) == sorted(replicas), "the ISR is whole again")
    async with cluster.consumer() as consumer:
        found = await read_all(consumer, T0)
    ledger.assert_kept(T0, found)
    cluster.assert_replicas_equal(T0)
