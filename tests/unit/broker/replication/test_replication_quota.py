"""The rate of a replication throttle: what passes in any time, what a large batch does, whose turn it is."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.replication.replication_quota import PATIENCE_S, ReplicationQuota
from strandline.runtime.config.values import LONG_MAX

WINDOWS = 11


def taken_by_one_that_takes_all_it_can(
    quota: ReplicationQuota, steps_ms: list[int], batches: list[int]
) -> list[tuple[float, int]]:
    """(when, bytes), each time whole batches: as many as there is room for, or one."""
    taken, now_ms = [], 0
    for step_ms, batch in zip(steps_ms, batches, strict=True):
        now_ms += step_ms
        now = now_ms / 1000
        room = quota.room_bytes("one", now)
        if room:
            count = max(room // batch, 1) * batch
            quota.take(count, now)
            taken.append((now, count))
    return taken


@given(
    rate=st.integers(1, 10**9),
    window_s=st.integers(1, 5),
    moves=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 10**6)), min_size=1, max_size=40),
)
def test_in_any_time_no_more_passes_than_the_rate_a_window_and_a_batch(
    rate: int, window_s: int, moves: list[tuple[int, int]]
) -> None:
    largest = min(rate * window_s * WINDOWS, 10**6)
    batches = [min(batch, largest) for _, batch in moves]
    quota = ReplicationQuota(rate, window_s, WINDOWS)
    taken = taken_by_one_that_takes_all_it_can(quota, [step_ms for step_ms, _ in moves], batches)
    for (first, (begin, _)), (last, (end, _)) in combinations(enumerate(taken), 2):
        passed = sum(count for _, count in taken[first : last + 1])
        assert passed <= rate * (end - begin) + rate * window_s + max(batches) + 1


@given(rate=st.integers(10_000, 10**8), batch=st.integers(1, 10_000))
def test_who_takes_all_it_can_gets_the_rate(rate: int, batch: int) -> None:
    quota = ReplicationQuota(rate, 1, WINDOWS)
    taken = taken_by_one_that_takes_all_it_can(quota, [50] * 2_000, [batch] * 2_000)
    assert sum(count for _, count in taken) >= rate * 100 * 0.98 - batch


@pytest.mark.parametrize("rate", [0, 1, 1000])
def test_a_batch_that_the_rate_never_gives_passes_every_eleven_windows(rate: int) -> None:
    quota = ReplicationQuota(rate, 1, WINDOWS)
    taken = taken_by_one_that_takes_all_it_can(quota, [100] * 10_000, [10**6] * 10_000)
    assert 1000 / 13 <= len(taken) <= 1000 / 11 + 1


def test_what_is_free_after_a_long_time_is_no_more_than_a_window_gives() -> None:
    quota = ReplicationQuota(1000, 2, WINDOWS)
    assert quota.room_bytes("one", 1e6) == 2000
    quota.take(500, 1e6)
    assert quota.room_bytes("one", 1e6) == 1500
    assert quota.room_bytes("one", 2e6) == 2000


def test_nothing_is_free_before_a_piece_is_that_is_worth_a_fetch() -> None:
    quota = ReplicationQuota(1000, 1, WINDOWS)
    quota.take(1500, 100.0)
    assert quota.ready_at(100.0) == 100.6
    assert [quota.room_bytes("one", now) for now in (100.0, 100.4, 100.55, 100.61)] == [0, 0, 0, 110]


def test_of_a_high_rate_a_piece_is_free_soon() -> None:
    quota = ReplicationQuota(2**30, 1, WINDOWS)
    quota.take(2**30, 100.0)
    assert quota.ready_at(100.0) == pytest.approx(100.0 + 2**18 / 2**30)


def test_what_did_not_pass_after_all_is_free_again() -> None:
    quota = ReplicationQuota(1000, 1, WINDOWS)
    quota.take(1000, 100.0)
    assert quota.room_bytes("one", 100.0) == 0
    quota.take(-400, 100.0)
    assert quota.room_bytes("one", 100.0) == 400


def test_another_rate_counts_at_once_whatever_was_owed() -> None:
    quota = ReplicationQuota(1, 1, WINDOWS)
    quota.take(10**6, 100.0)
    assert not quota.room_bytes("one", 101.0)
    quota.set_rate(5000)
    assert quota.room_bytes("one", 101.0) == 5000


def test_the_largest_rate_sets_no_limit() -> None:
    assert not ReplicationQuota(LONG_MAX, 1, WINDOWS).is_limited
    assert ReplicationQuota(LONG_MAX - 1, 1, WINDOWS).is_limited


def test_who_was_turned_away_first_comes_first_unless_it_does_not_come() -> None:
    quota = ReplicationQuota(1000, 1, WINDOWS)
    quota.take(1000, 100.0)
    assert not quota.room_bytes("slow", 100.0)
    assert not quota.room_bytes("eager", 100.0)
    assert not quota.room_bytes("eager", 100.2), "it is the other one's turn"
    assert quota.room_bytes("slow", 100.21)
    quota.take(400, 100.21)
    assert not quota.room_bytes("slow", 100.22)
    assert quota.room_bytes("eager", 100.6), "it waits for longer"
    quota.take(400, 100.6)
    assert not quota.room_bytes("slow", 100.61)
    ready_at = quota.ready_at(100.61)
    assert not quota.room_bytes("eager", ready_at + PATIENCE_S - 0.01), "slow is next"
    assert quota.room_bytes("eager", ready_at + PATIENCE_S + 0.01)
