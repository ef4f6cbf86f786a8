"""What operators look at: brokers, log directories, producers."""

from __future__ import annotations

import errno

import pytest
from trio.testing import MockClock

from strandline.broker.handlers.inventory import InventoryHandler
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    ALL_CLUSTER_OPERATIONS,
    OPERATIONS_NOT_ASKED_FOR,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsTopic,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersTopic,
    ProducerState,
)
from strandline.protocol.types import TopicPartition
from strandline.testkit.disk import MemoryDisk
from support.replica_site import T0, T1, FakeConnection, Hand, ReplicaSite, batch, in_hand


class Inventory:
    def __init__(self, site: ReplicaSite) -> None:
        environment = site.environment
        self.handler = InventoryHandler(
            site.logs, site.replicas, environment.disk, environment.blocking, cluster_id="the-cluster"
        )

    def cluster(self, *, listener: str = "PLAINTEXT", operations: bool = False, endpoint_type: int = 1):
        hand = Hand(DescribeClusterRequest(operations, endpoint_type), connection=FakeConnection(listener=listener))
        self.handler.describe_cluster(in_hand(hand))
        return hand.answer

    async def log_dirs(self, *partitions: TopicPartition) -> DescribeLogDirsResponse:
        """None named: all."""
        topics = [DescribableLogDirTopic(tp.topic, [tp.partition]) for tp in partitions]
        return await self.handler.describe_log_dirs(in_hand(Hand(DescribeLogDirsRequest(topics or None))))

    async def places(self, wanted: dict[str, list[int]]) -> dict[int, int]:
        """Have partitions of `t` lie in these directories: the code of each."""
        dirs = [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("t", some)]) for path, some in wanted.items()]
        hand = Hand(AlterReplicaLogDirsRequest(dirs))
        remainder = self.handler.alter_replica_log_dirs(in_hand(hand))
        if remainder is not None:
            await remainder()
        [topic] = hand.answer.results
        assert topic.topic_name == "t"
        return {each.partition_index: each.error_code for each in topic.partitions}

    async def producers(self, *indexes: int, ids: list[int] | None = None) -> list[DescribeProducersPartitionResponse]:
        hand = Hand(DescribeProducersRequest([DescribeProducersTopic("t", list(indexes))], ids))
        remainder = self.handler.describe_producers(in_hand(hand))
        if remainder is not None:
            await remainder()
        [topic] = hand.answer.topics
        assert topic.name == "t"
        return topic.partitions


# --- DescribeCluster -------------------------------------------------------------------------------------------------


