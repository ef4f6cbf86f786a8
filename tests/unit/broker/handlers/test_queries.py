"""Questions answered from memory: who serves what, where brokers are, and which offsets are sure."""

from __future__ import annotations

import errno

import msgspec
import pytest
from crc32c import crc32c
from trio.testing import MockClock

from strandline.broker.handlers.queries import QueryHandler
from strandline.broker.membership.broker_key import is_key
from strandline.broker.network.dialects.native import NativeDialect
from strandline.protocol.api import APIS, Api, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    OPERATIONS_NOT_ASKED_FOR,
    ApiVersion,
    ApiVersionsRequest,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResponse,
    OffsetForLeaderTopic,
    RefusedReplica,
    UnfinishedDeletion,
    UpdateMetadataPartitionState,
)
from strandline.protocol.records import build_batch
from strandline.protocol.records.validation import correct_max_timestamp
from strandline.protocol.types import ANY_REPLICA, TopicPartition
from strandline.testkit.disk import MemoryDisk
from support.replica_site import T0, T1, TOPIC_ID, FakeConnection, Hand, ReplicaSite, batch, in_hand


class Queries:
    def __init__(self, site: ReplicaSite) -> None:
        self.site = site
        self.created: list[tuple[str, str]] = []
        self.handler = QueryHandler(
            site.logs,
            site.replicas,
            site.data.burst,
            site.environment.computing,
            cluster_id="the-cluster",
            software_version="1.2.3",
            broker_key="its key",
            create_topics=lambda names, request: self.created.extend(
                (name, str(request.context.peer)) for name in names
            ),
        )

    def metadata(self, *names: str, listener: str = "PLAINTEXT", create: bool = False) -> MetadataResponse:
        hand = Hand(MetadataRequest(list(names) or None, create), b"", FakeConnection(listener=listener))
        self.handler.metadata(in_hand(hand))
        return hand.answer

    def offset(self, timestamp: int, *, epoch: int = -1, tp=T0, replica_id: int = -1) -> ListOffsetsPartitionResponse:
        asked = ListOffsetsPartition(tp.partition, timestamp, epoch)
        hand = Hand(ListOffsetsRequest([ListOffsetsTopic(tp.topic, [asked])], replica_id))
        self.handler.list_offsets(in_hand(hand))
        return hand.answer.topics[0].partitions[0]

    async def offset_at(self, timestamp: int, *, tp=T0) -> ListOffsetsPartitionResponse:
        """By timestamp: what a handler task does in between is done."""
        hand = Hand(ListOffsetsRequest([ListOffsetsTopic(tp.topic, [ListOffsetsPartition(tp.partition, timestamp)])]))
        remainder = self.handler.list_offsets(in_hand(hand))
        assert remainder is not None and not hand.is_answered
        await remainder()
        return hand.answer.topics[0].partitions[0]

    def epoch_end_on_disk(self) -> OffsetForLeaderPartitionResponse:
        """As the controller asks."""
        topics = [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, 5)])]
        hand = Hand(OffsetForLeaderEpochRequest(topics, ANY_REPLICA), connection=FakeConnection(is_inter_broker=True))
        self.handler.offset_for_leader_epoch(in_hand(hand))
        return hand.answer.topics[0].partitions[0]

    def epoch_end(self, epoch: int, *, current: int = -1) -> OffsetForLeaderPartitionResponse:
        asked = OffsetForLeaderPartition(0, epoch, current)
        hand = Hand(OffsetForLeaderEpochRequest([OffsetForLeaderTopic("t", [asked])]))
        self.handler.offset_for_leader_epoch(in_hand(hand))
        return hand.answer.topics[0].partitions[0]


@pytest.fixture
async def queries(site: ReplicaSite) -> Queries:
    return Queries(site)


def known(index: int = 0, *, leader: int = 2, epoch: int = 5) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(index, 1, leader, epoch, [2, 3], 4, [1, 2, 3])


