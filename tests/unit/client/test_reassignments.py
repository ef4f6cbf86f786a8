"""Reassignments through the admin client: the controller is asked, whoever it is, and each wish has a result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from strandline.client import TrioAdmin
from strandline.client.errors import AnsweredError, ClientError, RequestTimedOut, UnknownTopic
from strandline.client.log_dirs import LogSize, log_sizes
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Moves:
    """What the controller has written down; `refused`: what it says of some partitions instead."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.targets: dict[TopicPartition, list[int]] = {}
        self.refused: dict[TopicPartition, ErrorCode] = {}
        self.left_out: set[TopicPartition] = set()
        self.moves_on = False
        """Whoever is asked first is no controller any more."""
        for broker in cluster.brokers:
            broker.scripts[AlterPartitionReassignmentsRequest] = self.alter
            broker.scripts[ListPartitionReassignmentsRequest] = self.list

    def alter(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        if self.moves_on:
            self.moves_on = False
            return AlterPartitionReassignmentsResponse(ErrorCode.NOT_CONTROLLER)
        responses = []
        for topic in request.topics:
            told = []
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                code = self.refused.get(tp, ErrorCode.NONE)
                if each.replicas is not None and not code:
                    self.targets[tp] = each.replicas
                elif not code and self.targets.pop(tp, None) is None:
                    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
                if tp not in self.left_out:
                    told.append(ReassignablePartitionResponse(each.partition_index, code, "why" if code else None))
            responses.append(ReassignableTopicResponse(topic.name, told))
        self.left_out.clear()
        return AlterPartitionReassignmentsResponse(0, None, responses)

    def list(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        asked = None
        if request.topics is not None:
            asked = {TopicPartition(each.name, index) for each in request.topics for index in each.partition_indexes}
        topics = [
            OngoingTopicReassignment(tp.topic, [OngoingPartitionReassignment(tp.partition, [*target, 0], target, [0])])
            for tp, target in self.targets.items()
            if asked is None or tp in asked
        ]
        return ListPartitionReassignmentsResponse(0, None, topics)


@asynccontextmanager
async def site(brokers: int = 3) -> AsyncIterator[tuple[Moves, TrioAdmin]]:
    cluster = FakeCluster(brokers)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioAdmin(cluster.bootstrap, environment=cluster.environment()) as client:
            yield Moves(cluster), client
        nursery.cancel_scope.cancel()


async def test_each_wish_is_written_down_listed_and_cancelled(autojump_clock: object) -> None:
    async with site() as (moves, client):
        assert await client.alter_partition_reassignments({T0: [1, 2], T1: [2]}) == {T0: None, T1: None}
        assert moves.targets == {T0: [1, 2], T1: [2]}
        ongoing = await client.list_partition_reassignments()
        assert ongoing == {
            T0: OngoingReassignment((1, 2, 0), (1, 2), (0,)),
            T1: OngoingReassignment((2, 0), (2,), (0,)),
        }
        assert (ongoing[T0].target, ongoing[T0].original) == ((1, 2), (0,))
        assert list(await client.list_partition_reassignments([T1, U0])) == [T1]
        assert await client.list_partition_reassignments([]) == {}
        assert await client.alter_partition_reassignments({T0: None}) == {T0: None}
        assert moves.targets == {T1: [2]}


async def test_one_wish_that_is_refused_does_not_spoil_the_others(autojump_clock: object) -> None:
    async with site() as (moves, client):
        moves.refused = {U0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, T1: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        results = await client.alter_partition_reassignments({U0: [1], T0: [1], T1: [9]})
        assert results[T0] is None and isinstance(results[U0], UnknownTopic)
        assert str(results[T1]) == "reassigning t-1: INVALID_REPLICA_ASSIGNMENT: why"
        assert moves.targets == {T0: [1]}


async def test_a_controller_that_moved_is_found_again(autojump_clock: object) -> None:
    async with site() as (moves, client):
        moves.moves_on = True
        assert await client.alter_partition_reassignments({T0: [1]}) == {T0: None}


async def test_an_answer_without_one_of_the_partitions_is_asked_for_again(autojump_clock: object) -> None:
    async with site() as (moves, client):
        moves.left_out = {T1}
        assert await client.alter_partition_reassignments({T0: [1], T1: [1]}) == {T0: None, T1: None}
        assert len(moves.cluster.brokers[0].seen(AlterPartitionReassignmentsRequest)) == 2


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_cancellation_whose_answer_was_lost_counts_as_done(autojump_clock: object, is_lost: bool) -> None:
    async with site() as (moves, client):
        if is_lost:
            await client.alter_partition_reassignments({T0: [1]})
            moves.cluster.brokers[0].faults[ApiKey.ALTER_PARTITION_REASSIGNMENTS].append(Fault(apply=True, close=True))
        result = (await client.alter_partition_reassignments({T0: None}))[T0]
        assert moves.targets == {}
        assert is_lost == (result is None)
        if not is_lost:
            assert isinstance(result, AnsweredError) and result.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert "cancelling the reassignment of t-0" in str(result)


async def test_a_refusal_of_the_whole_is_raised_and_silence_ends_in_time(autojump_clock: object) -> None:
    async with site(1) as (moves, client):
        broker = moves.cluster.brokers[0]
        refusal = ListPartitionReassignmentsResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        broker.scripts[ListPartitionReassignmentsRequest] = lambda request: refusal
        with pytest.raises(AnsweredError, match="listing reassignments: CLUSTER_AUTHORIZATION_FAILED: not you"):
            await client.list_partition_reassignments()
        broker.faults[ApiKey.ALTER_PARTITION_REASSIGNMENTS] += [Fault(hang=True)] * 9
        with pytest.raises(RequestTimedOut):
            await client.alter_partition_reassignments({T0: [1]}, timeout_ms=2_000)


def sized(asked: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    logs = [DescribeLogDirsPartition(0, 700, 3), DescribeLogDirsPartition(1, 20, -1, True)]
    failed = DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, "/broken")
    return DescribeLogDirsResponse(
        0, [DescribeLogDirsResult(0, "/a", [DescribeLogDirsTopic("t", logs)], 100, 50), failed]
    )


async def test_every_broker_tells_what_lies_in_its_directories(autojump_clock: object) -> None:
    async with site() as (moves, client):
        for broker in moves.cluster.brokers:
            broker.scripts[DescribeLogDirsRequest] = sized
        found = await client.describe_log_dirs([0, 2], [T0, T1])
        assert list(found) == [0, 2]
        directories = found[0]
        assert not isinstance(directories, ClientError)
        assert directories[0].logs == {T0: LogSize(700, 3), T1: LogSize(20, -1, True)}
        assert (directories[0].total_bytes, directories[0].usable_bytes) == (100, 50)
        assert directories[1].error is not None and "log directory /broken" in str(directories[1].error)
        assert log_sizes(directories) == {T0: 700}, "a log that is being moved is in another directory, too"
        [request] = moves.cluster.brokers[2].seen(DescribeLogDirsRequest)
        assert isinstance(request, DescribeLogDirsRequest) and request.topics is not None
        assert [(each.topic, each.partitions) for each in request.topics] == [("t", [0, 1])]
        assert not moves.cluster.brokers[1].seen(DescribeLogDirsRequest)


async def test_a_broker_that_is_gone_holds_up_nobody(autojump_clock: object) -> None:
    async with site() as (moves, client):
        for broker in moves.cluster.brokers:
            broker.scripts[DescribeLogDirsRequest] = sized
        await client.describe_cluster()
        moves.cluster.brokers[1].kill()
        before = trio.current_time()
        found = await client.describe_log_dirs([0, 1, 7])
        assert isinstance(found[1], ClientError) and isinstance(found[7], ClientError)
        assert not isinstance(found[0], ClientError)
        assert trio.current_time() - before < 5, "it is not asked again and again"


def elected(request: ElectLeadersRequest) -> ElectLeadersResponse:
    """t-0 is led by broker 2 now, t-1 was already; of all partitions the latter is left out."""
    results = [ElectLeadersPartitionResult(0, 0, None, 2)]
    if request.topic_partitions is not None:
        results.append(ElectLeadersPartitionResult(1, ErrorCode.ELECTION_NOT_NEEDED, "it is"))
    return ElectLeadersResponse([ElectLeadersTopicResult("t", results)])


async def test_leaders_are_elected_of_some_or_of_all_partitions(autojump_clock: object) -> None:
    async with site() as (moves, client):
        for broker in moves.cluster.brokers:
            broker.scripts[ElectLeadersRequest] = elected
        results = await client.elect_leaders([T0, T1])
        assert results[T0] == 2
        refused = results[T1]
        assert isinstance(refused, AnsweredError) and refused.code == ErrorCode.ELECTION_NOT_NEEDED
        assert str(refused) == "electing a leader of t-1: ELECTION_NOT_NEEDED: it is"
        assert await client.elect_leaders(unclean=True) == {T0: 2}
        asked = moves.cluster.brokers[0].seen(ElectLeadersRequest)
        assert [each.election_type for each in asked if isinstance(each, ElectLeadersRequest)] == [0, 1]


async def test_an_election_is_asked_for_again_where_the_controller_moved_or_left_something_out(
    autojump_clock: object,
) -> None:
    async with site(1) as (moves, client):
        [broker] = moves.cluster.brokers
        answers = [ElectLeadersResponse([], ErrorCode.NOT_CONTROLLER), ElectLeadersResponse([])]
        broker.scripts[ElectLeadersRequest] = lambda request: answers.pop(0) if answers else elected(request)
        assert (await client.elect_leaders([T0]))[T0] == 2
        refusal = ElectLeadersResponse([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        broker.scripts[ElectLeadersRequest] = lambda request: refusal
        with pytest.raises(AnsweredError, match="electing leaders: CLUSTER_AUTHORIZATION_FAILED: not you"):
            await client.elect_leaders([T0])
