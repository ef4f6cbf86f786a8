"""Partitions are sent here and there, and back, while brokers and controllers are struck; a seed draws all of it. In
the end everything heals, everything arrives, and nothing is lost, doubled or left over.

`STRANDLINE_SEEDS=0-199 pytest tests/scenarios/test_reassignments_at_random.py` runs others than these few."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from strandline.client.errors import ClientError
from strandline.protocol.errors import BrokerError
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import PreferredReplicaElectionZnode, ReassignPartitionsZnode
from strandline.runtime.coordination import NodeExists
from support.reassigning import TOPIC, Moves, moves
from support.scenario import die

BROKERS = 5
PARTITIONS = 2
LENGTH_S = 20.0


def seeds() -> list[int]:
    first, _, last = os.environ.get("STRANDLINE_SEEDS", "0-3").partition("-")
    return list(range(int(first), int(last or first) + 1))


class Trial:
    def __init__(self, moving: Moves, chance: random.Random) -> None:
        self.moving = moving
        self.cluster = moving.cluster
        self.chance = chance
        self.told: list[str] = []
        self.struck: set[int] = set()
        self.tool = self.cluster.zookeeper.client()

    def target(self) -> list[int]:
        return self.chance.sample(range(1, BROKERS + 1), self.chance.choice((1, 2, 2, 3, 3, 4)))

    async def reassign(self) -> None:
        targets = {p: self.target() if self.chance.random() < 0.75 else None for p in range(PARTITIONS)}
        targets = {p: to for p, to in targets.items() if self.chance.random() < 0.7}
        self.told.append(f"{trio.current_time():8.3f} to {targets}")
        with trio.move_on_after(2):
            try:
                await self.moving.ask(targets)
            except (ClientError, BrokerError, OSError, AssertionError):
                """Nobody controls just now."""

    async def ask_as_tools_do(self) -> None:
        """Where their znode stands nothing else can be asked for."""
        targets = {TopicPartition(TOPIC, p): self.target() for p in range(PARTITIONS) if self.chance.random() < 0.7}
        wish = ReassignPartitionsZnode(targets)
        election = PreferredReplicaElectionZnode([TopicPartition(TOPIC, p) for p in range(PARTITIONS)])
        znode = self.chance.choice((wish, election))
        self.told.append(f"{trio.current_time():8.3f} by znode {znode}")
        with suppress(NodeExists):
            await self.tool.create(znode.PATH, znode.encode())

    async def strike(self) -> None:
        """One broker at a time may be away, so that something is led."""
        broker = self.chance.randrange(1, BROKERS + 1)
        if self.struck or not self.cluster.nodes[broker].is_up:
            return
        seconds = self.chance.choice((0.05, 0.5, 3.0, 9.0))
        blow, undo = self.chance.choice(self._blows(broker))
        self.told.append(f"{trio.current_time():8.3f} {blow.__name__} {broker} for {seconds} s")
        self.struck.add(broker)
        await blow()
        await trio.sleep(seconds)
        await undo()
        self.struck.discard(broker)

    def _blows(self, broker: int) -> list[tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]]:
        cluster = self.cluster
        other = broker % BROKERS + 1

        async def kill() -> None:
            cluster.crash(broker)

        async def fail() -> None:
            die(cluster, broker)

        async def stop() -> None:
            await cluster.stop(broker)

        async def start() -> None:
            await cluster.start_broker(broker)

        async def expire() -> None:
            cluster.expire_session(broker)

        async def cut() -> None:
            cluster.cut_both(broker, other)

        async def heal() -> None:
            cluster.heal(broker, other)

        async def pause() -> None:
            cluster.pause(broker)

        async def resume() -> None:
            cluster.resume(broker)

        async def lose_zookeeper() -> None:
            cluster.cut_from_zookeeper(broker)

        async def find_zookeeper() -> None:
            cluster.heal_zookeeper(broker)

        async def refuse() -> None:
            cluster.refuse(broker)

        async def take_connections() -> None:
            cluster.take_connections(broker)

        async def refuse_each_other() -> None:
            cluster.network.refuse_each_other(f"broker-{broker}", f"broker-{other}")

        async def nothing() -> None:
            await trio.lowlevel.checkpoint()

        return [
            (kill, start),
            (fail, start),
            (stop, start),
            (expire, nothing),
            (cut, heal),
            (pause, resume),
            (lose_zookeeper, find_zookeeper),
            (refuse, take_connections),
            (refuse_each_other, heal),
        ]

    async def run(self) -> None:
        chance, moving = self.chance, self.moving
        pace_s = chance.choice((0.2, 1.0, 3.0))
        await self.tool.start()
        async with moving.under_load(0.1):
            async with trio.open_nursery() as nursery:
                while trio.current_time() < LENGTH_S:
                    await trio.sleep(chance.expovariate(1 / pace_s))
                    deeds = (self.strike, self.reassign, self.ask_as_tools_do)
                    nursery.start_soon(*chance.choices(deeds, (5, 4, 1)))
            targets = {p: self.target() for p in range(PARTITIONS)}
            self.told.append(f"{trio.current_time():8.3f} at last {targets}")
            await trio.sleep(10)
            await moving.ask(targets)
            await trio.sleep(2)
        await moving.check(targets)


@pytest.mark.parametrize("seed", seeds())
async def test_everything_arrives_whatever_happens_meanwhile(seed: int, autojump_clock: MockClock) -> None:
    chance = random.Random(f"reassignments/{seed}")
    assignment = [chance.sample(range(1, BROKERS + 1), 3) for _ in range(PARTITIONS)]
    async with moves(*assignment, brokers=BROKERS, min_insync_replicas=chance.choice((1, 2, 2))) as moving:
        trial = Trial(moving, chance)
        try:
            await trial.run()
        except BaseException as failure:
            failure.add_note("\n".join(trial.told))
            raise
