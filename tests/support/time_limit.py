"""A test that does not end fails, with its name and with where everybody is, and the run goes on.

`faulthandler_timeout` alone cannot do that: it reads the stack of a thread while that runs, of which the process may
die, though the test was only slow. So it is the last resort and ends the process; a minute before, the test is told.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from _pytest.outcomes import OutcomeException

BEFORE_THE_PROCESS_ENDS_S = 60
UNTIL_TOLD_AGAIN_S = 1.0


class TakesTooLong(OutcomeException):
    """No Exception, as hypothesis would look for a smaller example of it, and code under test might catch it. An
    outcome to pytest: a fixture that takes too long is not begun anew for the next test, whose set-up would fail with
    an error of pytest's own."""


@contextmanager
def limited(item: pytest.Item) -> Iterator[None]:
    """Of `faulthandler_timeout`, for set-up, call and tear-down of a test together; none where that is 0.

    Within trio's own code nothing may be raised: trio is asked to, when it comes round. A task that it starts before
    may never let it come round, so that the test is told again until it has failed.
    """

    def tell(*_: Any) -> None:
        nonlocal is_told
        if not is_told:
            sys.stderr.writelines(stacks())
        if trio.lowlevel.in_trio_run() and trio.lowlevel.currently_ki_protected():
            if not is_told:
                trio.lowlevel.current_trio_token().run_sync_soon(fail)
            is_told = True
        else:
            fail()

    def fail() -> None:
        nonlocal has_failed
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not has_failed:
            has_failed = True
            raise TakesTooLong(f"{item.nodeid} has not ended after {limit_s:g} s")

    is_told = has_failed = False
    limit_s = max(0.0, float(item.config.getini("faulthandler_timeout")) - BEFORE_THE_PROCESS_ENDS_S)
    handler = signal.signal(signal.SIGALRM, tell)
    outer = signal.setitimer(signal.ITIMER_REAL, limit_s, UNTIL_TOLD_AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, handler)


def stacks() -> Iterator[str]:
    """Where the other threads are, and the tasks of this one. Where this one is says the traceback."""
    for thread, frame in sys._current_frames().items():
        if thread != threading.get_ident():
            yield f"thread {thread:#x}:\n" + "".join(traceback.format_stack(frame))
    tasks = [trio.lowlevel.current_root_task()] if trio.lowlevel.in_trio_run() else []
    for task in tasks:
        yield f"task {task.name}:\n" + "".join(traceback.StackSummary.extract(task.iter_await_frames()).format())
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
