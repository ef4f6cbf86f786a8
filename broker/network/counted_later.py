"""Counts the answers of one connection that do not leave in the burst of their request: when they leave.

They leave in order, so that a burst is one entry here, however many requests it has, and nothing is done for each.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter

from strandline.broker.network.request_counts import NOT_YET, QUICK_S, RequestTimes
from strandline.broker.network.response_slot import DROPPED, Answered

MAX_LEAVING = 1000
"""Of a connection whose peer reads slowly, until they are counted with the time that they took so far."""

_first = attrgetter("first")


class CountedLater:
    """See the module. Places are numbered as they are given out; `left`: those below it have left the order."""

    __slots__ = ("leaving", "left", "staying")

    def __init__(self) -> None:
        self.left = 0
        self.staying: deque[RequestTimes] = deque()
        """In the order of their places: some of these have not left, or the kernel does not have them for sure."""
        self.leaving: list[tuple[RequestTimes, int, float, float]] = []
        """(times, of how many requests, answered at, left at) of answers that left the order when the kernel did not
        take all, or not as most do: those that took the same way together."""

    def stay(self, times: RequestTimes) -> None:
        """The answers at its places are to be counted when they leave: none has, and none is known here."""
        staying = self.staying
        if not staying or staying[-1].first < times.first:
            staying.append(times)
        else:  # what ended a burst is here before those that wait for their turn in front of it
            insort(staying, times, key=_first)

    def sent(self, left_at: float, now: float) -> None:
        """The kernel has all that has left the order."""
        if self.leaving:
            leaving, self.leaving = self.leaving, []
            for times, count, answered_at, at in leaving:
                times.took(count, answered_at, at, now)
        staying, left = self.staying, self.left
        while staying and (times := staying[0]).first < left:
            end = times.end
            if end <= left:
                staying.popleft()
            else:
                end = left
            if times.timed or now - times.taken_at >= QUICK_S or times.counts.last_way is None:
                times.took(end - times.first, left_at, left_at, now)
            else:  # as it would do
                times.counts.untimed_ways += end - times.first
            times.first = end

    def leave(self, count: int, answered: Answered | None, left_at: float) -> None:
        """So many more have left the order, and were answered in the same way, or the kernel has yet to take them;
        None: as they left, without an error. Those that were dropped are not counted."""
        self.left = left = self.left + count
        staying = self.staying
        while staying and (times := staying[0]).first < left:
            end, answered_at, noted = min(times.end, left), left_at, times
            if answered is not None:
                if answered.at >= 0:
                    answered_at = answered.at
                if answered.has_error:
                    noted = times.failed()
            if answered is not DROPPED:
                self.leaving.append((noted, end - times.first, answered_at, left_at))
            times.first = end
            if end == times.end:
                staying.popleft()

    def leave_at_once(self, times: RequestTimes, count: int, left_at: float) -> None:
        """So many others have left the order, at the end of their burst."""
        self.leaving.append((times, count, NOT_YET, left_at))

    def sent_in_part(self, left_at: float, now: float) -> None:
        """The kernel has some of what has left the order; where it is much, it is counted as if that were all."""
        self.leave(0, None, left_at)
        if len(self.leaving) > MAX_LEAVING:
            self.sent(left_at, now)

    def close(self) -> None:
        """None of them leaves any more."""
        self.staying.clear()
        self.leaving.clear()