# --- ApiVersions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_inter_broker", [True, False])
async def test_each_listener_is_told_of_the_apis_that_it_serves(
    is_inter_broker: bool, queries: Queries, autojump_clock: MockClock
) -> None:
    hand = Hand(ApiVersionsRequest(client_id="me"), b"", FakeConnection(is_inter_broker=is_inter_broker))
    queries.handler.api_versions(in_hand(hand))
    offered = {api.api_key for api in hand.answer.api_keys}
    assert offered == ({key for key, api in APIS.items() if is_inter_broker or not api.inter_broker_only})
    assert (hand.answer.broker_id, hand.answer.cluster_id) == (1, "the-cluster")


@pytest.mark.parametrize(("told", "is_broker"), [("its key", True), ("another key", False), ("", False)])
async def test_who_names_the_key_of_a_broker_is_one_where_they_share_a_listener_with_clients(
    told: str, is_broker: bool, queries: Queries, autojump_clock: MockClock
) -> None:
    connection = FakeConnection(is_inter_broker=False)
    hand = Hand(ApiVersionsRequest(client_id="me", broker_key=told), b"", connection)
    queries.handler.api_versions(in_hand(hand))
    offered = {api.api_key for api in hand.answer.api_keys}
    assert offered == ({key for key, api in APIS.items() if is_broker or not api.inter_broker_only})
    assert connection.context.is_inter_broker == is_broker


def test_nobody_knows_a_key_that_a_broker_does_not_have() -> None:
    assert not is_key("", "")


async def test_the_versions_are_those_of_the_dialect_that_asks(queries: Queries, autojump_clock: MockClock) -> None:
    class OtherDialect(NativeDialect):
        def versions(self, api: Api) -> tuple[int, int] | None:
            return {ApiKey.PRODUCE: (3, 9), ApiKey.FETCH: (4, 12)}.get(api.key)

    hand = Hand(ApiVersionsRequest())
    hand.dialect = OtherDialect()
    queries.handler.api_versions(in_hand(hand))
    assert hand.answer.api_keys == [ApiVersion(ApiKey.PRODUCE, 3, 9), ApiVersion(ApiKey.FETCH, 4, 12)]


# --- Metadata --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("listener", "host", "port"), [("PLAINTEXT", "b2", 9092), ("INTERNAL", "i2", 9093)])
async def test_brokers_are_named_at_the_listener_that_was_asked(
    listener: str, host: str, port: int, queries: Queries, autojump_clock: MockClock
) -> None:
    brokers = {broker.node_id: broker for broker in queries.metadata(listener=listener).brokers}
    assert set(brokers) == {1, 2, 3}
    assert (brokers[2].host, brokers[2].port, brokers[2].rack) == (host, port, "rack-2")


async def test_all_topics_or_those_asked_for_or_none(queries: Queries, autojump_clock: MockClock) -> None:
    for name in ("t", "other"):
        queries.site.update_metadata(known(), topic=name)
    assert [topic.name for topic in queries.metadata().topics] == ["other", "t"]
    assert [topic.name for topic in queries.metadata("t", "t").topics] == ["t"]
    hand = Hand(MetadataRequest([]))
    queries.handler.metadata(in_hand(hand))
    assert hand.answer.topics == [] and hand.answer.brokers


@pytest.mark.parametrize(("cluster", "topics"), [(False, False), (True, False), (False, True)])
async def test_operations_are_told_to_who_asks_for_them(
    queries: Queries, cluster: bool, topics: bool, autojump_clock: MockClock
) -> None:
    queries.site.update_metadata(known())
    hand = Hand(MetadataRequest(["t", "none"], False, [], cluster, topics))
    queries.handler.metadata(in_hand(hand))
    nothing = OPERATIONS_NOT_ASKED_FOR
    assert hand.answer.cluster_authorized_operations == (0b1_1111_1010_0000 if cluster else nothing)
    told = [topic.topic_authorized_operations for topic in hand.answer.topics]
    assert told == [0b1101_1111_1000 if topics else nothing, nothing]


