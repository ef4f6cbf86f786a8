"""Consumers that read all partitions of a topic from their beginning on, without a group."""

from __future__ import annotations

from typing import Any

import trio

from strandline.client.errors import ClientError
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import Poll
from strandline.testkit.simulation.world import World

SETTINGS: dict[str, Any] = {
    "request_timeout_ms": 2_000,
    "retry_backoff_ms": 500,
    "fetch_max_wait_ms": 2_000,
    "auto_offset_reset": "earliest",
}


async def consume_all(world: World) -> None:
    """One consumer for each topic."""
    async with trio.open_nursery() as nursery:
        for plan in world.options.topics:
            nursery.start_soon(_consume, world, f"consumer-{plan.name}", plan.name)


async def _consume(world: World, name: str, topic: str) -> None:
    """Each life of the topic is read anew, and so are partitions that it grows by."""
    reading = 0
    while not world.is_over:
        life = world.topics[topic]
        if not life.is_open:
            await trio.sleep(0.2)
            continue
        reading += 1
        partitions = life.partitions
        async with world.cluster.consumer(client_id=name, **SETTINGS) as consumer:
            await consumer.assign(stream.tp for stream in life.streams)
            while not world.is_over and life.is_open and life.partitions == partitions:
                try:
                    found = await consumer.poll(timeout_ms=2_000)
                except ClientError:
                    await trio.sleep(0.2)
                    continue
                for tp, records in found.items():
                    values = [(record.offset, record.value or b"") for record in records]
                    stream = life.stream(tp.partition)
                    if life is world.topics[topic] and life.is_open:
                        world.history.polls.append(Poll(name, stream, reading, common_time(), values))