async def test_the_cluster_is_described_by_the_addresses_of_the_listener_that_was_asked(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    answer = Inventory(site).cluster()
    assert (answer.cluster_id, answer.controller_id) == ("the-cluster", site.metadata.controller_id)
    assert DescribeClusterBroker(2, "b2", 9092, "rack-2") in answer.brokers
    assert [broker.host for broker in Inventory(site).cluster(listener="INTERNAL").brokers] == ["i1", "i2", "i3"]


async def test_operations_are_told_to_who_asks_for_them(site: ReplicaSite, autojump_clock: MockClock) -> None:
    assert Inventory(site).cluster().cluster_authorized_operations == OPERATIONS_NOT_ASKED_FOR
    answer = Inventory(site).cluster(operations=True)
    assert answer.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS == 0b1_1111_1010_0000


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_a_broker_does_not_answer_for_controllers(
    site: ReplicaSite, endpoint_type: int, code: ErrorCode, autojump_clock: MockClock
) -> None:
    with pytest.raises(BrokerError) as refused:
        Inventory(site).cluster(endpoint_type=endpoint_type)
    assert refused.value.code is code


# --- DescribeLogDirs -------------------------------------------------------------------------------------------------


async def test_each_log_directory_tells_its_volume_and_the_size_of_each_log(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    two_disks.disk.capacity_bytes = 10**9
    await two_disks.lead(T0)
    await two_disks.lead(T1)
    records = batch(3)
    two_disks.produce((T0, records))
    answer = await Inventory(two_disks).log_dirs()
    assert answer.error_code == 0
    assert [(each.error_code, each.log_dir, each.topics) for each in answer.results] == [
        (0, "/logs", [DescribeLogDirsTopic("t", [DescribeLogDirsPartition(0, len(records), 0)])]),
        (0, "/more", [DescribeLogDirsTopic("t", [DescribeLogDirsPartition(1, 0, 0)])]),
    ]
    space = two_disks.disk.space("/logs")
    assert [(each.total_bytes, each.usable_bytes) for each in answer.results] == [
        (space.total_bytes, space.free_bytes)
    ] * 2


async def test_only_what_was_asked_about_and_is_here_is_told(two_disks: ReplicaSite, autojump_clock: MockClock) -> None:
    await two_disks.lead(T0)
    await two_disks.lead(T1)
    answer = await Inventory(two_disks).log_dirs(T1, T1, TopicPartition("nowhere", 0))
    assert [each.topics for each in answer.results] == [
        [],
        [DescribeLogDirsTopic("t", [DescribeLogDirsPartition(1, 0, 0)])],
    ]


async def test_the_lag_of_a_log_without_a_role_is_not_known(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(T0)
    site.stop(T0, epoch=1)
    answer = await Inventory(site).log_dirs()
    assert answer.results[0].topics[0].partitions == [DescribeLogDirsPartition(0, 0, -1)]


async def test_a_directory_that_failed_says_so_and_hides_no_other(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    await two_disks.lead(T0)
    await two_disks.lead(T1)
    two_disks.logs.directories.read_failed("/logs/t-0/x", OSError(errno.EIO, "broken"))
    first, second = (await Inventory(two_disks).log_dirs()).results
    assert (first.error_code, first.log_dir, first.topics, first.total_bytes) == (
        ErrorCode.KAFKA_STORAGE_ERROR,
        "/logs",
        [],
        -1,
    )
    assert second.error_code == 0 and second.topics


async def test_a_volume_that_does_not_answer_holds_nothing_up(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    await two_disks.lead(T0)
    two_disks.hang_disk("/logs")
    first, second = (await Inventory(two_disks).log_dirs()).results
    assert (first.error_code, first.total_bytes, first.usable_bytes) == (0, -1, -1)
    assert first.topics
    assert second.total_bytes > 0


async def test_a_volume_that_cannot_be_asked_is_told_without_its_size(
    site: ReplicaSite, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    def refuse(self: MemoryDisk, path: str) -> None:
        raise OSError(errno.EACCES, "no", path)

    monkeypatch.setattr(MemoryDisk, "space", refuse)
    [result] = (await Inventory(site).log_dirs()).results
    assert (result.error_code, result.total_bytes) == (0, -1)


# --- AlterReplicaLogDirs ---------------------------------------------------------------------------------------------


async def test_what_lies_where_it_should_is_well_and_nothing_is_moved(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    await two_disks.lead(T0)
    await two_disks.lead(T1)
    inventory = Inventory(two_disks)
    assert await inventory.places({"/logs": [0, 7], "/more": [1]}) == {0: 0, 7: ErrorCode.REPLICA_NOT_AVAILABLE, 1: 0}
    assert await inventory.places({"/more": [0], "/absent": [1]}) == {
        0: ErrorCode.UNSUPPORTED_VERSION,
        1: ErrorCode.LOG_DIR_NOT_FOUND,
    }
    assert [each.topics[0].partitions[0].partition_index for each in (await inventory.log_dirs()).results] == [0, 1]
    two_disks.logs.directories.read_failed("/logs/t-0/x", OSError(errno.EIO, "broken"))
    assert await inventory.places({"/logs": [0]}) == {0: ErrorCode.KAFKA_STORAGE_ERROR}
    many = range(2, PARTITIONS_PER_STEP + 3)
    assert await inventory.places({"/more": [*many]}) == dict.fromkeys(many, ErrorCode.REPLICA_NOT_AVAILABLE)


# --- DescribeProducers -----------------------------------------------------------------------------------------------


async def test_the_producers_of_a_log_are_told_by_any_replica(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(T0)
    site.produce((T0, batch(2, producer=(7, 3, 0), timestamp_ms=5000)))
    expected = DescribeProducersPartitionResponse(0, 0, active_producers=[ProducerState(7, 3, 1, 5001, last_offset=1)])
    assert await Inventory(site).producers(0) == [expected]
    await site.follow_leader(T0, epoch=1)
    assert await Inventory(site).producers(0) == [expected]


async def test_those_producers_are_told_that_are_asked_for(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(T0)
    for producer_id in (7, 8, 9):
        site.produce((T0, batch(1, producer=(producer_id, 0, 0))))
    for asked, told in (([9, 5, 7], [9, 7]), ([5], []), ([], []), (None, [7, 8, 9])):
        [answer] = await Inventory(site).producers(0, ids=asked)
        assert [each.producer_id for each in answer.active_producers] == told


async def test_a_producer_that_is_named_twice_is_refused(site: ReplicaSite, autojump_clock: MockClock) -> None:
    with pytest.raises(BrokerError) as refused:
        await Inventory(site).producers(0, ids=[7, 7])
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_partitions_that_are_not_here_have_their_own_error(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(T0)
    first, second = await Inventory(site).producers(0, 9)
    assert (first.error_code, first.active_producers) == (0, [])
    assert (second.partition_index, second.error_code) == (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_log_whose_disk_failed_tells_no_producers(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.lead(T0)
    site.replicas.partition_failed(partition, OSError(errno.EIO, "broken"))
    assert [each.error_code for each in await Inventory(site).producers(0)] == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_partition_that_is_named_twice_is_refused(site: ReplicaSite, autojump_clock: MockClock) -> None:
    with pytest.raises(BrokerError) as refused:
        await Inventory(site).producers(0, 0)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_many_producers_are_told_in_steps(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.lead(T0)
    for producer_id in range(PARTITIONS_PER_STEP):
        partition.log.producers.states.note(producer_id, 0, 0, producer_id, producer_id, 1)
    hand = Hand(DescribeProducersRequest([DescribeProducersTopic("t", [0])]))
    remainder = Inventory(site).handler.describe_producers(in_hand(hand))
    assert remainder is not None and not hand.is_answered
    await remainder()
    assert len(hand.answer.topics[0].partitions[0].active_producers) == PARTITIONS_PER_STEP
