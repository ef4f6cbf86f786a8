"""Operators who create topics, have them grow, delete them and create them anew under their old names."""

from __future__ import annotations

import trio

from strandline.testkit.simulation.options import TopicPlan
from strandline.testkit.simulation.world import TopicLife, World

CHANGED = "anew"
"""The topic that this is done to."""
PARTITIONS_MAX = 4
PAUSE_S = (0.5, 8.0)


async def create_topic(world: World, plan: TopicPlan, life: int = 1) -> None:
    """It has no earlier life any more; returns once ZooKeeper has it."""
    configs = {"min.insync.replicas": str(plan.min_isr), **plan.configs}
    await world.persist(
        lambda: world.admin.create_topic(
            plan.name, plan.partitions, plan.replication, configs=configs, timeout_ms=3_000
        ),
        lambda: world.exists(plan.name),
        f"creation of {plan.name}",
    )
    world.topics[plan.name] = TopicLife(plan, life, plan.partitions)


async def change_topics(world: World) -> None:
    """One thing after the other."""
    chance = world.chance("topics")
    while not world.is_over:
        await trio.sleep(chance.uniform(*PAUSE_S))
        life = world.topics[CHANGED]
        if life.partitions < PARTITIONS_MAX and chance.random() < 0.4:
            await _grow(world, life)
        else:
            await _create_anew(world, life)


async def _grow(world: World, life: TopicLife) -> None:
    count = life.partitions + 1

    def has_grown() -> bool:
        znode = world.topic_znode(life.name)
        return znode is not None and len(znode.partitions) >= count

    if await world.persist(
        lambda: world.admin.create_partitions(life.name, count, timeout_ms=3_000),
        has_grown,
        f"growth of {life.name} to {count} partitions",
    ):
        life.partitions = count
        world.sometimes["topics that grew"] += 1


async def _create_anew(world: World, life: TopicLife) -> None:
    """Nobody writes meanwhile, so that each record is of one life."""
    life.is_open = False
    while life.in_flight:  # noqa: ASYNC110 (whoever writes only counts)
        await trio.sleep(0.05)
    if await world.persist(
        lambda: world.admin.delete_topic(life.name, timeout_ms=3_000),
        lambda: not world.exists(life.name),
        f"deletion of {life.name}",
    ):
        await create_topic(world, life.plan, life.life + 1)
        world.sometimes["topics created anew"] += 1
