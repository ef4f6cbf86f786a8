"""Producers that write at the very moments at which the state of their partition is being written to ZooKeeper.

What a leader does with records while its ISR grows or shrinks, or while another leader is elected, is where most of the
rules of replication are needed. Those moments are short: records that come at any time rarely meet them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import trio

from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.state_rules import STATE_PATH
from strandline.testkit.simulation.workloads.producing import Writer, open_writer
from strandline.testkit.simulation.world import World
from strandline.testkit.simulation.wrapping import Wrap, wrapped
from strandline.testkit.zookeeper.server import MemoryZooKeeper

RECORDS_MAX = 4
IN_FLIGHT_MAX = 20
"""Per topic, together with those of its other producer."""
LOOK_INTERVAL_S = 1.0
"""For the end of the run."""


async def press(world: World) -> None:
    """One producer for each topic."""
    moments, partitions = trio.open_memory_channel[TopicPartition](math.inf)

    def note(original: Callable[..., None], server: MemoryZooKeeper, link: Any, request: Any) -> None:
        original(server, link, request)
        if request.write is not None:
            for found in map(STATE_PATH.fullmatch, request.paths or (request.path,)):
                if found is not None:
                    moments.send_nowait(TopicPartition(found[1], int(found[2])))

    chance = world.chance("pressing")
    async with AsyncExitStack() as stack:
        writers = {
            plan.name: await stack.enter_async_context(open_writer(world, f"presser-{plan.name}", plan))
            for plan in world.options.topics
        }
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.enter_context(wrapped(Wrap(MemoryZooKeeper, "send", note)))
        while not world.is_over:
            with trio.move_on_after(LOOK_INTERVAL_S):
                tp = await partitions.receive()
                if tp.topic in writers:
                    nursery.start_soon(_press, world, writers[tp.topic], tp.partition, chance.random())


async def _press(world: World, writer: Writer, partition: int, when: float) -> None:
    """when: between the moment at which the state is sent and some time after its answer."""
    latency_s = world.options.zookeeper_latency_s
    await trio.sleep(when * 1.5 * latency_s)
    for _ in range(RECORDS_MAX):
        writer.write(partition, IN_FLIGHT_MAX)
        await trio.sleep(latency_s / RECORDS_MAX)
