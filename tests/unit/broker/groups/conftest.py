"""A coordinator on one broker's replicas."""

from __future__ import annotations

import pytest
import trio

from support.group_bench import GroupBench


@pytest.fixture
async def bench(nursery: trio.Nursery) -> GroupBench:
    bench = GroupBench()
    for task in bench.tasks:
        nursery.start_soon(task)
    await bench.lead()
    return bench
