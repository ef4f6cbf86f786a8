"""An operator who sets keys of topics and of all brokers, and takes them back."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import trio

from strandline.client.errors import ClientError
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.world import World

PAUSE_S = (0.5, 6.0)
OF_TOPICS: Mapping[str, tuple[str, ...]] = {
    "segment.bytes": ("1000", "3000", "100000"),
    "index.interval.bytes": ("1", "4096"),
    "min.insync.replicas": ("1", "2"),
    "compression.type": ("producer", "gzip"),
    "flush.messages": ("1", "1000"),
    "file.delete.delay.ms": ("100", "3000"),
}
OF_BROKERS: Mapping[str, tuple[str, ...]] = {
    "num.replica.fetchers": ("1", "2"),
    "num.io.threads": ("2", "3"),
    "log.cleaner.threads": ("0", "1"),
    "log.segment.delete.delay.ms": ("200", "2000"),
    "num.recovery.threads.per.data.dir": ("1", "2"),
}


async def change_configurations(world: World) -> None:
    """As long as there are faults nobody looks what becomes of it. In the end each topic's keys are set once more, and
    every replica takes them over."""
    chance = world.chance("configurations")
    while not world.is_over:
        await trio.sleep(chance.uniform(*PAUSE_S))
        try:
            if chance.random() < 0.3:
                await _alter(world, ConfigResource.BROKER, "", _drawn(chance, OF_BROKERS))
            else:
                await _alter(world, ConfigResource.TOPIC, chance.choice(list(world.topics)), _drawn(chance, OF_TOPICS))
        except ClientError:
            """It is done, or not: any of the values may be in force."""
    for name, life in world.topics.items():
        changes = {key: value for key, value in _drawn(chance, OF_TOPICS).items() if value is not None}
        await _take_effect(world, name, [stream.tp for stream in life.streams], changes)


def _drawn(chance: random.Random, keys: Mapping[str, tuple[str, ...]]) -> dict[str, str | None]:
    """Two keys; None: no longer set."""
    return {key: chance.choice((*keys[key], None)) for key in chance.sample(list(keys), 2)}


async def _alter(world: World, kind: ConfigResource, name: str, changes: Mapping[str, str | None]) -> None:
    await world.admin.alter_configs(kind, name, changes, timeout_ms=2_000)
    world.sometimes["configurations changed"] += 1


async def _take_effect(
    world: World, topic: str, partitions: Iterable[TopicPartition], changes: Mapping[str, str]
) -> None:
    def is_in_force() -> bool:
        configs = [log.config for tp in partitions for log in world.cluster.logs(tp).values()]
        values = [
            (str(getattr(config, key.replace(".", "_"))), value) for config in configs for key, value in changes.items()
        ]
        return all(found == value for found, value in values)

    await world.persist(
        lambda: _alter(world, ConfigResource.TOPIC, topic, changes), is_in_force, f"{changes} of {topic}"
    )
