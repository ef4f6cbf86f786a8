"""Producers: each sends unique values to all partitions of a topic and notes what becomes of each."""

from __future__ import annotations

import trio

from strandline.client import TrioProducer
from strandline.client.errors import ClientError, DeliveryFailed
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import Outcome, Write
from strandline.testkit.simulation.world import TopicLife, World

IN_FLIGHT_MAX = 5
KEYS = 4
SETTINGS = {"linger_ms": 0, "delivery_timeout_ms": 8_000, "request_timeout_ms": 2_000, "max_block_ms": 3_000}


async def produce_to_all(world: World) -> None:
    """One producer for each topic."""
    async with trio.open_nursery() as nursery:
        for plan in world.options.topics:
            nursery.start_soon(_produce, world, f"producer-{plan.name}", plan.name)


async def _produce(world: World, name: str, topic: str) -> None:
    acks = world.topics[topic].plan.acks
    settings = {**SETTINGS, "acks": acks, "enable_idempotence": acks == -1}
    number = 0
    async with world.cluster.producer(client_id=name, **settings) as producer, trio.open_nursery() as nursery:
        while not world.is_over:
            life = world.topics[topic]
            for partition in range(life.partitions if life.is_open else 0):
                if life.in_flight < IN_FLIGHT_MAX:
                    number += 1
                    value = _value(life, name, number)
                    write = Write(name, life.stream(partition), value, acks, common_time())
                    write.key = b"key-%d" % (number % KEYS)
                    write.may_repeat = not settings["enable_idempotence"]
                    world.history.writes.append(write)
                    life.in_flight += 1
                    nursery.start_soon(_send, producer, life, write)
            await trio.sleep(world.options.write_pause_s)


def _value(life: TopicLife, name: str, number: int) -> bytes:
    return f"{life.name}/{life.life}/{name}/{number}".encode()


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
