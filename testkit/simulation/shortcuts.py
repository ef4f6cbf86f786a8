"""What trio does at each turn of its loop that a simulated run does not need, or can have for less.

A run enters and leaves hundreds of cancel scopes in a virtual second, and turns its loop as often. Nothing here changes
what happens: the digest of a seed is the same without it, and a run takes a quarter longer. It reaches into trio
(`CancelScope`, `sleep_until`, `Runner.instruments`, `Runner.io_manager`), whose version is pinned for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio
import trio._timeouts
from trio._core._run import GLOBAL_RUN_CONTEXT, Runner

from strandline.testkit.clock import SimulationClock


@contextmanager
def cheaper_deadlines() -> Iterator[None]:
    """A cancel scope notes its deadline by way of a class, where trio makes a generator each time."""
    theirs = trio.CancelScope._might_change_registered_deadline
    scope_class: Any = trio.CancelScope
    scope_class._might_change_registered_deadline = lambda scope: _DeadlineChange(scope)
    try:
        yield
    finally:
        scope_class._might_change_registered_deadline = theirs


@contextmanager
def cheaper_sleeps(clock: SimulationClock) -> Iterator[None]:
    """The clock wakes who sleeps, and is asked itself what time it is."""
    ours: dict[str, Any] = {"sleep_until": clock.sleep_until, "current_time": clock.current_time}
    places = [(vars(trio), "sleep_until"), (vars(trio._timeouts), "sleep_until"), (vars(trio), "current_time")]
    theirs = [names[name] for names, name in places]
    for names, name in places:
        names[name] = ours[name]
    try:
        yield
    finally:
        for (names, name), before in zip(places, theirs, strict=True):
            names[name] = before


def cheaper_turns(runner: Runner) -> None:
    """The loop of this run asks no instruments, and the kernel only where it has been called for."""
    loop: Any = runner
    assert set(loop.instruments) <= {"_all"}, "a simulated run has no instruments"
    loop.instruments = {}
    loop.io_manager = _IdleIo(runner)


class _DeadlineChange:
    """Around whatever may change when a scope ends: the loop is told of its deadline once it is another one."""

    __slots__ = ("_scope",)

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        """Nothing to do: what was before is what the loop was told last."""

    def __exit__(self, *_: object) -> None:
        scope: Any = self._scope
        told = scope._registered_deadline
        is_over = scope._cancel_status is None or scope._cancel_called
        deadline = math.inf if is_over else scope._deadline
        if told != deadline:
            scope._registered_deadline = deadline
            deadlines = GLOBAL_RUN_CONTEXT.runner.deadlines
            if told != math.inf:
                deadlines.remove(told, scope)
            if deadline != math.inf:
                deadlines.add(deadline, scope)


class _IdleIo:
    """Of a run that waits for no socket but the one by which its loop is called from outside (Ctrl-C, its end)."""

    def __init__(self, runner: Runner) -> None:
        self._inner = runner.io_manager
        self._calls = runner.entry_queue

    def get_events(self, timeout: float) -> Any:
        if timeout or self._calls.size():
            return self._inner.get_events(timeout)
        return ()

    def process_events(self, events: Any) -> None:
        if events:
            self._inner.process_events(events)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)
