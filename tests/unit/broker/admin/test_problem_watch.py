"""What the log says of problems, and when nobody looks for them any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from strandline.broker.admin.problem_watch import BEAT_S, FAILED, ProblemWatch
from strandline.broker.admin.problems import Level, Problem
from strandline.cli.cluster_problems import problem_lines
from strandline.testkit.environment import VirtualWallClock
from support.at_once import at_once

FOUND = Problem(Level.WARNING, "kind", "it lacks something", "here", "mend it")


class Site:
    """A search that the test decides about, and what the log says."""

    def __init__(self) -> None:
        self.found: Iterable[Problem] | Exception = [FOUND]
        self.logs = LogCapture()
        self.log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self.logs])
        self.watch = ProblemWatch(self.search, VirtualWallClock(), self.log)

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


async def test_a_look_that_the_shutdown_overtakes_tells_nothing() -> None:
    site = Site()
    site.found = cast(Any, [None, FOUND])
    look = site.watch.now()
    next(look)
    site.watch.is_over = True
    assert at_once(look) == []


async def test_the_log_says_since_when_in_the_words_of_the_status(autojump_clock: MockClock) -> None:
    site = Site()
    [shown] = at_once(site.watch.now())
    with trio.move_on_after(2.5 * BEAT_S):
        await site.watch.run()
    site.found = []
    with trio.move_on_after(1.5 * BEAT_S):
        await site.watch.run()
    began, ended = site.logs.entries
    since = f"since {began['since']} ("
    [line] = problem_lines({"problems": [{"broker": 1, **shown}]}, 0)
    assert since in line
    assert began["since"] == ended["since"] and ended["lasted_s"] >= 2 * BEAT_S
    assert (began["where"], began["what"], began["remedy"]) == (FOUND.where, FOUND.what, FOUND.remedy)


async def test_what_lasts_for_less_than_a_beat_is_in_no_log(autojump_clock: MockClock) -> None:
    site = Site()
    site.found = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.watch.run)
        await trio.sleep(BEAT_S - 1)
        for _ in range(5):
            site.found = [FOUND]
            await trio.sleep(BEAT_S - 1)
            site.found = []
            await trio.sleep(BEAT_S + 1)
        nursery.cancel_scope.cancel()
    assert site.told() == []


async def test_a_search_that_fails_ends_nothing_and_is_a_problem(autojump_clock: MockClock) -> None:
    site = Site()
    with trio.move_on_after(2.5 * BEAT_S):
        await site.watch.run()
    site.found = RuntimeError("a bug")
    with trio.move_on_after(2.5 * BEAT_S):
        await site.watch.run()
    assert site.told() == ["problem began", FAILED, "problem began"], "and the first one has not ended"
    assert site.logs.entries[1]["exc_info"] is site.found
    for _ in range(50):
        [shown] = at_once(site.watch.now())
    assert shown["where"] == "problems" and "RuntimeError('a bug')" in str(shown["what"])
    assert site.told().count(FAILED) == 1, "however often it is asked"
    site.found = [FOUND]
    with trio.move_on_after(1.5 * BEAT_S):
        await site.watch.run()
    assert site.told()[-1] == "problem ended" and site.logs.entries[-1]["where"] == "problems"


async def test_what_a_search_had_found_before_it_failed_is_told() -> None:
    def search() -> Iterator[Problem]:
        yield FOUND
        raise KeyError("a bug")

    site = Site()
    site.watch = ProblemWatch(search, VirtualWallClock(), site.log)
    assert [each["where"] for each in at_once(site.watch.now())] == ["here", "problems"]
