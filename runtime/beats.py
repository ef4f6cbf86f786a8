"""Periodic work that shares one timer: what an idle broker costs is mostly its timers.

A `trio.sleep` makes a cancel scope, a deadline and an exception each time; who waits here is woken by an event. One
task sleeps, from beat to beat, and only while somebody waits. Tasks share it that were started by one that had called
`share_beats`: those of a broker, of which a simulation has several in one loop, each with a clock of its own.
"""

from __future__ import annotations

import math
from contextvars import ContextVar, copy_context

import trio

BEAT_S = 0.1
"""What is waited for is a multiple of it."""
ROUNDING = 1e-3
"""As a part of a beat. Who wakes at a beat and waits again gets the next one, even where the clock shows a moment just
before that beat."""


def share_beats(beat_s: float | None = None) -> None:
    """The present task, and all that it starts from now on, have one timer together. beat_s: of that timer, at least
    BEAT_S: what is waited for is rounded to it; None: as that of whoever started this task."""
    outer = _BEATS.get()
    _BEATS.set(_Beats(beat_s or (outer.beat_s if outer is not None else BEAT_S)))


async def next_beat(interval_s: float) -> float:
    """Wait until the loop's clock shows a whole multiple of `interval_s`, which is rounded to beats. Returns that time,
    in seconds: the times that are returned lie whole intervals apart, however late the loop comes to it.

    The first wait may be shorter than the interval. How long the work between two waits takes does not shift the later
    ones; beats that pass during the work are skipped. An interval that is shorter than a beat is slept."""
    if interval_s < BEAT_S:
        await trio.sleep(interval_s)
        return trio.current_time()
    beats = _BEATS.get()
    if beats is None:
        share_beats()
        return await next_beat(interval_s)
    return await beats.wait(max(1, round(interval_s / beats.beat_s))) * beats.beat_s


class _Beats:
    """Of those who share them."""

    def __init__(self, beat_s: float) -> None:
        self.beat_s = beat_s
        self._waited_for: dict[int, trio.Event] = {}
        """Number of the beat → set then."""
        self._is_running = False

    async def wait(self, every: int) -> int:
        """Returns the number of the beat."""
        beat = (self._now() // every + 1) * every
        event = self._waited_for.get(beat)
        if event is None:
            event = self._waited_for[beat] = trio.Event()
        if not self._is_running:
            self._is_running = True
            trio.lowlevel.spawn_system_task(self._run, name="beats", context=copy_context())
        try:
            await event.wait()
        except trio.Cancelled:
            # Where nobody else waits for it, the task would wake for nobody until then.
            if self._waited_for.get(beat) is event and not event.statistics().tasks_waiting:
                del self._waited_for[beat]
            raise
        return beat

    async def _run(self) -> None:
        """From each beat to the next, whichever is waited for: in a broker there is always a task that waits for it."""
        try:
            while self._waited_for:
                await trio.sleep_until((self._now() + 1) * self.beat_s)
                now = self._now()
                for beat in [beat for beat in self._waited_for if beat <= now]:
                    self._waited_for.pop(beat).set()
                await trio.lowlevel.checkpoint()  # who was woken may wait again
        finally:
            self._is_running = False

    def _now(self) -> int:
        """The number of the last beat."""
        return math.floor(trio.current_time() / self.beat_s + ROUNDING)


_BEATS: ContextVar[_Beats | None] = ContextVar("strandline beats", default=None)
