"""One broker's replicas for tests: log manager, data plane; no network, no channel.

`ReplicaSite` plays the controller (`order`, `stop`), clients (`produce`, `fetch`) and the other replicas (`follow`).
`burst` calls handlers as the request channel does, inline, then the burst ends. A `Hand` is a request whose answers
are kept with the bytes that would have been sent. What the handlers submit or leave to do waits until `run_submitted`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import structlog
import trio
from structlog.testing import LogCapture

from strandline.broker.data_plane import DataPlane
from strandline.broker.handlers.queries import QueryHandler
from strandline.broker.network.dialects import Regions
from strandline.broker.network.dialects.native import NATIVE, name_sizes
from strandline.broker.network.request import AnswerHook, RequestInHand
from strandline.broker.network.request_context import RequestContext
from strandline.broker.replication.isr_updates import IsrOutcome, apply_outcome
from strandline.broker.replication.partition import Partition
from strandline.broker.upkeep.cleaning import Cleaning
from strandline.broker.upkeep.housekeeping import Housekeeping
from strandline.broker.upkeep.retention_checks import RetentionChecks
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    LiveLeader,
    Message,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    Request,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicProduceData,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.protocol.native.frame import cut_records
from strandline.protocol.records import build_batch
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import topic_config
from strandline.runtime.coordination import Coordination
from strandline.runtime.disk import FileRegion
from strandline.runtime.network import Address
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import InlineBlocking, InlineComputing, simulated_environment
from strandline.testkit.network import MemoryNetwork

BROKER = 1
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
TOPIC_ID = bytes(range(16))
REPLICAS = (1, 2, 3)
ADDRESSES = {2: ("broker", 9092), 3: ("broker-3", 9092)}


def batch(
    count: int = 1,
    *,
    size_bytes: int = 20,
    timestamp_ms: int = 1000,
    codec: str = "none",
    producer: tuple[int, int, int] | None = None,
) -> bytes:
    """A batch of `count` records as a producer sends it. producer: id, epoch, base sequence."""
    records = [(timestamp_ms + place, b"k%d" % place, b"v" * size_bytes) for place in range(count)]
    return bytes(build_batch(records, codec, producer))


class FakeConnection:
    """What handlers see of a connection."""

    def __init__(self, *, is_inter_broker: bool = False, listener: str = "PLAINTEXT") -> None:
        self.context = RequestContext(listener, is_inter_broker, Address("client", 40_000))
        self.closed = False
        self.why_closed = ""

    def close(self, reason: str) -> None:
        self.closed, self.why_closed = True, reason


class Hand:
    """A `RequestInHand` that keeps its answers. `silent`: answered by no response (acks=0)."""

    def __init__(self, message: Message, attachments: bytes = b"", connection: FakeConnection | None = None) -> None:
        self.message = message
        self.records = (
            cut_records(message, memoryview(bytearray(attachments))) if isinstance(message, ProduceRequest) else ()
        )
        self.connection = connection or FakeConnection()
        self.context = self.connection.context
        self.dialect = NATIVE
        self.hooks: tuple[AnswerHook, ...] = ()
        self.answers: list[Any] = []
        self.sent: list[bytes] = []
        self.silent = 0

    @property
    def is_abandoned(self) -> bool:
        return self.connection.closed

    def hang_up(self, reason: str) -> None:
        self.connection.close(reason)

    def respond(self, message: Message, regions: Regions = (), *, is_clean: bool = False) -> None:
        if self.connection.closed:
            return
        data = [_bytes_of(region) for region in regions if region is not None]
        if isinstance(message, FetchResponse) and regions:
            assert sum(map(len, data)) == name_sizes(message, regions), "what the frame promises"
        self.answers.append(message)
        self.sent.extend(data)

    def no_response(self) -> None:
        self.silent += 1

    def refuse(self, code: ErrorCode, text: str) -> None:
        assert isinstance(self.message, Request) and not self.message.has_answer
        self.hang_up(f"{code.name}: {text}")
        self.no_response()

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def answer(self) -> Any:
        """The one answer. AssertionError when there is none, or several."""
        assert len(self.answers) == 1, f"{len(self.answers)} answers"
        return self.answers[0]

    @property
    def outcomes(self) -> list[PartitionProduceResponse]:
        """Of a Produce request, over all its topics."""
        return [partition for topic in self.answer.responses for partition in topic.partition_responses]

    @property
    def deleted(self) -> list[tuple[int, int]]:
        """Of a DeleteRecords request, over all its topics: (error code, low watermark)."""
        return [(part.error_code, part.low_watermark) for topic in self.answer.topics for part in topic.partitions]

    @property
    def fetched(self) -> list[FetchPartitionData]:
        """Of a Fetch request, over all its topics."""
        return [partition for topic in self.answer.responses for partition in topic.partitions]


async def turns_of_others(hand: Hand, work: Callable[[], Awaitable[None]]) -> int:
    """How often another task ran before `work` had answered the request."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while not hand.is_answered:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await work()
    return turns


