"""Tells of problems: `/status` asks what is wrong now, and the broker's log says once when one began and once when it
ended, in the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.broker.admin.problems import Level, Problem, Tracker
from strandline.runtime.beats import next_beat
from strandline.runtime.environment import WallClock
from strandline.runtime.logging import Logger

BEAT_S = 30.0
"""What heals by itself within that is in no log."""


class ProblemWatch:
    """`run` looks at each beat, until cancelled."""

    def __init__(self, search: Callable[[], Iterable[Problem]], wall_clock: WallClock, log: Logger) -> None:
        self._search = search
        self._wall_clock = wall_clock
        self._log = log
        self._tracker = Tracker()
        self.is_over = False
        """Set when the broker begins to shut down: what it gives up then is no problem."""

    def now(self) -> list[dict[str, object]]:
        """For `/status`."""
        known = self._tracker.look(self._found(), self._wall_clock.now_ms())
        return [each.as_json() for each in known]

    async def run(self) -> None:
        await next_beat(BEAT_S)  # may be soon, and a broker that has just begun lacks everything
        while True:
            await next_beat(BEAT_S)
            try:
                self._beat()
            except Exception as error:  # a bug of the search: no reason for a broker to end
                self._log.error("the search for problems failed", error=repr(error), exc_info=error)

    def _beat(self) -> None:
        if self.is_over:  # what goes on has not ended because this broker ends
            return
        now_ms = self._wall_clock.now_ms()
        changes = self._tracker.beat(self._found(), now_ms)
        for found, _ in changes.begun:
            tell = self._log.error if found.level == Level.ERROR else self._log.warning
            tell("problem began", where=found.where, what=found.what, remedy=found.remedy)
        for found, since_ms in changes.ended:
            lasted_s = round((now_ms - since_ms) / 1000)
            self._log.info("problem ended", where=found.where, what=found.what, lasted_s=lasted_s)

    def _found(self) -> Iterable[Problem]:
        return () if self.is_over else self._search()
