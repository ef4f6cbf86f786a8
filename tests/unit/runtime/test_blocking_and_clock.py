"""Blocking work and the wall clock in production."""

from __future__ import annotations

import threading
import time

import pytest
import trio

from strandline.runtime.clock import SystemWallClock
from strandline.runtime.processes.blocking import ThreadBlocking
from strandline.runtime.randomness import system_random


async def test_blocking_work_runs_in_another_thread_and_returns_or_raises_like_a_call() -> None:
    blocking = ThreadBlocking()
    assert await blocking.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await blocking.run(divmod, 1, 0)


async def test_no_more_threads_run_than_allowed() -> None:
    blocking = ThreadBlocking(max_threads=2)
    gate, running, most = threading.Event(), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if running[0] == 2:
                gate.set()
        gate.wait(60)
        with lock:
            running[0] -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(blocking.run, work)
    assert most[0] == 2


async def test_a_lane_whose_disk_does_not_answer_takes_no_thread_from_the_others() -> None:
    blocking, gate = ThreadBlocking(max_threads=1), threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(blocking.run_in, "/stuck", gate.wait, 60)
        await trio.testing.wait_all_tasks_blocked()
        assert await blocking.run_in("/other", divmod, 7, 2) == (3, 1)
        assert await blocking.run(divmod, 7, 2) == (3, 1)
        with trio.move_on_after(0.01) as waiting:
            await blocking.run_in("/stuck", gate.wait, 60, abandon=True)
        assert waiting.cancelled_caught
        gate.set()


async def test_another_number_of_threads_counts_for_calls_and_for_lanes() -> None:
    blocking, gate, running, most = ThreadBlocking(max_threads=8), threading.Event(), [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait(60)
        with lock:
            running[0] -= 1

    await blocking.run_in("/data", divmod, 7, 2)
    blocking.set_threads(1)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(blocking.run, work)
            nursery.start_soon(blocking.run_in, "/data", work)
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert most[0] <= 2, "one of its own, and one of that lane"


async def test_work_that_has_begun_is_waited_for_when_its_task_is_cancelled() -> None:
    blocking = ThreadBlocking()
    begun, finish, finished = trio.Event(), threading.Event(), []
    token = trio.lowlevel.current_trio_token()

    def work() -> None:
        token.run_sync_soon(begun.set)
        finish.wait(60)
        finished.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(blocking.run, work)
        await begun.wait()
        nursery.cancel_scope.cancel()
        finish.set()
    assert finished == [True]


def test_the_wall_clock_is_in_milliseconds_since_1970() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemWallClock().now_ms() <= time.time_ns() // 1_000_000


def test_two_streams_of_one_purpose_differ() -> None:
    assert system_random("backoff").random() != system_random("backoff").random()