def in_hand(hand: Hand) -> RequestInHand:
    """For handlers' signatures."""
    return cast(RequestInHand, hand)


def _bytes_of(region: FileRegion | memoryview | bytes) -> bytes:
    if isinstance(region, FileRegion):
        assert not region.is_stale
        return region.file.pread(region.length, region.position)
    return bytes(region)


class ReplicaSite:
    """See the module. Make it within trio."""

    def __init__(
        self,
        *,
        config: Mapping[str, str] | None = None,
        topic: Mapping[str, str] | None = None,
        coordination: Coordination | None = None,
        disk: MemoryDisk | None = None,
    ) -> None:
        """config: keys of server.properties; topic: overrides of every topic. Without `coordination` the tasks of
        `isr_updates` cannot run: `end_proposal` does what they would."""
        self.config: BrokerConfig = load_broker_config(
            {"broker.id": str(BROKER), "log.dirs": "/logs", "zookeeper.connect": "zk:2181", **(config or {})}
        )
        self.topic = {"min.insync.replicas": "2", **(topic or {})}
        self.disk = disk or MemoryDisk()
        self.network = MemoryNetwork()
        self.environment = simulated_environment(disk=self.disk, network=self.network.node("site"))
        self.events = LogCapture()
        log = structlog.wrap_logger(
            structlog.PrintLogger(), processors=[self.events], wrapper_class=structlog.make_filtering_bound_logger(0)
        )
        self.log = log
        self.logs = LogManager(
            self.disk,
            self.config.log_dirs,
            broker_id=BROKER,
            topic_config_for=lambda _: topic_config(self.config, self.topic),
            wall_clock=self.environment.wall_clock,
            random=self.environment.random("storage"),
        )
        self.logs.load()
        self.submitted: list[Callable[[], Awaitable[None]]] = []
        self.flushes = 0
        self.data = DataPlane(
            BROKER,
            CurrentConfig(self.config),
            self.environment,
            self.logs,
            coordination,
            incarnation=1,
            send_answers=self._flush,
            submit=self.submitted.append,
            log=log,
            state_change_log=log,
        )
        self.metadata = self.data.metadata
        self.replicas = self.data.replicas
        self.isr_updates = self.data.isr_updates
        self.followers = self.data.followers
        self.roles = self.data.roles
        self.update_metadata()

    def _flush(self) -> None:
        self.flushes += 1

    def queries(self) -> QueryHandler:
        """Answers questions about these replicas."""
        return QueryHandler(
            self.logs,
            self.replicas,
            self.data.burst,
            self.environment.computing,
            cluster_id="c",
            software_version="1",
            broker_key="",
            create_topics=lambda *_: None,
        )

    def housekeeping(self) -> Housekeeping:
        return Housekeeping(self.config, self.environment, self.logs, self.replicas, self.data.checkpoints)

    def retention_checks(self) -> RetentionChecks:
        return RetentionChecks(self.config, self.environment, self.logs, self.replicas, self.data.burst, self.log)

    def cleaning(self) -> Cleaning:
        return Cleaning(self.environment, self.logs, self.replicas, self.data.checkpoints, self.log)

    def partition(self, tp: TopicPartition = T0) -> Partition:
        return self.replicas.partitions[tp]

    def hang_disk(self, directory: str) -> None:
        """What waits for this log directory in a thread waits for ever."""
        assert isinstance(self.environment.blocking, InlineBlocking)
        self.environment.blocking.stuck_lanes.add(directory)

    def slow_computing(self, delay_s: float | Callable[[], float]) -> None:
        """So long takes each job of a worker; a function is asked before each, and may raise instead."""
        assert isinstance(self.environment.computing, InlineComputing)
        self.environment.computing.delay_s = delay_s

    def event_names(self) -> list[str]:
        return [entry["event"] for entry in self.events.entries]

    # --- the controller ------------------------------------------------------------------------------------------

    def state(
        self,
        tp: TopicPartition = T0,
        *,
        leader: int = BROKER,
        epoch: int = 0,
        isr: Sequence[int] = REPLICAS,
        replicas: Sequence[int] = REPLICAS,
        zk_version: int = 0,
        controller_epoch: int = 1,
        is_new: bool = False,
    ) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            tp.partition, controller_epoch, leader, epoch, list(isr), zk_version, list(replicas), is_new=is_new
        )

    async def order(
        self,
        *states: LeaderAndIsrPartitionState,
        topic: str = "t",
        topic_id: TopicId = TOPIC_ID,
        controller_epoch: int = 1,
    ) -> LeaderAndIsrResponse:
        """Send LeaderAndIsr for partitions of one topic."""
        leaders = [LiveLeader(broker_id, host, port) for broker_id, (host, port) in ADDRESSES.items()]
        states_of_topic = [LeaderAndIsrTopicState(topic, topic_id, list(states))]
        request = LeaderAndIsrRequest(9, controller_epoch, 1, states_of_topic, leaders)
        return await self.roles.become_leader_or_follower(request, lambda _: topic_config(self.config, self.topic))

    async def lead(self, tp: TopicPartition = T0, **fields: Any) -> Partition:
        """Make this broker the leader; see `state`."""
        response = await self.order(self.state(tp, **fields))
        assert [error.error_code for error in response.partition_errors] == [0]
        return self.partition(tp)

    async def follow_leader(self, tp: TopicPartition = T0, *, leader: int = 2, **fields: Any) -> Partition:
        """Make this broker a follower of `leader`."""
        return await self.lead(tp, leader=leader, **fields)

    def stop(
        self,
        tp: TopicPartition = T0,
        *,
        epoch: int = 0,
        delete: bool = False,
        topic_id: TopicId = TOPIC_ID,
        controller_epoch: int = 1,
    ) -> StopReplicaResponse:
        """Send StopReplica for one partition."""
        state = StopReplicaPartitionState(tp.topic, topic_id, tp.partition, epoch, delete)
        return self.roles.stop_replicas(StopReplicaRequest(9, controller_epoch, 1, [state]))

    def update_metadata(
        self,
        *states: UpdateMetadataPartitionState,
        alive: Iterable[int] = REPLICAS,
        topic: str = "t",
        topic_id: TopicId = TOPIC_ID,
        controller_epoch: int = 1,
    ) -> None:
        """Send UpdateMetadata: every broker has the listeners PLAINTEXT (host `b<n>`) and INTERNAL (host `i<n>`)."""
        brokers = [
            UpdateMetadataBroker(
                n,
                [UpdateMetadataEndpoint("PLAINTEXT", f"b{n}", 9092), UpdateMetadataEndpoint("INTERNAL", f"i{n}", 9093)],
                f"rack-{n}",
            )
            for n in alive
        ]
        topics = [UpdateMetadataTopicState(topic, topic_id, list(states))] if states else []
        request = UpdateMetadataRequest(9, controller_epoch, 1, topics, brokers)
        self.replicas.update_metadata(request)

    # --- clients and other replicas ------------------------------------------------------------------------------

    def burst(self, *hands: Hand) -> None:
        """Handle the requests as one burst."""
        for hand in hands:
            handler: Any = {
                ProduceRequest: self.data.produce.handle,
                DeleteRecordsRequest: self.data.delete_records.handle,
            }.get(type(hand.message), self.data.fetch.handle)
            remainder = handler(in_hand(hand))
            if remainder is not None:
                self.submitted.append(remainder)
        self.data.burst.end()

    def produce(self, *parts: tuple[TopicPartition, bytes], **fields: Any) -> Hand:
        """Handle one Produce request as a burst of its own; see `produce_hand`."""
        hand = produce_hand(*parts, **fields)
        self.burst(hand)
        return hand

    def fetch(self, *reads: tuple[TopicPartition, int], **fields: Any) -> Hand:
        """Handle one Fetch request as a burst of its own; see `fetch_hand`."""
        hand = fetch_hand(*reads, **fields)
        self.burst(hand)
        return hand

    def delete_records(self, *parts: tuple[TopicPartition, int], timeout_ms: int = 1000) -> Hand:
        """Handle one DeleteRecords request of (partition, offset) pairs as a burst of its own."""
        topics = [DeleteRecordsTopic(tp.topic, [DeleteRecordsPartition(tp.partition, at)]) for tp, at in parts]
        hand = Hand(DeleteRecordsRequest(topics, timeout_ms))
        self.burst(hand)
        return hand

    def follow(self, broker_id: int, offset: int, tp: TopicPartition = T0, **fields: Any) -> Hand:
        """A follower that has everything below `offset` fetches; epochs default to the leader's."""
        log = self.partition(tp).log
        defaults = {
            "epoch": self.partition(tp).leader_epoch,
            "last_epoch": log.epochs.epoch_at(offset - 1) if offset else -1,
            "replica_epoch": 1,
            "log_start": 0,
        }
        return self.fetch((tp, offset), replica_id=broker_id, **{**defaults, **fields})

    def end_proposal(self, isr: Sequence[int] | None, *, tp: TopicPartition = T0, zk_version: int = 1) -> None:
        """ZooKeeper's word on the pending proposal: `isr` is committed, None: it was refused."""
        partition = self.partition(tp)
        assert partition.leadership is not None and partition.leadership.proposal is not None
        outcome = IsrOutcome(None if isr is None else tuple(isr), zk_version)
        apply_outcome(self.data.burst, partition, partition.leadership.proposal, outcome)

    async def run_submitted(self) -> None:
        """Do what the handlers have submitted."""
        while self.submitted:
            await self.submitted.pop(0)()


