"""How many bytes a replication throttle lets through now, and whose turn it is: pure.

    rate                 1000 bytes/s
    saved up             at most what the rate gives in a window: 1000 bytes after a quiet second or a quiet day
    a larger batch       goes whole as soon as anything is free; its excess is made up for before the next bytes
    one far larger       is made up for during 11 windows at most: a batch every 11 s at a rate of 1 byte/s

So in any time t no more passes than rate * t, a window's worth and one batch, where a batch is no larger than what the
rate gives in all windows; and every rate, 0 too, lets everything through in the end. Numbers are whole: of bytes and of
nanoseconds.
"""

from __future__ import annotations

from collections.abc import Hashable

from strandline.runtime.config.values import LONG_MAX

_NS_PER_S = 10**9
_LONGEST_PAUSE_NS = _NS_PER_S // 10
_PIECE_BYTES = 2**18
"""Once nothing is free, nothing is before this much is, or what the rate gives in a tenth of a second: a fetch costs as
much for a small piece as for a large one."""
PATIENCE_S = 0.3
"""Who is next and does not come for so long loses its turn. Those who wait are looked at every 0.1 s."""


class ReplicationQuota:
    """See the module. Times are monotonic seconds."""

    def __init__(self, rate: int, window_s: int, windows: int) -> None:
        """rate: bytes per second; the largest that a key can hold sets no limit. windows: how many of `window_s`
        seconds a batch is made up for at most."""
        self._window_ns = window_s * _NS_PER_S
        self._memory_ns = self._window_ns * windows
        self.set_rate(rate)

    def set_rate(self, rate: int) -> None:
        """Begins anew, as after a quiet window: what is owed by another rate is forgotten."""
        self.is_limited = rate < LONG_MAX
        self._rate = max(rate, 1)
        self._pause_ns = min(_LONGEST_PAUSE_NS, _PIECE_BYTES * _NS_PER_S // self._rate)
        self._paid_until_ns: int | None = None
        """Up to when the rate is used up, perhaps in the future."""
        self._waiting: dict[Hashable, float] = {}
        """Who was turned away → when it may come again; who waits longest comes first."""

    def room_bytes(self, who: Hashable, now: float) -> int:
        """What `who` may take now; 0: it is to come again at `ready_at`, when it may be its turn."""
        free_ns = _ns(now) - self._began_ns(now)
        if free_ns < self._pause_ns or not self._is_turn_of(who, now):
            self._waiting[who] = max(now, self.ready_at(now))
            return 0
        self._waiting.pop(who, None)
        return max(free_ns * self._rate // _NS_PER_S, 1)

    def take(self, count: int, now: float) -> None:
        """So many bytes pass now. Negative: some that were taken do not pass after all."""
        used_ns = -(-count * _NS_PER_S // self._rate)
        self._paid_until_ns = min(self._began_ns(now) + used_ns, _ns(now) + self._memory_ns)

    def ready_at(self, now: float) -> float:
        """From when on something is free."""
        return (self._began_ns(now) + self._pause_ns) / _NS_PER_S

    def _began_ns(self, now: float) -> int:
        """Since when the rate has saved up what is free."""
        longest_ago_ns = _ns(now) - max(self._window_ns, self._pause_ns)
        return longest_ago_ns if self._paid_until_ns is None else max(self._paid_until_ns, longest_ago_ns)

    def _is_turn_of(self, who: Hashable, now: float) -> bool:
        for first, at in list(self._waiting.items()):
            if first == who:
                return True
            if now <= at + PATIENCE_S:
                return False
            del self._waiting[first]
        return True


def _ns(seconds: float) -> int:
    return int(seconds * _NS_PER_S)
