"""All that one run has: the cluster, the topics that live now, what clients were told, who was struck and when."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from strandline.client import TrioAdmin
from strandline.client.errors import ClientError
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import PartitionStateZnode, TopicZnode
from strandline.testkit.clock import common_time
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.simulation.anomalies import Excuses
from strandline.testkit.simulation.damage import Damage
from strandline.testkit.simulation.history import History, Stream
from strandline.testkit.simulation.options import Options, TopicPlan
from strandline.testkit.simulation.script import Struck

DONE_WITHIN_S = 60.0
"""Of what operators ask for: once all is healed it is done in that time."""


@dataclass(eq=False)
class TopicLife:
    """One life of a topic. is_open: it may be written to; while it is created anew nobody begins to."""

    plan: TopicPlan
    life: int = 1
    partitions: int = 0
    is_open: bool = True
    in_flight: int = 0
    """Writes that have no outcome yet."""

    @property
    def name(self) -> str:
        return self.plan.name

    def stream(self, partition: int) -> Stream:
        return Stream(TopicPartition(self.name, partition), self.life)

    @property
    def streams(self) -> list[Stream]:
        return [self.stream(partition) for partition in range(self.partitions)]


@dataclass
class Head:
    """What DeleteRecords was asked for and answered of one partition: the highest offsets. What was answered holds as
    long as a replica knows of it, and who leads as a last resort does."""

    asked: int = 0
    answered: int = 0


@dataclass(eq=False)
class World:
    options: Options
    cluster: MemoryCluster
    admin: TrioAdmin
    """Of operators; each of its calls may fail as long as there are faults."""
    history: History = field(default_factory=History)
    topics: dict[str, TopicLife] = field(default_factory=dict)
    excuses: Excuses = field(default_factory=Excuses)
    heads: dict[Stream, Head] = field(default_factory=dict)
    """Of the partitions whose records somebody had deleted."""
    states: dict[TopicPartition, PartitionStateZnode] = field(default_factory=dict)
    """Of all partitions, as ZooKeeper has them now."""
    damage: dict[int, list[Damage]] = field(default_factory=dict)
    """Broker → what its disk has altered in logs; until an operator has seen to it."""
    violations: list[str] = field(default_factory=list)
    """What oracles found while it ran; the first ends the run."""
    until_violation: trio.CancelScope = field(default_factory=trio.CancelScope)
    struck: list[Struck] = field(default_factory=list)
    """What was really done of the script, in the order of time."""
    sometimes: Counter[str] = field(default_factory=Counter)
    is_over: bool = False
    """No fault follows, and nobody writes any more."""

    def exists(self, topic: str) -> bool:
        return self.cluster.zookeeper.tree.exists(TopicZnode.path(topic)) is not None

    def topic_znode(self, topic: str) -> TopicZnode | None:
        """What ZooKeeper has of the topic; None: nothing."""
        path = TopicZnode.path(topic)
        return TopicZnode.decode(path, self.cluster.zookeeper.tree.get(path).data) if self.exists(topic) else None

    async def persist(self, action: Callable[[], Awaitable[object]], is_done: Callable[[], bool], what: str) -> bool:
        """Repeat what faults keep from being done. What is not done in time once they are over is a violation; returns
        whether it is done."""
        healed_s = float("inf")
        while not is_done():
            healed_s = min(healed_s, common_time() if self.is_over else healed_s)
            if common_time() > healed_s + DONE_WITHIN_S:
                self.violated(f"not-done: {what}: within {DONE_WITHIN_S:g} s after all was healed")
                return False
            try:
                await action()
            except ClientError:
                self.sometimes["an operator was refused"] += 1
            await trio.sleep(0.2)
        return True

    def leader(self, tp: TopicPartition) -> int:
        """As ZooKeeper has it; −1: nobody, or there is no such partition."""
        state = self.states.get(tp)
        return state.leader if state is not None else NO_BROKER

    def waits_for_an_operator(self, tp: TopicPartition) -> bool:
        """Everybody who was in sync may have lost data, and nobody may decide by himself what is left."""
        state = self.states.get(tp)
        if self.options.config["unclean.recovery.strategy"] != "none" or state is None or state.leader != NO_BROKER:
            return False
        return not state.elr and set(state.isr) <= set(state.lossy)

    def violated(self, what: str) -> None:
        """what: `name: where: text`, see `findings`."""
        self.violations.append(f"{common_time():.4f} {what}")
        self.until_violation.cancel("an invariant does not hold")

    def chance(self, purpose: str) -> random.Random:
        """The stream of one purpose, from its beginning."""
        return random.Random(f"{self.options.seed}/{purpose}")
