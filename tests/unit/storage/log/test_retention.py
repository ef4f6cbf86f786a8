"""What may leave the head of a log: the decider against Kafka's three passes, and clocks that lie."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.storage.log.retention import (
    HOLD_MS,
    JUMP_MS,
    ClockGuard,
    Decision,
    FutureTimestamp,
    Reason,
    Rule,
    SegmentFacts,
    decide,
)

NOW_MS = 1_700_000_000_000
TEN_YEARS_MS = 10 * 365 * 86_400_000
DAY_MS = 86_400_000
KEEP_ALL = Rule(-1, -1, True)


def log_of(*segments: tuple[int, int, int | None]) -> list[SegmentFacts]:
    """(records, bytes, age in ms or None) of each segment, oldest first, from offset 0; the last one is active."""
    facts, offset = [], 0
    for place, (count, size_bytes, age_ms) in enumerate(segments):
        time_ms = None if age_ms is None else NOW_MS - age_ms
        facts.append(SegmentFacts(offset, offset + count, size_bytes, time_ms, place == len(segments) - 1))
        offset += count
    return facts


def decided(
    facts: list[SegmentFacts],
    rule: Rule,
    *,
    log_start: int = 0,
    high_watermark: int | None = None,
    now_ms: int | None = NOW_MS,
) -> Decision:
    return decide(
        facts,
        rule,
        size_bytes=sum(each.size_bytes for each in facts),
        log_start_offset=log_start,
        high_watermark=facts[-1].end_offset if high_watermark is None else high_watermark,
        now_ms=now_ms,
    )


def reasons(decision: Decision) -> list[tuple[int, Reason]]:
    return [tuple(each) for each in decision.removed]


def test_without_limits_nothing_goes() -> None:
    facts = log_of((10, 100, 99 * DAY_MS), (10, 100, DAY_MS), (10, 100, 0))
    assert decided(facts, KEEP_ALL) == Decision(0)


def test_segments_go_by_the_age_of_their_youngest_record() -> None:
    facts = log_of((10, 100, 3 * DAY_MS), (10, 100, 2 * DAY_MS), (10, 100, DAY_MS), (5, 50, 0))
    decision = decided(facts, Rule(2 * DAY_MS - 1, -1, True))
    assert reasons(decision) == [(0, Reason.TIME), (10, Reason.TIME)]
    assert decision.log_start_offset == 20 and not decision.takes_active
    assert decided(facts, Rule(2 * DAY_MS, -1, True)).log_start_offset == 10, "exactly at the limit it stays"


def test_an_old_segment_behind_a_young_one_stays() -> None:
    facts = log_of((10, 100, 0), (10, 100, 9 * DAY_MS), (5, 50, 0))
    assert decided(facts, Rule(DAY_MS, -1, True)).removed == []


def test_segments_go_while_the_rest_is_at_least_the_limit() -> None:
    facts = log_of((10, 100, 0), (10, 100, 0), (10, 100, 0), (5, 50, 0))
    assert decided(facts, Rule(-1, 150, True)).log_start_offset == 20
    assert decided(facts, Rule(-1, 151, True)).log_start_offset == 10
    assert decided(facts, Rule(-1, 350, True)).removed == []


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    facts = log_of((10, 100, 9 * DAY_MS), (10, 100, 9 * DAY_MS), (5, 50, 9 * DAY_MS))
    for rule in (Rule(0, -1, True), Rule(-1, 0, True)):
        for high_watermark, expected in ((0, 0), (9, 0), (10, 10), (19, 10), (20, 20), (24, 20), (25, 25)):
            assert decided(facts, rule, high_watermark=high_watermark).log_start_offset == expected


def test_an_active_segment_that_is_expired_goes_as_well_but_never_an_empty_one() -> None:
    decision = decided(log_of((10, 100, 2 * DAY_MS), (5, 50, 2 * DAY_MS)), Rule(DAY_MS, -1, True))
    assert (decision.log_start_offset, decision.takes_active, len(decision.removed)) == (15, True, 2)
    decision = decided(log_of((10, 100, 2 * DAY_MS), (0, 0, 2 * DAY_MS)), Rule(DAY_MS, -1, True))
    assert (decision.log_start_offset, decision.takes_active, len(decision.removed)) == (10, False, 1)


def test_what_lies_below_the_log_start_goes_whatever_the_policy() -> None:
    facts = log_of((10, 100, 0), (10, 100, 0), (5, 50, 0))
    for log_start, removed, takes_active in ((9, 0, False), (10, 1, False), (22, 2, False), (25, 3, True)):
        decision = decided(facts, Rule(DAY_MS, 10, False), log_start=log_start)
        assert [reason for _, reason in reasons(decision)] == [Reason.LOG_START] * removed
        assert (decision.log_start_offset, decision.takes_active) == (log_start, takes_active)


def test_a_compacted_topic_has_no_time_and_no_size_limit_unless_it_deletes_as_well() -> None:
    facts = log_of((10, 100, 9 * DAY_MS), (5, 50, 9 * DAY_MS))
    assert decided(facts, Rule(DAY_MS, 10, False)).removed == []
    assert decided(facts, Rule(DAY_MS, 10, True)).log_start_offset == 15


def test_a_time_that_is_not_known_is_asked_for_only_where_it_decides() -> None:
    facts = log_of((10, 100, None), (10, 100, None), (5, 50, 0))
    assert decided(facts, KEEP_ALL).needs_time_of is None
    decision = decided(facts, Rule(DAY_MS, 120, True))
    assert reasons(decision) == [(0, Reason.SIZE)] and decision.needs_time_of == 10


@pytest.mark.parametrize("years_ms", [-TEN_YEARS_MS, TEN_YEARS_MS])
def test_a_stamp_ten_years_off_harms_its_own_segment_alone(years_ms: int) -> None:
    facts = log_of((10, 100, -years_ms), (10, 100, DAY_MS), (5, 50, 0))
    decision = decided(facts, Rule(7 * DAY_MS, -1, True))
    if years_ms > 0:  # kept, and named
        assert decision.removed == [] and decision.future == FutureTimestamp(0, NOW_MS + TEN_YEARS_MS)
    else:  # expired at once
        assert decision.log_start_offset == 10 and decision.future is None


def test_a_clock_ten_years_behind_keeps_everything() -> None:
    facts = log_of((10, 100, 99 * DAY_MS), (5, 50, 0))
    assert decided(facts, Rule(DAY_MS, -1, True), now_ms=NOW_MS - TEN_YEARS_MS).removed == []


def test_without_a_clock_to_trust_size_and_log_start_still_count() -> None:
    facts = log_of((10, 100, 99 * DAY_MS), (10, 100, 99 * DAY_MS), (10, 100, 99 * DAY_MS), (5, 50, 99 * DAY_MS))
    decision = decided(facts, Rule(DAY_MS, 150, True), log_start=10, now_ms=None)
    assert reasons(decision) == [(0, Reason.LOG_START), (10, Reason.SIZE)]


SEGMENTS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(-3, 8)), min_size=1, max_size=8
)  # fmt: skip


@given(
    segments=SEGMENTS,
    empty_active=st.booleans(),
    retention_ms=st.integers(-1, 8),
    retention_bytes=st.integers(-1, 20),
    deletes=st.booleans(),
    start=st.integers(0, 30),
    watermark=st.integers(0, 30),
)
def test_it_decides_as_kafkas_three_passes_do(
    segments: list[tuple[int, int, int]],
    empty_active: bool,
    retention_ms: int,
    retention_bytes: int,
    deletes: bool,
    start: int,
    watermark: int,
) -> None:
    facts = log_of(*segments, *([(0, 0, 0)] if empty_active else []))
    end = facts[-1].end_offset
    high_watermark = min(watermark, end)
    log_start = min(start, high_watermark)
    rule = Rule(retention_ms, retention_bytes, deletes)
    decision = decided(facts, rule, log_start=log_start, high_watermark=high_watermark)

    left = list(facts)

    def may_go(each: SegmentFacts) -> bool:
        return each.end_offset <= high_watermark and not (each.is_active and each.size_bytes == 0)

    while left and may_go(left[0]) and left[0].end_offset <= log_start:  # 1 log start
        left.pop(0)
    if deletes and retention_bytes >= 0:  # 2 size
        while left and may_go(left[0]) and sum(e.size_bytes for e in left) - left[0].size_bytes >= retention_bytes:
            left.pop(0)
    if deletes and retention_ms >= 0:  # 3 time
        while left and may_go(left[0]) and left[0].time_ms is not None and NOW_MS - left[0].time_ms > retention_ms:
            left.pop(0)
    gone = facts[: len(facts) - len(left)]
    assert [each.base_offset for each in decision.removed] == [each.base_offset for each in gone]
    assert decision.log_start_offset == max([log_start, *(each.end_offset for each in gone)]) <= high_watermark
    assert decision.takes_active == (not left)


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_clock_that_keeps_pace_or_goes_back_is_believed() -> None:
    guard = ClockGuard()
    assert guard.believe(NOW_MS, 0) == NOW_MS
    assert guard.believe(NOW_MS + 300_000 + JUMP_MS, 300_000) == NOW_MS + 300_000 + JUMP_MS
    assert guard.believe(NOW_MS - TEN_YEARS_MS, 600_000) == NOW_MS - TEN_YEARS_MS


def test_a_frozen_clock_is_believed_and_lets_nothing_expire() -> None:
    guard = ClockGuard()
    assert [guard.believe(NOW_MS, at * DAY_MS) for at in range(3)] == [NOW_MS] * 3


def test_a_clock_that_jumps_ahead_is_not_believed_for_an_hour_and_then_it_is() -> None:
    guard = ClockGuard()
    guard.believe(NOW_MS, 0)
    ahead = NOW_MS + TEN_YEARS_MS
    assert guard.believe(ahead + 1000, 1000) is None and guard.is_holding
    assert guard.believe(ahead + HOLD_MS, HOLD_MS) is None
    assert guard.believe(ahead + HOLD_MS + 1000, HOLD_MS + 1000) == ahead + HOLD_MS + 1000 and not guard.is_holding


def test_a_clock_that_is_put_right_within_the_hour_is_believed_again() -> None:
    guard = ClockGuard()
    guard.believe(NOW_MS, 0)
    assert guard.believe(NOW_MS + TEN_YEARS_MS, 1000) is None
    assert guard.believe(NOW_MS + 2000, 2000) == NOW_MS + 2000
    assert guard.believe(NOW_MS + TEN_YEARS_MS, 3000) is None, "and the next jump is one again"
