"""Whole brokers on virtual time, with one partition, `t-0`, in the picture.

After each stimulus the cluster works for 50 ms: what is on its way arrives, what waits for a deadline still waits. What
a client asks is waited for, for a second at most; then it goes on by itself, and its answer is told when it comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from strandline.client import TrioAdmin, TrioProducer
from strandline.client.errors import AnsweredError, ClientError
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import PartitionStateZnode, TopicZnode
from strandline.runtime.coordination import NoNode, Operation, SetData
from strandline.runtime.network import Address
from strandline.testkit.cluster import CLIENT, PORT, MemoryCluster, node_name
from strandline.testkit.node import HeldWrite
from support.raw_client import RawClient
from support.transcripts.orders import Orders
from support.transcripts.replica_look import Names, replica_text
from support.transcripts.stage import Stage, Verb

SETTLE_S = 0.05
ANSWER_S = 1.0
T0 = TopicPartition("t", 0)
STATE_PATH = PartitionStateZnode.path(*T0)
PROPERTIES = {"replica.lag.time.max.ms": "4000"}
NOTED = ("unclean election, acknowledged records may be lost", "left isrs after possible data loss", "replica failed")
"""Lines of the brokers' logs that are effects."""


class BrokerStage(Stage):
    """See the module."""

    def __init__(
        self,
        verbs: Mapping[str, Verb],
        names: Names,
        cluster: MemoryCluster,
        nursery: trio.Nursery,
        clients: AsyncExitStack,
    ) -> None:
        super().__init__(verbs)
        self.names = names
        self.cluster = cluster
        self.acked: list[tuple[int, bytes]] = []
        """Offset and value of what was acknowledged by all in sync."""
        self.orders = Orders(cluster, names, self.tell)
        self.admin: TrioAdmin
        self._nursery = nursery
        self._clients = clients
        self._producers: dict[str, TrioProducer] = {}
        self._connections: dict[tuple[int, int], RawClient] = {}
        self._held: dict[str, HeldWrite] = {}
        self._to_be_lost: dict[str, str] = {}
        self._lines_read = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, verbs: Mapping[str, Verb], words: Sequence[str], options: Mapping[str, str]
    ) -> AsyncIterator[BrokerStage]:
        """words: the brokers; the first one is controller. options: properties of all of them."""
        cluster = MemoryCluster(len(words), config={**PROPERTIES, **options})
        async with cluster.running(), trio.open_nursery() as nursery, AsyncExitStack() as clients:
            stage = cls(verbs, Names(words), cluster, nursery, clients)
            stage.admin = await clients.enter_async_context(cluster.admin(request_timeout_ms=2_000))
            for broker_id in cluster.nodes:
                stage.orders.watch(broker_id)
            yield stage
            nursery.cancel_scope.cancel()

    # --- what goes on by itself ----------------------------------------------------------------------------------

    async def ask(self, what: str, work: Callable[[], Awaitable[str]]) -> None:
        """Let a client do this; what it is told is an effect, whenever that is."""
        is_answered = trio.Event()

        async def answered() -> None:
            try:
                outcome = await work()
            except AnsweredError as error:
                outcome = error.code.name
            except ClientError as error:
                outcome = type(error).__name__
            self.tell(f"{what}: {outcome}")
            is_answered.set()

        self._nursery.start_soon(answered)
        with trio.move_on_after(ANSWER_S):
            await is_answered.wait()

    async def producer(self, acks: str) -> TrioProducer:
        if acks not in self._producers:
            settings: dict[str, Any] = {"acks": -1 if acks == "all" else int(acks), "linger_ms": 0}
            producer = self.cluster.producer(request_timeout_ms=2_000, delivery_timeout_ms=60_000, **settings)
            self._producers[acks] = await self._clients.enter_async_context(producer)
        return self._producers[acks]

    async def connection(self, broker_id: int) -> RawClient:
        """A client's to this life of a broker: it stays open."""
        life = (broker_id, self.cluster.nodes[broker_id].lives)
        if life not in self._connections:
            node = self.cluster.network.node(CLIENT)
            self._connections[life] = RawClient(await node.connect(Address(node_name(broker_id), PORT)))
        return self._connections[life]

    def hold(self, letter: str) -> None:
        """Keep this broker from writing the partition's state; told once, when it is about to."""
        is_told = False

        def matches(operations: Sequence[Operation]) -> bool:
            nonlocal is_told
            states = [one for one in operations if isinstance(one, SetData) and one.path == STATE_PATH]
            if states and not is_told:
                is_told = True
                state = PartitionStateZnode.decode(STATE_PATH, states[0].data)
                self.tell(f"{letter} is about to write: {self._state_text(state)}")
            return bool(states)

        self._held[letter] = self.cluster.coordination(self.names.id_of[letter]).hold_writes(matches)

    def release(self, letter: str) -> None:
        self._held.pop(letter).release()

    def lose_answer(self, what: str, path: str) -> None:
        """The next write to this path is done, and nobody is told so."""
        self._to_be_lost[path] = what
        self.cluster.zookeeper.drop_next_reply(path)

    # --- effects -------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        await trio.sleep(SETTLE_S)
        for path, what in list(self._to_be_lost.items()):
            if path not in self.cluster.zookeeper._drop_replies:
                del self._to_be_lost[path]
                self.tell(f"an answer is lost: {what}")
        self._tell_lines()

    def _tell_lines(self) -> None:
        """Of the brokers' logs, those that are effects."""
        lines = self.cluster.history
        for line in lines[self._lines_read :]:
            for noted in NOTED:
                if f'"{noted}"' in line:
                    broker = int(line.split()[1].removeprefix("broker-"))
                    self.tell(f"{self.names.of_id[broker]} logs: {noted}")
        self._lines_read = len(lines)

    def picture(self) -> dict[str, str]:
        cluster = self.cluster
        shown = {"controller": self._controller_text(), "registered": self.names.text(cluster.registered())}
        try:
            shown["t"] = self._state_text(cluster.state(T0)) + self._moves_text()
        except NoNode:
            shown["t"] = "no such topic"
        return shown | {letter: self._broker_text(broker_id) for letter, broker_id in self.names.id_of.items()}

    def _state_text(self, state: PartitionStateZnode) -> str:
        leader = self.names.of_id.get(state.leader, "nobody")
        text = f"leader {leader} e{state.leader_epoch}, ISR {self.names.text(sorted(state.isr))}"
        for word, members in (("eligible", state.elr), ("lossy", state.lossy)):
            text += f", {word} {self.names.text(sorted(members))}" if members else ""
        return text

    def _moves_text(self) -> str:
        znode = TopicZnode.decode(T0.topic, self.cluster.zookeeper.tree.get(TopicZnode.path(T0.topic)).data)
        text = ""
        for word, members in (("adding", znode.adding_replicas), ("removing", znode.removing_replicas)):
            text += f", {word} {self.names.text(members[0])}" if members else ""
        return text

    def _controller_text(self) -> str:
        """Of several that believe that they are controller the latest one comes first."""
        terms = {}
        for broker_id, node in self.cluster.nodes.items():
            controller = getattr(node.broker, "controller", None)
            if node.is_up and controller is not None and controller.is_active:
                terms[controller.epoch] = self.names.of_id[broker_id]
        first, *others = [letter for _, letter in sorted(terms.items(), reverse=True)] or ["nobody"]
        return first + (f"; {' '.join(others)} believes to be it, too" if others else "")

    def _broker_text(self, broker_id: int) -> str:
        cluster = self.cluster
        if not cluster.nodes[broker_id].is_up:
            return "down"
        if not cluster.hosts(broker_id, T0):
            return "up"
        return replica_text(cluster.partition(broker_id, T0), self.names)
