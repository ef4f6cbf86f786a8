"""Producers: each sends unique values to all partitions of a topic and notes what becomes of each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from strandline.client import TrioProducer
from strandline.client.errors import ClientError, DeliveryFailed
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import Outcome, Write
from strandline.testkit.simulation.options import TopicPlan
from strandline.testkit.simulation.world import TopicLife, World

IN_FLIGHT_MAX = 5
SETTINGS = {
    "linger_ms": 0,
    "delivery_timeout_ms": 8_000,
    "request_timeout_ms": 2_000,
    "retry_backoff_ms": 500,
    "max_block_ms": 3_000,
}


async def produce_to_all(world: World) -> None:
    """One producer for each topic."""
    async with trio.open_nursery() as nursery:
        for plan in world.options.topics:
            nursery.start_soon(_produce, world, f"producer-{plan.name}", plan)


async def _produce(world: World, name: str, plan: TopicPlan) -> None:
    async with open_writer(world, name, plan) as writer:
        while not world.is_over:
            for partition in range(world.topics[plan.name].partitions):
                writer.write(partition)
            await trio.sleep(world.options.write_pause_s)


@asynccontextmanager
async def open_writer(world: World, name: str, plan: TopicPlan) -> AsyncIterator[Writer]:
    """Ends once all that it wrote has its outcome."""
    settings = {**SETTINGS, "acks": plan.acks, "enable_idempotence": plan.acks == -1}
    async with world.cluster.producer(client_id=name, **settings) as producer, trio.open_nursery() as nursery:
        yield Writer(world, name, plan, producer, nursery)


@dataclass
class Writer:
    """One producer of one topic."""

    world: World
    name: str
    plan: TopicPlan
    producer: TrioProducer
    nursery: trio.Nursery
    number: int = 0

    def write(self, partition: int, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        """Send one more record there, unless so many of the topic have no outcome yet, or there is no such topic."""
        life = self.world.topics[self.plan.name]
        if not life.is_open or partition >= life.partitions or life.in_flight >= in_flight_max:
            return
        self.number += 1
        value = _value(life, self.name, self.number)
        write = Write(self.name, life.stream(partition), value, self.plan.acks, common_time())
        write.key = key_of(self.number)
        write.may_repeat = self.plan.acks != -1
        self.world.history.writes.append(write)
        life.in_flight += 1
        self.nursery.start_soon(_send, self.producer, life, write)


def _value(life: TopicLife, name: str, number: int) -> bytes:
    return f"{life.name}/{life.life}/{name}/{number}".encode()


def key_of(number: int) -> bytes:
    """Of a producer's record: some keys are written over and over, others for a while and then never again: however
    often a log is compacted, it keeps the newest record of each."""
    return b"key-%d" % (number % 4) if number % 3 else b"once-%d" % (number // 12)


def life_of(value: bytes) -> int:
    """Of the topic that it was sent to."""
    return int(value.split(b"/")[1])


async def _send(producer: TrioProducer, life: TopicLife, write: Write) -> None:
    try:
        delivery = await producer.send(life.name, write.value, key=write.key, partition=write.stream.tp.partition)
        metadata = await delivery
    except ClientError as error:
        # Nothing was sent where the record was not even accepted.
        is_unknown = isinstance(error, DeliveryFailed) and error.outcome_unknown
        write.outcome = Outcome.UNKNOWN if is_unknown else Outcome.FAILED
        write.why = f"{type(error).__name__}: {error}"
    else:
        write.outcome, write.offset = Outcome.OK, metadata.offset
    finally:
        write.ended_s = common_time()
        life.in_flight -= 1
