"""Which part of a topic `strandline consume -o` reads: the grammar and how it becomes offsets. Pure.

    start  end  47  +10  -10            where to begin: first record, only new ones, an offset, relative to start or end
    47:90  :90  47:  :end  -10:end      a half-open range: the end is not read; `:end` is the end as it is now
    @1700000000000  @1700000000  @2024-02-14  @2024-02-14T10:00:00Z  @-1h     a time: ms, s, a UTC day, RFC 3339, ago
    @-48h:-24h  @2024-02-14:1h  @:-1hr  @-1h:end                             a range of times; a second duration without
                                                                             a sign counts from the first time
`earliest`, `beginning` and `latest` are read as `start` and `end`.
"""

from __future__ import annotations

import datetime
import enum
import re
from typing import NamedTuple


class InvalidOffset(ValueError):
    """The text is not an offset; the message says why and what is allowed."""


class BoundKind(enum.Enum):
    START = "start"
    END = "end"
    OFFSET = "offset"
    AFTER_START = "after start"
    BEFORE_END = "before end"
    TIMESTAMP = "timestamp"


class Bound(NamedTuple):
    """One side of a range; `value` is an offset, a distance in offsets, or a time in ms since 1970."""

    kind: BoundKind
    value: int = 0


class OffsetRange(NamedTuple):
    """Read from `start` up to and without `stop`; for ever where `stop` is None."""

    start: Bound
    stop: Bound | None = None


START = Bound(BoundKind.START)
END = Bound(BoundKind.END)
FROM_START = OffsetRange(START)
NEW_ONLY = OffsetRange(END)

_WORDS = {"start": START, "earliest": START, "beginning": START, "end": END, "latest": END}
_UNITS_MS = {
    **dict.fromkeys(("ms",), 1),
    **dict.fromkeys(("s", "sec"), 1_000),
    **dict.fromkeys(("m", "min"), 60_000),
    **dict.fromkeys(("h", "hr"), 3_600_000),
    **dict.fromkeys(("d", "day"), 86_400_000),
    **dict.fromkeys(("w",), 604_800_000),
}
_UNIT = "|".join(sorted(_UNITS_MS, key=len, reverse=True))
_DURATION = rf"(?:\d+(?:\.\d+)?(?:{_UNIT}))+"
_DATE_TIME = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2})?"
_TIME = re.compile(rf"{_DATE_TIME}|\d{{4}}-\d{{2}}-\d{{2}}|-?{_DURATION}|\d+|start|end|now")
_MAX_OFFSET = _MAX_MS = 2**63 - 1
_LONG_NUMBER = re.compile(r"(?<![.\d])\d{20}")
"""Above _MAX_MS in every unit, and with some hundred digits Python makes no number of it any more."""
_SHORTEST_MS_DIGITS = 12
"""Fewer digits are seconds: 11 digits of seconds reach the year 5138, 12 digits of milliseconds begin in 1973."""


def parse_offset_range(text: str, now_ms: int) -> OffsetRange:
    """Read the grammar above. Raises InvalidOffset."""
    text = text.strip()
    if text.startswith("@"):
        return _parse_times(text[1:], now_ms, text)
    first, _, second = text.partition(":")
    if not text or text == ":":
        raise InvalidOffset(f"offset '{text}' is empty; give start, end, 47, +10, -10, 47:90, :end or @-1h")
    start = _parse_bound(first, text) if first else START
    stop = _parse_bound(second, text) if second else None
    return _checked(OffsetRange(start, stop), text)


def _checked(wanted: OffsetRange, whole: str) -> OffsetRange:
    """The range itself; InvalidOffset for one that ends before it starts whatever the partition holds."""
    start, stop = wanted
    if stop is None:
        return wanted
    if start.kind is stop.kind:
        inverted = stop.value > start.value if start.kind is BoundKind.BEFORE_END else stop.value < start.value
    else:
        inverted = (start, stop) == (END, START)
    if inverted:
        raise InvalidOffset(f"offset '{whole}' ends before it starts; give the smaller end first")
    return wanted


def _parse_bound(text: str, whole: str) -> Bound:
    if text in _WORDS:
        return _WORDS[text]
    match = re.fullmatch(r"([+-]?)(\d{1,19})", text, re.ASCII)
    if match is None or int(match[2]) > _MAX_OFFSET:
        raise InvalidOffset(f"offset '{whole}' is not understood; give start, end, 47, +10, -10, 47:90, :end or @-1h")
    kind = {"": BoundKind.OFFSET, "+": BoundKind.AFTER_START, "-": BoundKind.BEFORE_END}[match[1]]
    return Bound(kind, int(match[2]))


def _parse_times(text: str, now_ms: int, whole: str) -> OffsetRange:
    position = 0
    start = START
    match = _TIME.match(text)
    if match is not None:
        start = _time_bound(match[0], now_ms, None, whole)
        position = match.end()
    if position == len(text) and match is not None:
        return OffsetRange(start)
    rest = text[position + 1 :]
    if text[position : position + 1] != ":" or (rest and _TIME.fullmatch(rest) is None) or text == ":":
        raise InvalidOffset(
            f"time '{whole}' is not understood; give @1700000000000 (ms), @2024-02-14, @2024-02-14T10:00:00Z, @-1h "
            "or a range such as @-48h:-24h"
        )
    return _checked(OffsetRange(start, _time_bound(rest, now_ms, start, whole) if rest else None), whole)


