"""What the log says of problems, and when nobody looks for them any more."""

from __future__ import annotations

from collections.abc import Iterable

import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from strandline.broker.admin.problem_watch import BEAT_S, ProblemWatch
from strandline.broker.admin.problems import Level, Problem
from strandline.testkit.environment import VirtualWallClock

FOUND = Problem(Level.WARNING, "kind", "it lacks something", "here", "mend it")


class Site:
    """A search that the test decides about, and what the log says."""

    def __init__(self) -> None:
        self.found: Iterable[Problem] | Exception = [FOUND]
        self.logs = LogCapture()
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self.logs])
        self.watch = ProblemWatch(self.search, VirtualWallClock(), log)

    def search(self) -> Iterable[Problem]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def told(self) -> list[str]:
        return [str(entry["event"]) for entry in self.logs.entries]


async def test_what_goes_on_while_the_broker_shuts_down_is_not_said_to_have_ended(autojump_clock: MockClock) -> None:
    site = Site()
    with trio.move_on_after(2.5 * BEAT_S):
        await site.watch.run()
    site.watch.is_over = True
    with trio.move_on_after(3 * BEAT_S):
        await site.watch.run()
    assert site.told() == ["problem began"]


async def test_a_search_that_fails_is_a_line_and_the_next_one_counts(autojump_clock: MockClock) -> None:
    site = Site()
    site.found = RuntimeError("a bug")
    with trio.move_on_after(2.5 * BEAT_S):
        await site.watch.run()
    assert site.told() == ["the search for problems failed"]
    site.found = [FOUND]
    with trio.move_on_after(2.5 * BEAT_S):
        await site.watch.run()
    assert site.told()[-1] == "problem began"
