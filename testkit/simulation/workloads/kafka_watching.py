"""Who asks over and over where partitions end, in Kafka's dialect: what it is told never goes back (invariant 8)."""

from __future__ import annotations

import trio

from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.messages import LATEST_TIMESTAMP
from strandline.protocol.types import NO_BROKER
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import EndOffset, Stream
from strandline.testkit.simulation.kafka_access import KafkaAccess, Unanswered
from strandline.testkit.simulation.world import TopicLife, World

PAUSE_S = 2.0
FIRST_WITH_EPOCHS = 4


async def watch_end_offsets(world: World) -> None:
    """One watcher for each topic."""
    _, newest = APIS[ApiKey.LIST_OFFSETS].kafka or (0, 0)
    async with trio.open_nursery() as nursery:
        for plan in world.options.topics:
            version = world.chance(f"end offsets of {plan.name}").randint(FIRST_WITH_EPOCHS, newest)
            nursery.start_soon(_watch, world, plan.name, version)


async def _watch(world: World, topic: str, version: int) -> None:
    while not world.is_over:
        life = world.topics[topic]
        with KafkaAccess(world.cluster, topic) as access:
            while _is_current(world, life):
                for stream in life.streams:
                    while _is_current(world, life) and not await _is_told(world, access, life, stream, version):
                        await access.refresh()
                await trio.sleep(PAUSE_S)
        await trio.sleep(PAUSE_S)


def _is_current(world: World, life: TopicLife) -> bool:
    return not world.is_over and life is world.topics[life.name] and life.is_open


async def _is_told(world: World, access: KafkaAccess, life: TopicLife, stream: Stream, version: int) -> bool:
    """Whether the leader answered whose epoch is known; who has been replaced refuses. Who leads anew is asked at once:
    it may not be sure of the end yet."""
    leader = access.leader(stream.tp)
    if leader is None or leader.broker_id == NO_BROKER:
        return False
    wanted = {
        "partition_index": stream.tp.partition,
        "current_leader_epoch": leader.epoch,
        "timestamp": LATEST_TIMESTAMP,
    }
    topics = [{"name": life.name, "partitions": [wanted]}]
    began_s = common_time()
    try:
        answer = await access.ask(leader.broker_id, ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics)
    except Unanswered:
        return False
    [part] = answer.topics[0].partitions
    if part.error_code:
        return False
    if _is_current(world, life):
        end = EndOffset(f"kafka-watcher-{life.name}", stream, part.offset, began_s, common_time())
        world.history.end_offsets.append(end)
    return True
