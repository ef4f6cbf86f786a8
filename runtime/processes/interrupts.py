"""Ctrl-C where nobody would hear of it, at the wrong time, or twice."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

_PAUSE_S = 0.01
"""Until the callback is left, in which it would be lost again."""
_AGAIN_S = 0.1


def repeat_lost_interrupt(lost: UnraisableHookArgs) -> None:
    """A `sys.unraisablehook`. The interpreter throws away what is raised in a finalizer or in a callback of its own, of
    which the import system has one for each module. A Ctrl-C that arrives just there is sent once more, by a thread."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt, ())  # `threading` takes locks, which may be held by what was interrupted
    else:
        sys.__unraisablehook__(lost)


def _interrupt() -> None:
    time.sleep(_PAUSE_S)
    os.kill(os.getpid(), signal.SIGINT)


def end_as_interrupted() -> None:
    """From here on SIGTERM and SIGHUP (`timeout`, a supervisor, a terminal that is closed) are as Ctrl-C, which sends
    and commits what was read before it ends. Where somebody else answers them or has them ignored (`nohup`) they stay
    as they are."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _answer_as_interrupt)


def _answer_as_interrupt(_: int, frame: FrameType | None) -> None:
    """As Ctrl-C is answered just now: an event loop has it wait while its own code runs, a broker shuts down."""
    answer = signal.getsignal(signal.SIGINT)
    if not callable(answer):  # ignored, as in what a shell has in the background
        raise KeyboardInterrupt
    answer(signal.SIGINT, frame)


@contextmanager
def interrupted_after(limit_s: float) -> Iterator[None]:
    """KeyboardInterrupt in what is within, should it last longer: also a write is ended by it, that blocks because
    nobody reads. What was not written is still in the buffer. In the main thread, and not within itself.

    The alarm comes again, since one that comes just before a write begins does not end that. It raises once: a process
    that gets little time may have several of them before what the first one raised has come out of here."""
    has_raised = False

    def answer(*_: object) -> None:
        nonlocal has_raised
        if not has_raised:
            has_raised = True
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, answer)

    def disarm() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # before its answer goes: unanswered, it would kill the process
        signal.signal(signal.SIGALRM, before)

    try:
        signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
        yield
    finally:
        try:
            disarm()
        except KeyboardInterrupt:  # it came just now
            disarm()
            raise


_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[list[int]]:
    """What tells this process to end waits until what is within is done, and is answered then, once. Yields what has
    come so far: who has done all that it would end empties that. Interrupts come to the main thread alone, so nothing
    is held back in another one."""
    came: list[int] = []
    with ExitStack() as ending:  # each answer is as before, whatever comes while the others are
        if threading.current_thread() is threading.main_thread():
            ending.callback(_answer_first, came)
            for number in _ENDINGS:
                if callable(answer := signal.getsignal(number)):
                    ending.callback(signal.signal, number, answer)
                    signal.signal(number, lambda number, _: came.append(number))
        yield came


def _answer_first(came: list[int]) -> None:
    if came:
        signal.raise_signal(came[0])


def obey_no_more() -> None:
    """From here on a further interrupt is as good as the one that is being obeyed. Those that somebody has ignored stay
    so. KeyboardInterrupt: one came just before that."""
    for number in _ENDINGS:
        if callable(signal.getsignal(number)):
            signal.signal(number, _obeyed)


def _obeyed(*_: object) -> None:
    """What was interrupted ends already."""


def die_of_the_next() -> None:
    """Where nobody is left who could say so, one ends the process at once and without a word. After `obey_no_more`."""
    for number in _ENDINGS:
        if signal.getsignal(number) is _obeyed:
            signal.signal(number, signal.SIG_DFL)


def in_another_thread(call: Callable[[], object]) -> None:
    """To its end, and what it raises: a Ctrl-C comes to the main thread, and out of here only then."""
    from concurrent.futures import ThreadPoolExecutor  # only few commands need it

    with ThreadPoolExecutor(1) as thread:
        thread.submit(call).result()
