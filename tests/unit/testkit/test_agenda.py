"""An agenda: what happens by itself, and in which order."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.testkit.agenda import Agenda
from strandline.testkit.clock import SimulationClock


@pytest.fixture(params=["of a simulation", "of any other run"])
def clock(request: pytest.FixtureRequest) -> trio.abc.Clock:
    return SimulationClock() if request.param == "of a simulation" else MockClock(autojump_threshold=0)


async def test_entries_come_by_time_and_those_of_one_time_as_they_were_made(clock: trio.abc.Clock) -> None:
    agenda, seen = Agenda("test"), list[tuple[str, float]]()
    for name, time_s in (("c", 2.0), ("a", 1.0), ("d", 2.0), ("b", 1.0)):
        agenda.at(time_s, lambda name=name: seen.append((name, trio.current_time())))
    await trio.sleep(3)
    assert seen == [("a", 1.0), ("b", 1.0), ("c", 2.0), ("d", 2.0)]


async def test_an_entry_that_comes_before_all_others_is_not_late(clock: trio.abc.Clock) -> None:
    agenda, seen = Agenda("test"), list[float]()
    agenda.at(100.0, lambda: seen.append(trio.current_time()))
    await trio.sleep(1)
    agenda.at(5.0, lambda: seen.append(trio.current_time()))
    await trio.sleep(200)
    assert seen == [5.0, 100.0]


async def test_what_is_made_by_an_entry_for_the_same_time_follows_it(clock: trio.abc.Clock) -> None:
    agenda, seen = Agenda("test"), list[str]()

    def first() -> None:
        seen.append("first")
        agenda.at(1.0, lambda: seen.append("third"))

    agenda.at(1.0, first)
    agenda.at(1.0, lambda: seen.append("second"))
    await trio.sleep(1)
    await trio.testing.wait_all_tasks_blocked()
    assert seen == ["first", "second", "third"]


async def test_what_is_over_happens_soon_and_not_within_the_call(clock: trio.abc.Clock) -> None:
    await trio.sleep(10)
    agenda, seen = Agenda("test"), list[float]()
    agenda.at(3.0, lambda: seen.append(trio.current_time()))
    assert seen == []
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [10.0]
