"""What values of options look like, whoever reads them: a batch, a stream or the sink. Pure.

`given` are options with their names in lower case. Each function raises InvalidOption naming the option by its
documented spelling, the value, and what is allowed.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any

from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.request import EARLIEST, Ago, FromEnd, Offset, Time

_UNIT_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1
"""Of Spark's types."""
_LONGEST_DIGITS = 19
"""Of a number that fits in 64 bits."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


# --- Single values -----------------------------------------------------------------------------------------------


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """`true` or `false` in any case."""
    value = given.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise InvalidOption(f"{name} must be true or false, not {value!r}")
    return value.strip().lower() == "true"


def number(text: str) -> int | None:
    """A whole number from 0 on that fits in 64 bits, None where the text is none."""
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_DIGITS or int(text) > MAX_LONG:
        return None
    return int(text)


def positive(given: Mapping[str, str], name: str, most: int = MAX_LONG) -> int | None:
    """A whole number above 0, None where it is not given."""
    value = given.get(name.lower())
    if value is None:
        return None
    found = number(value)
    if not found or found > most:
        raise InvalidOption(f"{name} must be a positive integer of at most {most}, not {value!r}")
    return found


def whole_number(given: Mapping[str, str], name: str, default: int) -> int:
    """0 or more."""
    text = given.get(name.lower(), str(default))
    if (found := number(text)) is None:
        raise InvalidOption(f"{name} must be a whole number from 0 on, not {text!r}")
    return found


def duration_ms(given: Mapping[str, str], name: str, default_ms: int) -> int:
    """`15m`, as Spark writes times; a number alone is milliseconds."""
    value = given.get(name.lower())
    if value is None:
        return default_ms
    found = number(value)
    if found is None:
        found = with_unit(value.strip())
    if found is None:
        raise InvalidOption(f"{name} must be a time such as 500ms, 30s, 15m, 2h or 1d, not {value!r}")
    return found


def with_unit(text: str) -> int | None:
    """`10m` in milliseconds; None where the text is no such time."""
    found = re.fullmatch(r"([0-9]{1,18})([a-z]+)", text.lower())
    if found is None or found[2] not in _UNIT_MS:
        return None
    return int(int(found[1]) * _UNIT_MS[found[2]])


# --- Places in a topic -------------------------------------------------------------------------------------------


def offset(value: Any) -> Offset | None:
    """A number is an offset, EARLIEST or LATEST, as in Kafka's JSON; the text `-100` the last hundred. None: it
    is neither."""
    if type(value) is int:
        return value if EARLIEST <= value < 2**63 else None
    if not isinstance(value, str) or not value.strip().startswith("-"):
        return None
    back = number(value.strip()[1:])
    return FromEnd(back) if back else None


def time(value: Any) -> Time | None:
    """`1700000000000` (milliseconds since 1970), `-10m` (so long ago), `2026-03-01T12:00:00Z`, `2026-03-01`; in UTC
    where no zone is given: what runs on the driver does not know the session's. None: none of these.

    Of a time between two milliseconds the later one, since records are asked for that are not older.
    """
    if type(value) is int:
        return value if 0 <= value < 2**63 else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if text.startswith("-"):
        back_ms = with_unit(text[1:])
        return None if back_ms is None else Ago(back_ms)
    if text.isdigit():
        return number(text)
    found = iso_time(text)
    return found[1] if found is not None and found[1] >= 0 else None


def iso_time(text: str) -> tuple[int, int] | None:
    """The milliseconds since 1970 at or below, and at or above, a time such as `2026-03-01T12:00:00.0005`; in UTC where
    it names no zone. None: no such time."""
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    since = (found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)) - _EPOCH
    return since // _MILLISECOND, -(-since // _MILLISECOND)


# --- JSON --------------------------------------------------------------------------------------------------------


def json_object(name: str, value: str, expected: str) -> dict[str, Any]:
    """A JSON object without repeated keys."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise InvalidOption(f"{name}: a key stands twice in {value!r}")
        return result

    try:
        parsed = json.loads(value, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidOption(f"{name} {value!r} is not understood; {expected}")
    return parsed


def is_partition(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31
