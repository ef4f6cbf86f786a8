"""Brokers reduced to what they decide: no network, no tasks, no timers. For searches over many orders of moves.

Everything that decides is the brokers' own code: elections, plans and recovery of the controller's `Term`, replicas
with their logs on a `MemoryDisk`, role changes, ISR proposals, claims, registrations, controlled shutdowns. What is
missing is what carries: each request is a call, each task is done when its turn comes (`rest`). So a move takes
milliseconds, and a cluster at rest can be pickled and gone on with from there, as often as there are moves.

It has the methods of `MemoryCluster` that a `Trial` uses. Where a network has many orders of events, one is played: all
comes to rest after each move. Sessions of the dead end by hand, or when a
start has waited for its past one; what brokers write to their disks now and then they write when they stop in order.
`tests/scenarios/test_orders_of_blows.py` compares it with whole brokers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec
import trio

from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.held_fetches import FetchPlan
from strandline.broker.replication.partition import Partition
from strandline.client.errors import ClientError
from strandline.controller.orders.channel import BrokerUnreachable
from strandline.protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    Message,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    Request,
    TopicProduceData,
)
from strandline.protocol.records import build_batch
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.environment import Environment
from strandline.runtime.logging import BrokerLogs
from strandline.testkit.cluster import LOG_DIR
from strandline.testkit.cluster_view import ClusterView
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import EPOCH_MS
from support.bare_broker import AtOnce, BareBroker, OneStream, StandingClock
from support.bare_controller import ActingController, BareController, BareTerm
from support.bare_coordination import SESSION_TIMEOUT_MS, BareCoordination, BareZooKeeper
from support.replicas import Call

MAX_STEPS = 2_000
LONG_S = 10.0
"""Longer than any wait in here, and than any lag: who lags is noticed."""


class BareLog:
    """A logger that keeps what the referee reads."""

    def __init__(self, history: list[str]) -> None:
        self._history = history

    def bind(self, **_: object) -> BareLog:
        return self

    def debug(self, event: str, **_: object) -> None: ...

    info = warning = debug

    def error(self, event: str, **fields: object) -> None:
        if event == "partitions stay offline":
            self._history.append(json.dumps({"event": event, "first": fields["first"]}, separators=(",", ":")))

    def exception(self, event: str, **fields: object) -> None:
        raise AssertionError(f"{event} {fields}")


@dataclass(eq=False)
class BareNode:
    """One machine. `broker` runs on it, None while none does; `coordination`: of its present or last life."""

    broker_id: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    broker: BareBroker | None = None
    coordination: BareCoordination | None = None
    lives: int = 0

    @property
    def is_up(self) -> bool:
        return self.broker is not None


class BareCluster(ClusterView):
    """See the module; the methods are those of `MemoryCluster`."""

    def __init__(self, brokers: int, config: Mapping[str, str]) -> None:
        self.zookeeper: BareZooKeeper = BareZooKeeper()
        self.nodes: dict[int, BareNode] = {broker_id: BareNode(broker_id) for broker_id in range(1, brokers + 1)}
        self.history: list[str] = []
        self._config = dict(config)

    # --- lives ---------------------------------------------------------------------------------------------------

    async def start_broker(self, broker_id: int) -> None:
        """A new life on what its disk has, until it serves and all has come to rest."""
        node = self.nodes[broker_id]
        past = node.coordination
        if past is not None:
            self.zookeeper.forget_watches(past.session_id)
        node.lives += 1
        node.coordination = self.zookeeper.session()
        log = cast(Any, BareLog(self.history))
        environment = Environment(
            disk=node.disk,
            network=cast(Any, None),
            blocking=AtOnce(),
            computing=cast(Any, None),
            wall_clock=StandingClock(),
            random=cast(Any, OneStream(broker_id * 1000 + node.lives)),
        )
        config = load_broker_config(
            {
                "broker.id": str(broker_id),
                "zookeeper.connect": "memory:2181",
                "listeners": f"PLAINTEXT://broker-{broker_id}:9092",
                "log.dirs": LOG_DIR,
                "failure.detection.refused.ms": "0",  # no network refuses: sessions of the dead end by hand
                **self._config,
            }
        )
        acting = ActingController(self.acting_controller)
        broker = BareBroker(config, environment, node.coordination, BrokerLogs(log, log, log), self.deliver, acting)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_session, past)
            await broker.begin()
            nursery.cancel_scope.cancel()
        node.broker = broker
        await self._come_to_rest()

    async def _end_session(self, past: BareCoordination | None) -> None:
        """Of a life before, for a start that waits for it: its machine or its disk is another one since."""
        await trio.sleep(SESSION_TIMEOUT_MS / 1000)
        if past is not None:
            self.zookeeper.end(past.session_id)
            await self._come_to_rest()

    def crash(self, broker_id: int) -> None:
        self._drop(broker_id).disk.kill()

    def lose_power(self, broker_id: int) -> None:
        self._drop(broker_id).disk.crash()

    def lose_power_while_down(self, broker_id: int) -> None:
        self.nodes[broker_id].disk.crash()

    def replace_disk(self, broker_id: int, disk: MemoryDisk | None = None) -> None:
        """By a copy of `disk`, or by an empty one, in the same boot of the machine. The broker must be down."""
        node = self.nodes[broker_id]
        boot = node.disk.boot
        node.disk = disk.copy() if disk is not None else MemoryDisk()
        node.disk.boot = boot
        node.disk.kill()

    def _drop(self, broker_id: int) -> BareNode:
        """The process is gone; its session lives on."""
        node = self.nodes[broker_id]
        assert node.broker is not None and node.coordination is not None, f"broker {broker_id} does not run"
        self.zookeeper.forget_watches(node.coordination.session_id)
        node.broker = None
        return node

    async def stop(self, broker_id: int) -> None:
        """SIGTERM: it hands over, writes what an orderly stop writes, and goes."""
        broker = self.broker(broker_id)
        await self._meanwhile(broker.hand_over)
        await broker.end()
        self._drop(broker_id).disk.kill()

    def expire_session(self, broker_id: int) -> None:
        coordination = self.nodes[broker_id].coordination
        assert coordination is not None
        self.zookeeper.end(coordination.session_id)

    # --- time passes ---------------------------------------------------------------------------------------------

    async def rest(self, seconds: float) -> bool:
        """Until nothing moves any more; who lags is noticed, what was put off is tried again. Whether anything
        moved."""
        has_moved = await self._come_to_rest()
        for _ in range(2):
            await trio.sleep(max(seconds, LONG_S))
            for broker in self._alive():
                broker.check_isrs()
            is_due = [term.look_again() for term in self._terms()]
            has_moved |= await self._come_to_rest()
            if not any(is_due):
                break
        return has_moved

    async def until(self, condition: Callable[[], bool], what: str, *, within_s: float = 30.0) -> None:
        for _ in range(4):
            if condition():
                return
            await self.rest(LONG_S)
        raise AssertionError(f"it never comes to this: {what}")

    async def _meanwhile(self, work: Callable[[], Any]) -> Any:
        """The result of something that waits for other brokers, which go on meanwhile."""
        results: list[Any] = []

        async def run() -> None:
            results.append(await work())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            while not results:
                await self._come_to_rest()
                if not results:
                    await trio.sleep(0.1)
        await self._come_to_rest()
        return results[0]

    async def _come_to_rest(self) -> bool:
        """Do step after step until nothing moves any more. Whether anything moved."""
        for count in range(MAX_STEPS):
            if not await self._step():
                return count > 0
        raise AssertionError("the cluster does not come to rest")

    async def _step(self) -> bool:
        """A controller first, then ISR changes, then the followers."""
        if not self._terms():
            for broker in self._alive():
                if await broker.controller.stand():
                    return True
        for term in self._terms():
            if await term.step():
                return True
        moved = [await broker.step() for broker in self._alive()]
        if any(moved):
            return True
        fetched = [self._fetch(broker, *each) for broker in self._alive() for each in broker.following()]
        return any(fetched)

    def _fetch(self, follower: BareBroker, fetcher: Any, partition: Partition) -> bool:
        """One round trip of a follower's fetch. Whether it changed anything on either side."""
        leader = self.nodes[fetcher._leader_id].broker
        if leader is None:
            return False
        fetcher._resume_at.clear()
        request, asked = fetcher._request(FetchPlan([partition]), trio.current_time())
        call = Call(_without_wait(request))
        before = self._standing(leader, follower.broker_id, partition)
        response = leader.answer(call)
        records = b"".join(region.file.pread(region.length, region.position) for region in call.regions)
        fetcher._process(response, memoryview(records), asked)
        return before != self._standing(leader, follower.broker_id, partition)

    @staticmethod
    def _standing(leader: BareBroker, follower_id: int, partition: Partition) -> object:
        led = leader.data.replicas.partitions.get(partition.topic_partition)
        leadership = led.leadership if led is not None else None
        progress = leadership.followers.get(follower_id) if leadership is not None else None
        return (
            partition.log.log_end_offset,
            partition.log.last_epoch,
            partition.high_watermark,
            leadership and (leadership.high_watermark, leadership.quorum_offset, leadership.proposal),
            progress and (progress.log_end_offset, progress.incarnation),
        )

    def _alive(self) -> list[BareBroker]:
        return [node.broker for node in self.nodes.values() if node.broker is not None]

    def _terms(self) -> list[BareTerm]:
        terms = [broker.controller.term for broker in self._alive()]
        return [cast(BareTerm, term) for term in terms if term is not None]

    # --- requests ------------------------------------------------------------------------------------------------

    async def deliver(self, broker_id: int, request: Request) -> Message:
        """Take a request of the controller to a broker, and return its answer. BrokerUnreachable."""
        broker = self.nodes[broker_id].broker
        if broker is None:
            raise BrokerUnreachable(f"broker {broker_id} is down")
        return await broker.serve(request)

    def acting_controller(self) -> BareController | None:
        return next((each.controller for each in self._alive() if each.controller.is_active), None)

    async def create_topic(self, name: str, replicas: list[int]) -> None:
        request = CreateTopicsRequest([CreatableTopic(name, assignments={0: replicas})])
        await self._meanwhile(partial(self.broker(self.controller_id).controller.ask, request))

    # --- looking -------------------------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> BareBroker:
        broker = self.nodes[broker_id].broker
        assert broker is not None, f"broker {broker_id} does not run"
        return broker

    @property
    def controller_id(self) -> int:
        controller = self.acting_controller()
        return NO_BROKER if controller is None else controller.broker_id

    def partition(self, broker_id: int, tp: TopicPartition) -> Partition:
        return self.broker(broker_id).data.replicas.partitions[tp]

    def hosts(self, broker_id: int, tp: TopicPartition) -> bool:
        broker = self.nodes[broker_id].broker
        return broker is not None and tp in broker.data.replicas.partitions


