"""What the controller orders: LeaderAndIsr, StopReplica and UpdateMetadata, run by the task that only orders have.

They are fenced by the broker epoch (czxid of this broker's registration: a request for a past life is
STALE_BROKER_EPOCH, invariant 27), by the controller epoch, and by when they were written: who has heard a later word of
the same controller obeys no earlier one (invariant 32). A role would be taken again in a log that was deleted since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import structlog
import trio

from strandline.broker.admin.topic_configs import TopicConfigs
from strandline.broker.handlers.last_told import LastTold
from strandline.broker.membership.registration import Registration
from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.role_changes import RoleChanges
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    Message,
    PartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from strandline.protocol.types import TopicId
from strandline.runtime.coordination import CoordinationError

REMOVALS_PER_STEP = 5
"""Replicas deleted between two checkpoints: removing a log renames its folder and writes to a disk."""


class OrderHandlers:
    """See the module; one method per API."""

    def __init__(
        self,
        topic_configs: TopicConfigs,
        replicas: Replicas,
        roles: RoleChanges,
        registration: Registration,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._topic_configs = topic_configs
        self._replicas = replicas
        self._roles = roles
        self._registration = registration
        self._log = log
        self._last_told = LastTold()

    def _refusal(self, order: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest) -> ErrorCode:
        """Why it is not obeyed; NONE: it may be, unless its controller was replaced."""
        if self._is_stale(order.broker_epoch):
            return ErrorCode.STALE_BROKER_EPOCH
        if order.controller_epoch < self._replicas.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._last_told.is_late(order.broker_epoch, order.controller_epoch, order.told_at_us):
            return ErrorCode.REQUEST_TIMED_OUT  # its controller gave it up, and has said the same or something newer
        self._replicas.controller_epoch = order.controller_epoch
        return ErrorCode.NONE

    def _is_stale(self, broker_epoch: int) -> bool:
        """−1 names no life: neither a request nor a broker between two sessions may have it."""
        return broker_epoch < 0 or broker_epoch != self._registration.broker_epoch

    async def leader_and_isr(self, request: RequestInHand[LeaderAndIsrRequest]) -> Message:
        message = request.message
        if refusal := self._refusal(message):
            return LeaderAndIsrResponse(refusal, [])
        topic_ids = {topic.topic_name: topic.topic_id for topic in message.topic_states}
        try:
            await self._topic_configs.load(topic_ids.items())
        except CoordinationError as error:
            # A replica must not start with the wrong min.insync.replicas: the controller sends the request again.
            self._log.warning("topic configs unread", error=str(error))
            return LeaderAndIsrResponse(ErrorCode.BROKER_NOT_AVAILABLE, [])
        if self._is_stale(message.broker_epoch):  # the session may have been replaced while reading
            return LeaderAndIsrResponse(ErrorCode.STALE_BROKER_EPOCH, [])
        return await self._roles.become_leader_or_follower(
            message, lambda name: self._topic_configs.get((name, topic_ids[name]))
        )

    async def stop_replica(self, request: RequestInHand[StopReplicaRequest]) -> Message:
        if refusal := self._refusal(request.message):
            return StopReplicaResponse(refusal, [])
        response = await self._stop_in_steps(request.message)
        states = request.message.partition_states
        self.forget_topics((state.topic_name, state.topic_id) for state in states if state.delete_partition)
        return response

    def forget_topics(self, topics: Iterable[tuple[str, TopicId]]) -> None:
        """Replicas of these (name, id) went. One may have gone while others of its topic stay."""
        partitions = self._replicas.partitions.values()
        hosted = {(partition.topic_partition.topic, partition.topic_id) for partition in partitions}
        for topic in dict.fromkeys(topics):
            if topic not in hosted:
                self._topic_configs.forget(topic)

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
        if refusal := self._refusal(message):
            return UpdateMetadataResponse(refusal)
        self._replicas.update_metadata(message)
        return UpdateMetadataResponse(ErrorCode.NONE)


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
