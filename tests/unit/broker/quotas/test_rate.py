"""What passes under a quota, and for how long who exceeds it is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.quotas.rate import Meter, SampledRate


def greedy(bound: float, sizes: list[float], until_s: float) -> float:
    """What somebody passes who sends the next piece as soon as nothing is owed."""
    meter, now, passed, turn = Meter(bound, 1.0, 11.0), 0.0, 0.0, 0
    while now < until_s:
        size = sizes[turn % len(sizes)]
        turn += 1
        passed += size
        now += meter.take(size, now)
    return passed


@given(st.integers(1_000, 10_000_000), st.lists(st.integers(20, 100), min_size=1, max_size=5))
def test_in_any_time_a_window_and_one_piece_pass_beyond_the_quota_at_most(bound: int, percents: list[int]) -> None:
    sizes = [bound * percent / 100 for percent in percents]
    assert bound * 60 * 0.999 <= greedy(bound, sizes, 60) <= bound * (60 + 1) + max(sizes) + 1


def test_who_exceeds_it_is_held_as_kafka_says() -> None:
    """(observed - bound) / bound * window, of a window that began a second before."""
    meter = Meter(1000, 1.0, 11.0)
    assert meter.take(1000, 5.0) == 0
    assert meter.take(2000, 5.0) == pytest.approx((3000 / 1 - 1000) / 1000 * 1)
    assert not meter.is_free(6.9) and meter.is_free(7.0)


def test_nobody_is_held_for_longer_than_all_windows() -> None:
    assert Meter(1, 1.0, 11.0).take(10**9, 0.0) == 11.0
    assert Meter(0, 1.0, 11.0).take(1, 0.0) == 11.0


def test_what_was_not_used_is_saved_up_for_one_window_only() -> None:
    meter = Meter(1000, 1.0, 11.0)
    meter.take(1, 0.0)
    assert meter.take(1001, 100.0) == pytest.approx(0.001)


def test_what_may_pass_at_once_is_what_was_saved_up_and_less_than_nothing_while_something_is_owed() -> None:
    meter = Meter(100.0, 2.0, 10.0)
    assert meter.left(5.0) == 200
    meter.take(150, 5.0)
    assert meter.left(5.0) == 50
    meter.take(250, 5.0)
    assert (meter.left(5.0), meter.left(6.0), meter.left(60.0)) == (-200, -100, 200)


def test_another_bound_begins_anew() -> None:
    meter = Meter(1, 1.0, 11.0)
    meter.take(100, 0.0)
    meter.set_bound(2)
    assert meter.is_free(0.0) and meter.take(4, 0.0) == 1.0


@pytest.mark.parametrize(("bound", "owed_s"), [(1, 8.0), (2, 4.0), (0.5, 11.0), (0, 11.0)])
def test_what_is_owed_is_made_up_for_by_another_bound(bound: float, owed_s: float) -> None:
    meter = Meter(1, 1.0, 11.0)
    meter.take(11, 0.0)
    meter.change_bound(bound, 2.0)
    assert meter.owed_s(2.0) == owed_s
    meter.change_bound(5, 100.0)
    assert meter.left(100.0) == 5, "nothing was owed any more"


def test_what_did_not_pass_after_all_is_given_back() -> None:
    meter = Meter(1, 11.0, 11.0)
    meter.take(15, 0.0)
    meter.give_back(meter.counted)
    assert meter.is_free(0.0) and meter.take(11, 0.0) == 0


def test_no_more_is_given_back_than_was_counted() -> None:
    """Or who asks for a thousand partitions that cannot be made is rid of what is owed for others."""
    meter = Meter(1, 11.0, 11.0)
    meter.take(21, 0.0)
    meter.take(1000, 0.0)
    meter.give_back(meter.counted)
    assert meter.owed_s(0.0) == pytest.approx(10.0)


def test_a_rate_never_gets_negative_by_what_is_given_back() -> None:
    rate = SampledRate(1.0, 11)
    rate.add(5, 0.0)
    rate.add(7, 2.0)
    rate.give_back(9)
    assert rate.per_second(2.0) == pytest.approx(3 / 10)
    rate.give_back(100)
    assert rate.per_second(2.0) == 0.0


def test_the_shown_rate_is_kafkas_over_the_windows_that_are_not_too_old() -> None:
    rate = SampledRate(1.0, 11)
    assert rate.per_second(0.0) == 0
    for second in range(5):
        rate.add(1000, float(second))
    assert rate.per_second(4.5) == pytest.approx(5000 / 10.5)
    assert rate.per_second(13.5) == pytest.approx(2000 / 10.5)
    assert rate.per_second(20.0) == 0


@given(st.integers(1, 100))
def test_the_shown_rate_keeps_few_samples(count: int) -> None:
    rate = SampledRate(1.0, 11)
    for number in range(count * 20):
        rate.add(1, number / 3)
    assert len(rate._kept) <= 11
