"""Every partition moves to other brokers, as real processes, under a verifying load, while brokers and controllers are
killed. No acknowledged record is lost, altered or doubled, order is kept, and nothing is left over on the old disks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import pytest
import trio

from integration.real_time import off_loop, until
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin
from strandline.client.connection import Connection
from strandline.client.errors import ClientError
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.runtime.network_socket import SocketNetwork
from strandline.testkit.verification import VerifyingLoad, proven

TOPIC = "promises"
BROKERS = 5
OLD: list[list[int]] = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]]
NEW: list[list[int]] = [[4, 5, 1], [5, 4, 2], [4, 5, 3], [2, 4, 5]]


async def reassign(cluster: EmbeddedCluster, targets: Mapping[int, Sequence[int] | None]) -> None:
    """Whoever is controller is asked until it has taken it."""
    partitions = [ReassignablePartition(p, None if to is None else list(to)) for p, to in targets.items()]
    request = AlterPartitionReassignmentsRequest([ReassignableTopic(TOPIC, partitions)])
    while True:
        view = await off_loop(cluster.metadata, [])
        if view is not None and view.controller_id in cluster.broker_ids:
            address = cluster.address(view.controller_id)
            try:
                connection = await Connection.open(SocketNetwork(), address, client_id="test", timeout_ms=10_000)
                try:
                    response = await connection.call(request, AlterPartitionReassignmentsResponse)
                finally:
                    connection.close()
            except ClientError:
                response = None
            if response is not None and response.error_code == ErrorCode.NONE:
                codes = [each.error_code for topic in response.responses for each in topic.partitions]
                assert set(codes) <= {ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}, response
                return
        await trio.sleep(0.2)


def is_at(cluster: EmbeddedCluster, targets: Sequence[Sequence[int]]) -> bool:
    """Each partition is led, whole, and has exactly these replicas, preferred first."""
    view = cluster.metadata([TOPIC])
    if view is None or not view.topics or len(view.topics[0].partitions) < len(targets):
        return False
    return all(
        each.leader_id >= 0
        and each.replica_nodes == list(targets[each.partition_index])
        and sorted(each.isr_nodes) == sorted(targets[each.partition_index])
        for each in view.topics[0].partitions
    )


def folders(cluster: EmbeddedCluster) -> dict[int, list[int]]:
    """Partition → brokers that have a folder of it."""
    found: dict[int, list[int]] = {}
    for broker_id in cluster.broker_ids:
        for partition in range(len(OLD)):
            if (cluster.log_dir(broker_id) / f"{TOPIC}-{partition}").exists():
                found.setdefault(partition, []).append(broker_id)
    return found


def are_gone(cluster: EmbeddedCluster, targets: Sequence[Sequence[int]]) -> bool:
    return folders(cluster) == {partition: sorted(target) for partition, target in enumerate(targets)}


async def moved_under_load(
    cluster: EmbeddedCluster, blow: Callable[[VerifyingLoad], Awaitable[None]], targets: Sequence[Sequence[int]]
) -> VerifyingLoad:
    async with TrioAdmin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, assignments=dict(enumerate(OLD)), configs={"min.insync.replicas": "2"})
    load = VerifyingLoad(cluster.bootstrap_servers, TOPIC, len(OLD), delivery_timeout_ms=120_000)
    arrived = partial(until, partial(is_at, cluster, targets), f"every partition at {targets}")
    async with proven(load, arrived):
        await blow(load)
        await arrived()
    await until(partial(are_gone, cluster, targets), "nothing is left over on the old disks")
    return load


async def test_every_partition_moves_and_no_producer_hears_of_it(new_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = new_cluster(BROKERS)
    await off_loop(cluster.start)

    async def move(_: VerifyingLoad) -> None:
        await reassign(cluster, dict(enumerate(NEW)))

    load = await moved_under_load(cluster, move, NEW)
    assert not load.errors


@pytest.mark.parametrize("victims", [["controller"], [4], [1, 2], [5, "controller"]], ids=str)
async def test_brokers_and_controllers_are_killed_meanwhile(
    victims: list[int | str], new_cluster: Callable[..., EmbeddedCluster]
) -> None:
    cluster = new_cluster(BROKERS)
    await off_loop(cluster.start)

    async def move(load: VerifyingLoad) -> None:
        await reassign(cluster, dict(enumerate(NEW)))
        for victim in victims:
            view = await off_loop(cluster.metadata, [])
            broker_id = view.controller_id if victim == "controller" else victim
            await off_loop(cluster.kill_broker, broker_id)
            await trio.sleep(0.5)
            await off_loop(cluster.start_broker, broker_id)
        await load.wait_acked(100)

    await moved_under_load(cluster, move, NEW)


async def test_it_is_cancelled_while_brokers_are_killed(new_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = new_cluster(BROKERS)
    await off_loop(cluster.start)

    async def there_and_back(load: VerifyingLoad) -> None:
        await off_loop(cluster.kill_broker, 5)
        await off_loop(cluster.start_broker, 5)
        await reassign(cluster, dict(enumerate(NEW)))
        await off_loop(cluster.kill_broker, 4)
        await reassign(cluster, dict(enumerate(OLD)))
        await load.wait_acked(100)
        await off_loop(cluster.start_broker, 4)

    await moved_under_load(cluster, there_and_back, OLD)
