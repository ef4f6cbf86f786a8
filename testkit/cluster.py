"""Whole brokers in one event loop: in-memory disk, network and ZooKeeper, faults by hand, everything open to look at.

```
async with MemoryCluster(brokers=3).running() as cluster:
    async with cluster.admin() as admin: await admin.create_topic("t", 1, 3)
    cluster.crash(cluster.leader(T0))                 # SIGKILL: the page cache stays, the session lives on
    await cluster.until(lambda: cluster.leader(T0) > 0, "a new leader")
```
Rules:
* Run it under trio's `MockClock(autojump_threshold=0)`: no thread, no real time; the same seed gives the same history.
* A crash poisons the seams of that life first, then cancels its tasks (see `node`), so no shutdown code speaks.
* Broker n is the network node `broker-n` and listens on `broker-n:9092`; clients are the node `client`.
* When the block ends by an exception, the last lines of all brokers' logs go to stderr, with virtual times, unless
  whoever runs it tells them itself (`tells`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from strandline.broker.membership.cluster_identity import UnreadableCluster
from strandline.broker.membership.registration import BrokerIdTaken
from strandline.broker.replication.partition import Partition
from strandline.broker.server import Broker
from strandline.client import TrioAdmin, TrioConsumer, TrioProducer
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import PartitionStateZnode
from strandline.runtime.beats import BEAT_S, share_beats
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.coordination import CoordinationError
from strandline.runtime.environment import Environment
from strandline.runtime.exception_groups import first_cause
from strandline.runtime.logging import BrokerLogs, make_logger
from strandline.runtime.network import REACH_TIMEOUT_S, CannotListen
from strandline.storage.errors import StorageError
from strandline.storage.log.log import Log
from strandline.testkit.clock import common_time
from strandline.testkit.cluster_view import ClusterView
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.disk.model import Choose, lose_everything
from strandline.testkit.environment import InlineBlocking, InlineComputing, SeededRandom, VirtualWallClock
from strandline.testkit.inspection import assert_same_below
from strandline.testkit.network import MemoryNetwork
from strandline.testkit.node import Life, LifeBound, NodeBlocking, NodeComputing, NodeCoordination, NodeDied
from strandline.testkit.node_tasks import NodeTasks
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper

CLIENT = "client"
PORT = 9092
LOG_DIR = "/data"
SESSION_TIMEOUT_MS = 6_000
LINES_OF_HISTORY = 150
LOOK_INTERVAL_S = 0.005
FATAL = (StorageError, CannotListen, BrokerIdTaken, UnreadableCluster, CoordinationError)
"""What a broker's process ends by; see `broker/process.py`."""
_REAL_TIME = re.compile(',"timestamp":"[^"]*"')


class StartFailed(Exception):
    """A broker ended before it served; the text says why. Nothing of it is left but its disk."""


@dataclass(eq=False)
class BrokerNode:
    """One machine with a broker on it. `broker`, `life`, `coordination`, `blocking`: of its present or last life.
    `disk_delay_s`: how long everything takes that waits for the disk in a thread, from now on. `beat_s`: of its next
    life (`runtime/beats`)."""

    broker_id: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    wall_clock: VirtualWallClock = field(default_factory=VirtualWallClock)
    disk_delay_s: float = 0.0
    beat_s: float = BEAT_S
    lives: int = 0
    ended_by: str = ""
    """Why its last life ended by itself."""
    has_vanished: bool = False
    broker: Broker | None = None
    life: Life | None = None
    coordination: NodeCoordination | None = None
    blocking: InlineBlocking | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    finished: trio.Event = field(default_factory=trio.Event)
    tasks: NodeTasks = field(init=False)

    def __post_init__(self) -> None:
        self.tasks = NodeTasks(self.name)

    @property
    def name(self) -> str:
        return node_name(self.broker_id)

    @property
    def is_up(self) -> bool:
        return self.life is not None and not self.life.is_over


def node_name(broker_id: int) -> str:
    """Its name in the network, also its host."""
    return f"broker-{broker_id}"


class _History:
    """A log sink: lines of all brokers in the order of the virtual clock. A life that is over says nothing more."""

    def __init__(self, name: str, life: Life, lines: list[str]) -> None:
        self._name = name
        self._life = life
        self._lines = lines

    def write_line(self, line: str) -> None:
        if self._life.is_over:
            return
        self._lines.append(f"{common_time():9.4f} {self._name} {_REAL_TIME.sub('', line)}")

    def close(self) -> None:
        """Nothing to release."""


