"""Brokers as a controller sees them, without the brokers: registered in an in-memory ZooKeeper, answering by a script,
remembering what they were told.

`ScriptedBroker.answer` follows the rules that a real broker follows (epoch fencing, deletion by topic id), so that a
test of the controller fails when the controller tells a broker what it must refuse. A test may put its own `script`
in front, close the `gate` (the broker reads, and does not answer) or take the broker off the network (`reachable`).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
import trio

from strandline.broker.membership.loss_reports import paths_of_states, renounce_claims
from strandline.controller.orders.channel import BrokerUnreachable
from strandline.protocol import znodes
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    LEADER_EPOCH_TOPIC_DELETED,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    Message,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResponse,
    OffsetForLeaderTopicResponse,
    PartitionError,
    Request,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from strandline.protocol.types import TopicId, TopicPartition
from strandline.runtime.coordination import MATCH_ANY_VERSION, Coordination, Create, Delete, NodeExists
from strandline.runtime.network import Address
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper

FIRST_PORT = 9000


async def create_persistent_paths(coordination: Coordination) -> None:
    """What the first broker of a cluster creates."""
    for path in znodes.PERSISTENT_PATHS:
        try:
            await coordination.create(path, parents=True)
        except NodeExists:
            pass


class ScriptedBroker:
    """One broker through its lives. `requests`: everything it was told, with the broker epoch it had then."""

    def __init__(self, zookeeper: MemoryZooKeeper, broker_id: int, rack: str | None = None) -> None:
        self.zookeeper = zookeeper
        self.broker_id = broker_id
        self.rack = rack
        self.coordination: MemoryCoordination = zookeeper.client()
        self.epoch = -1
        self._is_reachable = False
        self.refuses = False
        """Its machine says that nobody listens, to whoever connects anew."""
        self.hung_up = trio.Event()
        """Connections that were made before break."""
        self.gate = trio.Event()
        self.gate.set()
        self.script: Callable[[Request], Message | None] = lambda request: None
        self.requests: list[Request] = []
        self.controller_epoch = -1
        self.roles: dict[TopicPartition, LeaderAndIsrPartitionState] = {}
        self.metadata: dict[TopicPartition, UpdateMetadataPartitionState] = {}
        self.known_brokers: list[int] = []
        self.logs: dict[TopicPartition, TopicId] = {}
        """Partitions on its disk; they outlive it."""
        self.log_ends: dict[TopicPartition, tuple[int, int]] = {}
        """(epoch, end offset) of each log, for whoever asks."""

    @property
    def reachable(self) -> bool:
        return self._is_reachable

    @reachable.setter
    def reachable(self, is_reachable: bool) -> None:
        self._is_reachable = is_reachable
        if not is_reachable:
            self.hang_up()

    def hang_up(self) -> None:
        """Break all connections."""
        event, self.hung_up = self.hung_up, trio.Event()
        event.set()

    @property
    def address(self) -> Address:
        return Address("broker", FIRST_PORT + self.broker_id)

    async def start(self, *, lossy: bool = False) -> None:
        """A new life: a session of its own, registered under a new epoch, a stale registration replaced. lossy: it may
        have lost data, and says so first."""
        if self.coordination.dead or self.coordination.session_id:
            self.coordination = self.zookeeper.client()
        await self.coordination.start()
        await create_persistent_paths(self.coordination)
        self.roles, self.metadata, self.known_brokers, self.controller_epoch = {}, {}, [], -1
        await self._count_life()
        if lossy:
            paths = await paths_of_states(self.coordination)
            log = structlog.wrap_logger(structlog.ReturnLogger())
            await renounce_claims(self.coordination, self.broker_id, paths, log)
        await self.register(lossy=lossy)

    async def _count_life(self) -> None:
        path = znodes.BrokerIncarnationZnode.path(self.broker_id)
        if await self.coordination.exists(path) is None:
            await self.coordination.create(path)
        await self.coordination.set(path, b"", MATCH_ANY_VERSION)

    async def register(self, *, lossy: bool = False) -> None:
        """Also after its session expired while it lived: what it was told stays known to it."""
        path = znodes.BrokerIdZnode.path(self.broker_id)
        stale = await self.coordination.exists(path) is not None
        endpoint = znodes.BrokerEndpoint("PLAINTEXT", *self.address)
        registration = znodes.BrokerIdZnode(endpoints=(endpoint,), rack=self.rack, lossy_start=lossy)
        # In one transaction, as a broker does: nobody sees it gone in between.
        await self.coordination.multi(
            [*([Delete(path)] if stale else []), Create(path, registration.encode(), ephemeral=True)]
        )
        stat = await self.coordination.exists(path)
        assert stat is not None
        self.epoch = stat.czxid
        self.reachable = True

    def kill(self, *, noticed: bool = True) -> None:
        """SIGKILL. noticed: its session is over at once; else it lingers for the session timeout."""
        self.reachable = False
        session = self.coordination.session_id
        self.zookeeper.crash(self.coordination)
        if noticed:
            self.zookeeper.expire(session)

    async def request(self, message: Request) -> Message:
        """What a channel to this broker does. BrokerUnreachable unless `reachable`."""
        await trio.lowlevel.checkpoint()
        await self.gate.wait()
        if not self.reachable:
            raise BrokerUnreachable(f"scripted broker {self.broker_id} is down")
        self.requests.append(message)
        return self.script(message) or self.answer(message)

    def told(self, kind: type[Request]) -> list[Request]:
        return [request for request in self.requests if isinstance(request, kind)]

    def answer(self, message: Request) -> Message:
        if isinstance(message, OffsetForLeaderEpochRequest):
            return self._log_ends(message)
        assert isinstance(message, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest)
        error = ErrorCode.NONE
        if message.controller_epoch < self.controller_epoch:
            error = ErrorCode.STALE_CONTROLLER_EPOCH
        elif message.broker_epoch != self.epoch:
            error = ErrorCode.STALE_BROKER_EPOCH
        else:
            self.controller_epoch = message.controller_epoch
        if isinstance(message, UpdateMetadataRequest):
            if error is ErrorCode.NONE:
                self._learn(message)
            return UpdateMetadataResponse(error)
        if isinstance(message, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(error, [] if error else self._take_roles(message))
        return StopReplicaResponse(error, [] if error else self._stop(message))

    def _learn(self, message: UpdateMetadataRequest) -> None:
        self.known_brokers = [broker.id for broker in message.live_brokers]
        for topic in message.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                if state.leader == LEADER_DURING_DELETE:
                    self.metadata.pop(tp, None)
                else:
                    self.metadata[tp] = state

    def _take_roles(self, message: LeaderAndIsrRequest) -> list[PartitionError]:
        errors = []
        for topic in message.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                error = ErrorCode.NONE
                if tp in self.logs and self.logs[tp] != topic.topic_id:
                    error = ErrorCode.INCONSISTENT_TOPIC_ID
                elif tp in self.roles and state.leader_epoch < self.roles[tp].leader_epoch:
                    error = ErrorCode.FENCED_LEADER_EPOCH
                else:
                    self.roles[tp] = state
                    self.logs[tp] = topic.topic_id
                errors.append(PartitionError(*tp, error))
        return errors

    def _stop(self, message: StopReplicaRequest) -> list[PartitionError]:
        errors = []
        for state in message.partition_states:
            tp = TopicPartition(state.topic_name, state.partition_index)
            error = ErrorCode.NONE
            if tp in self.logs and self.logs[tp] != state.topic_id:
                error = ErrorCode.INCONSISTENT_TOPIC_ID
            elif (
                state.leader_epoch != LEADER_EPOCH_TOPIC_DELETED
                and tp in self.roles
                and state.leader_epoch < self.roles[tp].leader_epoch
            ):
                error = ErrorCode.FENCED_LEADER_EPOCH
            else:
                self.roles.pop(tp, None)
                if state.delete_partition:
                    self.logs.pop(tp, None)
            errors.append(PartitionError(*tp, error))
        return errors

    def _log_ends(self, message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in message.topics:
            answers = []
            for asked in topic.partitions:
                end = self.log_ends.get(TopicPartition(topic.topic, asked.partition))
                if end is None:
                    answer = OffsetForLeaderPartitionResponse(asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    answer = OffsetForLeaderPartitionResponse(asked.partition, ErrorCode.NONE, *end)
                answers.append(answer)
            topics.append(OffsetForLeaderTopicResponse(topic.topic, answers))
        return OffsetForLeaderEpochResponse(topics)


class ScriptedChannel:
    """`BrokerChannel` to a `ScriptedBroker`."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._hung_up = broker.hung_up

    async def until_broken(self) -> None:
        await self._hung_up.wait()

    async def request(self, message: Request) -> Message:
        return await self._broker.request(message)

    def close(self) -> None:
        """Nothing is held."""
