"""Which log is cleaned, up to where, and in which groups: the pure rules."""

from __future__ import annotations

import pytest

from strandline.broker.upkeep.throttle import ByteRate
from strandline.storage.cleaning.choice import Bounds, Candidate, Lag, SealedSegment, dirtiest, examine
from strandline.storage.cleaning.grouping import Source, group

NOW_MS = 1_000_000
LAG = Lag(0.5, 0, 2**63 - 1)
SEALED = [SealedSegment(base, base + 10, 100, NOW_MS - 500 + base, NOW_MS - 450 + base) for base in range(0, 50, 10)]
OPEN = Bounds(0, 55, 55, 2**63 - 1)


def test_what_was_never_cleaned_is_all_dirty() -> None:
    candidate = examine(SEALED, OPEN, LAG, 0, NOW_MS)
    assert candidate == Candidate(0, 50, 0, 500, 0)
    assert candidate.dirty_ratio == 1.0 and candidate.is_worthwhile(LAG)


def test_the_ratio_counts_what_was_cleaned() -> None:
    candidate = examine(SEALED[:4], OPEN, LAG, 20, NOW_MS)
    assert (candidate.clean_bytes, candidate.dirty_bytes, candidate.dirty_ratio) == (200, 200, 0.5)


@pytest.mark.parametrize(
    ("compacted_below", "least_ratio", "is_worthwhile"),
    [(20, 0.49, True), (20, 0.5, False), (20, 0.51, False), (0, 0.99, True), (0, 1.0, False), (40, 0.0, False)],
)
def test_a_log_is_cleaned_above_the_ratio_and_not_at_it(
    compacted_below: int, least_ratio: float, is_worthwhile: bool
) -> None:
    lag = LAG._replace(min_cleanable_dirty_ratio=least_ratio)
    candidate = examine(SEALED[:4], OPEN, lag, compacted_below, NOW_MS)
    assert candidate.is_worthwhile(lag) is is_worthwhile


def test_with_a_ratio_of_1_only_the_longest_lag_has_a_log_cleaned() -> None:
    lag = Lag(1.0, 0, 460)
    assert examine(SEALED, OPEN, lag, 0, NOW_MS).is_worthwhile(lag)


def test_a_checkpoint_outside_of_the_log_says_nothing() -> None:
    assert examine(SEALED, OPEN._replace(log_start_offset=5), LAG, 3, NOW_MS).first_dirty_offset == 5
    assert examine(SEALED, OPEN, LAG, 56, NOW_MS).first_dirty_offset == 0
    assert examine(SEALED, OPEN, LAG, 55, NOW_MS) == Candidate(55, 50, 500, 0, 0)


def test_nothing_at_or_above_the_high_watermark_or_what_cannot_be_read_is_touched() -> None:
    assert examine(SEALED, OPEN._replace(durable_high_watermark=29), LAG, 0, NOW_MS).end_offset == 20
    assert examine(SEALED, OPEN._replace(uncleanable_offset=30), LAG, 0, NOW_MS).end_offset == 30
    nothing = examine(SEALED, OPEN._replace(uncleanable_offset=0), LAG, 0, NOW_MS)
    assert nothing.dirty_bytes == 0 and not nothing.is_worthwhile(LAG)


def test_young_records_wait_for_the_least_lag_but_only_in_dirty_segments() -> None:
    lag = LAG._replace(min_compaction_lag_ms=435)
    assert examine(SEALED, OPEN, lag, 0, NOW_MS).end_offset == 20
    assert examine(SEALED, OPEN, lag, 40, NOW_MS).end_offset == 40


def test_a_record_that_waits_too_long_is_cleaned_whatever_the_ratio_says() -> None:
    lag = LAG._replace(max_compaction_lag_ms=460)
    late, early = (examine(SEALED, OPEN, lag, 40, NOW_MS + more) for more in (1, 0))
    assert late.overdue_ms == 1 and late.is_overdue and late.is_worthwhile(lag)
    assert not early.is_overdue and not early.is_worthwhile(lag)
    unknown = [segment._replace(first_timestamp_ms=-1) for segment in SEALED]
    assert not examine(unknown, OPEN, lag, 0, NOW_MS * 2).is_overdue


def test_overdue_logs_go_first_then_the_dirtiest() -> None:
    half, most, late = Candidate(0, 9, 1, 1, 0), Candidate(0, 9, 1, 9, 0), Candidate(0, 9, 9, 1, 5)
    assert dirtiest([("half", half), ("most", most), ("again", most)]) == "most"
    assert dirtiest([("most", most), ("late", late)]) == "late"
    assert dirtiest([]) is None


def source(base: int, size: int, index: int = 12, count: int = 10) -> Source:
    return Source(base, base + count, size, index)


def bases(groups: list[list[Source]]) -> list[list[int]]:
    return [[each.base_offset for each in sources] for sources in groups]


def test_groups_stay_within_every_limit_of_a_segment() -> None:
    sources = [source(base, 40) for base in range(0, 60, 10)]
    assert bases(group(sources, end_offset=60, segment_bytes=100, segment_index_bytes=1000)) == [
        [0, 10], [20, 30], [40, 50],
    ]  # fmt: skip
    assert bases(group(sources, end_offset=31, segment_bytes=1000, segment_index_bytes=36)) == [[0, 10, 20], [30]]
    far = [source(0, 1), Source(10, 2**31, 1, 12), Source(2**31, 2**31 + 1, 1, 12)]
    assert bases(group(far, end_offset=2**32, segment_bytes=100, segment_index_bytes=100)) == [[0, 10], [2**31]]
    many = [source(base, 1) for base in range(0, 1200, 10)]
    assert [len(each) for each in group(many, end_offset=1200, segment_bytes=9999, segment_index_bytes=9999)] == [
        50, 50, 20,
    ]  # fmt: skip
    assert bases(group([source(0, 500)], end_offset=10, segment_bytes=100, segment_index_bytes=100)) == [[0]]


def test_a_byte_rate_is_kept_by_all_together() -> None:
    rate = ByteRate(1000)
    assert rate.pause_s(500, 10.0) == 0.5
    assert rate.pause_s(500, 10.0) == 1.0
    assert rate.pause_s(1000, 20.0) == 1.0
    assert rate.step_bytes(0.5, 100, 10_000) == 500 and rate.step_bytes(0.5, 1000, 10_000) == 1000
    assert ByteRate(1.7976931348623157e308).step_bytes(0.5, 1, 10_000) == 10_000
