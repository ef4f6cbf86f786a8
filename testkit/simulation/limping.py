"""A link that stays cut in one direction while all else is well: whoever still reaches a majority goes on.

Healing hides who waits for an answer that will never come. So in some runs, before all is healed, one broker hears
nothing of another one, for good; and within a bound each partition that can do without one replica takes records.
"""

from __future__ import annotations

import trio

from strandline.protocol.types import TopicPartition
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import Outcome
from strandline.testkit.simulation.options import TopicPlan
from strandline.testkit.simulation.workloads.producing import open_writer
from strandline.testkit.simulation.world import World

SERVES_WITHIN_S = 60.0
PAUSE_S = 1.0
MIN_ISR_MAX = 2
"""Of all topics, whatever operators set."""


async def limp(world: World) -> list[str]:
    """Returns which partitions took no record in time. The link is cut when it ends."""
    link = world.options.lame_link
    if not link:
        return []
    source, destination = (world.cluster.nodes[int(each)].name for each in link.split(">"))
    world.cluster.network.heal()
    world.cluster.network.cut(source, destination)
    world.sometimes["a link stayed cut one way"] += 1
    found: list[str] = []
    deadline_s = common_time() + SERVES_WITHIN_S
    async with trio.open_nursery() as nursery:
        for plan in world.options.topics:
            if plan.acks == -1:
                nursery.start_soon(_write_until_taken, world, plan, deadline_s, found)
    return found


async def _write_until_taken(world: World, plan: TopicPlan, deadline_s: float, found: list[str]) -> None:
    """One record after the other to each of its partitions, until one is acknowledged."""
    waiting = [stream for stream in world.topics[plan.name].streams if _can_spare_one(world, stream.tp)]
    name, since = f"limping-{plan.name}", len(world.history.writes)
    async with open_writer(world, name, plan) as writer:
        while waiting and common_time() < deadline_s:
            for stream in waiting:
                writer.write(stream.tp.partition)
            await trio.sleep(PAUSE_S)
            own = [write for write in world.history.writes[since:] if write.process == name]
            taken = {write.stream for write in own if write.outcome is Outcome.OK}
            waiting = [stream for stream in waiting if stream not in taken]
    within = f"within {SERVES_WITHIN_S:g} s while {world.options.lame_link} is cut"
    found += [f"not-served: {stream}: no record is acknowledged, {within}" for stream in waiting]


def _can_spare_one(world: World, tp: TopicPartition) -> bool:
    """Whether it goes on without one of its replicas: moves may have left it few."""
    topic = world.topic_znode(tp.topic)
    replicas = topic.partitions.get(tp.partition, ()) if topic is not None else ()
    return len(replicas) > MIN_ISR_MAX and not world.waits_for_an_operator(tp)