def parse_time(text: str, now_ms: int) -> int:
    """A moment alone, in ms since 1970: `-1h` (ago), `2024-02-14`, `2024-02-14T10:00:00Z`, `1700000000000`, `now`.
    Raises InvalidOffset."""
    text = text.strip()
    if text in ("start", "end") or _TIME.fullmatch(text) is None:
        raise InvalidOffset(
            f"time '{text}' is not understood; give -2h (ago), 2024-02-14, 2024-02-14T10:00:00Z or ms since 1970"
        )
    return _time_bound(text, now_ms, None, text).value


def _time_bound(text: str, now_ms: int, start: Bound | None, whole: str) -> Bound:
    """A time; an unsigned duration counts from `start`, which must then be a time. InvalidOffset where requests cannot
    carry it."""
    is_short = _LONG_NUMBER.search(text) is None
    bound = _any_time_bound(text, now_ms, start, whole) if is_short else None
    if bound is None or bound.value > _MAX_MS:
        raise InvalidOffset(
            f"time '{whole}': {text} is none that a record can have; give at most {_MAX_MS} ms since 1970"
        )
    return bound


def _any_time_bound(text: str, now_ms: int, start: Bound | None, whole: str) -> Bound:
    if text in ("start", "end"):
        return _WORDS[text]
    if text == "now":
        return Bound(BoundKind.TIMESTAMP, now_ms)
    if re.fullmatch(r"-" + _DURATION, text):
        return Bound(BoundKind.TIMESTAMP, max(0, now_ms - duration_ms(text[1:])))
    if re.fullmatch(_DURATION, text):
        if start is None or start.kind is not BoundKind.TIMESTAMP:
            raise InvalidOffset(f"time '{whole}': {text} has nothing to count from; write -{text} for {text} ago")
        return Bound(BoundKind.TIMESTAMP, start.value + duration_ms(text))
    if text.isdigit():
        return Bound(BoundKind.TIMESTAMP, int(text) * (1 if len(text) >= _SHORTEST_MS_DIGITS else 1_000))
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidOffset(f"time '{whole}': {error}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return Bound(BoundKind.TIMESTAMP, max(0, round(moment.timestamp() * 1000)))


def duration_ms(text: str) -> int:
    """`5s`, `1h30m`. InvalidOffset for what is no duration, or longer than any number of requests."""
    if not re.fullmatch(_DURATION, text) or _LONG_NUMBER.search(text):
        raise InvalidOffset(f"'{text}' is no duration; give for example 5s, 500ms or 1h30m")
    return round(
        sum(float(number) * _UNITS_MS[unit] for number, unit in re.findall(rf"(\d+(?:\.\d+)?)({_UNIT})", text))
    )


class PartitionBounds(NamedTuple):
    """What a partition holds now: `[beginning, end)`, and per asked time the first offset at or after it (or None)."""

    beginning: int
    end: int
    at_start_time: int | None = None
    at_stop_time: int | None = None


def resolve(wanted: OffsetRange, bounds: PartitionBounds) -> tuple[int, int | None]:
    """The offsets to read in one partition: first one, and the one to stop before (None: go on for ever).

    The start is kept within the log, so that `-o 0` works after retention removed the head; a time later than every
    record means the end. A range that begins behind the end is empty: records below it were not asked for.
    """
    asked = _offset_of(wanted.start, bounds, bounds.at_start_time)
    start = min(max(asked, bounds.beginning), bounds.end)
    if wanted.stop is None:
        return start, None
    if asked > bounds.end:
        return start, start
    return start, max(start, _offset_of(wanted.stop, bounds, bounds.at_stop_time))


def before_beginning(wanted: OffsetRange, bounds: PartitionBounds) -> int | None:
    """The offset from which to read, where the partition begins after it; None where it does not. Who says 0 means the
    beginning, wherever that is."""
    start = wanted.start
    return start.value if start.kind is BoundKind.OFFSET and 0 < start.value < bounds.beginning else None


def beyond_end(wanted: OffsetRange, bounds: PartitionBounds) -> int | None:
    """The offset from which to read, where the partition ends before it; None where it does not."""
    start = _offset_of(wanted.start, bounds, bounds.at_start_time)
    return start if start > bounds.end else None


def _offset_of(bound: Bound, bounds: PartitionBounds, at_time: int | None) -> int:
    match bound.kind:
        case BoundKind.START:
            return bounds.beginning
        case BoundKind.END:
            return bounds.end
        case BoundKind.OFFSET:
            return bound.value
        case BoundKind.AFTER_START:
            return bounds.beginning + bound.value
        case BoundKind.BEFORE_END:
            return bounds.end - bound.value
        case BoundKind.TIMESTAMP:
            return bounds.end if at_time is None else at_time
