"""Consumers of Kafka's dialect without a group: each reads all partitions of a topic from their beginning on."""

from __future__ import annotations

import random

import trio

from strandline.protocol.api import APIS, ApiKey
from strandline.testkit.simulation.kafka_access import KafkaAccess
from strandline.testkit.simulation.workloads.kafka_reader import (
    FIRST_WITH_SESSIONS,
    PAUSE_S,
    KafkaReader,
    Readings,
    Style,
)
from strandline.testkit.simulation.world import World


async def consume_by_kafka(world: World) -> None:
    """One consumer for each topic, of a style that the seed draws."""
    async with trio.open_nursery() as nursery:
        for plan in world.options.topics:
            style = draw_style(world.chance(f"kafka consumer of {plan.name}"))
            readings = Readings(world, f"kafka-consumer-{plan.name}", style, lambda: world.is_over)
            nursery.start_soon(_consume, readings, plan.name)


def draw_style(chance: random.Random) -> Style:
    lowest, highest = APIS[ApiKey.FETCH].kafka or (0, 0)
    version = chance.randint(lowest, highest)
    has_sessions = version >= FIRST_WITH_SESSIONS and chance.random() < 0.6
    tells_epoch, min_bytes = chance.random() < 0.3, chance.choice((1, 500, 500))
    return Style(version, has_sessions, tells_epoch, min_bytes, chance.choice((300, 2_000, 1_000_000)))


async def _consume(readings: Readings, topic: str) -> None:
    """Each life of the topic is read anew."""
    world = readings.world
    while not world.is_over:
        life = world.topics[topic]
        if life.is_open:
            with KafkaAccess(world.cluster, topic) as access:
                await KafkaReader(readings, life, access).run()
        await trio.sleep(PAUSE_S)
