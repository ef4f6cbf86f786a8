"""Groups on whole brokers: members that die, coordinators that move, commits that wait for their replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from strandline.broker.groups.shards import OFFSETS_TOPIC
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import CLIENT, MemoryCluster, node_name
from support.group_client import GroupClient
from support.scenario import T0, cluster_with_topic

PARTITIONS = 3
PROPERTIES = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "group.initial.rebalance.delay.ms": "1000",
    "offsets.retention.check.interval.ms": "10000",
}


@asynccontextmanager
async def a_cluster(**properties: str) -> AsyncIterator[MemoryCluster]:
    keys = {key.replace("_", "."): value for key, value in properties.items()}
    async with cluster_with_topic(properties={**PROPERTIES, **keys}) as (cluster, *_):
        yield cluster


async def members(cluster: MemoryCluster, count: int) -> list[GroupClient]:
    """Of one generation."""
    found = [GroupClient(cluster) for _ in range(count)]
    async with trio.open_nursery() as nursery:
        for each in found:
            nursery.start_soon(each.join)
    assert {each.generation for each in found} == {1}
    return found


def offsets_partition(cluster: MemoryCluster, group: str = "g") -> TopicPartition:
    index = cluster.broker(next(n for n, node in cluster.nodes.items() if node.is_up)).groups.partition_of(group)
    assert index is not None
    return TopicPartition(OFFSETS_TOPIC, index)


async def move_coordinator(cluster: MemoryCluster, client: GroupClient, how: str) -> None:
    """To another broker, and the old one is gone."""
    old = client.coordinator_id
    if how == "stop":
        await cluster.stop(old)
    else:
        cluster.crash(old)
        cluster.expire_session(old)
    partition = offsets_partition(cluster)
    await cluster.until(
        lambda: cluster.leader(partition) not in (old, -1) and cluster.leads(cluster.leader(partition), partition),
        "another one coordinates",
    )


async def test_the_topic_of_offsets_is_made_when_a_coordinator_is_first_asked_for(autojump_clock) -> None:
    async with a_cluster() as cluster:
        client = GroupClient(cluster)
        first = await client.ask_any(FindCoordinatorRequest("g"))
        assert first.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await client.find()
        many = await client.ask_any(FindCoordinatorRequest(coordinator_keys=["g", "h"]))
        assert [found.key for found in many.coordinators] == ["g", "h"]
        assert many.coordinators[0].node_id == client.coordinator_id == cluster.leader(offsets_partition(cluster))
        metadata = cluster.broker(1).data.metadata.topics[OFFSETS_TOPIC]
        assert len(metadata.partitions) == PARTITIONS
        config = cluster.partition(client.coordinator_id, offsets_partition(cluster)).config
        assert config.cleanup_policy == ("compact",)
        for key_type in (1, 2):
            refused = await client.ask_any(FindCoordinatorRequest("t", key_type))
            assert not ErrorCode(refused.error_code).retriable and refused.error_code != 0


async def test_a_group_goes_on_without_a_member_that_dies(autojump_clock) -> None:
    async with a_cluster() as cluster:
        one, two, three = await members(cluster, 3)
        assert sorted([one.assignment, two.assignment, three.assignment]) == [b"0", b"1", b"2"]
        three.close()
        with trio.fail_after(30):
            while await one.heartbeat() is ErrorCode.NONE:
                assert await two.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
                await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.join)
            nursery.start_soon(two.join)
        assert one.generation == two.generation == 2
        assert sorted([one.assignment, two.assignment]) == [b"0", b"1"]
        assert await three.commit({T0: 1}) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await two.commit({T0: 2}) is ErrorCode.NONE
        assert await one.committed(T0) == [2]


@pytest.mark.parametrize("how", ["crash", "stop"])
async def test_a_group_goes_on_under_the_next_coordinator(how: str, autojump_clock) -> None:
    async with a_cluster() as cluster:
        one, two = await members(cluster, 2)
        for offset in (5, 7):
            assert await one.commit({T0: offset}) is ErrorCode.NONE
        await move_coordinator(cluster, one, how)
        assert await one.committed(T0) == [7]
        assert [await one.heartbeat(), await two.heartbeat()] == [ErrorCode.NONE] * 2
        assert await two.commit({T0: 8}) is ErrorCode.NONE
        assert await one.committed(T0) == [8]


async def test_offsets_are_what_was_acked_last_wherever_the_coordinator_goes(autojump_clock) -> None:
    async with a_cluster() as cluster:
        client = GroupClient(cluster)
        await client.find()
        acked = -1
        for life in range(4):
            for offset in range(life * 10, life * 10 + 5):
                if await client.commit({T0: offset}) is ErrorCode.NONE:
                    acked = offset
            down = client.coordinator_id
            partition = offsets_partition(cluster)
            await move_coordinator(cluster, client, "crash")
            assert (await client.committed(T0))[0] == acked == life * 10 + 4
            await cluster.start_broker(down)
            await cluster.until(lambda at=partition: len(cluster.isr(at)) == 3, "it is in sync again")


async def test_a_commit_that_tcp_delivers_when_a_later_one_is_acked_takes_nothing_back(autojump_clock) -> None:
    async with (
        a_cluster() as cluster,
        cluster.consumer(group_id="g", request_timeout_ms=1000, enable_auto_commit=False) as consumer,
    ):
        consumer.subscribe([T0.topic])
        with trio.fail_after(30):
            while T0 not in consumer.assignment:
                await consumer.poll(timeout_ms=500)
        await consumer.commit({T0: 1})
        cluster.network.cut(CLIENT, node_name(cluster.leader(offsets_partition(cluster))))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.commit, {T0: 2})
            await trio.sleep(3.2)  # it is repeated over another connection, and the first one given up
            cluster.network.heal()
        await consumer.commit({T0: 3})
        for _ in range(10):
            assert (await consumer.committed([T0]))[T0].offset == 3
            await trio.sleep(1)


async def test_who_waits_for_a_group_is_told_when_its_coordinator_moves(autojump_clock) -> None:
    async with a_cluster(group_initial_rebalance_delay_ms="60000") as cluster:
        client = GroupClient(cluster, instance="i")
        await client.find()
        answers = []

        async def wait() -> None:
            answers.append(await client.ask(client.join_request()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            assert not answers
            partition = cluster.partition(client.coordinator_id, offsets_partition(cluster))
            cluster.broker(client.coordinator_id).data.replicas.resign(partition)
        assert answers[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_a_commit_without_enough_replicas_in_sync_is_not_acked(autojump_clock) -> None:
    async with a_cluster() as cluster:
        client = GroupClient(cluster)
        await client.find()
        assert await client.commit({T0: 1}) is ErrorCode.NONE
        others = [number for number in cluster.nodes if number != client.coordinator_id]
        partition = offsets_partition(cluster)
        for other in others:
            cluster.crash(other)
        assert await client.commit({T0: 2}) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await client.committed(T0) == [1]
        await trio.sleep(10)
        assert await client.commit({T0: 3}) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "nor appended any more"
        for other in others:
            await cluster.start_broker(other)
        await cluster.until(lambda: len(cluster.isr(partition)) == 3, "they are in sync again")
        while await client.commit({T0: 4}) is not ErrorCode.NONE:
            await trio.sleep(0.5)
            await client.find()
        assert await client.committed(T0) == [4]


async def test_what_is_committed_is_checked_partition_by_partition(autojump_clock) -> None:
    async with a_cluster(offset_metadata_max_bytes="10", offsets_topic_num_partitions="1") as cluster:
        client = GroupClient(cluster)
        answer = await client.ask(client.commit_request({T0: 1, TopicPartition("gone", 0): 1}))
        assert [topic.partitions[0].error_code for topic in answer.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        answer = await client.ask(client.commit_request({T0: 2}, metadata="eleven char"))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await client.committed(T0, TopicPartition("gone", 0)) == [1, -1]
        answer = await client.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g"), OffsetFetchRequestGroup("other")])
        )
        assert [group.error_code for group in answer.groups] == [0, 0]
        (part,) = answer.groups[0].topics[0].partitions
        assert (part.committed_offset, part.committed_leader_epoch) == (1, 3)
        assert answer.groups[1].topics == []


async def test_groups_are_listed_described_and_deleted(autojump_clock) -> None:
    async with a_cluster() as cluster:
        (member,) = await members(cluster, 1)
        assert await member.commit({T0: 1}) is ErrorCode.NONE
        listed = await member.ask(ListGroupsRequest())
        assert [(group.group_id, group.protocol_type, group.group_state) for group in listed.groups] == [
            ("g", "consumer", "Stable")
        ]
        assert (await member.ask(ListGroupsRequest(["empty"]))).groups == []
        assert (await member.ask(ListGroupsRequest([], ["consumer"]))).groups == []
        described = await member.ask(DescribeGroupsRequest(["g"]))
        assert described.groups[0].members[0].member_assignment == b"0"
        assert described.groups[0].members[0].client_host.startswith("/")

        refused = await member.ask(DeleteGroupsRequest(["g"]))
        assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        gone = OffsetDeleteRequest(
            "g", [OffsetDeleteRequestTopic(T0.topic, [OffsetDeleteRequestPartition(T0.partition)])]
        )
        kept = await member.ask(gone)
        assert kept.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        left = await member.ask(LeaveGroupRequest("g", members=[MemberIdentity(member.member_id)]))
        assert left.members[0].error_code == 0
        assert (await member.ask(gone)).topics[0].partitions[0].error_code == 0
        assert await member.committed(T0) == [-1]

        deleted = await member.ask(DeleteGroupsRequest(["g", "never"]))
        assert [result.error_code for result in deleted.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert (await member.ask(DescribeGroupsRequest(["g"]))).groups[0].group_state == "Dead"
        await move_coordinator(cluster, member, "crash")
        await member.committed(T0)
        assert (await member.ask(ListGroupsRequest())).groups == [], "nor does the log know it"


async def test_offsets_of_a_group_without_members_expire(autojump_clock) -> None:
    async with a_cluster(offsets_retention_minutes="5") as cluster:
        (member,) = await members(cluster, 1)
        assert await member.commit({T0: 1}) is ErrorCode.NONE
        for _ in range(8 * 20):
            assert await member.heartbeat() is ErrorCode.NONE
            await trio.sleep(3)
        assert await member.committed(T0) == [1], "it has a member"
        await trio.sleep(4 * 60)
        assert await member.committed(T0) == [1]
        await trio.sleep(2 * 60)
        assert await member.committed(T0) == [-1]
        assert (await member.ask(ListGroupsRequest())).groups == []


async def test_a_group_that_nobody_is_in_and_that_keeps_nothing_is_forgotten(autojump_clock) -> None:
    async with a_cluster() as cluster:
        (member,) = await members(cluster, 1)
        await member.ask(LeaveGroupRequest("g", member.member_id))
        assert [group.group_state for group in (await member.ask(ListGroupsRequest())).groups] == ["Empty"]
        await trio.sleep(20)
        assert (await member.ask(ListGroupsRequest())).groups == []


async def test_sessions_have_bounds_and_groups_names(autojump_clock) -> None:
    async with a_cluster() as cluster:
        client = GroupClient(cluster)
        for timeout_ms in (5_999, 300_001):
            answer = await client.ask(client.join_request(timeout_ms))
            assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        nameless = GroupClient(cluster, "")
        assert (await nameless.ask(nameless.join_request())).error_code == ErrorCode.INVALID_GROUP_ID
        assert await nameless.commit({T0: 1}) is ErrorCode.NONE, "commits need none, for the sake of old clients"
