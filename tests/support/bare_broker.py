"""A broker without tasks, connections and threads: its own replicas, logs, registration and controller, as `Broker`
builds them. Whoever moves the cluster calls what its tasks would do.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID

import trio

from strandline.broker.admin.config_changes import ConfigChanges
from strandline.broker.membership.cluster_identity import find_cluster
from strandline.broker.membership.registration import Registration
from strandline.broker.membership.reported_losses import forget_reported_loss
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.unflushed_connections import UnflushedConnections
from strandline.broker.replication.follower import Fetcher
from strandline.broker.replication.isr_checks import check_in_sync
from strandline.broker.replication.partition import Partition
from strandline.broker.server import Broker
from strandline.controller.orders.channel import BrokerUnreachable
from strandline.protocol.messages import (
    FetchResponse,
    LeaderAndIsrRequest,
    Message,
    OffsetForLeaderEpochRequest,
    Request,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from strandline.protocol.znodes import BrokerEndpoint, BrokerIdZnode
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.topic import TopicConfig, topic_config
from strandline.runtime.environment import Environment
from strandline.runtime.logging import BrokerLogs, RateLimited
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.environment import EPOCH_MS
from support.bare_controller import ActingController, BareController, Deliver, Delivery
from support.bare_coordination import BareCoordination
from support.replicas import Call

T = TypeVar("T")
LISTENER = "PLAINTEXT"
PORT = 9092


class AtOnce:
    """`Blocking` that waits for nothing."""

    async def run(self, function: Callable[..., T], *args: object) -> T:
        return function(*args)

    async def run_in(self, lane: str, function: Callable[..., T], *args: object, abandon: bool = False) -> T:
        return function(*args)


class OneStream:
    """Every purpose gets the same stream: what is drawn here are names."""

    def __init__(self, seed: int) -> None:
        self._stream = random.Random(seed)

    def __call__(self, purpose: str) -> random.Random:
        return self._stream


class StandingClock:
    def now_ms(self) -> int:
        return now_ms()


class _Tasks:
    """Takes what `Followers` would do in tasks; its fetchers do nothing by themselves."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        if not any(isinstance(arg, Fetcher) for arg in args):
            self.waiting.append((function, args))


def configuration_of(config: BrokerConfig, _: str) -> TopicConfig:
    return topic_config(config, {})


