"""Which node a task belongs to. A node can stand still as SIGSTOP has it: none of its tasks runs, and time goes on.

A task inherits the node of the one that started it, in its context. The run queue of trio keeps back what becomes
runnable on a node that stands still; deadlines that pass meanwhile, data that arrives, are all met when it goes on, in
the order in which a process finds them then. This reaches into trio (`Runner.runq`), whose version is pinned for it.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING

from trio._core._run import GLOBAL_RUN_CONTEXT

if TYPE_CHECKING:
    from trio.lowlevel import Task

NODE: ContextVar[NodeTasks | None] = ContextVar("strandline simulated node", default=None)
"""Of the present task; None for what belongs to no node: the driver, the network, ZooKeeper."""


class NodeTasks:
    """The tasks of one node. offset_s, rate: its monotonic clock shows offset_s + rate × the common time, wherever the
    clock of the run knows nodes (`clock`)."""

    def __init__(self, name: str, *, offset_s: float = 0.0, rate: float = 1.0) -> None:
        self.name = name
        self.offset_s = offset_s
        self.rate = rate
        self.is_frozen = False
        self._held: deque[Task] = deque()

    def enter(self) -> None:
        """The present task, and all that it starts from now on, belong to this node."""
        NODE.set(self)

    def freeze(self) -> None:
        """SIGSTOP. What runs in this very turn of the loop ends its step first."""
        queue = _run_queue()
        queue.frozen += not self.is_frozen
        self.is_frozen = True
        runnable = list(queue)
        queue.clear()
        for task in runnable:
            queue.append(task)

    def thaw(self) -> None:
        """SIGCONT."""
        queue = _run_queue()
        queue.frozen -= self.is_frozen
        self.is_frozen = False
        while self._held:
            queue.append(self._held.popleft())

    def hold(self, task: Task) -> None:
        self._held.append(task)


class _RunQueue(deque["Task"]):
    """frozen: how many nodes stand still."""

    frozen = 0

    def append(self, task: Task) -> None:
        node = task.context.get(NODE) if self.frozen else None
        if node is not None and node.is_frozen:
            node.hold(task)
        else:
            super().append(task)


def _run_queue() -> _RunQueue:
    """Of the present run of trio, which gets it with the first call."""
    runner = GLOBAL_RUN_CONTEXT.runner
    if not isinstance(runner.runq, _RunQueue):
        runner.runq = _RunQueue(runner.runq)
    return runner.runq
