"""A cluster of scripted brokers round an in-memory ZooKeeper, with real controllers, in virtual time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog
import trio
from structlog.testing import LogCapture

from strandline.controller.controller import Controller
from strandline.controller.controller_context import LiveBroker
from strandline.controller.orders.channel import BrokerChannel, BrokerRefusesConnections, BrokerUnreachable
from strandline.protocol import znodes
from strandline.protocol.messages import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.coordination import SetData
from strandline.runtime.network import Address
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from support.scripted_brokers import FIRST_PORT, ScriptedBroker, ScriptedChannel, create_persistent_paths

PATIENCE_S = 120


class Cluster:
    """`controllers[b]` runs on broker b's ZooKeeper session (or on what `via` wraps round it)."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.zookeeper = MemoryZooKeeper()
        self.brokers: dict[int, ScriptedBroker] = {}
        self.controllers: dict[int, Controller] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self.logs = LogCapture()
        self.log = structlog.wrap_logger(
            structlog.PrintLogger(), processors=[self.logs], wrapper_class=structlog.make_filtering_bound_logger(0)
        )
        self.state_changes = LogCapture()
        self.admin = self.zookeeper.client()

    async def start(self, *broker_ids: int) -> None:
        await self.admin.start()
        await create_persistent_paths(self.admin)
        for broker_id in broker_ids:
            await self.add_broker(broker_id)

    async def add_broker(self, broker_id: int, rack: str | None = None) -> ScriptedBroker:
        broker = self.brokers[broker_id] = ScriptedBroker(self.zookeeper, broker_id, rack)
        await broker.start()
        return broker

    async def connect(self, to: LiveBroker) -> BrokerChannel:
        await trio.lowlevel.checkpoint()
        broker_id = to.broker_id
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise BrokerUnreachable(f"nobody listens for broker {broker_id}")
        assert to.inter_broker == broker.address == Address("broker", FIRST_PORT + broker_id)
        if broker.refuses:
            raise BrokerRefusesConnections(f"broker {broker_id} refuses connections")
        if not broker.reachable:
            raise BrokerUnreachable(f"broker {broker_id} is out of reach")
        return ScriptedChannel(broker)

    def start_controller(
        self, broker_id: int, *, via: Callable[[Any], Any] = lambda client: client, **config: object
    ) -> Controller:
        """Run a controller on a broker's session. `config`: attributes that differ from the defaults."""
        settings = load_broker_config({"broker.id": str(broker_id), "zookeeper.connect": "memory:0"})
        settings = msgspec.structs.replace(settings, **{"zookeeper_session_timeout_ms": 6000, **config})
        state_change_log = structlog.wrap_logger(
            structlog.PrintLogger(),
            processors=[self.state_changes],
            wrapper_class=structlog.make_filtering_bound_logger(0),
        )
        controller = Controller(
            broker_id,
            settings,
            via(self.brokers[broker_id].coordination),
            self.connect,
            random.Random(broker_id),
            self.log,
            state_change_log,
        )
        self.controllers[broker_id] = controller
        scope = self.scopes[broker_id] = trio.CancelScope()

        async def run() -> None:
            with scope:
                await controller.run()

        self.nursery.start_soon(run)
        return controller

    async def controller_on(self, broker_id: int, **options: Any) -> Controller:
        """Start a controller and wait until it acts."""
        controller = self.start_controller(broker_id, **options)
        await self.until(lambda: controller.is_active)
        return controller

    def kill(self, broker_id: int, *, noticed: bool = True) -> None:
        """SIGKILL of a broker together with its controller."""
        if broker_id in self.scopes:
            self.scopes.pop(broker_id).cancel()
            self.controllers.pop(broker_id)
        self.brokers[broker_id].kill(noticed=noticed)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Virtual time passes until something holds."""
        with trio.fail_after(PATIENCE_S):
            while not condition():
                await trio.sleep(0.01)

    async def until_async(self, condition: Callable[[], Awaitable[bool]]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not await condition():
                await trio.sleep(0.01)

    async def come_to_rest(self) -> None:
        """Let everything happen that happens by itself within seconds."""
        await trio.sleep(2)

    # --- topics ------------------------------------------------------------------------------------------------

    async def create(
        self, controller: Controller, name: str, assignment: Sequence[Sequence[int]], **configs: str
    ) -> CreateTopicsResponse:
        topic = CreatableTopic(
            name,
            assignments={p: list(replicas) for p, replicas in enumerate(assignment)},
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        response = await controller.ask(CreateTopicsRequest([topic]))
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == 0, response
        return response

    async def state(self, topic: str, partition: int = 0) -> znodes.PartitionStateZnode:
        path = znodes.PartitionStateZnode.path(topic, partition)
        return znodes.PartitionStateZnode.decode(path, (await self.admin.get(path)).data)

    async def leader_writes_isr(self, topic: str, partition: int, isr: list[int], *, notify: bool = True) -> None:
        """What a leader does on its own: compare-and-set of the ISR, then the notification."""
        path = znodes.PartitionStateZnode.path(topic, partition)
        znode = await self.admin.get(path)
        state = msgspec.structs.replace(znodes.PartitionStateZnode.decode(path, znode.data), isr=isr)
        await self.admin.multi([SetData(path, state.encode(), znode.stat.version)])
        if notify:
            note = znodes.IsrChangeNotificationZnode([TopicPartition(topic, partition)])
            await self.admin.create(note.SEQUENCE_PATH, note.encode(), sequence=True)

    def logged(self, event: str) -> list[Any]:
        return [entry for entry in self.logs.entries if entry["event"] == event]


@asynccontextmanager
async def running_cluster() -> AsyncIterator[Cluster]:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        yield cluster
        nursery.cancel_scope.cancel()


@pytest.fixture(scope="session")
def new_cluster() -> Callable[[], AbstractAsyncContextManager[Cluster]]:
    """For a test that needs one per example."""
    return running_cluster


@pytest.fixture
async def cluster(autojump_clock: trio.testing.MockClock) -> AsyncIterator[Cluster]:
    async with running_cluster() as cluster:
        yield cluster
