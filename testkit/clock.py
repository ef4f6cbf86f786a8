"""The clock of a simulation: time passes only when nothing can run, and each node has its own view of it.

`now_s` is the common time, which the network, ZooKeeper and the driver live by. `trio.current_time()` within a task of
a node is the time of that node's monotonic clock, which began elsewhere and runs a little faster or slower; so are the
deadlines that its tasks set. Nothing in the code of a broker knows of it.

This reaches into trio (`Runner.deadlines`), whose version is pinned for it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from trio._core._run import GLOBAL_RUN_CONTEXT, CancelReason, Deadlines

from strandline.testkit.node_tasks import NODE, NodeTasks

if TYPE_CHECKING:
    from trio import CancelScope

BEYOND_S = 1e9
"""A simulation that has nothing to do until then never will."""

TURNS_IN_A_MOMENT = 10_000
"""Of trio's loop; a few dozen are many. Who takes more goes on for ever, and time does not. (Of code that awaits
nothing at all, or lets a little time pass each time, nothing is noticed here.)"""


class SimulationClock(trio.abc.Clock):
    """on_standstill: called, with the reason, when time will not go on, since every task waits and nothing that is
    under way will ever wake one, or some never wait; returns whether that is new, and something will end them. on_time:
    told of each step of the common time; no task of the run sees that anybody is."""

    def __init__(self, on_standstill: Callable[[str], bool] = lambda why: False) -> None:
        self.now_s = 0.0
        self._deadlines = _NodeDeadlines(self._never_waits)
        self.on_standstill = on_standstill
        self.on_time: Callable[[float], None] | None = None

    def start_clock(self) -> None:
        GLOBAL_RUN_CONTEXT.runner.deadlines = self._deadlines

    def current_time(self) -> float:
        node = NODE.get()
        return self.now_s if node is None else node.offset_s + node.rate * self.now_s

    def call_at(self, time_s: float, act: Callable[[], None]) -> Due:
        """Call `act`, which does not wait, outside of all tasks, once the common time is there; soon, where it is
        over."""
        return self._deadlines.call_at(time_s, act)

    async def sleep_until(self, deadline: float) -> None:
        """As trio's, by the clock of the present node, without a scope that is cancelled."""
        if deadline <= self.current_time():
            await trio.lowlevel.checkpoint()
            return
        task = trio.lowlevel.current_task()
        due = self.call_at(_common(deadline, NODE.get()), lambda: trio.lowlevel.reschedule(task))

        def abort(_: object) -> trio.lowlevel.Abort:
            due.forget()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        runner = GLOBAL_RUN_CONTEXT.runner
        if runner.waiting_for_idle:  # of `wait_all_tasks_blocked`: it is satisfied before time goes on
            return 1.0
        if runner.entry_queue.size():  # trio ends a run by way of it, and it wakes the loop through a socket
            return 0.0
        if deadline > BEYOND_S:
            assert self.on_standstill("every task waits for what will not happen"), "nothing will happen any more"
        elif deadline > self.now_s:
            self.now_s = deadline
            if self.on_time is not None:
                self.on_time(deadline)
        return 0.0

    def _never_waits(self) -> None:
        names = sorted({task.name for task in GLOBAL_RUN_CONTEXT.runner.runq})
        why = f"tasks compute and never wait: {', '.join(names)}"
        assert self.on_standstill(why), f"{why}, though they were cancelled"


def common_time() -> float:
    """What the run's clock shows outside of all nodes, whoever asks: the time of the network and of ZooKeeper."""
    clock = GLOBAL_RUN_CONTEXT.runner.clock
    return clock.now_s if isinstance(clock, SimulationClock) else clock.current_time()


class Due:
    """What is to be called, in the place of a scope whose deadline stays."""

    __slots__ = ("_act", "_registered_deadline")

    def __init__(self, time_s: float, act: Callable[[], None]) -> None:
        self._registered_deadline = time_s
        self._act = act

    def forget(self) -> None:
        """It is not called any more."""
        self._registered_deadline = math.inf

    def _cancel(self, _: CancelReason) -> None:
        self._act()


class _NodeDeadlines(Deadlines):
    """In common time. Equal ones are met in the order in which they were set, not by the addresses of objects.
    on_endless_moment: called whenever trio's loop has turned `TURNS_IN_A_MOMENT` times, and it is as late as before."""

    def __init__(self, on_endless_moment: Callable[[], None]) -> None:
        super().__init__()
        self._entries: list[tuple[float, int, float, CancelScope | Due]] = []
        self._made = 0
        self._on_endless_moment = on_endless_moment
        self._moment_s = 0.0
        self._turns = 0

    def add(self, deadline: float, cancel_scope: CancelScope) -> None:
        self._made += 1
        heapq.heappush(self._entries, (_common(deadline, _node_of(cancel_scope)), self._made, deadline, cancel_scope))

    def call_at(self, time_s: float, act: Callable[[], None]) -> Due:
        self._made += 1
        due = Due(time_s, act)
        heapq.heappush(self._entries, (time_s, self._made, time_s, due))
        return due

    def remove(self, deadline: float, cancel_scope: CancelScope) -> None:
        """It is passed over when it comes up: the scope has another deadline then, or none."""

    def next_deadline(self) -> float:
        entries = self._entries
        while entries and entries[0][2] != entries[0][3]._registered_deadline:
            heapq.heappop(entries)
        return entries[0][0] if entries else math.inf

    def expire(self, now: float) -> bool:
        """Once in each turn of the loop."""
        entries, did_something = self._entries, False
        if now != self._moment_s:
            self._moment_s, self._turns = now, 0
        self._turns += 1
        if self._turns % TURNS_IN_A_MOMENT == 0:
            self._on_endless_moment()
        while entries and entries[0][0] <= now:
            _, _, deadline, cancel_scope = heapq.heappop(entries)
            if deadline == cancel_scope._registered_deadline:
                did_something = True
                cancel_scope._cancel(CancelReason(source="deadline"))
        return did_something


def _node_of(cancel_scope: CancelScope) -> NodeTasks | None:
    status = cancel_scope._cancel_status
    if status is not None:
        for task in status._tasks:
            return task.context.get(NODE)
    return None


def _common(deadline: float, node: NodeTasks | None) -> float:
    """When it is reached, by the common clock: not a moment before the node's own clock shows it."""
    if node is None:
        return deadline
    common = (deadline - node.offset_s) / node.rate
    while node.offset_s + node.rate * common < deadline:
        common = math.nextafter(common, math.inf)
    return common
