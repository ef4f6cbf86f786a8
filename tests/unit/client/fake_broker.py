"""A cluster of fake brokers that speak real frames: leaders, epochs and errors are scripted by the test.

One list of batches per partition is shared by all brokers (replication is somebody else's subject); who leads, in which
epoch, is `leaders`. `broker.faults[api_key]` is a queue of `Fault`s, one per request of that kind.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from strandline.client.connection import FrameReader
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ApiVersion,
    ApiVersionsResponse,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    Message,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResponse,
    OffsetForLeaderTopicResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    Request,
    TopicProduceResponse,
)
from strandline.protocol.native.frame import FrameHeader, cut_records, decode_body, encode_head
from strandline.protocol.records import Record, assign_offset, build_batch, decode_batch, scan
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.network import Address, Network, Transport, TransportClosed
from strandline.storage.errors import ProducerRefused
from strandline.storage.producers.states import ProducerStates
from strandline.testkit.network import MemoryNetwork

MAX_FRAME_BYTES = 10_000_000


@dataclass(slots=True)
class Fault:
    """What happens to one request instead of the usual. `delay_s` before it, `apply`: it is carried out all the same.
    Then, `late_s` after that: `close` the connection, `hang` (no answer), answer `raw` bytes, or `error` for every
    partition, in an answer to Produce with who is said to lead (`leader`: its id and epoch)."""

    error: ErrorCode = ErrorCode.NONE
    apply: bool = False
    close: bool = False
    hang: bool = False
    raw: Callable[[FrameHeader], bytes] | None = None
    leader: tuple[int, int] = (-1, -1)
    delay_s: float = 0.0
    late_s: float = 0.0


@dataclass(slots=True)
class FakeLog:
    batches: list[bytes] = field(default_factory=list)
    next_offsets: list[int] = field(default_factory=list)
    log_start: int = 0
    high_watermark: int | None = None
    """None: everything is committed."""
    epoch_ends: dict[int, int] = field(default_factory=dict)
    producers: ProducerStates = field(default_factory=ProducerStates)

    @property
    def end(self) -> int:
        return self.next_offsets[-1] if self.next_offsets else self.log_start

    @property
    def limit(self) -> int:
        return self.end if self.high_watermark is None else self.high_watermark

    def append(self, records: bytes | memoryview, epoch: int) -> int:
        """Whole batches; the offset of the first record."""
        base = self.end
        data = bytearray(records)
        for position, header in scan(data):
            assign_offset(memoryview(data)[position:], self.end, epoch)
            self.batches.append(bytes(data[position : position + header.size_bytes]))
            self.next_offsets.append(self.end + header.records_count)
        self.epoch_ends[epoch] = self.end
        return base

    def produce(self, records: bytes | memoryview, epoch: int) -> tuple[int, bool]:
        """As `append`, but a numbered batch is appended once: whether it was before. ProducerRefused."""
        headers = [header for _, header in scan(bytes(records))]
        for header in headers:
            if header.producer_id >= 0:
                assert len(headers) == 1, "one batch of an idempotent producer per partition and request"
                numbers = (header.producer_id, header.producer_epoch, header.base_sequence)
                known = self.producers.check(*numbers, header.records_count)
                if known is not None:
                    return known.base_offset, True
                self.producers.note(*numbers, self.end, self.end + header.last_offset_delta, header.max_timestamp_ms)
        return self.append(records, epoch), False

    def read(self, offset: int, max_bytes: int) -> bytes:
        data = b""
        for batch, next_offset in zip(self.batches, self.next_offsets, strict=True):
            if next_offset <= offset:
                continue
            if next_offset > self.limit or (data and len(data) + len(batch) > max_bytes):
                break
            data += batch
        return data

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode_batch(batch)]

    def truncate(self, offset: int) -> None:
        while self.next_offsets and self.next_offsets[-1] > offset:
            self.next_offsets.pop()
            self.batches.pop()
        self.epoch_ends = {epoch: min(end, offset) for epoch, end in self.epoch_ends.items()}


class FakeCluster:
    """Its brokers are nodes of one in-memory network, unless another network is given."""

    def __init__(self, brokers: int = 1, network: Network | None = None) -> None:
        self.memory = MemoryNetwork()
        self.socket_network = network
        self.cluster_id = "fake-cluster"
        self.controller_id = 0
        self.producer_ids = 0
        """So many were given out."""
        self.max_message_bytes = MAX_FRAME_BYTES
        """Of one batch."""
        self.topics: dict[str, int] = {}
        self.topic_ids: dict[str, TopicId] = {}
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        self.logs: dict[TopicPartition, FakeLog] = defaultdict(FakeLog)
        self.brokers = [FakeBroker(self, broker_id) for broker_id in range(brokers)]

    def environment(self, seed: int = 0) -> ClientEnvironment:
        network = self.socket_network or self.memory.node("client")
        return ClientEnvironment(network, FixedClock(), random.Random(seed))

    @property
    def bootstrap(self) -> str:
        return ",".join(str(broker.address) for broker in self.brokers)

    def add_topic(self, name: str, partitions: int = 1) -> None:
        self.topics[name] = partitions
        for index in range(partitions):
            self.leaders[TopicPartition(name, index)] = (index % len(self.brokers), 0)

    def move(self, partition: TopicPartition, leader: int) -> None:
        """Another leader (−1: none), a higher epoch."""
        self.leaders[partition] = (leader, self.leaders[partition][1] + 1)

    def fill(self, partition: TopicPartition, values: list[bytes], *, key: bytes | None = None) -> None:
        epoch = self.leaders[partition][1]
        self.logs[partition].append(build_batch([(1000 + i, key, value) for i, value in enumerate(values)]), epoch)

    async def start(self, nursery: trio.Nursery) -> None:
        for broker in self.brokers:
            await nursery.start(broker.run)


class FixedClock:
    def now_ms(self) -> int:
        return 1_600_000_000_000


class FakeBroker:
    def __init__(self, cluster: FakeCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.address = Address(f"broker-{broker_id}", 9092)
        self.answers_as = broker_id
        self.advertised: Address | None = None
        self.faults: dict[int, deque[Fault]] = defaultdict(deque)
        self.stale_view: MetadataResponse | None = None
        self.scripts: dict[type[Request], Callable[[Any], Message]] = {}
        """What a test has it answer to one kind of request."""
        self.requests: list[Request] = []
        self.transports: list[Transport] = []
        self.version_range = (0, 0)
        self.scope = trio.CancelScope()

    def seen(self, cls: type[Request]) -> list[Request]:
        return [request for request in self.requests if isinstance(request, cls)]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        cluster = self.cluster
        network: Network = cluster.socket_network or cluster.memory.node(f"broker-{self.broker_id}")
        wanted = Address("127.0.0.1", 0) if cluster.socket_network else self.address
        self.scope = trio.CancelScope()
        with self.scope:
            listener = await network.listen(wanted)
            self.address = listener.address if cluster.socket_network else wanted
            try:
                async with trio.open_nursery() as nursery:
                    task_status.started()
                    while True:
                        transport = await listener.accept()
                        self.transports.append(transport)
                        nursery.start_soon(self._serve, transport)
            finally:
                listener.close()
                for transport in self.transports:
                    transport.close()
                self.transports.clear()

    def kill(self) -> None:
        """Connections break, nobody listens; `run` ends."""
        self.scope.cancel()

    async def _serve(self, transport: Transport) -> None:
        reader = FrameReader(transport, MAX_FRAME_BYTES)
        try:
            while True:
                while (frame := reader.next_frame()) is None:
                    try:
                        if not reader.receive_nowait():
                            return
                    except trio.WouldBlock:
                        await transport.wait_readable()
                await self._handle(transport, frame.header, bytes(frame.body), bytes(frame.attachments))
        except TransportClosed:
            return
        finally:
            transport.close()

    async def _handle(self, transport: Transport, header: FrameHeader, body: bytes, attachments: bytes) -> None:
        request = decode_body(APIS[header.api_key].request, body)
        self.requests.append(request)
        queue = self.faults[header.api_key]
        fault = queue.popleft() if queue else Fault(apply=True)
        if fault.delay_s:
            await trio.sleep(fault.delay_s)
        answer, answer_attachments = await self._answer(request, attachments, fault)
        if fault.late_s:
            await trio.sleep(fault.late_s)
        if fault.close:
            transport.close()
        elif fault.raw is not None:
            await send_all(transport, fault.raw(header))
        elif not fault.hang and not (isinstance(request, ProduceRequest) and request.acks == 0):
            head = encode_head(
                header.api_key, header.version, header.correlation_id, answer, sum(map(len, answer_attachments))
            )
            await send_all(transport, head + b"".join(answer_attachments))

    async def _answer(self, request: Request, attachments: bytes, fault: Fault) -> tuple[Message, list[bytes]]:
        if (script := self.scripts.get(type(request))) is not None:
            return script(request), []
        match request:
            case ProduceRequest():
                return self._produce(request, attachments, fault), []
            case FetchRequest():
                return await self._fetch(request, fault)
            case MetadataRequest():
                return self.stale_view or self.metadata(request), []
            case ListOffsetsRequest():
                return self._list_offsets(request, fault), []
            case OffsetForLeaderEpochRequest():
                return self._epoch_ends(request, fault), []
            case CreateTopicsRequest():
                return self._create(request, fault), []
            case DeleteTopicsRequest():
                return self._delete(request, fault), []
            case DeleteRecordsRequest():
                return self._delete_records(request, fault), []
            case InitProducerIdRequest():
                self.cluster.producer_ids += 1
                return InitProducerIdResponse(fault.error, -1 if fault.error else self.cluster.producer_ids, 0), []
        low, high = self.version_range
        keys = [ApiVersion(key, low, high) for key in APIS]
        return ApiVersionsResponse(0, keys, 0, self.answers_as, self.cluster.cluster_id), []

    def _not_leader(self, partition: TopicPartition, epoch: int = -1) -> ErrorCode:
        if partition not in self.cluster.leaders:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader, leader_epoch = self.cluster.leaders[partition]
        if leader != self.broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= epoch < leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > leader_epoch else ErrorCode.NONE

    def _produce(self, request: ProduceRequest, attachments: bytes, fault: Fault) -> ProduceResponse:
        parts = [(topic.name, part) for topic in request.topic_data for part in topic.partition_data]
        pieces = cut_records(request, memoryview(attachments))
        answers: dict[str, list[PartitionProduceResponse]] = {}
        for (name, part), records in zip(parts, pieces, strict=True):
            partition = TopicPartition(name, part.index)
            code = self._not_leader(partition)
            base, known = -1, False
            if any(header.size_bytes > self.cluster.max_message_bytes for _, header in scan(bytes(records or b""))):
                code = code or ErrorCode.MESSAGE_TOO_LARGE
            if code is ErrorCode.NONE and fault.apply:
                try:
                    log, epoch = self.cluster.logs[partition], self.cluster.leaders[partition][1]
                    base, known = log.produce(records or b"", epoch)
                except ProducerRefused as refused:
                    code = refused.code
            leader, epoch = fault.leader
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and not fault.error:
                leader, epoch = self.cluster.leaders[partition]
            code = fault.error or code
            answers.setdefault(name, []).append(
                PartitionProduceResponse(
                    part.index,
                    code,
                    -1 if code else base,
                    current_leader_id=leader,
                    current_leader_epoch=epoch,
                    is_repetition=known and not code,
                )
            )
        return ProduceResponse([TopicProduceResponse(name, items) for name, items in answers.items()])

    async def _fetch(self, request: FetchRequest, fault: Fault) -> tuple[Message, list[bytes]]:
        answers: dict[str, list[FetchPartitionData]] = {}
        data: list[bytes] = []
        for topic in request.topics:
            for part in topic.partitions:
                partition = TopicPartition(topic.topic, part.partition)
                log = self.cluster.logs[partition]
                code = fault.error or self._not_leader(partition, part.current_leader_epoch)
                if not code and not log.log_start <= part.fetch_offset <= log.end:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                records = b"" if code else log.read(part.fetch_offset, part.partition_max_bytes)
                data.append(records)
                answers.setdefault(topic.topic, []).append(
                    FetchPartitionData(part.partition, code, log.limit, len(records), log.log_start)
                )
        if not any(data) and all(item.error_code == 0 for items in answers.values() for item in items):
            await trio.sleep(request.max_wait_ms / 1000)
        return FetchResponse([FetchTopicResponse(name, items) for name, items in answers.items()]), data

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        cluster = self.cluster
        brokers = []
        for broker in cluster.brokers:
            address = broker.advertised or broker.address
            brokers.append(MetadataBroker(broker.broker_id, address.host, address.port))
        topics = []
        for name in cluster.topics if request.topics is None else request.topics:
            if name not in cluster.topics:
                topics.append(MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, []))
                continue
            partitions = []
            for index in range(cluster.topics[name]):
                leader, epoch = cluster.leaders[TopicPartition(name, index)]
                code = ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else ErrorCode.NONE
                partitions.append(MetadataPartition(code, index, leader, epoch, [0], [0]))
            topics.append(MetadataTopic(0, name, partitions, cluster.topic_ids.get(name, NO_TOPIC_ID)))
        return MetadataResponse(brokers, topics, cluster.controller_id, cluster.cluster_id)

    def _list_offsets(self, request: ListOffsetsRequest, fault: Fault) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            items = []
            for part in topic.partitions:
                partition = TopicPartition(topic.name, part.partition_index)
                log = self.cluster.logs[partition]
                code = fault.error or self._not_leader(partition, part.current_leader_epoch)
                stamp, offset = -1, -1
                if part.timestamp == EARLIEST_TIMESTAMP:
                    offset = log.log_start
                elif part.timestamp == LATEST_TIMESTAMP:
                    offset = log.limit
                else:
                    later = [record for record in log.records() if record.timestamp_ms >= part.timestamp]
                    stamp, offset = (later[0].timestamp_ms, later[0].offset) if later else (-1, -1)
                items.append(ListOffsetsPartitionResponse(part.partition_index, code, stamp, offset))
            topics.append(ListOffsetsTopicResponse(topic.name, items))
        return ListOffsetsResponse(topics)

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest, fault: Fault) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            items = []
            for part in topic.partitions:
                partition = TopicPartition(topic.topic, part.partition)
                code = fault.error or self._not_leader(partition, part.current_leader_epoch)
                ends = self.cluster.logs[partition].epoch_ends
                epoch = max((epoch for epoch in ends if epoch <= part.leader_epoch), default=-1)
                items.append(OffsetForLeaderPartitionResponse(part.partition, code, epoch, ends.get(epoch, -1)))
            topics.append(OffsetForLeaderTopicResponse(topic.topic, items))
        return OffsetForLeaderEpochResponse(topics)

    def _create(self, request: CreateTopicsRequest, fault: Fault) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            code = fault.error
            if self.cluster.controller_id != self.broker_id:
                code = ErrorCode.NOT_CONTROLLER
            elif topic.name in self.cluster.topics:
                code = ErrorCode.TOPIC_ALREADY_EXISTS
            elif fault.apply:
                self.cluster.add_topic(topic.name, topic.num_partitions)
            results.append(CreatableTopicResult(topic.name, code, None, bytes(16), topic.num_partitions, 1))
        return CreateTopicsResponse(results)

    def _delete(self, request: DeleteTopicsRequest, fault: Fault) -> DeleteTopicsResponse:
        results = []
        names = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        for asked in request.asked():
            name, code = asked.name or names.get(asked.topic_id), fault.error
            if self.cluster.controller_id != self.broker_id:
                code = ErrorCode.NOT_CONTROLLER
            elif name is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            elif name not in self.cluster.topics:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif request.validate_only:
                results.append(DeletableTopicResult(name, code, topic_id=self.cluster.topic_ids.get(name, NO_TOPIC_ID)))
                continue
            elif fault.apply:
                del self.cluster.topics[name]
                self.cluster.topic_ids.pop(name, None)
            results.append(DeletableTopicResult(name, code, topic_id=asked.topic_id))
        return DeleteTopicsResponse(results)

    def _delete_records(self, request: DeleteRecordsRequest, fault: Fault) -> DeleteRecordsResponse:
        topics = []
        for topic in request.topics:
            results = []
            for part in topic.partitions:
                tp = TopicPartition(topic.name, part.partition_index)
                code = fault.error or self._not_leader(tp)
                log = self.cluster.logs[tp]
                offset = log.limit if part.offset == -1 else part.offset
                if not code and offset > log.limit:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                if not code:
                    log.log_start = max(log.log_start, offset)
                results.append(DeleteRecordsPartitionResult(part.partition_index, code, -1 if code else log.log_start))
            topics.append(DeleteRecordsTopicResult(topic.name, results))
        return DeleteRecordsResponse(topics)


async def send_all(transport: Transport, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[transport.send_nowait([left]) :]
        except trio.WouldBlock:
            await transport.wait_writable()


__all__ = ["ApiKey", "FakeBroker", "FakeCluster", "FakeLog", "Fault", "send_all"]