class BareProducer:
    """`TrioProducer` as far as a trial writes: one record, acks=all, tried again once."""

    def __init__(self, cluster: BareCluster) -> None:
        self._cluster = cluster

    async def send(self, topic: str, value: bytes, *, partition: int) -> BareDelivery:
        tp = TopicPartition(topic, partition)
        for _ in range(2):
            leader = self._cluster.leader(tp)
            if leader == NO_BROKER or not self._cluster.leads(leader, tp):
                break
            call = _produce(self._cluster.broker(leader), tp, value)
            await self._cluster._come_to_rest()
            if call.response is None:
                await self._cluster.rest(LONG_S)
                self._cluster.partition(leader, tp).waiters.expire(float("inf"))
            if call.error_code == 0:
                assert isinstance(call.response, ProduceResponse)
                return BareDelivery(call.response.responses[0].partition_responses[0].base_offset)
            if not await self._cluster.rest(LONG_S):
                break
        raise ClientError("nobody acknowledges it")


@dataclass
class BareDelivery:
    offset: int

    def __await__(self) -> Generator[Any, None, BareDelivery]:
        return self
        yield  # a generator, that yields nothing


def _produce(broker: BareBroker, tp: TopicPartition, value: bytes) -> Call:
    batch = bytearray(build_batch([(EPOCH_MS, None, value)]))
    data = [TopicProduceData(tp.topic, [PartitionProduceData(tp.partition, len(batch))])]
    call = Call(ProduceRequest(-1, 30_000, data), batch)
    broker.data.produce.handle(cast(RequestInHand, call))
    broker.data.burst.end()
    return call


def _without_wait(request: Any) -> Any:
    return msgspec.structs.replace(request, max_wait_ms=0)
