"""How each fault of a script is done to a running world, and undone.

| kind | what happens (numbers: `spec/safety` of the field's usual lists) |
|---|---|
| kill, stop | SIGKILL, SIGTERM; the broker returns after the fault's time |
| power | the machine loses power: of what was not synced anything may survive, or nothing (`none`) |
| wipe | it is killed and returns with an empty disk, once its session is over |
| pause | SIGSTOP |
| cut, cut both, isolate | nothing passes in one direction, in both, to or from anybody but ZooKeeper |
| slow link, drop | what passes is late; connections break, in the middle of a frame |
| expire | ZooKeeper ends the session of a broker that runs |
| zookeeper cut, zookeeper silent | a broker does not reach ZooKeeper, and knows it or not |
| zookeeper reply, zookeeper request | the next write is applied and not answered, or lost |
| zookeeper lag | its server shows what was, until it writes |
| zookeeper down | for everybody |
| slow disk | what waits for the disk takes so much longer |
| clock | the wall clock jumps, and back |
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import trio

from strandline.testkit.clock import common_time
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.script import Fault
from strandline.testkit.simulation.world import World

Strike = Callable[["Faults", Fault], Awaitable[None]]
_STRIKES: dict[str, Strike] = {}


def _kind(name: str) -> Callable[[Strike], Strike]:
    def register(strike: Strike) -> Strike:
        _STRIKES[name] = strike
        return strike

    return register


class Faults:
    """Strikes one world. struck: brokers that something is done to just now; they are left alone meanwhile."""

    def __init__(self, world: World, losses: Losses) -> None:
        self.world = world
        self.cluster = world.cluster
        self.losses = losses
        self.struck: set[int] = set()
        self.done: list[str] = []
        """What was really done, and when."""

    async def run(self, script: tuple[Fault, ...]) -> None:
        """Returns once each has been undone."""
        began_s = common_time()
        async with trio.open_nursery() as nursery:
            for fault in script:
                await trio.sleep_until(began_s + fault.at_s)
                nursery.start_soon(self._strike, fault)

    async def _strike(self, fault: Fault) -> None:
        brokers = self._brokers(fault.target)
        whole = [broker for broker in brokers if self.cluster.nodes[broker].is_up and broker not in self.struck]
        if len(whole) < len(brokers):
            return
        self.done.append(str(fault))
        self.world.sometimes[f"fault: {fault.kind}"] += 1
        self.struck.update(brokers)
        for broker in brokers:
            self.losses.strike(broker, fault.seconds)
        try:
            await _STRIKES[fault.kind](self, fault)
        finally:
            self.struck.difference_update(brokers)

    def _brokers(self, target: str) -> list[int]:
        if target == "controller":
            return [self.cluster.controller_id] if self.cluster.controller_id > 0 else [-1]
        if target == "all":
            return list(self.cluster.nodes)
        return [int(each) for each in target.replace("-", ">").split(">") if each.isdigit()]

    async def _return(self, broker: int, seconds: float) -> None:
        await trio.sleep(seconds)
        await self.cluster.start_broker(broker)

    # --- brokers -----------------------------------------------------------------------------------------------------

    @_kind("kill")
    async def kill(self, fault: Fault) -> None:
        brokers = self._brokers(fault.target)
        for broker in brokers:
            self.cluster.crash(broker)
        await trio.sleep(fault.seconds)
        for broker in brokers:
            await self.cluster.start_broker(broker)

    @_kind("stop")
    async def stop(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        await self.cluster.stop(broker)
        await self._return(broker, fault.seconds)

    @_kind("power")
    async def power(self, fault: Fault) -> None:
        brokers = self._brokers(fault.target)
        draw = random.Random(f"{self.world.options.seed}/{fault}")
        with self.losses.by_disaster(brokers):
            for broker in brokers:
                self.cluster.lose_power(broker, (lambda options: 0) if fault.detail == "none" else draw.randrange)
        await trio.sleep(fault.seconds)
        for broker in brokers:
            await self.cluster.start_broker(broker)

    @_kind("wipe")
    async def wipe(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        with self.losses.by_disaster([broker]):
            self.cluster.crash(broker)
            self.cluster.replace_disk(broker)
        if broker in self.cluster.registered():
            self.cluster.expire_session(broker)
        await self._return(broker, fault.seconds)

    @_kind("pause")
    async def pause(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        self.cluster.pause(broker)
        await trio.sleep(fault.seconds)
        self.cluster.resume(broker)

    @_kind("slow disk")
    async def slow_disk(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        node = self.cluster.nodes[broker]
        before, node.disk_delay_s = node.disk_delay_s, 0.3
        await trio.sleep(fault.seconds)
        node.disk_delay_s = before

    @_kind("clock")
    async def clock(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        wall_clock = self.cluster.nodes[broker].wall_clock
        jump_ms = random.Random(f"{self.world.options.seed}/{fault}").choice((3_600_000, -3_600_000, 315_360_000_000))
        wall_clock.skew_ms += jump_ms
        await trio.sleep(fault.seconds)
        wall_clock.skew_ms -= jump_ms

    # --- the network -------------------------------------------------------------------------------------------------

    @_kind("cut")
    async def cut(self, fault: Fault) -> None:
        source, destination = self._brokers(fault.target)
        self.cluster.cut(source, destination)
        await trio.sleep(fault.seconds)
        self.cluster.heal(source, destination)

    @_kind("cut both")
    async def cut_both(self, fault: Fault) -> None:
        one, other = self._brokers(fault.target)
        self.cluster.cut_both(one, other)
        await trio.sleep(fault.seconds)
        self.cluster.heal(one, other)

    @_kind("isolate")
    async def isolate(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        name = self.cluster.nodes[broker].name
        self.cluster.network.isolate(name)
        self.cluster.cut_from_zookeeper(broker, noticed=False)
        await trio.sleep(fault.seconds)
        self.cluster.network.heal(name)
        self.cluster.heal_zookeeper(broker)

    @_kind("slow link")
    async def slow_link(self, fault: Fault) -> None:
        source, destination = (self.cluster.nodes[broker].name for broker in self._brokers(fault.target))
        link = self.cluster.network.link(source, destination)
        before = link.latency_s, link.jitter_s, link.bytes_per_s
        link.latency_s, link.jitter_s, link.bytes_per_s = 0.2, 0.3, 20_000
        await trio.sleep(fault.seconds)
        link.latency_s, link.jitter_s, link.bytes_per_s = before

    @_kind("drop")
    async def drop(self, fault: Fault) -> None:
        source, destination = (self.cluster.nodes[broker].name for broker in self._brokers(fault.target))
        self.cluster.network.link(source, destination).drop_after_bytes = round(fault.seconds * 100)
        await trio.lowlevel.checkpoint()

    # --- ZooKeeper ---------------------------------------------------------------------------------------------------

    @_kind("expire")
    async def expire(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        if broker in self.cluster.registered():
            self.cluster.expire_session(broker)
        await trio.lowlevel.checkpoint()

    @_kind("zookeeper cut")
    async def zookeeper_cut(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        self.cluster.cut_from_zookeeper(broker)
        await trio.sleep(fault.seconds)
        self.cluster.heal_zookeeper(broker)

    @_kind("zookeeper silent")
    async def zookeeper_silent(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        self.cluster.cut_from_zookeeper(broker, noticed=False)
        await trio.sleep(fault.seconds)
        self.cluster.heal_zookeeper(broker)

    @_kind("zookeeper reply")
    async def zookeeper_reply(self, fault: Fault) -> None:
        self.cluster.zookeeper.drop_next_reply("/")
        await trio.lowlevel.checkpoint()

    @_kind("zookeeper request")
    async def zookeeper_request(self, fault: Fault) -> None:
        self.cluster.zookeeper.drop_next_request("/")
        await trio.lowlevel.checkpoint()

    @_kind("zookeeper lag")
    async def zookeeper_lag(self, fault: Fault) -> None:
        (broker,) = self._brokers(fault.target)
        client = self.cluster.coordination(broker).client
        self.cluster.zookeeper.lag(client)
        await trio.sleep(fault.seconds)
        self.cluster.zookeeper.catch_up(client)

    @_kind("zookeeper down")
    async def zookeeper_down(self, fault: Fault) -> None:
        if not self.cluster.zookeeper.up:
            return
        self.cluster.zookeeper.stop()
        await trio.sleep(fault.seconds)
        self.cluster.zookeeper.start()


KINDS = tuple(_STRIKES)
"""Of all faults."""
