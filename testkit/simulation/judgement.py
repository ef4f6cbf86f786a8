"""The end of a run: everything is at rest (`rest`), and every promise is held against every disk.

L1  replicas are equal, byte for byte, from where all of them begin
L3  every write had an outcome within the time that its producer gives it

L5 is with `workloads.groups`, L7 with `leftovers`: what is looked at there is gone when all is at rest.
"""

from __future__ import annotations

from strandline.protocol.types import NO_BROKER
from strandline.testkit.inspection import records_on
from strandline.testkit.simulation.anomalies import FinalLog, anomalies
from strandline.testkit.simulation.history import History, Stream
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.replicas import differences
from strandline.testkit.simulation.world import World

OUTCOME_WITHIN_S = 13.0
"""Producers wait for room and metadata for 3 s, then for 8 s until a record is delivered; the rest is for an answer."""


def judge(world: World, losses: Losses) -> list[str]:
    """Everything that does not hold, once the cluster is at rest."""
    found = [f"task-failed: {line}" for line in world.cluster.history if '"exception":' in line]
    logs: dict[Stream, FinalLog] = {}
    for stream in (each for life in world.topics.values() for each in life.streams):
        leader = world.leader(stream.tp)
        if leader == NO_BROKER:
            continue
        found += differences(world, stream)
        log, disk = world.cluster.logs(stream.tp)[leader], world.cluster.nodes[leader].disk
        begin = log.log_start_offset
        kept = {offset: value or b"" for offset, value in records_on(disk, stream.tp).items() if offset >= begin}
        logs[stream] = FinalLog(begin, kept, is_compacted=world.topics[stream.tp.topic].plan.is_compacted)
    found += late_outcomes(world.history)
    world.excuses.weak = losses.weak()
    world.excuses.asked_starts = {stream: head.asked for stream, head in world.heads.items()}
    return found + [str(each) for each in anomalies(world.history, logs, world.excuses)]


def late_outcomes(history: History) -> list[str]:
    """Writes that had no outcome in time."""
    return [
        f"no-outcome: {write.stream}: {write.value!r}, within {OUTCOME_WITHIN_S:g} s"
        for write in history.writes
        if write.ended_s - write.began_s > OUTCOME_WITHIN_S
    ]
