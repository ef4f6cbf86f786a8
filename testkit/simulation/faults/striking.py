"""Strikes a world with what a script has, and undoes it; restarts, as a supervisor would, whoever ends by itself."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import trio

from strandline.testkit.clock import common_time
from strandline.testkit.cluster import BrokerNode, StartFailed
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.script import Fault, Struck
from strandline.testkit.simulation.world import World
from strandline.testkit.zookeeper.client import MemoryCoordination, Request

RESTART_PAUSE_S = 1.0
LOOK_INTERVAL_S = 0.5
STARTS_MAX = 60


class Strikes:
    """On one world. struck: brokers that something is done to just now; they are left alone meanwhile."""

    def __init__(self, world: World, losses: Losses, kinds: Mapping[str, FaultKind]) -> None:
        self.world = world
        self.cluster = world.cluster
        self.losses = losses
        self.struck: set[int] = set()
        self.at_writes: dict[MemoryCoordination, Callable[[Request, bool], bool]] = {}
        """Of brokers that are struck at a write to ZooKeeper: as `MemoryZooKeeper.on_write`, which knows one only."""
        self._of_all: set[str] = set()
        """Kinds of what is done to everybody just now: no other one of these begins before it ends."""
        self._kinds = kinds
        self.cluster.zookeeper.on_write = self._on_write

    async def run(self, script: Iterable[Fault]) -> None:
        """Returns once each has been undone."""
        began_s = common_time()
        async with trio.open_nursery() as nursery:
            for fault in script:
                await trio.sleep_until(began_s + fault.at_s)
                nursery.start_soon(self._strike, fault)

    async def keep_up(self) -> None:
        """Start brokers again that ended by themselves."""
        while True:
            await trio.sleep(LOOK_INTERVAL_S)
            for node in self.cluster.nodes.values():
                if not node.is_up and node.broker_id not in self.struck:
                    self.world.sometimes["broker ended by itself"] += 1
                    self.losses.strike(node.broker_id, RESTART_PAUSE_S)
                    await self.start(node.broker_id)

    async def _strike(self, fault: Fault) -> None:
        brokers = self.brokers(fault)
        if fault.target == "controller":  # whoever that is by the time when it is undone
            if not brokers:
                return
            fault = fault._replace(target=str(brokers[0]))
        if not all(self.cluster.nodes[each].is_up and each not in self.struck for each in brokers):
            return
        if not brokers and fault.kind in self._of_all:
            return
        struck = Struck(fault, common_time())
        self.world.struck.append(struck)
        self.world.sometimes[f"fault: {fault.kind}"] += 1
        self.struck.update(brokers)
        if not brokers:
            self._of_all.add(fault.kind)
        for broker in brokers:
            self.losses.strike(broker, fault.seconds)
        try:
            await self._kinds[fault.kind].strike(self, fault)
            struck.to_s = common_time()
        finally:
            self.struck.difference_update(brokers)
            if not brokers:
                self._of_all.discard(fault.kind)

    def _on_write(self, client: MemoryCoordination, request: Request, is_done: bool) -> bool:
        struck = self.at_writes.get(client)
        return struck is None or struck(request, is_done)

    # --- for those who strike ----------------------------------------------------------------------------------------

    def brokers(self, fault: Fault) -> list[int]:
        """Who is struck, and left alone by others."""
        if fault.target == "controller":
            return [self.cluster.controller_id] if self.cluster.controller_id > 0 else []
        if fault.target == "all":
            return list(self.cluster.nodes)
        return [int(each) for each in fault.target.replace("-", ">").split(">") if each.isdigit()]

    def nodes(self, fault: Fault) -> list[BrokerNode]:
        return [self.cluster.nodes[broker] for broker in self.brokers(fault)]

    def chance(self, fault: Fault, purpose: str = "") -> random.Random:
        """Whatever else there is to decide about it; the same in each shorter script."""
        return self.world.chance(f"{fault}{purpose}")

    def how(self, fault: Fault) -> str:
        """Which of the ways of its kind."""
        return fault.how or self.chance(fault, "how").choice(self._kinds[fault.kind].ways)

    async def start(self, broker: int) -> None:
        """Until it serves."""
        for _ in range(STARTS_MAX):
            try:
                await self.cluster.start_broker(broker)
                return
            except StartFailed as failed:
                self.world.sometimes["start failed"] += 1
                last = failed
            await trio.sleep(RESTART_PAUSE_S)
        self.world.violated(f"no-start: broker {broker}: {STARTS_MAX} times, {last}")


Strike = Callable[[Strikes, Fault], Awaitable[None]]


@dataclass(frozen=True)
class FaultKind:
    """targets: what it may be done to; the more often, the more often it is drawn: a broker (`1`), a link (`1>2`,
    `1-2`), `all`, the `controller`, or nobody (empty). about: one line for people. ways: how it may be done, where that
    is to be chosen; drawn as targets are."""

    strike: Strike
    targets: tuple[str, ...]
    about: str
    ways: tuple[str, ...] = ()
