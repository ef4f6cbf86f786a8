"""Shards come and go: in steps, and without a word in their log."""

from __future__ import annotations

from itertools import pairwise

import trio
from trio.testing import MockClock

from strandline.broker.groups.states import GroupState
from strandline.broker.steps import PARTITIONS_PER_STEP
from support.group_bench import SHARD, GroupBench


async def test_groups_are_left_and_loaded_in_steps(bench: GroupBench, autojump_clock: MockClock) -> None:
    count = PARTITIONS_PER_STEP * 3
    for number in range(count):
        bench.commit({"t": {0: 1}}, f"g{number}")
    joined = bench.join(f"g{count - 1}")
    bench.burst.end()
    groups = [bench.group(f"g{number}") for number in range(count)]
    dead: list[int] = [0]

    def look() -> None:
        dead.append(sum(each.group.state is GroupState.DEAD for each in groups))

    bench.between = look
    bench.site.replicas.resign(bench.site.partition(SHARD))
    assert bench.coordinator.count == 0
    await trio.sleep(1)
    bench.between = lambda: None
    assert dead[-1] == count and max(after - before for before, after in pairwise(dead)) <= PARTITIONS_PER_STEP
    assert joined.group.state is GroupState.DEAD
    await bench.lead(epoch=1)
    assert bench.coordinator.count == count, "no tombstones"
