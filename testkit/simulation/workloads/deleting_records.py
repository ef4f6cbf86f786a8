"""An operator who has the oldest records of a partition deleted now and then."""

from __future__ import annotations

import trio

from strandline.client.errors import ClientError
from strandline.testkit.simulation.history import Stream
from strandline.testkit.simulation.world import Head, TopicLife, World

PAUSE_S = (0.5, 6.0)


async def delete_records(world: World) -> None:
    """Of one partition after the other, as they come; what is asked for and answered is noted (`World.heads`)."""
    chance = world.chance("deletions of records")
    while not world.is_over:
        await trio.sleep(chance.uniform(*PAUSE_S))
        life = chance.choice([each for each in world.topics.values() if not each.plan.is_compacted])
        stream = life.stream(chance.randrange(life.partitions))
        offsets = [write.offset for write in world.history.writes if write.stream == stream and write.offset >= 0]
        if offsets and life.is_open:
            await _delete(world, life, stream, chance.choice(offsets[-len(offsets) // 2 :]))


async def _delete(world: World, life: TopicLife, stream: Stream, offset: int) -> None:
    """It is not created anew meanwhile."""
    head = world.heads.setdefault(stream, Head())
    head.asked = max(head.asked, offset)
    life.in_flight += 1
    try:
        answered = (await world.admin.delete_records({stream.tp: offset}, timeout_ms=3_000))[stream.tp]
    except ClientError:
        return
    finally:
        life.in_flight -= 1
    if isinstance(answered, int):
        head.answered = max(head.answered, answered)
        world.sometimes["records deleted by an operator"] += 1
