"""What is told of the last minute ages; what is told of all the time does not."""

from __future__ import annotations

from strandline.runtime.recent_times import WINDOW_S, RecentTimes


def test_a_time_is_recent_for_one_to_two_windows() -> None:
    times = RecentTimes()
    times.record_s(0.003, count=2)
    assert times.recent(WINDOW_S).count == 2
    times.record_s(0.001)
    assert times.recent(2 * WINDOW_S - 0.1).count == 3
    assert times.recent(2 * WINDOW_S).count == 1
    assert times.recent(3 * WINDOW_S).count == 0


def test_the_lifetime_forgets_nothing() -> None:
    times = RecentTimes()
    for minute in range(5):
        times.record_s(0.002)
        times.recent(minute * WINDOW_S)
    assert times.lifetime().count == 5
    assert times.lifetime().total_us == 10_000


def test_where_nobody_looked_for_long_nothing_is_lost_from_the_first_look() -> None:
    times = RecentTimes()
    times.record_s(1.5)
    assert times.recent(100 * WINDOW_S).max_us == 1_500_000
