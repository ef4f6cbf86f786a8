"""A broker that could not read one of its log directories makes logs for partitions that it cannot have had, only.

What lies in that directory it does not know. A topic that was made since this broker registered has nothing there,
whatever became of the controller's first order; any other one may have all that was acknowledged.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from strandline.client import TrioAdmin
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import PartitionStateZnode
from strandline.runtime.coordination import Delete
from strandline.testkit.cluster import MemoryCluster
from support.scenario import T0, die, numbered

HALF_BLIND = 2
OLD = TopicPartition("old", 0)
CONFIG = {"num.partitions": "1", "log.dirs": "/data,/more", "min.insync.replicas": "1"}
COULD_NOT_BE_READ = "it may lie in a log directory that could not be read"


@asynccontextmanager
async def half_blind() -> AsyncIterator[tuple[MemoryCluster, TrioAdmin]]:
    """Broker 1 is controller. Broker 2 runs without the directory that its log of `old` is in."""
    async with MemoryCluster(brokers=3, config=CONFIG).running() as cluster, cluster.admin() as admin:
        await admin.create_topic(OLD.topic, assignments={0: [HALF_BLIND, 3]})
        async with cluster.producer() as producer:
            for record in numbered("m", 10):
                await producer.send(OLD.topic, record, partition=0)
        node = cluster.nodes[HALF_BLIND]
        folder = cluster.partition(HALF_BLIND, OLD).log.segments.folder.rpartition("/")[0]
        await cluster.stop(HALF_BLIND)
        node.disk.fail("open", f"{folder}/.lock", errno.EIO)
        await cluster.start_broker(HALF_BLIND)
        yield cluster, admin


async def its_answer_is_lost(cluster: MemoryCluster) -> None:
    """The controller lives; it finds the state that it wrote."""
    state = cluster.coordination(1).hold_writes(lambda operations: any(T0_STATE in str(one) for one in operations))
    await state.reached.wait()
    cluster.zookeeper.drop_next_reply("/controller_epoch")
    state.release()


async def it_dies(cluster: MemoryCluster) -> None:
    """The next controller finds the state that nobody was told of."""
    for broker_id in (HALF_BLIND, 3):
        cluster.cut(1, broker_id)
    await cluster.until(lambda: cluster.zookeeper.tree.exists(T0_STATE) is not None, "the state is written")
    die(cluster, 1)


async def it_is_put_off(cluster: MemoryCluster) -> None:
    """The disk has no room at first: the controller says it again."""
    disk = cluster.nodes[HALF_BLIND].disk
    fault = disk.fail("makedirs", "/*/t-0", errno.ENOSPC)
    await cluster.until(lambda: fault.hits > 0, "there is no room")
    fault.cancel()


T0_STATE = PartitionStateZnode.path(*T0)
INTERRUPTIONS = {
    "the controller's answer from ZooKeeper is lost": its_answer_is_lost,
    "the controller dies": it_dies,
    "the disk is full": it_is_put_off,
}


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
@pytest.mark.parametrize("replicas", [[HALF_BLIND], [HALF_BLIND, 3]])
async def test_a_new_replica_is_hosted_whatever_became_of_its_first_order(
    interruption: str, replicas: list[int], autojump_clock: MockClock
) -> None:
    interrupt: Callable[[MemoryCluster], Awaitable[None]] = INTERRUPTIONS[interruption]
    async with half_blind() as (cluster, admin), trio.open_nursery() as nursery:
        nursery.start_soon(interrupt, cluster)
        await admin.create_topic(T0.topic, assignments={0: replicas})
        await cluster.until(lambda: cluster.isr(T0) == replicas and cluster.hosts(HALF_BLIND, T0), "it is in sync")


async def test_a_state_that_was_made_anew_makes_no_replica_new(autojump_clock: MockClock) -> None:
    """It would lead an empty log, or be in sync with nothing, while its records lie in the unread directory."""
    async with half_blind() as (cluster, admin):
        die(cluster, 1, 3)
        cluster.zookeeper.tree.apply_one(Delete(PartitionStateZnode.path(*OLD), -1), 0)
        await cluster.start_broker(1)
        await trio.sleep(30)
        assert not cluster.hosts(HALF_BLIND, OLD)
        [refused] = cluster.broker(1).data.metadata.partition(*OLD).refused_replicas
        assert refused.broker_id == HALF_BLIND and COULD_NOT_BE_READ in refused.why
        await cluster.start_broker(3)
        await trio.sleep(1)
        await admin.recover(OLD, accept_loss=True)
        await cluster.until(lambda: cluster.leads(3, OLD), "who has it leads")
        assert cluster.partition(3, OLD).log.log_end_offset == 10
