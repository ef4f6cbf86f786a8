"""A node that stands still: none of its tasks runs, time goes on for all."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.node_tasks import NodeTasks


async def count(node: NodeTasks, seen: list[float], *, pause_s: float = 1.0) -> None:
    node.enter()
    while True:
        await trio.sleep(pause_s)
        seen.append(trio.current_time())


async def test_no_task_of_a_frozen_node_runs_and_those_of_others_do(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    frozen, other = NodeTasks("a"), NodeTasks("b")
    of_frozen, of_other = list[float](), list[float]()
    nursery.start_soon(count, frozen, of_frozen)
    nursery.start_soon(count, other, of_other)
    await trio.sleep(2.5)
    frozen.freeze()
    await trio.sleep(3)
    assert (of_frozen, of_other) == ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    frozen.thaw()
    await trio.sleep(1.2)
    assert of_frozen == [1.0, 2.0, 5.5, 6.5]


async def test_a_task_belongs_to_the_node_of_the_one_that_started_it(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    node, seen = NodeTasks("a"), list[float]()

    async def parent() -> None:
        node.enter()
        async with trio.open_nursery() as children:
            children.start_soon(child)
            await trio.sleep(10)

    async def child() -> None:
        await trio.sleep(2)
        seen.append(trio.current_time())

    nursery.start_soon(parent)
    await trio.sleep(1)
    node.freeze()
    await trio.sleep(4)
    assert seen == []
    node.thaw()
    await wait_all_tasks_blocked()
    assert seen == [5.0]


async def test_what_can_run_at_that_moment_is_kept_back_too(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    node, woken, seen = NodeTasks("a"), trio.Event(), list[str]()

    async def wait() -> None:
        node.enter()
        await woken.wait()
        seen.append("woken")

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    woken.set()
    node.freeze()
    await trio.sleep(1)
    assert seen == []
    node.thaw()
    await wait_all_tasks_blocked()
    assert seen == ["woken"]


async def test_a_deadline_that_passed_meanwhile_is_met_when_it_goes_on(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    node, seen = NodeTasks("a"), list[tuple[bool, float]]()

    async def bounded() -> None:
        node.enter()
        with trio.move_on_after(2) as scope:
            await trio.sleep_forever()
        seen.append((scope.cancelled_caught, trio.current_time()))

    nursery.start_soon(bounded)
    await trio.sleep(1)
    node.freeze()
    await trio.sleep(6)
    node.thaw()
    await wait_all_tasks_blocked()
    assert seen == [(True, 7.0)]


async def test_a_block_that_ends_by_an_exception_ends_although_a_broker_stands_still(autojump_clock: MockClock) -> None:
    with pytest.RaisesGroup(ZeroDivisionError):
        async with MemoryCluster(2).running(tells=False) as cluster:
            cluster.pause(2)
            raise ZeroDivisionError
