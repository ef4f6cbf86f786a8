"""The grammar of `consume -o`, and what it means in a partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.offset_range import (
    Bound,
    BoundKind,
    InvalidOffset,
    OffsetRange,
    PartitionBounds,
    parse_offset_range,
    resolve,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
VALENTINE_MS = 1_707_868_800_000  # 2024-02-14T00:00:00Z

START, END = Bound(BoundKind.START), Bound(BoundKind.END)


def at(timestamp_ms: int) -> Bound:
    return Bound(BoundKind.TIMESTAMP, timestamp_ms)


def offset(value: int) -> Bound:
    return Bound(BoundKind.OFFSET, value)


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("start", START, None),
        ("earliest", START, None),
        ("beginning", START, None),
        ("end", END, None),
        ("latest", END, None),
        (":end", START, END),
        ("+10", Bound(BoundKind.AFTER_START, 10), None),
        ("-10", Bound(BoundKind.BEFORE_END, 10), None),
        ("-10:end", Bound(BoundKind.BEFORE_END, 10), END),
        ("47", offset(47), None),
        ("47:", offset(47), None),
        (":90", START, offset(90)),
        ("47:90", offset(47), offset(90)),
        ("@1700000000000", at(1_700_000_000_000), None),
        ("@1700000000", at(1_700_000_000_000), None),
        ("@0", at(0), None),
        ("@2024-02-14", at(VALENTINE_MS), None),
        ("@2024-02-14T10:00:00Z", at(VALENTINE_MS + 10 * HOUR_MS), None),
        ("@2024-02-14T10:00+02:00", at(VALENTINE_MS + 8 * HOUR_MS), None),
        ("@2024-02-14T10:00:00Z:2024-02-15", at(VALENTINE_MS + 10 * HOUR_MS), at(VALENTINE_MS + DAY_MS)),
        ("@-1h", at(NOW_MS - HOUR_MS), None),
        ("@-1h30m", at(NOW_MS - HOUR_MS - 1_800_000), None),
        ("@-48h:-24h", at(NOW_MS - 48 * HOUR_MS), at(NOW_MS - 24 * HOUR_MS)),
        ("@2024-02-14:1h", at(VALENTINE_MS), at(VALENTINE_MS + HOUR_MS)),
        ("@:-1hr", START, at(NOW_MS - HOUR_MS)),
        ("@-1h:end", at(NOW_MS - HOUR_MS), END),
        ("@-1d:now", at(NOW_MS - DAY_MS), at(NOW_MS)),
    ],
)
def test_every_form_of_the_grammar_has_one_meaning(text: str, start: Bound, stop: Bound | None) -> None:
    assert parse_offset_range(text, NOW_MS) == OffsetRange(start, stop)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "x",
        "1:2:3",
        "--1",
        "+-1",
        "1.5",
        "@",
        "@:",
        "@x",
        "@1h",
        "@:1h",
        "@-1h:-2h:-3h",
        "@2024-13-01",
        "@-5",
        "²",
        "99999999999999999999",
        "@99999999999999999999999",
        "@9223372036854775808",
        "@" + "9" * 5_000,
        "@-" + "9" * 400 + "d",
        "@0:9999999999999999d",
        "@-1y",
        # Inverted, whatever the partition holds.
        "30:20",
        "+5:+3",
        "-3:-5",
        "@-1h:-2h",
        "end:start",
    ],
)
def test_what_is_not_in_the_grammar_is_refused_with_the_text_in_the_message(text: str) -> None:
    with pytest.raises(InvalidOffset) as caught:
        parse_offset_range(text, NOW_MS)
    assert repr(text)[1:-1] in str(caught.value)


@given(st.text(alphabet="0123456789@:+-hmsdTZstartend. ", max_size=20))
def test_no_text_makes_the_parser_fail_otherwise(text: str) -> None:
    try:
        parse_offset_range(text, NOW_MS)
    except InvalidOffset:
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", (10, None)),
        ("end", (50, None)),
        (":end", (10, 50)),
        ("+5", (15, None)),
        ("-5", (45, None)),
        ("-500", (10, None)),
        ("3", (10, None)),
        ("70", (50, None)),
        ("20:30", (20, 30)),
        ("20:90", (20, 90)),
    ],
)
def test_offsets_are_kept_within_what_the_partition_holds(text: str, expected: tuple[int, int | None]) -> None:
    assert resolve(parse_offset_range(text, NOW_MS), PartitionBounds(10, 50)) == expected


def test_a_time_later_than_every_record_is_the_end() -> None:
    assert resolve(parse_offset_range("@-1h", NOW_MS), PartitionBounds(10, 50, None)) == (50, None)
    assert resolve(parse_offset_range("@-2h:-1h", NOW_MS), PartitionBounds(10, 50, 20, None)) == (20, 50)