def produce_hand(
    *parts: tuple[TopicPartition, bytes],
    acks: int = -1,
    timeout_ms: int = 1000,
    topic_id: TopicId = NO_TOPIC_ID,
    connection: FakeConnection | None = None,
) -> Hand:
    """A Produce request: consecutive parts of one topic share its entry."""
    topics: list[TopicProduceData] = []
    for tp, data in parts:
        if not topics or topics[-1].name != tp.topic:
            topics.append(TopicProduceData(tp.topic, [], topic_id))
        topics[-1].partition_data.append(PartitionProduceData(tp.partition, len(data)))
    return Hand(ProduceRequest(acks, timeout_ms, topics), b"".join(data for _, data in parts), connection)


def fetch_hand(
    *reads: tuple[TopicPartition, int],
    replica_id: int = -1,
    replica_epoch: int = -1,
    epoch: int = -1,
    last_epoch: int = -1,
    log_start: int = -1,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**20,
    partition_max_bytes: int = 2**20,
    topic_id: TopicId = NO_TOPIC_ID,
    is_idle: bool = False,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[TopicPartition] = (),
    rack_id: str = "",
    knows_followers: bool = False,
    connection: FakeConnection | None = None,
) -> Hand:
    """A Fetch request of (partition, offset) pairs; a follower's comes on an inter-broker connection. session: its id
    and epoch."""
    topics: list[FetchTopic] = []
    for tp, offset in reads:
        if not topics or topics[-1].topic != tp.topic:
            topics.append(FetchTopic(tp.topic, [], topic_id))
        topics[-1].partitions.append(
            FetchPartition(tp.partition, offset, partition_max_bytes, epoch, last_epoch, log_start)
        )
    request = FetchRequest(
        wait_ms,
        min_bytes,
        max_bytes,
        topics,
        replica_id,
        replica_epoch,
        session_id=session[0],
        session_epoch=session[1],
        forgotten_topics_data=[ForgottenTopic(tp.topic, [tp.partition], topic_id) for tp in forgotten],
        rack_id=rack_id,
        knows_followers=knows_followers,
        is_idle=is_idle,
    )
    return Hand(request, b"", connection or FakeConnection(is_inter_broker=replica_id >= 0))
