"""Two groups whose members come and go, read, commit and go back: one gives everything up at each rebalance, the other
one only what it has to.

```
a seat ──> a member ──leaves, vanishes──> another member ──> …     until the run is over and its group has caught up
```
L5: once no fault follows, each group becomes stable and has committed all that there is.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from strandline.broker.groups.shards import OFFSETS_TOPIC, partition_of
from strandline.broker.groups.states import GroupState
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import NEVER_S
from strandline.testkit.simulation.workloads.group_member import Group, Member
from strandline.testkit.simulation.world import World

CAUGHT_UP_WITHIN_S = 60.0
LOOK_INTERVAL_S = 0.5
PAUSE_S = 1.0
"""Between two polls of a member."""
MAX_POLL_INTERVAL_MS = 8_000
TOO_LONG_S = 9.0
"""Who does not poll for so long is out."""
SETTINGS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 2_000,
    "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
    "request_timeout_ms": 2_000,
    "retry_backoff_ms": 500,
    "default_api_timeout_ms": 4_000,
    "metadata_max_age_ms": 10_000,
    "fetch_min_bytes": 10_000,
    "fetch_max_wait_ms": 1_000,
}


async def read_in_groups(world: World) -> None:
    chance = world.chance("groups")
    eager = chance.choice(("range", "roundrobin", "sticky"))
    both = (
        Group("eager", ("all", "weak"), chance.choice((2, 3)), eager),
        Group("cooperative", ("all", "anew"), chance.choice((2, 3)), "cooperative-sticky"),
    )
    groups = chance.choice((both, both[:1], both[1:]))
    async with trio.open_nursery() as nursery:
        for group in groups:
            nursery.start_soon(see_to_the_end, world, group)
            for seat in range(1, group.members + 1):
                nursery.start_soon(_take_seat, world, group, f"{group.name}-{seat}")


# --- members ----------------------------------------------------------------------------------------------------------


async def _take_seat(world: World, group: Group, seat: str) -> None:
    """One member after the other, all on one machine."""
    chance = world.chance(seat)
    lives = 0
    while not group.is_done.is_set():
        lives += 1
        name = f"{seat}.{lives}"
        strategy = (group.strategy,)
        async with world.cluster.consumer(
            node=seat, client_id=name, group_id=group.name, partition_assignment_strategy=strategy, **SETTINGS
        ) as consumer:
            member = Member(world, group, name, consumer)
            member.subscribe()
            if await _vanishes(world, group, member, chance):
                world.cluster.network.stop(seat)
                consumer.close()
        member.ended()
        world.cluster.network.start(seat)
        with trio.move_on_after(chance.uniform(0, 4)):
            await group.is_done.wait()


async def _read_on(member: Member) -> None:
    """With the next poll."""


async def _do_not_poll(member: Member) -> None:
    await trio.sleep(TOO_LONG_S)


DOINGS: dict[str, tuple[int, Callable[[Member], Awaitable[object]]]] = {
    "read on": (50, _read_on),
    "commit": (30, Member.commit),
    "commit without waiting": (10, Member.commit_nowait),
    "seek to what is committed": (5, Member.seek_to_committed),
    "ask what is committed": (5, Member.committed),
    "leave and join": (2, Member.rejoin),
    "do not poll": (1, _do_not_poll),
    "be cut off": (2, Member.be_cut_off),
}
"""What a member does after a poll, and how often among the others."""
ENDS = {"leave": 2, "vanish": 2}
"""The same of what ends it."""


async def _vanishes(world: World, group: Group, member: Member, chance: random.Random) -> bool:
    """Whether it ends without a good-bye. Once no fault follows it commits what it reads, until the group is done."""
    weights = {**{name: weight for name, (weight, _) in DOINGS.items()}, **ENDS}
    while not group.is_done.is_set():
        await member.poll()
        (doing,) = ("commit",) if world.is_over else chance.choices(list(weights), list(weights.values()))
        world.sometimes[f"member: {doing}"] += 1
        if doing in ENDS:
            return doing == "vanish"
        await DOINGS[doing][1](member)
        await trio.sleep(PAUSE_S)
    return False


# --- L5 ---------------------------------------------------------------------------------------------------------------


async def see_to_the_end(world: World, group: Group) -> None:
    """Tell the group once it has caught up; a violation where it does not in time."""
    ended_s, hindrance = NEVER_S, ""
    while common_time() < ended_s:
        await trio.sleep(LOOK_INTERVAL_S)
        if world.is_over:
            ended_s = min(ended_s, common_time() + CAUGHT_UP_WITHIN_S)
            hindrance = _hindrance(world, group)
            if not hindrance:
                break
    if hindrance:
        world.violated(f"not-caught-up: group {group.name}: {hindrance}, {CAUGHT_UP_WITHIN_S:g} s after the last fault")
    group.is_done.set()


def _hindrance(world: World, group: Group) -> str:
    """Why it is not stable, or has not committed all that there is; empty: all is well. Nothing is asked of it where
    an operator has to decide first what is lost."""
    shard = TopicPartition(OFFSETS_TOPIC, partition_of(group.name, world.excuses.offsets_partitions))
    if world.waits_for_an_operator(shard):
        return ""
    coordinator = world.leader(shard)
    if not _serves(world, shard):
        return f"nobody leads {shard}"
    coordinated = world.cluster.broker(coordinator).groups.shards.get(shard.partition)
    known = (coordinated.groups or {}).get(group.name) if coordinated is not None else None
    if known is None or known.group.state is not GroupState.STABLE:
        return f"it is not stable, by broker {coordinator}"
    for topic in group.topics:
        for stream in world.topics[topic].streams:
            if world.waits_for_an_operator(stream.tp):
                continue
            if not _serves(world, stream.tp):
                return f"nobody leads {stream}"
            log = world.cluster.partition(world.leader(stream.tp), stream.tp).log
            committed = group.acknowledged.get(stream.tp, 0)
            if committed != log.log_end_offset:
                return f"it has committed {committed} of {log.log_end_offset} in {stream}"
    return ""


def _serves(world: World, tp: TopicPartition) -> bool:
    """Its leader lives, and knows that it is."""
    leader = world.leader(tp)
    return leader != NO_BROKER and world.cluster.hosts(leader, tp)
