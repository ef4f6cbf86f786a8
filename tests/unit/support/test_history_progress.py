"""A soak of a history whose cluster acknowledges nothing any more ends; faults give it time, but not for ever."""

from __future__ import annotations

from soak.history_progress import STALLED_ANYWAY_S, STALLED_S, Progress

BEGAN_S = 1000.0


def test_it_gets_on_as_long_as_more_is_acknowledged_now_and_then() -> None:
    progress = Progress(BEGAN_S)
    for number in range(1, 20):
        assert not progress.note(number, [], BEGAN_S + number * (STALLED_S - 1))


def test_it_is_stalled_when_nothing_is_done_to_it() -> None:
    progress = Progress(BEGAN_S)
    assert not progress.note(7, [], BEGAN_S + 10)
    assert not progress.note(7, [], BEGAN_S + 9 + STALLED_S)
    assert "nothing is acknowledged for 180 s" in progress.note(7, [], BEGAN_S + 10 + STALLED_S)


def test_time_counts_from_the_end_of_a_fault() -> None:
    progress = Progress(BEGAN_S)
    assert not progress.note(0, ["pause"], BEGAN_S + 100)
    assert not progress.note(0, [], BEGAN_S + 99 + STALLED_S)
    assert "the last 180 s without a fault" in progress.note(0, [], BEGAN_S + 100 + STALLED_S)


def test_it_is_stalled_after_long_whatever_is_done_to_it() -> None:
    progress = Progress(BEGAN_S)
    for second in range(int(STALLED_ANYWAY_S)):
        assert not progress.note(0, ["kill all"], BEGAN_S + second)
    assert progress.note(0, ["kill all"], BEGAN_S + STALLED_ANYWAY_S) == "nothing is acknowledged for 600 s"
