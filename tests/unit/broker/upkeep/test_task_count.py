"""As many tasks as are wanted, which changes while they run."""

from __future__ import annotations

from collections import Counter

import trio
from trio.testing import MockClock

from strandline.broker.network.limits import ConnectionQuota
from strandline.broker.upkeep.task_count import CHECK_S, keep_running


async def test_tasks_come_and_go_with_the_number_that_is_wanted(autojump_clock: MockClock) -> None:
    wanted, running = 1, Counter[int]()

    async def task(number: int) -> None:
        running[number] += 1
        while number < wanted:
            await trio.sleep(0.1)
        running[number] -= 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_running, lambda: wanted, task)
        for wanted in (1, 3, 0, 2):
            await trio.sleep(2 * CHECK_S)
            assert running == Counter(range(wanted)), wanted
        nursery.cancel_scope.cancel()


def test_other_limits_count_for_the_connections_to_come() -> None:
    quota = ConnectionQuota(3, 2, reserved=1)
    assert [quota.take("a", False), quota.take("a", False)] == [None, None]
    assert "2 connections are open" in (quota.take("b", False) or "")
    quota.set_limits(5, 2, 1)
    assert quota.take("b", False) is None
    assert "2 connections from a" in (quota.take("a", False) or "")
    quota.set_limits(1, 1, 1)
    assert quota.total == 3
    assert quota.take("c", False) is not None
