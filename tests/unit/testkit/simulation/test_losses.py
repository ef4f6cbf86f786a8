"""What may be lost: a record that one broker alone acknowledged, where that broker was replaced or struck."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.history import Outcome, Stream, Write
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.world import World

STREAM = Stream(TopicPartition("t", 0), 1)


@pytest.mark.parametrize(
    ("told_by", "at_s", "acks", "may_be_lost"),
    [
        (NO_BROKER, 20, 1, False),
        (3, 20, 1, False),
        (3, 51, 1, True),  # it has been replaced, and does not know
        (1, 51, 1, False),
        (3, 49.5, 1, True),  # no follower in sync has to have it yet
        (3, 51, -1, False),
        (NO_BROKER, 51, 1, True),
        (NO_BROKER, 60, 1, False),
        (NO_BROKER, 50.02, 1, True),  # it was under way when the leader was replaced
        (1, 50.02, 1, False),
    ],
)
async def test_what_one_broker_alone_acknowledged_may_go_with_its_leadership(
    told_by: int, at_s: float, acks: int, may_be_lost: bool, autojump_clock: MockClock
) -> None:
    cluster = MemoryCluster()
    world = World(draw_options(1, {}, ()), cluster, cluster.admin())
    losses = Losses(world, GodView(world))
    losses.note_leader(STREAM, 3, 0.0)
    losses.note_leader(STREAM, 1, 50.0)
    losses.note_leader(STREAM, 1, 51.0, believers=[1, 3])
    write = Write("p", STREAM, b"v", acks, at_s - 0.1, at_s, Outcome.OK, 7, told_by=told_by)
    world.history.writes.append(write)
    assert losses.weak() == ({b"v"} if may_be_lost else set())


@pytest.mark.parametrize(("lag_times", "may_be_lost"), [(1.4, True), (1.6, False)])
async def test_who_is_elected_may_lag_behind_until_the_leader_looks_again(
    lag_times: float, may_be_lost: bool, autojump_clock: MockClock
) -> None:
    cluster = MemoryCluster()
    world = World(draw_options(1, {}, ()), cluster, cluster.admin())
    losses = Losses(world, GodView(world))
    losses.note_leader(STREAM, 3, 0.0)
    losses.note_leader(STREAM, 1, 50.0)
    at_s = 50.0 - lag_times * int(world.options.config["replica.lag.time.max.ms"]) / 1000
    world.history.writes.append(Write("p", STREAM, b"v", 1, at_s - 0.1, at_s, Outcome.OK, 7, told_by=3))
    assert losses.weak() == ({b"v"} if may_be_lost else set())
