"""An operator who sends partitions to other brokers, calls that off, sends them elsewhere meanwhile, elects leaders."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from strandline.client.errors import ClientError
from strandline.testkit.simulation.history import Stream
from strandline.testkit.simulation.world import TopicLife, World

PAUSE_S = (0.3, 6.0)


async def move_partitions(world: World) -> None:
    """As long as there are faults nobody looks what becomes of it. In the end each partition that was to move is sent
    somewhere once more, and arrives: exactly these brokers hold it (invariant 35)."""
    chance = world.chance("moves of partitions")
    moved: dict[Stream, None] = {}
    while not world.is_over:
        await trio.sleep(chance.uniform(*PAUSE_S))
        life = chance.choice(list(world.topics.values()))
        stream = life.stream(chance.randrange(life.partitions))
        if life.is_open:
            moved[stream] = None
            await _while_it_lives(life, chance.choices(_deeds(world, chance, life, stream), (6, 1, 2))[0])
    for stream in moved:
        while not (life := world.topics[stream.tp.topic]).is_open:  # noqa: ASYNC110 (it is created anew)
            await trio.sleep(0.05)
        if stream in life.streams:
            await _while_it_lives(life, partial(_arrive, world, stream, _target(world, chance, life)))


def _target(world: World, chance: random.Random, life: TopicLife) -> list[int]:
    fewest = min(life.plan.min_isr, world.options.brokers)
    return chance.sample(sorted(world.cluster.nodes), chance.randint(fewest, life.plan.replication))


def _deeds(
    world: World, chance: random.Random, life: TopicLife, stream: Stream
) -> list[Callable[[], Awaitable[object]]]:
    """Send it somewhere, call that off, have its preferred replica lead it."""
    admin, tp, target = world.admin, stream.tp, _target(world, chance, life)
    return [
        lambda: admin.alter_partition_reassignments({tp: target}, timeout_ms=2_000),
        lambda: admin.alter_partition_reassignments({tp: None}, timeout_ms=2_000),
        lambda: admin.elect_leaders([tp], timeout_ms=2_000),
    ]


async def _while_it_lives(life: TopicLife, deed: Callable[[], Awaitable[object]]) -> None:
    """It is not created anew meanwhile."""
    life.in_flight += 1
    try:
        await deed()
    except ClientError:
        """Whoever controls goes on with what was written down; the rest was not asked for."""
    finally:
        life.in_flight -= 1


async def _arrive(world: World, stream: Stream, target: list[int]) -> None:
    tp = stream.tp

    def has_arrived() -> bool:
        znode = world.topic_znode(tp.topic)
        is_moving = znode is None or tp.partition in {*znode.adding_replicas, *znode.removing_replicas}
        has_gone = znode is not None and not is_moving and znode.partitions[tp.partition] == target
        return has_gone or world.waits_for_an_operator(tp)

    if await world.persist(
        lambda: world.admin.alter_partition_reassignments({tp: target}, timeout_ms=3_000),
        has_arrived,
        f"the move of {tp} to {target}",
    ):
        world.sometimes["partitions that were moved"] += 1
