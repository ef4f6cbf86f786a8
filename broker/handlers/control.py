"""What the controller orders and what administrators ask: handlers that may wait, run by the handler tasks.

LeaderAndIsr, StopReplica and UpdateMetadata are fenced by the broker epoch (czxid of this broker's registration: a
request for a past life is STALE_BROKER_EPOCH, 27) and by the controller epoch. What is the controller's (creation and
deletion of topics, elections, controlled shutdowns) goes to it as it came; where it is not here it fails with
NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import msgspec
import structlog
import trio

from strandline.broker.admin.topic_configs import TopicConfigs
from strandline.broker.handlers.creations import AutomaticCreations
from strandline.broker.membership.registration import Registration
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_bounds import PARTITIONS_PER_STEP
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.role_changes import RoleChanges
from strandline.client.connection import Connection
from strandline.client.errors import ClientError
from strandline.protocol.errors import BrokerError, ErrorCode, RemoteProtocolError
from strandline.protocol.messages import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    Message,
    PartitionError,
    Request,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.coordination import CoordinationError
from strandline.runtime.environment import Environment

CONTROLLER_TIMEOUT_MS = 30_000
MAX_PARTITIONS_NAMED = 10
REMOVALS_PER_STEP = 5
"""Replicas deleted between two checkpoints: removing a log renames its folder and writes to a disk."""


class ControlPlane(Protocol):
    """The controller as its own broker asks it."""

    @property
    def is_active(self) -> bool:
        """Elected, and able to answer."""

    async def ask(self, request: Request) -> Message:
        """Its answer. BrokerError NOT_CONTROLLER while another broker is elected."""


class ControlHandlers:
    """See the module; one method per API."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        topic_configs: TopicConfigs,
        replicas: Replicas,
        roles: RoleChanges,
        registration: Registration,
        controller: ControlPlane,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._config = config
        self._environment = environment
        self._replicas = replicas
        self._roles = roles
        self._registration = registration
        self._controller = controller
        self._log = log
        self.topic_configs = topic_configs
        self.creations = AutomaticCreations(self.ask_controller, log)

    # --- orders of the controller ------------------------------------------------------------------------------

    def _is_stale(self, broker_epoch: int) -> bool:
        """−1 names no life: neither a request nor a broker between two sessions may have it."""
        return broker_epoch < 0 or broker_epoch != self._registration.broker_epoch

    async def leader_and_isr(self, request: RequestInHand[LeaderAndIsrRequest]) -> Message:
        message = request.message
        if self._is_stale(message.broker_epoch):
            return LeaderAndIsrResponse(ErrorCode.STALE_BROKER_EPOCH, [])
        topic_ids = {topic.topic_name: topic.topic_id for topic in message.topic_states}
        try:
            await self.topic_configs.load(topic_ids.items())
        except CoordinationError as error:
            # A replica must not start with the wrong min.insync.replicas: the controller sends the request again.
            self._log.warning("topic configs unread", error=str(error))
            return LeaderAndIsrResponse(ErrorCode.BROKER_NOT_AVAILABLE, [])
        if self._is_stale(message.broker_epoch):  # the session may have been replaced while reading
            return LeaderAndIsrResponse(ErrorCode.STALE_BROKER_EPOCH, [])
        return await self._roles.become_leader_or_follower(
            message, lambda name: self.topic_configs.get((name, topic_ids[name]))
        )

    async def stop_replica(self, request: RequestInHand[StopReplicaRequest]) -> Message:
        response = await self._stop_in_steps(request.message)
        states = request.message.partition_states
        deleted = dict.fromkeys((state.topic_name, state.topic_id) for state in states if state.delete_partition)
        if deleted:  # one replica may go while others of its topic stay
            partitions = self._replicas.partitions.values()
            hosted = {(partition.topic_partition.topic, partition.topic_id) for partition in partitions}
            for topic in deleted:
                if topic not in hosted:
                    self.topic_configs.forget(topic)
        return response

    async def _stop_in_steps(self, message: StopReplicaRequest) -> StopReplicaResponse:
        errors: list[PartitionError] = []
        for number, states in enumerate(_steps(message.partition_states)):
            if number:
                await trio.lowlevel.checkpoint()
            if self._is_stale(message.broker_epoch):
                return StopReplicaResponse(ErrorCode.STALE_BROKER_EPOCH, errors)
            response = self._roles.stop_replicas(msgspec.structs.replace(message, partition_states=states))
            errors += response.partition_errors
            if response.error_code:  # a newer controller spoke meanwhile
                return StopReplicaResponse(response.error_code, errors)
        return StopReplicaResponse(ErrorCode.NONE, errors)

    async def update_metadata(self, request: RequestInHand[UpdateMetadataRequest]) -> Message:
        message = request.message
        if self._is_stale(message.broker_epoch):
            return UpdateMetadataResponse(ErrorCode.STALE_BROKER_EPOCH)
        if not self._replicas.update_metadata(message):
            return UpdateMetadataResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
        return UpdateMetadataResponse(ErrorCode.NONE)

    # --- what is the controller's ------------------------------------------------------------------------------

    async def for_controller(self, request: RequestInHand[Request]) -> Message:
        """What a client or a broker asks of the controller, of any API that is the controller's."""
        return await self._controller.ask(request.message)

    async def ask_controller(self, message: Request) -> Message:
        """Ask the controller, wherever it is. Raises ClientError when it cannot be reached; BrokerError."""
        if self._controller.is_active:
            return await self._controller.ask(message)
        metadata = self._replicas.metadata
        address = metadata.inter_broker_address(metadata.controller_id, self._config.inter_broker_listener_name)
        connection = await Connection.open(
            self._environment.network,
            address,
            client_id=f"broker-{self._replicas.broker_id}",
            timeout_ms=CONTROLLER_TIMEOUT_MS,
        )
        try:
            response, _ = await connection.roundtrip(message)
            return response
        finally:
            connection.close()

    # --- leaving -----------------------------------------------------------------------------------------------

    async def leave_cluster(self) -> None:
        """Controlled shutdown: have leadership moved away before this broker stops.

        Tried `controlled.shutdown.max.retries` times more; then it goes all the same, and the controller notices.
        """
        attempts = self._config.controlled_shutdown_max_retries + 1
        remaining = ""
        for attempt in range(attempts):
            if attempt:
                await trio.sleep(min(self._config.controlled_shutdown_retry_backoff_ms, 1000) / 1000)
            message = ControlledShutdownRequest(self._replicas.broker_id, self._registration.broker_epoch)
            try:
                response = cast(ControlledShutdownResponse, await self.ask_controller(message))
                if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                    self._log.info("controlled shutdown done")
                    return
                remaining = _remaining(response)
            except (BrokerError, ClientError, RemoteProtocolError) as error:
                remaining = str(error)
            self._log.warning("controlled shutdown incomplete", attempt=attempt + 1, of=attempts, remaining=remaining)
        self._log.warning("stops without handing everything over", remaining=remaining)


def _remaining(response: ControlledShutdownResponse) -> str:
    """What is left to do, for the log."""
    if response.error_code != ErrorCode.NONE:
        return ErrorCode(response.error_code).name
    partitions = [f"{topic}-{index}" for topic, index in response.remaining_partitions]
    more = ", …" if len(partitions) > MAX_PARTITIONS_NAMED else ""
    return f"leads {len(partitions)} partitions: {', '.join(partitions[:MAX_PARTITIONS_NAMED])}{more}"


def _steps(states: Sequence[StopReplicaPartitionState]) -> Iterator[list[StopReplicaPartitionState]]:
    """What is stopped without letting others run, one after the other; at least one step, be it empty."""
    step: list[StopReplicaPartitionState] = []
    removals = 0
    for state in states:
        if len(step) >= PARTITIONS_PER_STEP or removals >= REMOVALS_PER_STEP:
            yield step
            step, removals = [], 0
        step.append(state)
        removals += state.delete_partition
    yield step
