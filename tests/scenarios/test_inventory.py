"""What operators look at, asked of whole brokers over their connections."""

from __future__ import annotations

from trio.testing import MockClock

from strandline.client.connection import Connection
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    Message,
    Request,
)
from strandline.testkit.cluster import MemoryCluster


async def ask(cluster: MemoryCluster, broker_id: int, request: Request) -> Message:
    (address,) = cluster.broker(broker_id).listeners.addresses.values()
    connection = await Connection.open(cluster.network.node("operator"), address)
    try:
        response, _ = await connection.roundtrip(request)
        return response
    finally:
        connection.close()


async def test_brokers_tell_what_they_have_and_the_controller_what_moves(autojump_clock: MockClock) -> None:
    async with MemoryCluster(2).running() as cluster:
        described = await ask(cluster, 1, DescribeClusterRequest())
        assert isinstance(described, DescribeClusterResponse)
        assert [broker.broker_id for broker in described.brokers] == [1, 2]
        controller, other = described.controller_id, 3 - described.controller_id

        await ask(cluster, controller, CreateTopicsRequest([CreatableTopic("t", 3, 2)], 5000))
        for broker_id in (1, 2):
            dirs = await ask(cluster, broker_id, DescribeLogDirsRequest())
            assert isinstance(dirs, DescribeLogDirsResponse)
            [result] = dirs.results
            assert sorted(part.partition_index for topic in result.topics for part in topic.partitions) == [0, 1, 2]
            producers = await ask(
                cluster, broker_id, DescribeProducersRequest([DescribeProducersTopic("t", [0, 1, 2])])
            )
            assert isinstance(producers, DescribeProducersResponse)
            assert [part.error_code for part in producers.topics[0].partitions] == [0, 0, 0]

        moves = ListPartitionReassignmentsRequest()
        assert await ask(cluster, controller, moves) == ListPartitionReassignmentsResponse(0)
        elsewhere = await ask(cluster, other, moves)
        assert isinstance(elsewhere, ListPartitionReassignmentsResponse)
        assert elsewhere.error_code == ErrorCode.NOT_CONTROLLER
