"""The option `where`: a condition that narrows what a batch reads. Pure.

    partition IN (0, 2) AND offset >= 100 AND `timestamp` >= '2026-03-01T12:00:00Z'

A condition is SQL, taken apart by sqlglot: comparisons of topic, partition, offset or timestamp with constants, joined
by AND. It belongs to one load(). (Spark has filters of queries to push down, too. But it keeps the plan of a Python
source for all scans of a DataFrame, so that a union, a self-join, or the next query of the same DataFrame would get the
rows of whichever filter came last: `PythonDataSourceV2.setReadInfo`, Spark 4.1 to 4.3.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options import values
from strandline.spark_connector.options.request import NO_LIMITS, Condition, Limits

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

EXPECTED = (
    "give comparisons of topic, partition, offset or timestamp with constants (=, <, <=, >, >=, BETWEEN, IN; of a "
    "topic = and IN), joined by AND, such as \"partition = 0 AND timestamp >= '2026-03-01'\"; filter() of the "
    "DataFrame takes all others"
)
COLUMNS = ("topic", "partition", "offset", "timestamp")
_FLIPPED = {"LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE", "EQ": "EQ"}


def condition(text: str) -> Condition:
    """Raises InvalidOption."""
    import sqlglot  # a tenth of a second, for those who need it
    from sqlglot.errors import SqlglotError

    try:
        statements = sqlglot.parse(text, dialect="spark")
    except (SqlglotError, RecursionError):
        statements = []
    if len(statements) != 1 or statements[0] is None:
        raise InvalidOption(f"where {text!r} is not understood; {EXPECTED}")
    limits = dict.fromkeys(COLUMNS, NO_LIMITS)
    for part in _conjuncts(statements[0]):
        found = _comparison(part)
        if found is None:
            raise InvalidOption(f"where {text!r}: {part.sql('spark')!r} is not understood; {EXPECTED}")
        column, more = found
        limits[column] = limits[column].both(more)
    return Condition(**limits)


def _conjuncts(tree: Expr) -> Iterator[Expr]:
    from sqlglot import expressions as sql

    left = [tree]
    while left:
        each = left.pop().unnest()
        if isinstance(each, sql.And):
            left += [each.expression, each.this]
        else:
            yield each


def _comparison(part: Expr) -> tuple[str, Limits] | None:
    """Of one column; None where it is no such comparison."""
    from sqlglot import expressions as sql

    kind = type(part).__name__
    if isinstance(part, sql.In) and part.expressions:
        column, constants = part.this, part.expressions
    elif isinstance(part, sql.Between) and not part.args.get("symmetric"):
        column, constants = part.this, [part.args["low"], part.args["high"]]
    elif kind in _FLIPPED:
        column, constants = part.this, [part.expression]
        if not isinstance(column, sql.Column):
            column, constants, kind = part.expression, [part.this], _FLIPPED[kind]
    else:
        return None
    name = column.name.lower() if isinstance(column, sql.Column) and not column.table else ""
    known = [found for each in constants if (found := _constant(name, each.unnest())) is not None]
    if name not in COLUMNS or len(known) < len(constants):
        return None
    limits = _limits(kind, known)
    return None if name == "topic" and limits.among is None else (name, limits)


Rounded = tuple[int, int] | str
"""A constant: a text, or the whole numbers at or below and at or above it, which differ for a time only."""


def _limits(kind: str, constants: list[Rounded]) -> Limits:
    if kind in ("EQ", "In"):
        met = (each for each in constants if _is_met(each))
        return Limits(among=frozenset(each if isinstance(each, str) else each[0] for each in met))
    low, high = constants[0], constants[-1]
    if isinstance(low, str) or isinstance(high, str):
        return NO_LIMITS
    match kind:
        case "LT":
            return Limits(end=low[1])
        case "LTE":
            return Limits(end=low[0] + 1)
        case "GT":
            return Limits(first=low[0] + 1)
        case "GTE":
            return Limits(first=low[1])
        case _:
            return Limits(first=low[1], end=high[0] + 1)


def _is_met(constant: Rounded) -> bool:
    """Some value may be equal to it."""
    return isinstance(constant, str) or constant[0] == constant[1]


def _constant(column: str, given: Expr) -> Rounded | None:
    """None: not one that the column can be compared with."""
    from sqlglot import expressions as sql

    if isinstance(given, sql.Cast) and column == "timestamp" and given.to.is_type(*sql.DataType.TEMPORAL_TYPES):
        given = given.this  # TIMESTAMP '2026-03-01'
    if isinstance(given, sql.Neg) and isinstance(given.this, sql.Literal):
        sign, given = -1, given.this
    else:
        sign = 1
    if not isinstance(given, sql.Literal):
        return None
    if not given.is_string:
        number = values.number(given.name)
        return None if number is None or column == "topic" else (sign * number, sign * number)
    if column == "topic":
        return given.name
    return values.iso_time(given.name) if column == "timestamp" and sign == 1 else None
