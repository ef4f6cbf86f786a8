"""Tells of problems: `/status` asks what is wrong now, and the broker's log says once when one began and once when it
ended, in the same words.

A look goes over all partitions in steps, between which others run: it yields after each. One that fails is a problem,
too, and no more than that: what it had found by then is told, and the broker goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.broker.admin import remedies
from strandline.broker.admin.problems import Level, Problem, Tracker, moment
from strandline.broker.steps import Steps, in_turns
from strandline.runtime.beats import next_beat
from strandline.runtime.environment import WallClock
from strandline.runtime.logging import Logger, RateLimited

BEAT_S = 30.0
"""What is over before, is in no log; what goes on for twice as long, is."""
FAILED = "the search for problems failed"
FAILURES_APART_S = 300.0
"""So long the log is silent about another failure: `/status` may be asked each second."""


class ProblemWatch:
    """`run` looks at each beat, until cancelled."""

    def __init__(self, search: Callable[[], Iterable[Problem | None]], wall_clock: WallClock, log: Logger) -> None:
        """search: what is wrong now; None where a step of it is over."""
        self._search = search
        self._wall_clock = wall_clock
        self._log = log
        self._limited = RateLimited(log, interval_s=FAILURES_APART_S)
        self._tracker = Tracker()
        self.is_over = False
        """Set when the broker begins to shut down: what it gives up then is no problem."""

    def now(self) -> Steps[list[dict[str, object]]]:
        """For `/status`."""
        found, _ = yield from self._look()
        if self.is_over:
            return []
        return [each.as_json() for each in self._tracker.look(found, self._wall_clock.now_ms())]

    async def run(self) -> None:
        while True:
            await next_beat(BEAT_S)
            found, is_whole = await in_turns(self._look())
            if not self.is_over:  # what goes on has not ended because this broker ends
                self._beat(found, is_whole)

    def _beat(self, found: list[Problem], is_whole: bool) -> None:
        now_ms = self._wall_clock.now_ms()
        changes = self._tracker.beat(found, now_ms, is_whole=is_whole)
        for each, since_ms in changes.begun:
            tell = self._log.error if each.level == Level.ERROR else self._log.warning
            tell("problem began", where=each.where, what=each.what, since=moment(since_ms), remedy=each.remedy)
        for each, since_ms in changes.ended:
            lasted_s = round((now_ms - since_ms) / 1000)
            self._log.info("problem ended", where=each.where, what=each.what, since=moment(since_ms), lasted_s=lasted_s)

    def _look(self) -> Steps[tuple[list[Problem], bool]]:
        """What was found, and whether the search came to its end."""
        found: list[Problem] = []
        try:
            for each in self._search():
                if each is None:
                    yield
                else:
                    found.append(each)
        except Exception as error:  # a bug of the search: no reason for a broker to end
            self._limited.error(FAILED, FAILED, error=repr(error), exc_info=error)
            what = f"{FAILED}, and what else is wrong may not be told: {error!r}"
            return [*found, Problem(Level.WARNING, "search", what, "problems", remedies.REPORT)], False
        return found, True