class MemoryCluster(ClusterView):
    """See the module. `network` and `zookeeper` may be broken further by hand."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        seed: int = 0,
        network_latency_s: float = 0.001,
        zookeeper_latency_s: float = 0.002,
        computing_delay_s: float = 0.0,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """computing_delay_s: what each job of a worker takes. config: keys of `server.properties` for every broker."""
        self.seed = seed
        self.network = MemoryNetwork(seed, latency_s=network_latency_s)
        self.zookeeper: MemoryZooKeeper = MemoryZooKeeper(latency_s=zookeeper_latency_s)
        self.nodes: dict[int, BrokerNode] = {broker_id: BrokerNode(broker_id) for broker_id in range(1, brokers + 1)}
        self.history: list[str] = []
        self._computing_delay_s = computing_delay_s
        self._config = dict(config or {})
        self._nursery: trio.Nursery | None = None
        for name in (CLIENT, *map(node_name, self.nodes)):
            self.network.node(name)
        for name in map(node_name, self.nodes):
            self.network.node(name).reach_timeout_s = REACH_TIMEOUT_S

    @asynccontextmanager
    async def running(self, *, start: bool = True, tells: bool = True) -> AsyncIterator[MemoryCluster]:
        """ZooKeeper, and with `start` all brokers in the order of their ids: the first one is controller. tells: the
        last lines of all logs go to stderr where the block ends by an exception."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for broker_id in self.nodes if start else ():
                    await self.start_broker(broker_id)
                if start:
                    await self.until(lambda: self.controller_id != NO_BROKER, "a controller")
                yield self
            except BaseException:
                for node in self.nodes.values():
                    node.tasks.thaw()  # who stands still does not end either
                if tells:
                    sys.stderr.write("\n".join(["", *self.history[-LINES_OF_HISTORY:], ""]))
                raise
            for broker_id, node in self.nodes.items():
                if node.is_up:
                    self.crash(broker_id)
            nursery.cancel_scope.cancel()

    # --- lives of brokers ----------------------------------------------------------------------------------------

    async def start_broker(self, broker_id: int) -> None:
        """Start it (again) on what its disk has; returns when it serves. StartFailed: it ended before."""
        node = self.nodes[broker_id]
        assert not node.is_up, f"{node.name} runs already"
        assert self._nursery is not None, "the cluster is not running"
        if node.has_vanished:
            self.network.stop(node.name)
            self.network.heal(node.name)
            node.has_vanished = False
        self.network.start(node.name)
        node.lives += 1
        node.life = Life(f"{node.name}, life {node.lives}")
        node.coordination = NodeCoordination(node.life, self.zookeeper.client(session_timeout_ms=SESSION_TIMEOUT_MS))
        node.scope, node.finished = trio.CancelScope(), trio.Event()
        disk = LifeBound(node.life, node.disk)
        node.blocking = InlineBlocking(lambda: node.disk_delay_s)
        environment = Environment(
            disk=disk,
            network=self.network.node(node.name),
            blocking=NodeBlocking(node.life, node.blocking),
            computing=NodeComputing(node.life, InlineComputing(disk, self._computing_delay_s)),
            wall_clock=node.wall_clock,
            random=SeededRandom(self.seed, f"{node.name}/{node.lives}"),
        )
        sink = _History(node.name, node.life, self.history)
        log = make_logger(sink, form="json", level="info")
        node.broker = Broker(
            load_broker_config(self._properties(node)), environment, node.coordination, BrokerLogs(log, log, log)
        )
        try:
            await self._nursery.start(self._run, node, node.broker)
        except RuntimeError as error:  # trio's: the task ended without having reported
            if not node.life.is_over:
                raise
            raise StartFailed(f"{node.name} ended before it served: {node.ended_by}") from error

    async def _run(
        self, node: BrokerNode, broker: Broker, *, task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED
    ) -> None:
        node.tasks.enter()
        share_beats(node.beat_s)
        life, finished = node.life, node.finished
        assert life is not None and node.coordination is not None
        node.ended_by = "it was told to"
        try:
            with node.scope:
                await broker.run(task_status=task_status)
        except* NodeDied:
            assert life.is_over
        except* FATAL as failures:  # the process would end with exit code 1
            if not life.is_over:  # otherwise it was killed while it ended, and may run again by now
                node.ended_by = str(first_cause(failures))
                self.history.append(f"{common_time():9.4f} {node.name} ended: {node.ended_by}")
                self.network.stop(node.name)
                node.disk.kill()
                self.zookeeper.crash(node.coordination.client)
        finally:
            life.is_over = True
            finished.set()

    def _properties(self, node: BrokerNode) -> dict[str, str]:
        return {
            "broker.id": str(node.broker_id),
            "zookeeper.connect": "memory:2181",
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "listeners": f"PLAINTEXT://{node.name}:{PORT}",
            "log.dirs": LOG_DIR,
            "num.network.threads": "1",
            "num.io.threads": "2",
            **self._config,
        }

    def crash(self, broker_id: int) -> None:
        """SIGKILL: nothing more is written, sent or said. What was written stays; its session lives until it times
        out; connections are reset."""
        self._end_life(self.nodes[broker_id])
        self.nodes[broker_id].disk.kill()

    def vanish(self, broker_id: int) -> None:
        """The machine is off, or its cable is out: as `crash`, but nobody resets or refuses anything, so its peers see
        silence. Its next start brings it back."""
        node = self.nodes[broker_id]
        node.has_vanished = True
        self.network.isolate(node.name)
        self._die(node)
        node.disk.kill()

    def lose_power(self, broker_id: int, choose: Choose = lose_everything) -> None:
        """As `crash`, and of what was not synced only what `choose` picks survives; the machine boots anew."""
        self._end_life(self.nodes[broker_id])
        self.nodes[broker_id].disk.crash(choose)

    def lose_power_while_down(self, broker_id: int, choose: Choose = lose_everything) -> None:
        """The machine of a broker that was killed loses power before it runs again."""
        assert not self.nodes[broker_id].is_up, f"{node_name(broker_id)} runs"
        self.nodes[broker_id].disk.crash(choose)

    def replace_disk(self, broker_id: int, disk: MemoryDisk | None = None) -> None:
        """The machine of a broker that is down gets another disk, an empty one or (a `copy` taken earlier) an old
        backup. It is not booted for that."""
        node = self.nodes[broker_id]
        assert not node.is_up, f"{node.name} runs"
        boot = node.disk.boot
        node.disk = disk.copy() if disk is not None else MemoryDisk()
        node.disk.boot = boot
        node.disk.kill()

    def _end_life(self, node: BrokerNode) -> None:
        self.network.stop(node.name)
        self._die(node)

    def _die(self, node: BrokerNode) -> None:
        assert node.is_up and node.life is not None and node.coordination is not None, f"{node.name} does not run"
        node.life.is_over = True
        node.tasks.thaw()
        self.zookeeper.crash(node.coordination.client)
        node.scope.cancel()

    async def stop(self, broker_id: int) -> None:
        """SIGTERM: a controlled shutdown; returns when the process would have ended."""
        node = self.nodes[broker_id]
        assert node.broker is not None
        node.broker.shut_down()
        await node.finished.wait()
        self.network.stop(node.name)
        node.disk.kill()

    def expire_session(self, broker_id: int) -> None:
        """ZooKeeper ends the broker's session now, whether the broker lives or not."""
        self.zookeeper.expire(self.coordination(broker_id).session_id)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: none of its tasks runs. Its kernel takes bytes and connections as long as there is room for them;
        the session may run out."""
        self.nodes[broker_id].tasks.freeze()
        self.zookeeper.hold(self._client_of(broker_id))

    def resume(self, broker_id: int) -> None:
        """SIGCONT: it meets what has come meanwhile, and the deadlines that have passed."""
        self.nodes[broker_id].tasks.thaw()
        self.zookeeper.heal(self._client_of(broker_id))

    def refuse(self, broker_id: int) -> None:
        """Its connections break and its address refuses new ones, while the process lives and reaches the others."""
        self.network.refuse(node_name(broker_id))
        self.network.drop_connections(node_name(broker_id))

    def take_connections(self, broker_id: int) -> None:
        """Its address takes connections again."""
        self.network.take_connections(node_name(broker_id))

    def cut(self, source: int, destination: int) -> None:
        """Nothing passes from one broker to another any more (one direction)."""
        self.network.cut(node_name(source), node_name(destination))

    def cut_both(self, one: int, other: int) -> None:
        self.network.cut_both(node_name(one), node_name(other))

    def heal(self, one: int, other: int) -> None:
        self.network.heal(node_name(one), node_name(other))

    def cut_from_zookeeper(self, broker_id: int, *, noticed: bool = True) -> None:
        self.zookeeper.cut(self._client_of(broker_id), noticed=noticed)

    def heal_zookeeper(self, broker_id: int) -> None:
        self.zookeeper.heal(self._client_of(broker_id))

    def _client_of(self, broker_id: int) -> MemoryCoordination:
        return self.coordination(broker_id).client

    # --- looking inside ------------------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> Broker:
        broker = self.nodes[broker_id].broker
        assert broker is not None
        return broker

    def coordination(self, broker_id: int) -> NodeCoordination:
        coordination = self.nodes[broker_id].coordination
        assert coordination is not None
        return coordination

    @property
    def controller_id(self) -> int:
        """The broker that acts as controller (of two that believe so, the later one), −1 if none does."""
        epochs = {self._controller_epoch(node): node.broker_id for node in self.nodes.values() if node.is_up}
        return epochs[max(epochs)] if max(epochs, default=-1) >= 0 else NO_BROKER

    def acting_controllers(self) -> list[int]:
        """All brokers that believe that they are the controller."""
        return [n for n, node in self.nodes.items() if node.is_up and self._controller_epoch(node) >= 0]

    @staticmethod
    def _controller_epoch(node: BrokerNode) -> int:
        """Of the term in which that broker acts, −1 where it does not."""
        controller = getattr(node.broker, "controller", None)
        return controller.epoch if controller is not None and controller.is_active else -1

    def partition(self, broker_id: int, tp: TopicPartition) -> Partition:
        return self.broker(broker_id).data.replicas.partitions[tp]

    def hosts(self, broker_id: int, tp: TopicPartition) -> bool:
        return tp in self._hosted(broker_id)

    def led_by(self, broker_id: int) -> set[TopicPartition]:
        """What that broker believes that it leads; nothing where it does not run."""
        return {tp for tp, partition in self._hosted(broker_id).items() if partition.leadership is not None}

    def offline_logs(self, broker_id: int) -> set[TopicPartition]:
        """Of which that broker says so; nothing where it does not run."""
        return {tp for tp, partition in self._hosted(broker_id).items() if partition.failed}

    def _hosted(self, broker_id: int) -> Mapping[TopicPartition, Partition]:
        node = self.nodes[broker_id]
        data = getattr(node.broker, "data", None)
        return data.replicas.partitions if node.is_up and data is not None else {}

    def state_version(self, tp: TopicPartition) -> int:
        return self.zookeeper.tree.get(PartitionStateZnode.path(tp.topic, tp.partition)).stat.version

    def logs(self, tp: TopicPartition) -> dict[int, Log]:
        """The logs of all replicas that are hosted now, by broker id."""
        return {n: self.partition(n, tp).log for n in self.nodes if self.hosts(n, tp)}

    def assert_replicas_equal(self, tp: TopicPartition) -> None:
        """Every live replica has the same bytes below the leader's high watermark."""
        assert_same_below(self.logs(tp), self.partition(self.leader(tp), tp).high_watermark)

    async def until(self, condition: Callable[[], bool], what: str, *, within_s: float = 30.0) -> None:
        """Wait (virtual seconds) until it holds. AssertionError naming `what` when it does not come."""
        deadline = common_time() + within_s
        while not condition():
            assert common_time() < deadline, f"not within {within_s} s: {what}"
            await trio.sleep(LOOK_INTERVAL_S)

    async def rest(self, seconds: float) -> None:
        """Let the brokers work for so long (virtual time)."""
        await trio.sleep(seconds)

    # --- clients -------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{node_name(broker_id)}:{PORT}" for broker_id in self.nodes)

    def _client_environment(self, purpose: str, node: str = CLIENT) -> ClientEnvironment:
        random = SeededRandom(self.seed, node)(purpose)
        return ClientEnvironment(self.network.node(node), VirtualWallClock(), random)

    def admin(self, **settings: Any) -> TrioAdmin:
        return TrioAdmin(self.bootstrap_servers, environment=self._client_environment("admin"), **settings)

    def producer(self, **settings: Any) -> TrioProducer:
        return TrioProducer(self.bootstrap_servers, environment=self._client_environment("producer"), **settings)

    def consumer(self, *, node: str = CLIENT, **settings: Any) -> TrioConsumer:
        """node: the machine that it runs on."""
        environment = self._client_environment("consumer", node)
        return TrioConsumer(
            self.bootstrap_servers, environment=environment, **{"auto_offset_reset": "earliest", **settings}
        )
