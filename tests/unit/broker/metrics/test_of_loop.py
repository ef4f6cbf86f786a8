"""A loop that computes is busy, and whoever waits meanwhile is late."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.metrics.of_loop import LoopWatch, OfLoop


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


async def test_a_step_that_took_long_is_seen_by_its_lateness(clock: MockClock, nursery: trio.Nursery) -> None:
    watch = LoopWatch(lambda: 0.0)
    nursery.start_soon(watch.run)
    await trio.testing.wait_all_tasks_blocked()
    assert watch.longest_step_s() == 0
    clock.jump(0.1 + 0.7)  # the beat is due after 0.1 s, and the loop comes to it 0.7 s later
    await trio.testing.wait_all_tasks_blocked()
    assert watch.longest_step_s() == pytest.approx(0.7, abs=0.01)


async def test_the_share_of_time_without_work_is_told(clock: MockClock, nursery: trio.Nursery) -> None:
    used_s = 0.0
    watch = LoopWatch(lambda: used_s)
    assert watch.idle_share() == 1.0
    nursery.start_soon(watch.run)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(4):
        clock.jump(1.0)
        used_s += 0.25
        await trio.testing.wait_all_tasks_blocked()
    assert watch.idle_share() == pytest.approx(0.75)
    used_s += 100
    assert watch.idle_share() == 0.0, "never below"
    source = OfLoop(watch, lambda: {("PLAINTEXT", 0): 3})
    found = {sample.name: sample.value for family in source() for sample in family.samples}
    assert found["kafka_server_socket_server_metrics_connection_count"] == 3
    assert found["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"] == 0.0