class BareBroker(Broker):
    """One life. `begin` starts it, `end` stops it in order; a kill just drops it."""

    controller: BareController

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        coordination: BareCoordination,
        logs: BrokerLogs,
        deliver: Deliver,
        acting: ActingController,
    ) -> None:
        super().__init__(config, environment, coordination, logs)
        self._deliver = deliver
        self._acting = acting
        self.tasks = _Tasks()

    async def begin(self) -> None:
        """The steps of `Broker.run` in their order, until it serves."""
        # 1
        self._cluster_id = await find_cluster(self.coordination, UUID(int=1, version=4), RateLimited(self._log))
        self.config_changes = ConfigChanges(self.config, cast(Any, self.coordination), self._log)
        self.log_manager = LogManager(
            self.environment.disk,
            self.config.log_dirs,
            broker_id=self.broker_id,
            cluster_id=self._cluster_id,
            topic_config_for=partial(configuration_of, self.config),
            wall_clock=self.environment.wall_clock,
            random=self.environment.random("storage"),
            log=self._log,
        )
        self.log_manager.load()
        # 2
        directories = self.log_manager.directories
        self.registration = Registration(self.broker_id, directories.lock_id, self.coordination, self._log)
        begin_life = partial(self.environment.blocking.run, directories.begin_life)
        await self.registration.prepare(begin_life)
        # 3
        self.unflushed_connections = UnflushedConnections()
        self._build_data_plane(_no_more, self._submit)
        self._build_control()
        self.data.followers._nursery = cast(trio.Nursery, self.tasks)
        # 4
        await self.registration.register(self._registration_znode())
        await forget_reported_loss(self.log_manager, self.registration, self.environment.blocking)

    def _new_controller(self) -> BareController:
        return BareController(
            self.broker_id,
            self.config,
            self.coordination,
            Delivery(self._deliver),
            self.environment.random(""),
            self._log,
            now_ms=now_ms,
        )

    def _build_control(self) -> None:
        super()._build_control()
        self.controller_link._controller = self._acting

    def _registration_znode(self) -> BrokerIdZnode:
        return BrokerIdZnode(
            endpoints=(BrokerEndpoint(LISTENER, f"broker-{self.broker_id}", PORT, LISTENER),),
            timestamp_ms=EPOCH_MS,
            lock_id=self.registration.lock_id,
            lossy_start=self.log_manager.may_have_lost_data,
        )

    def _submit(self, work: Callable[[], Awaitable[None]]) -> None:
        self.tasks.start_soon(work)

    async def hand_over(self) -> None:
        """The first step of an orderly stop: the controller finds other leaders."""
        await self._hand_over()

    async def end(self) -> None:
        """What remains of an orderly stop."""
        self.data.followers.stop_all()
        await self.data.roles.resign_all()
        self.log_manager.checkpoints.write_high_watermarks(self.data.checkpoints.high_watermarks())
        self.log_manager.close(clean=not self.log_manager.directories.is_loss_open)
        await self.coordination.close()

    # --- what others ask -----------------------------------------------------------------------------------------

    async def serve(self, request: Request) -> Message:
        """Answer a request of the controller."""
        call = Call(request)
        in_hand = cast(RequestInHand, call)
        match request:
            case LeaderAndIsrRequest():
                return await self.orders.leader_and_isr(in_hand)
            case UpdateMetadataRequest():
                return await self.orders.update_metadata(in_hand)
            case StopReplicaRequest():
                return await self.orders.stop_replica(in_hand)
            case OffsetForLeaderEpochRequest():
                self.queries.offset_for_leader_epoch(in_hand)
        if call.response is None:
            raise BrokerUnreachable(f"{type(request).__name__} is not served here")
        return call.response

    def answer(self, call: Call) -> FetchResponse:
        """The answer to a fetch that does not wait."""
        self.data.fetch.handle(cast(RequestInHand, call))
        self.data.burst.end()
        assert isinstance(call.response, FetchResponse)
        return call.response

    # --- what its tasks would do ---------------------------------------------------------------------------------

    async def step(self) -> bool:
        """Carry ISR changes to ZooKeeper and announce them, cut what waits for a checkpoint. Whether there was any."""
        updates = self.data.isr_updates
        is_busy = bool(updates._pending or updates._changed or self.tasks.waiting)
        if updates._pending:
            await updates.write_wave()
        if updates._changed:
            await updates.announce()
        while self.tasks.waiting:
            function, args = self.tasks.waiting.pop(0)
            await function(*args)
        return is_busy

    def following(self) -> list[tuple[Fetcher, Partition]]:
        """The replicas that follow somebody, each with its fetcher."""
        return [(each, partition) for each in self.data.followers._fetchers.values() for partition in each.partitions]

    def check_isrs(self) -> None:
        """The periodic look for who lags."""
        now, replicas = trio.current_time(), self.data.replicas
        for partition in replicas.partitions.values():
            leadership = partition.leadership
            if partition in replicas.maybe_lagging:
                check_in_sync(replicas, self.data.burst, partition, now)
            elif leadership is not None:
                waiting = len(partition.deletions.waiting)
                before = leadership.proposal, leadership.quorum, waiting
                assert not partition.check_in_sync(now), "nobody lags: no look is needed"
                waiting = len(partition.deletions.waiting)
                assert before == (leadership.proposal, leadership.quorum, waiting), "nobody lags: no look is needed"
                del replicas.maybe_lagging[partition]
        self.data.burst.end()


def now_ms() -> int:
    return EPOCH_MS


def _no_more() -> None:
    """In the place of sending answers: each is kept with its `Call`."""