async def test_topics_are_described_by_their_ids(queries: Queries, autojump_clock: MockClock) -> None:
    queries.site.update_metadata(known())
    queries.site.update_metadata(known(), topic="other", topic_id=b"o" * 16)
    unknown = b"u" * 16
    hand = Hand(MetadataRequest(["other"], True, [TOPIC_ID, unknown, TOPIC_ID]))
    queries.handler.metadata(in_hand(hand))
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in hand.answer.topics] == [
        (0, "other", b"o" * 16),
        (0, "t", TOPIC_ID),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
    ]
    assert queries.created == [], "an id is nothing to create a topic by"


async def test_a_leader_that_does_not_live_is_not_named(queries: Queries, autojump_clock: MockClock) -> None:
    queries.site.update_metadata(known(0, leader=2), known(1, leader=3), alive=(1, 3))
    topic = queries.metadata("t").topics[0]
    assert topic.topic_id == TOPIC_ID
    dead, lives = topic.partitions
    assert (dead.error_code, dead.leader_id, dead.offline_replicas) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [2])
    assert (lives.error_code, lives.leader_id, lives.leader_epoch) == (0, 3, 5)


async def test_it_is_told_which_replicas_are_refused_and_why(queries: Queries, autojump_clock: MockClock) -> None:
    refused = [RefusedReplica(3, "its log is of another topic")]
    queries.site.update_metadata(msgspec.structs.replace(known(0), refused_replicas=refused), known(1))
    first, second = queries.metadata("t").topics[0].partitions
    assert (first.refused_replicas, first.offline_replicas) == (refused, [])
    assert second.refused_replicas == []


async def test_what_holds_deletions_up_is_told_to_who_asks_for_all_topics(
    queries: Queries, autojump_clock: MockClock
) -> None:
    held_up = [UnfinishedDeletion("gone", "broker 2 is not there")]
    queries.site.replicas.metadata.unfinished_deletions = held_up
    assert queries.metadata().unfinished_deletions == held_up
    assert queries.metadata("t").unfinished_deletions == []
    queries.site.update_metadata(known())
    assert queries.metadata().unfinished_deletions == [], "whole each time"


async def test_an_unknown_topic_is_created_only_when_the_client_allows_it(
    queries: Queries, autojump_clock: MockClock
) -> None:
    assert queries.metadata("new").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert queries.created == []
    assert queries.metadata("new", create=True).topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert queries.created == [("new", "client:40000")]


async def test_an_unknown_topic_is_created_only_when_the_broker_allows_it(autojump_clock) -> None:
    queries = Queries(ReplicaSite(config={"auto.create.topics.enable": "false"}))
    assert queries.metadata("new", create=True).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert queries.created == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250, "a b"])
async def test_a_name_that_no_topic_can_have_is_refused(name: str, queries: Queries, autojump_clock: MockClock) -> None:
    assert queries.metadata(name, create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert queries.created == []


# --- ListOffsets -----------------------------------------------------------------------------------------------


async def test_the_latest_offset_is_the_high_watermark_and_the_earliest_the_log_start(
    queries: Queries, autojump_clock: MockClock
) -> None:
    await queries.site.lead(epoch=2)
    queries.site.produce((T0, batch(5)), acks=1)
    queries.site.follow(2, 5)
    queries.site.follow(3, 3)
    latest, earliest = queries.offset(LATEST_TIMESTAMP), queries.offset(EARLIEST_TIMESTAMP)
    assert (latest.error_code, latest.offset, latest.leader_epoch) == (0, 3, 2)
    assert (earliest.error_code, earliest.offset) == (0, 0)


async def test_a_new_leader_names_no_latest_offset_until_it_has_committed_what_it_began_with(
    queries: Queries, autojump_clock: MockClock
) -> None:
    site = queries.site
    await site.lead(epoch=0)
    site.produce((T0, batch(5)), acks=1)
    await site.follow_leader(epoch=1)
    await site.lead(epoch=2)
    for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, 1000):
        found = queries.offset(timestamp) if timestamp == LATEST_TIMESTAMP else await queries.offset_at(timestamp)
        assert found.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert queries.offset(EARLIEST_TIMESTAMP).error_code == 0
    site.follow(2, 5)
    site.follow(3, 4)
    assert queries.offset(LATEST_TIMESTAMP).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    site.follow(3, 5)
    assert queries.offset(LATEST_TIMESTAMP).offset == 5


