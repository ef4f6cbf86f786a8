"""When brokers were away and who was controller, told from what all of them logged."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.history.lines import Event, Kind, Line
from strandline.protocol.history.lives import Downtime, Reign, Run, Runs, lives


def started(time_ms: int, broker_id: int, epoch: int, *, by: int | None = None) -> Event:
    return Event(Kind.STARTED, time_ms, broker_id if by is None else by, peer=broker_id, broker_epoch=epoch)


def gone(time_ms: int, broker_id: int, epoch: int, *, by: int = 1, timeout_ms: int = 6000) -> Event:
    return Event(Kind.GONE, time_ms, by, peer=broker_id, broker_epoch=epoch, session_timeout_ms=timeout_ms)


def lost(time_ms: int, broker_id: int, *, by: int = 3) -> Event:
    return Event(Kind.LOST, time_ms, by, peer=broker_id)


def suspected(time_ms: int, broker_id: int, epoch: int, *, refused_ms: int = 300) -> Event:
    return Event(Kind.SUSPECTED, time_ms, 1, peer=broker_id, broker_epoch=epoch, session_timeout_ms=refused_ms)


def downtimes(events: list[Event], *runs: Run) -> list[tuple[int, int | None, bool]]:
    """Of broker 2."""
    return [each[1:] for each in lives(events, runs).downtimes.get(2, ())]


LIVES = [started(1_000, 2, 10), started(90_000, 2, 20)]


@pytest.mark.parametrize(
    ("signs", "from_ms"),
    [
        ([lost(50_000, 2), gone(56_000, 2, 10)], 50_000),
        ([lost(20_000, 2), lost(50_000, 2), gone(56_000, 2, 10)], 50_000),
        ([gone(56_000, 2, 10)], 50_000),  # nobody followed it: ZooKeeper heard of it until then at least
        ([lost(20_000, 2), gone(56_000, 2, 10)], 50_000),  # that connection was made again
        ([lost(50_000, 2), lost(95_000, 2), gone(56_000, 2, 10)], 50_000),  # the last one is of the next life
        ([lost(50_000, 2), gone(90_003, 2, 10)], 50_000),  # missed only when it came back
        ([lost(50_000, 2)], 50_000),
        ([suspected(50_320, 2, 10), gone(56_900, 2, 10)], 50_020),  # long before its session could tell
        ([lost(50_000, 2), suspected(50_320, 2, 10)], 50_000),
        ([suspected(42_500, 2, 10)], 42_200),  # a line just before is not its last moment
        ([lost(20_000, 2), suspected(50_320, 2, 10)], 50_020),
        ([suspected(50_320, 2, 10), Event(Kind.CLEARED, 90_003, 1, peer=2, broker_epoch=10)], 50_020),  # the next life
        ([suspected(48_000, 2, 10), Event(Kind.CLEARED, 49_000, 1, peer=2, broker_epoch=10), lost(50_000, 2)], 50_000),
        ([], 42_000),  # all died: its last line is what is known
        ([Event(Kind.STOPPED, 48_000, 2, peer=2, broker_epoch=10), gone(48_500, 2, 10)], 48_000),
    ],
)
def test_a_broker_is_away_from_its_last_sign_of_life_until_it_registers_again(signs: list[Event], from_ms: int) -> None:
    in_order = any(event.kind is Kind.STOPPED for event in signs)
    runs = (Run(2, 1_000, 42_000, 9), Run(2, 90_000, 91_000, 2))
    assert downtimes([*LIVES, *signs], *runs) == [(from_ms, 90_000, in_order)]


def test_who_does_not_come_back_is_away_still() -> None:
    events = [started(1_000, 2, 10), lost(50_000, 2), gone(56_000, 2, 10)]
    assert downtimes(events, Run(2, 1_000, 42_000, 9)) == [(50_000, None, False)]
    assert downtimes([started(1_000, 2, 10)], Run(2, 1_000, 42_000, 9)) == []


def test_a_broker_without_logs_is_known_by_what_the_controller_says() -> None:
    events = [started(1_000, 2, 10, by=1), gone(56_000, 2, 10), started(70_000, 2, 20, by=1)]
    assert downtimes(events) == [(50_000, 70_000, False)]


def test_logs_that_begin_in_the_middle_of_a_life_tell_how_it_ended() -> None:
    events = [started(90_000, 2, 20)]
    assert downtimes(events, Run(2, 3_000, 42_000, 9), Run(2, 90_000, 91_000, 2)) == [(42_000, 90_000, False)]


def test_a_hung_broker_that_logs_on_afterwards_was_away_meanwhile() -> None:
    """Its lines do not end while it hangs: the run goes on until it registers again."""
    events = [started(1_000, 2, 10), gone(56_000, 2, 10), started(70_000, 2, 20)]
    assert downtimes(events, Run(2, 1_000, 69_990, 500), Run(2, 70_000, 80_000, 5)) == [(50_000, 70_000, False)]


def test_a_downtime_without_end_lasts_beyond_every_time() -> None:
    assert Downtime(2, 5, None, False).end_ms > 10**18 and Downtime(2, 5, 9, False).end_ms == 9


# --- controllers ---------------------------------------------------------------------------------------------------


def of_term(kind: Kind, time_ms: int, broker_id: int, epoch: int, why: str = "") -> Event:
    return Event(kind, time_ms, broker_id, controller_epoch=epoch, why=why)


TERMS = [
    of_term(Kind.ELECTED, 1_000, 1, 1),
    of_term(Kind.ACTING, 1_200, 1, 1),
    of_term(Kind.RESIGNED, 5_000, 1, 1, "this broker stops"),
    of_term(Kind.ELECTED, 5_100, 2, 2),
    of_term(Kind.ACTING, 5_150, 2, 2),
    started(100, 2, 10),
    lost(20_000, 2),
    gone(26_000, 2, 10, by=3),
    of_term(Kind.ELECTED, 26_050, 3, 3),
    of_term(Kind.ELECTED, 26_900, 1, 4),
    of_term(Kind.ACTING, 27_000, 1, 4),
]


def test_terms_end_as_their_controller_said_or_when_it_was_gone_or_with_the_next_election() -> None:
    assert lives(TERMS, ()).reigns == (
        Reign(1, 1, 1_000, 1_200, 5_000, "this broker stops"),
        Reign(2, 2, 5_100, 5_150, 20_000, "the broker was gone"),
        Reign(3, 3, 26_050, None, 26_900, "another one was elected"),
        Reign(1, 4, 26_900, 27_000, None, ""),
    )


@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_any_order_and_any_repetition_of_lines_tells_the_same(rng: random.Random, copies: int) -> None:
    events: list[Any] = [*TERMS, *LIVES]
    runs = [Run(2, 1_000, 19_000, 9), Run(3, 500, 30_000, 2), Run(1, 400, 40_000, 7)]
    shuffled, moved = events * (copies + 1), runs * (copies + 1)
    rng.shuffle(shuffled)
    rng.shuffle(moved)
    assert lives(shuffled, moved) == lives(events, runs)


# --- runs ----------------------------------------------------------------------------------------------------------


def test_a_run_ends_where_the_broker_registers_again_and_where_another_one_writes() -> None:
    runs = Runs()
    for time_ms in (5, 7, 6):
        runs.add(Line(time_ms, 2, ()))
    runs.add(Line(50, 2, (started(50, 2, 20),)))
    runs.add(Line(60, 2, (started(60, 3, 20, by=2),)))
    runs.add(Line(70, 4, ()))
    assert runs.end() == [Run(2, 5, 7, 3), Run(2, 50, 60, 2), Run(4, 70, 70, 1)]
