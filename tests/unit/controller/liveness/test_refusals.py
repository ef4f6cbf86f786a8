"""When refusals mean that a process is gone: counts and times, without a clock."""

from __future__ import annotations

import pytest

from strandline.controller.controller_context import LiveBroker
from strandline.controller.liveness.refusals import MAX_FALSE_ALARMS, MIN_PACE_S, FalseAlarms, RefusalCount
from strandline.runtime.network import Address


def life(broker_id: int, epoch: int) -> LiveBroker:
    return LiveBroker(broker_id, epoch, (), Address("b", 1))


def test_three_refusals_spread_over_the_time_are_needed() -> None:
    count = RefusalCount(300, 0)
    assert count.pace_s == pytest.approx(0.15)
    assert [count.refused(at) for at in (7.0, 7.15, 7.3)] == [False, False, True]


@pytest.mark.parametrize("times", [(0.0, 0.3), (0.0, 0.1, 0.2), (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.29)])
def test_neither_two_nor_too_quick_ones_tell_anything(times: tuple[float, ...]) -> None:
    count = RefusalCount(300, 0)
    assert not any(count.refused(at) for at in times)


def test_however_small_the_time_is_the_attempts_have_a_pace() -> None:
    count = RefusalCount(1, 0)
    assert count.pace_s == MIN_PACE_S
    assert [count.refused(at * MIN_PACE_S) for at in range(3)] == [False, False, True]


def test_another_failure_or_an_answer_begins_the_count_anew() -> None:
    count = RefusalCount(300, 0)
    assert not count.has_begun
    count.refused(0.0)
    count.refused(0.2)
    assert count.has_begun
    count.begin_anew()
    assert not count.has_begun
    assert [count.refused(at) for at in (0.3, 0.5, 0.59, 0.6)] == [False, False, False, True]


@pytest.mark.parametrize(("false_alarms", "needed_s"), [(0, 0.3), (1, 0.6), (2, 1.2)])
def test_each_false_alarm_doubles_the_time(false_alarms: int, needed_s: float) -> None:
    count = RefusalCount(300, false_alarms)
    times = [step * count.pace_s for step in range(20)]
    told = next(at for at in times if count.refused(at))
    assert told == pytest.approx(needed_s)


def test_after_some_false_alarms_the_session_alone_decides() -> None:
    count = RefusalCount(300, MAX_FALSE_ALARMS)
    assert not any(count.refused(float(at)) for at in range(1000))


def test_false_alarms_are_those_of_one_life() -> None:
    alarms = FalseAlarms()
    assert [alarms.note(life(1, 10)), alarms.note(life(1, 10)), alarms.note(life(2, 11))] == [1, 2, 1]
    assert [alarms.of(life(1, 10)), alarms.of(life(1, 12)), alarms.of(life(3, 1))] == [2, 0, 0]
    assert alarms.note(life(1, 12)) == 1


def test_who_was_suspected_is_so_until_it_is_known_to_live() -> None:
    alarms = FalseAlarms()
    alarms.suspect(life(1, 10))
    assert [alarms.is_suspected(life(1, 10)), alarms.is_suspected(life(1, 11))] == [True, False]
    alarms.note(life(1, 10))
    assert not alarms.is_suspected(life(1, 10))
