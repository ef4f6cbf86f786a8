"""Writes of the ISR that meet what another hand wrote, or another topic of that name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
import trio

from strandline.client import TrioProducer
from strandline.protocol.znodes import PartitionStateZnode
from strandline.runtime.coordination import Operation, SetData
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

STATE_PATH = PartitionStateZnode.path(*T0)


def writes_the_state(operations: Sequence[Operation]) -> bool:
    return any(isinstance(operation, SetData) and operation.path == STATE_PATH for operation in operations)


async def test_a_member_that_is_no_replica_leaves_the_isr_and_ends_no_broker(autojump_clock) -> None:
    """The leader meets it when it wants to remove a follower."""
    async with cluster_with_topic([2, 1, 3], brokers=4) as (cluster, producer, ledger):
        operator = cluster.zookeeper.client()
        await operator.start()
        state = msgspec.structs.replace(cluster.state(T0), isr=[2, 1, 3, 4])
        await operator.set(STATE_PATH, state.encode(), cluster.state_version(T0))
        await operator.close()
        await shrink_while_written_to(cluster, producer, ledger)
        assert all(node.is_up for node in cluster.nodes.values())
        cluster.heal(2, 3)
        await check_at_the_end(cluster, ledger)


async def shrink_while_written_to(cluster: MemoryCluster, producer: TrioProducer, ledger: Ledger) -> None:
    cluster.cut_both(2, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledger.produce, producer, T0, numbered("meanwhile", 3))
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "who cannot fetch and who is no replica are out")


@pytest.mark.parametrize("replicas", [[1, 3], [3, 2]], ids=["the leader is no replica any more", "it still is one"])
async def test_a_late_isr_write_spares_the_topic_that_was_made_anew(replicas: list[int], autojump_clock) -> None:
    """The new topic's state has the very version that the old leader knows: 0."""
    async with cluster_with_topic([2, 3, 1]) as (cluster, _, _):
        held = cluster.coordination(2).hold_writes(writes_the_state)
        cluster.cut_both(2, 3)
        async with cluster.producer(acks=1, linger_ms=0) as careless:
            await Ledger().produce(careless, T0, [b"keeps broker 3 from being caught up"])
        await held.reached.wait()
        cluster.heal(2, 3)
        async with cluster.admin() as admin:
            await admin.delete_topic(T0.topic)
            await admin.create_topic(T0.topic, assignments={0: replicas})
        await cluster.until(lambda: cluster.leads(replicas[0], T0), "the new topic is led")
        decided = cluster.state(T0)
        assert cluster.state_version(T0) == 0, "the schedule needs a state that nobody has changed yet"
        held.release()
        await trio.sleep(3)
        assert (cluster.state(T0), cluster.state_version(T0)) == (decided, 0)
        async with cluster.producer(linger_ms=0, request_timeout_ms=2_000) as producer:
            ledger = Ledger()
            await ledger.produce(producer, T0, numbered("of the new topic", 3))
        await check_at_the_end(cluster, ledger, replicas)
