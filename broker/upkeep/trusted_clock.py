"""The wall clock as far as data may be removed by it: retention by time, tombstones, compaction lags.

One per kind of work: each says once what it leaves undone (`storage.log.retention.ClockGuard` has the rule).
"""

from __future__ import annotations

import structlog
import trio

from strandline.runtime.environment import WallClock
from strandline.storage.log.retention import ClockGuard


class TrustedClock:
    def __init__(self, wall_clock: WallClock, log: structlog.typing.FilteringBoundLogger, work: str) -> None:
        """`work`: what stands still while the clock is not believed, for the one line that says so."""
        self._wall_clock = wall_clock
        self._log = log
        self._work = work
        self._guard = ClockGuard()

    def now_ms(self) -> int | None:
        """None while it is not to be trusted. Ask early and often: a jump shows between two readings."""
        wall_ms = self._wall_clock.now_ms()
        was_holding = self._guard.is_holding
        believed = self._guard.believe(wall_ms, int(trio.current_time() * 1000))
        if believed is None and not was_holding:
            self._log.error(
                f"wall clock jumped ahead: {self._work} is suspended for an hour; set the clock right, or nothing "
                "if it is right now",
                wall_clock_ms=wall_ms,
            )
        return believed
