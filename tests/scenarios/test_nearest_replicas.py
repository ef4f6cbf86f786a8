"""A consumer that reads from the replica in its rack (KIP-392), with a fetch session at each of two brokers."""

from __future__ import annotations

import pytest
import trio

from strandline.client.connection import Connection
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import FetchPartition, FetchPartitionData, FetchRequest, FetchResponse, FetchTopic
from strandline.protocol.native.frame import cut_records
from strandline.protocol.records import decode_records
from strandline.runtime.config.broker import RACK_AWARE_SELECTOR
from strandline.testkit.cluster import CLIENT, BrokerNode, MemoryCluster
from support.scenario import T0, numbered

CONFIG = {"replica.selector.class": RACK_AWARE_SELECTOR, "min.insync.replicas": "2"}


class Racks(MemoryCluster):
    """Broker n is in rack-n."""

    def _properties(self, node: BrokerNode) -> dict[str, str]:
        return {**super()._properties(node), "broker.rack": f"rack-{node.broker_id}"}


class Reader:
    """Of partition 0 of `t`, in a rack, at one broker."""

    def __init__(self, connection: Connection, rack: str) -> None:
        self.connection = connection
        self.rack = rack
        self.session = (0, 0)
        self.values: list[bytes | None] = []

    async def fetch(self, offset: int, wait_ms: int = 30_000) -> FetchPartitionData | None:
        """What is told of the partition, if anything is."""
        topics = [FetchTopic(T0.topic, [FetchPartition(T0.partition, offset, 2**20)])]
        request = FetchRequest(
            wait_ms, 1, 2**20, topics, session_id=self.session[0], session_epoch=self.session[1], rack_id=self.rack
        )
        response, attachments = await self.connection.exchange(request)
        assert isinstance(response, FetchResponse) and not response.error_code
        self.session = (response.session_id, self.session[1] + 1)
        for records in cut_records(response, attachments):
            self.values += [r.value for r in decode_records(records) if r.offset >= offset] if records else []
        told = [data for topic in response.responses for data in topic.partitions]
        return told[0] if told else None


async def reader(cluster: MemoryCluster, broker_id: int, rack: str) -> Reader:
    (address,) = cluster.broker(broker_id).listeners.addresses.values()
    connection = await Connection.open(cluster.network.node(CLIENT), address, client_id="reader", timeout_ms=60_000)
    return Reader(connection, rack)


@pytest.mark.parametrize("rack", [2, 3])
async def test_a_consumer_reads_from_its_rack_whatever_is_committed_and_leaves_when_that_replica_leads(
    rack: int, autojump_clock
) -> None:
    async with Racks(3, config=CONFIG).running() as cluster, cluster.producer(linger_ms=0) as producer:
        async with cluster.admin() as admin:
            await admin.create_topic(T0.topic, assignments={0: [1, 2, 3]})
        values = numbered("v", 20)
        for value in values[:10]:
            await (await producer.send(T0.topic, value))
        at_leader = await reader(cluster, 1, f"rack-{rack}")
        told = await at_leader.fetch(0)
        assert told is not None and (told.preferred_read_replica, at_leader.values) == (rack, [])
        near = await reader(cluster, rack, f"rack-{rack}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce_slowly, producer, values[10:])
            while len(near.values) < len(values):
                told = await near.fetch(len(near.values))
                assert told is None or told.error_code == 0
                high_watermark = cluster.broker(1).data.replicas.partitions[T0].high_watermark
                assert len(near.values) <= high_watermark, "what a leader would not have shown"
        assert near.values == values
        elsewhere = await reader(cluster, rack, "")
        refused = await elsewhere.fetch(0)
        assert refused is not None and refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def produce_slowly(producer, values: list[bytes]) -> None:
    for value in values:
        await trio.sleep(0.3)
        await (await producer.send(T0.topic, value))
