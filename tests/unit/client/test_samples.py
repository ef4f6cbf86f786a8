"""Averages and maxima of the last two windows of a figure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.samples import WINDOW_S, Samples


def test_nothing_is_zero() -> None:
    samples = Samples()
    assert (samples.average(1000.0), samples.maximum(1000.0)) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50))), st.integers(0, 200))
def test_they_are_of_this_window_and_the_one_before(steps: list[tuple[int, int]], wait_s: int) -> None:
    samples, now, added = Samples(), 0.0, []
    for passed_s, value in steps:
        now += passed_s
        samples.add(value, now)
        added.append((now, value))
    now += wait_s
    recent = [value for at, value in added if at // WINDOW_S >= now // WINDOW_S - 1]
    assert samples.maximum(now) == max(recent, default=0)
    assert samples.average(now) == pytest.approx(sum(recent) / len(recent) if recent else 0)
