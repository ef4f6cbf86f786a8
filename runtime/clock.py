"""The wall clock in production. It stamps records and drives retention; every timeout uses `trio.current_time()`.

`thread_cpu_s` tells how busy an event loop is; `pause` is for threads that run no event loop.
"""

from __future__ import annotations

import time


class SystemWallClock:
    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC; may jump when the machine's clock is set."""
        return time.time_ns() // 1_000_000


def thread_cpu_s() -> float:
    """How much processor time this thread has used."""
    return time.thread_time()


def pause(duration_s: float) -> None:
    """Let so many seconds pass in this thread."""
    time.sleep(duration_s)
