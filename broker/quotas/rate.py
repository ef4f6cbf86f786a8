"""How much of something passes under a quota, and how long who exceeds it is held: pure. Times are monotonic seconds.

    quota                1000 bytes/s
    saved up             at most what the quota gives in a window (`quota.window.size.seconds`): 1000 bytes
    5000 bytes pass      4000 are owed: held for 4 s, which is Kafka's (observed - bound) / bound * window
    muted at most        for all windows (`quota.window.num`): 11 s. Of bytes all of the excess is owed, however long:
                         else many connections would each pass a large request per 11 s. Of time and mutations no more
                         is owed than that

The window that the throttle time rests on begins when the quota was last unused and forgets nothing in between. Kafka's
slides over samples: a client that was quiet may take what its quota gives in ten windows at once, and again as soon as
that sample has expired, a sixth too much in a minute. Here a minute differs from the quota by one window and one
request. The rate that is shown is Kafka's, of samples.
"""

from __future__ import annotations

from collections import deque


class Meter:
    """What passes under one quota. `take` what passes, then hold whoever took it until `free_at`."""

    def __init__(self, bound: float, saved_s: float, owed_s: float) -> None:
        """bound: per second; 0: nothing passes but what is owed for. saved_s, owed_s: for so long it saves up what it
        gives, and what passed too early is made up for."""
        self._saved_s = saved_s
        self._owed_s = owed_s
        self.set_bound(bound)

    def set_bound(self, bound: float) -> None:
        """Begins anew: what is owed by another bound is forgotten."""
        self.bound = bound
        self._paid_until: float | None = None
        self.counted = 0.0
        """How much of what was taken last is owed for or was saved up: all, unless that is more than may be owed."""

    def change_bound(self, bound: float, now: float) -> None:
        """From now on; what is owed stays owed, and is made up for by the new bound."""
        if not self.is_free(now):
            owed = self.owed_s(now) * self.bound
            owed_s = owed / bound if bound else self._owed_s
            self._paid_until = now + min(owed_s, self._owed_s)
        self.bound = bound

    def is_free(self, now: float) -> bool:
        """Nothing is owed."""
        return self._paid_until is None or self._paid_until <= now

    def is_as_new(self, now: float) -> bool:
        """All is saved up that it may save up."""
        return self._paid_until is None or self._paid_until <= now - self._saved_s

    def owed_s(self, now: float) -> float:
        """For how long whoever exceeded it is held from now on."""
        return 0.0 if self._paid_until is None else max(self._paid_until - now, 0.0)

    def left(self, now: float) -> float:
        """How much may pass at once; negative: so much is owed."""
        saved_s = self._saved_s if self._paid_until is None else min(now - self._paid_until, self._saved_s)
        return saved_s * self.bound

    def take(self, amount: float, now: float) -> float:
        """So much passes now. Returns `owed_s`."""
        began = now - self._saved_s
        if self._paid_until is not None:
            began = max(began, self._paid_until)
        used_s = amount / self.bound if self.bound else self._owed_s + self._saved_s
        self._paid_until = min(began + used_s, now + self._owed_s)
        self.counted = (self._paid_until - began) * self.bound
        return self.owed_s(now)

    def give_back(self, counted: float) -> None:
        """What was taken did not pass after all. counted: of it, as `counted` told: what was above the most that may
        be owed is not there to be given back."""
        if self._paid_until is not None and self.bound:
            self._paid_until -= counted / self.bound


class SampledRate:
    """What passed per second lately, as Kafka's `Rate` over `samples` windows has it: where they are not full the
    missing ones count as empty."""

    def __init__(self, window_s: float, samples: int) -> None:
        self._window_s = window_s
        self._samples = samples
        self._kept: deque[list[float]] = deque()
        """[when it began, what passed in it], the oldest first."""

    def add(self, amount: float, now: float) -> None:
        if not self._kept or now - self._kept[-1][0] >= self._window_s:
            self._forget(now)
            self._kept.append([now, 0.0])
        self._kept[-1][1] += amount

    def give_back(self, amount: float) -> None:
        """What was added did not pass after all: out of the latest windows, which never get negative."""
        for window in reversed(self._kept):
            taken = min(window[1], amount)
            window[1] -= taken
            amount -= taken

    def per_second(self, now: float) -> float:
        self._forget(now)
        if not self._kept:
            return 0.0
        elapsed_s = now - self._kept[0][0]
        missing = self._samples - 1 - int(elapsed_s / self._window_s)
        elapsed_s += max(missing, 0) * self._window_s
        return sum(amount for _, amount in self._kept) / max(elapsed_s, 0.001)

    def _forget(self, now: float) -> None:
        while self._kept and now - self._kept[0][0] >= self._samples * self._window_s:
            self._kept.popleft()