async def test_an_offset_by_time_is_never_at_or_above_the_high_watermark(
    queries: Queries, autojump_clock: MockClock
) -> None:
    site = queries.site
    await site.lead(epoch=2)
    for place in range(4):
        site.produce((T0, batch(timestamp_ms=1000 + 100 * place)), acks=1)
    site.follow(2, 4)
    site.follow(3, 2)
    found = await queries.offset_at(1050)
    assert (found.offset, found.timestamp, found.leader_epoch) == (1, 1100, 2)
    later = await queries.offset_at(1150)
    assert (later.error_code, later.offset, later.timestamp) == (0, -1, -1)
    newest = await queries.offset_at(MAX_TIMESTAMP)
    assert (newest.offset, newest.timestamp, newest.leader_epoch) == (1, 1100, 2)


@pytest.mark.parametrize("timestamp", [-6, -7, -(2**63)])
async def test_a_time_before_1970_that_stands_for_nothing_is_of_no_version(
    timestamp: int, queries: Queries, autojump_clock: MockClock
) -> None:
    await queries.site.lead()
    assert queries.offset(timestamp).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_all_of_a_log_lies_on_the_brokers_own_disk(queries: Queries, autojump_clock: MockClock) -> None:
    site = queries.site
    await site.lead(epoch=2)
    site.produce((T0, batch(5)), acks=1)
    for follower in (2, 3):
        site.follow(follower, 5)
    site.delete_records((T0, 3))
    assert queries.offset(EARLIEST_LOCAL_TIMESTAMP) == ListOffsetsPartitionResponse(0, 0, -1, 3, 2)
    assert queries.offset(LATEST_TIERED_TIMESTAMP) == ListOffsetsPartitionResponse(0, 0, -1, -1, -1)


async def test_an_earliest_offset_has_the_epoch_of_its_record(queries: Queries, autojump_clock: MockClock) -> None:
    site = queries.site
    await site.lead(epoch=2)
    site.produce((T0, batch(5)), acks=1)
    await site.lead(epoch=4)
    assert queries.offset(EARLIEST_TIMESTAMP).leader_epoch == 2


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_the_newest_record_is_the_first_of_the_largest_timestamp(
    codec: str, queries: Queries, autojump_clock: MockClock
) -> None:
    site = await lone_leader(queries, T0)
    for first_ms in (1000, 3000, 2000, 3000):
        site.produce((T0, batch(4, timestamp_ms=first_ms, codec=codec)))
    found = await queries.offset_at(MAX_TIMESTAMP)
    assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, 7, 3003, 0)


async def test_a_log_without_records_or_without_times_has_no_newest_record(
    queries: Queries, autojump_clock: MockClock
) -> None:
    site = await lone_leader(queries, T0)
    none = ListOffsetsPartitionResponse(0, 0)
    assert await queries.offset_at(MAX_TIMESTAMP) == none
    site.produce((T0, build_batch([(-1, None, b"x")])))
    assert await queries.offset_at(MAX_TIMESTAMP) == none


