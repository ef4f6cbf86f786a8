"""The end of a run: everything heals, comes to rest within its bound, and every promise is held against every disk.

L1  every partition is led, its ISR is whole, its replicas are equal from where all of them begin
L2  one controller; what brokers know is what ZooKeeper has
L3  every write had an outcome within the time that its producer gives it

L5 is with `workloads.groups`, L7 with `leftovers`: what is looked at there is gone when all is at rest.
"""

from __future__ import annotations

import trio

from strandline.protocol.types import NO_BROKER
from strandline.testkit.clock import common_time
from strandline.testkit.inspection import log_bytes, records_on
from strandline.testkit.simulation.anomalies import FinalLog, anomalies
from strandline.testkit.simulation.history import History, Stream
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.world import World

COME_TO_REST_S = 90.0
LOOK_INTERVAL_S = 0.25
OUTCOME_WITHIN_S = 13.0
"""Producers wait for room and metadata for 3 s, then for 8 s until a record is delivered; the rest is for an answer."""


async def come_to_rest(world: World) -> list[str]:
    """Heal everything and wait. Returns what did not come to rest in time."""
    world.cluster.network.heal()
    deadline_s = common_time() + COME_TO_REST_S
    while restless := [str(stream) for stream in _streams(world) if not _is_at_rest(world, stream)]:
        if common_time() > deadline_s:
            return [f"{each} is not whole {COME_TO_REST_S:g} s after all was healed" for each in restless]
        await trio.sleep(LOOK_INTERVAL_S)
    return []


def _streams(world: World) -> list[Stream]:
    return [stream for life in world.topics.values() for stream in life.streams]


def _is_at_rest(world: World, stream: Stream) -> bool:
    cluster, tp = world.cluster, stream.tp
    if world.leader(tp) == NO_BROKER:
        return world.waits_for_an_operator(tp)
    state, replicas = cluster.state(tp), world.topics[tp.topic].plan.replication
    if len(state.isr) != replicas:
        return False
    logs = cluster.logs(tp)
    return len(logs) == replicas and len({log.log_end_offset for log in logs.values()}) == 1


def judge(world: World, losses: Losses) -> list[str]:
    """Everything that does not hold, once the cluster is at rest."""
    found = [f"a task of a broker failed: {line}" for line in world.cluster.history if '"exception":' in line]
    logs: dict[Stream, FinalLog] = {}
    for stream in _streams(world):
        leader = world.leader(stream.tp)
        if leader == NO_BROKER:
            continue
        replicas = world.cluster.logs(stream.tp)
        start = max(log.log_start_offset for log in replicas.values())
        if len({log_bytes(log, log.log_end_offset, start) for log in replicas.values()}) > 1:
            found.append(f"{stream}: replicas differ")
        records = records_on(world.cluster.nodes[leader].disk, stream.tp)
        begin = replicas[leader].log_start_offset
        kept = {offset: value or b"" for offset, value in records.items() if offset >= begin}
        logs[stream] = FinalLog(begin, kept)
    found += late_outcomes(world.history)
    world.excuses.weak = losses.weak()
    return found + [str(each) for each in anomalies(world.history, logs, world.excuses)]


def late_outcomes(history: History) -> list[str]:
    """Writes that had no outcome in time."""
    return [
        f"{write.stream}: {write.value!r} had no outcome within {OUTCOME_WITHIN_S:g} s"
        for write in history.writes
        if write.ended_s - write.began_s > OUTCOME_WITHIN_S
    ]