async def test_the_newest_record_is_looked_for_in_what_was_not_deleted(
    queries: Queries, autojump_clock: MockClock
) -> None:
    site = await lone_leader(queries, T0)
    for first_ms in (3000, 1000, 2000, 1500):
        site.produce((T0, batch(timestamp_ms=first_ms)))
    site.delete_records((T0, 1))
    found = await queries.offset_at(MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (2, 2000)


async def test_a_newest_record_that_its_batch_only_claims_is_none(queries: Queries, autojump_clock: MockClock) -> None:
    site = await lone_leader(queries, T0)
    lying = bytearray(batch(10, timestamp_ms=1000, size_bytes=100, codec="gzip"))
    correct_max_timestamp(memoryview(lying), 9999)
    site.produce((T0, bytes(lying)))
    assert await queries.offset_at(MAX_TIMESTAMP) == ListOffsetsPartitionResponse(0, 0)


@pytest.mark.parametrize(
    ("epoch", "code"), [(1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH), (2, 0), (-1, 0)]
)
async def test_offsets_are_fenced_by_epoch(epoch: int, code: int, queries: Queries, autojump_clock: MockClock) -> None:
    await queries.site.lead(epoch=2)
    assert queries.offset(EARLIEST_TIMESTAMP, epoch=epoch).error_code == code
    assert queries.epoch_end(2, current=epoch).error_code == code


async def test_offsets_are_the_leaders_to_tell(queries: Queries, autojump_clock: MockClock) -> None:
    await queries.site.follow_leader()
    assert queries.offset(LATEST_TIMESTAMP).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert queries.offset(LATEST_TIMESTAMP, tp=T1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_tool_that_compares_replicas_is_told_where_each_log_ends(
    queries: Queries, autojump_clock: MockClock
) -> None:
    site = queries.site
    await site.lead(epoch=1)
    site.produce((T0, batch(5)), acks=1)
    site.follow(2, 3)
    site.follow(3, 3)
    before = site.partition().leadership.followers[2].log_end_offset
    assert queries.offset(LATEST_TIMESTAMP, replica_id=ANY_REPLICA).offset == 5, "also what is not committed"
    assert queries.offset(EARLIEST_TIMESTAMP, replica_id=ANY_REPLICA).offset == 0
    assert (site.partition().high_watermark, site.partition().leadership.followers[2].log_end_offset) == (3, before)
    await site.follow_leader(epoch=2)
    told = queries.offset(LATEST_TIMESTAMP, replica_id=ANY_REPLICA, epoch=2)
    assert (told.error_code, told.offset, told.leader_epoch) == (0, 5, 2)
    fenced = queries.offset(LATEST_TIMESTAMP, replica_id=ANY_REPLICA, epoch=1)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    begin = queries.offset(EARLIEST_TIMESTAMP, replica_id=ANY_REPLICA)
    assert (begin.error_code, begin.offset, begin.leader_epoch) == (0, 0, 1)
    refused = queries.offset(LATEST_TIERED_TIMESTAMP, replica_id=ANY_REPLICA)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    site.replicas.resign(site.partition())
    assert queries.offset(LATEST_TIMESTAMP, replica_id=ANY_REPLICA).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert queries.offset(LATEST_TIMESTAMP, replica_id=ANY_REPLICA, tp=T1).error_code != 0


async def lone_leader(queries: Queries, *tps: TopicPartition) -> ReplicaSite:
    site = queries.site
    await site.order(*(site.state(tp, replicas=(1,), isr=(1,)) for tp in tps))
    return site


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_are_looked_into_by_a_worker(
    codec: str, queries: Queries, autojump_clock: MockClock
) -> None:
    site = await lone_leader(queries, T0)
    for place in range(3):
        site.produce((T0, batch(10, timestamp_ms=1000 + 100 * place, size_bytes=100, codec=codec)))
    for wanted, expected in (
        (0, (0, 1000)),
        (1005, (5, 1005)),
        (1010, (10, 1100)),
        (1209, (29, 1209)),
        (1210, (-1, -1)),
    ):
        found = await queries.offset_at(wanted)
        assert (found.error_code, found.offset, found.timestamp) == (0, *expected)
    assert site.environment.computing.calls == (0 if codec == "none" else 4)  # type: ignore[attr-defined]


async def test_a_large_batch_is_looked_into_by_a_worker_though_it_is_not_compressed(
    queries: Queries, autojump_clock: MockClock
) -> None:
    site = await lone_leader(queries, T0)
    site.produce((T0, batch(10, timestamp_ms=1000, size_bytes=30_000)))
    assert (await queries.offset_at(1007)).offset == 7
    assert site.environment.computing.calls == 1  # type: ignore[attr-defined]


async def test_a_batch_that_claims_a_younger_record_than_it_has_is_passed_over(
    queries: Queries, autojump_clock: MockClock
) -> None:
    site = await lone_leader(queries, T0)
    lying = bytearray(batch(10, timestamp_ms=1000, size_bytes=100, codec="gzip"))
    correct_max_timestamp(memoryview(lying), 9999)
    site.produce((T0, bytes(lying)), (T0, batch(2, timestamp_ms=2000)))
    found = await queries.offset_at(1500)
    assert (found.offset, found.timestamp) == (10, 2000)


async def test_a_bomb_in_the_log_is_not_decoded_beyond_the_cap(autojump_clock: MockClock) -> None:
    queries = Queries(ReplicaSite(config={"max.decompressed.message.bytes": "100000"}))
    site = await lone_leader(queries, T0)
    site.produce((T0, build_batch([(1000, b"k", bytes(2_000_000))], "zstd")))
    assert (await queries.offset_at(1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert site.partition().leadership is not None


async def test_leadership_that_is_lost_meanwhile_is_told(queries: Queries, autojump_clock: MockClock) -> None:
    site = await lone_leader(queries, T0)
    site.produce((T0, batch(10, size_bytes=100, codec="gzip")))
    run = site.environment.computing.run

    async def meanwhile(*args: object) -> object:
        found = await run(*args)
        await site.follow_leader(epoch=5)
        return found

    object.__setattr__(site.environment.computing, "run", meanwhile)
    assert (await queries.offset_at(1000)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_lookup_by_time_that_fails_is_the_error_of_its_partition(
    queries: Queries, autojump_clock: MockClock
) -> None:
    site = await lone_leader(queries, T0, T1)
    nonsense = bytearray(batch(10, size_bytes=100, codec="gzip"))
    nonsense[70:90] = b"\xff" * 20
    nonsense[17:21] = crc32c(bytes(nonsense[21:])).to_bytes(4, "big")
    assert [o.error_code for o in site.produce((T0, bytes(nonsense)), (T1, batch())).outcomes] == [0, 0]
    assert (await queries.offset_at(1000)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert site.partition(T0).leadership is not None
    site.disk.fail("pread", "/logs/t-1/*", errno.EIO)
    site.disk.fail("pread_into", "/logs/t-1/*", errno.EIO)
    assert (await queries.offset_at(1000, tp=T1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert site.partition(T1).failed


# --- OffsetForLeaderEpoch --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_unread", "code"), [(False, ErrorCode.REPLICA_NOT_AVAILABLE), (True, ErrorCode.KAFKA_STORAGE_ERROR)]
)
async def test_a_log_that_may_lie_in_a_directory_that_cannot_be_read_is_not_said_to_be_none(
    is_unread: bool, code: ErrorCode, autojump_clock: MockClock
) -> None:
    disk = MemoryDisk()
    if is_unread:
        disk.fail("open", "/more/.lock", errno.EIO)
    site = ReplicaSite(config={"log.dirs": "/logs,/more"}, disk=disk)
    assert Queries(site).epoch_end_on_disk().error_code == code


@pytest.mark.parametrize(("epoch", "end"), [(0, (0, 2)), (1, (0, 2)), (2, (2, 5)), (9, (4, 6))])
async def test_the_end_of_an_epoch_is_that_of_the_largest_known_one(
    epoch: int, end: tuple[int, int], queries: Queries, autojump_clock: MockClock
) -> None:
    for leader_epoch, count in ((0, 2), (2, 3), (4, 1)):
        await queries.site.lead(epoch=leader_epoch)
        queries.site.produce((T0, batch(count)), acks=1)
    answer = queries.epoch_end(epoch)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *end)
