"""A case is a query that both sources or both sinks are given; what each makes of it is an outcome. Pure.

Outcomes are compared aspect by aspect. What an error says is compared by its condition, where Spark's Kafka connector
has one, and by its decisive words, which the case names: the rest of a text may say more than the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

KAFKA, STRANDLINE = "kafka", "strandline"
SOURCES = (KAFKA, STRANDLINE)

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a query. `tasks`: how many read it; `batches`: rows of each batch of a stream that had any;
    `offsets`: where each of these ended. `error`: all that was said, empty where the query succeeded."""

    schema: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    tasks: int | None = None
    batches: tuple[int, ...] = ()
    offsets: tuple[str, ...] = ()
    error: str = ""
    condition: str = ""


class Query(Protocol):
    """What `running.py` can run."""

    def run(self, site: Any, source: str) -> Outcome:
        """With one of the two; what it raises is part of the outcome."""


@dataclass(frozen=True, slots=True)
class Case:
    """`rows`: how many there have to be, so that two wrong results are not taken for agreement. `words`: what an error
    has to say; empty: no error. `ignores`: aspects that depend on who is quicker. `is_long`: only
    `make spark-conformance` runs it."""

    name: str
    query: Query
    rows: int | None = None
    words: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """Cases that differ in these aspects (words), and why that is wanted or cannot be helped."""

    aspects: str
    why: str
    cases: tuple[str, ...]


# --- Comparing ---------------------------------------------------------------------------------------------------


def misunderstood(case: Case, kafka: Outcome) -> str:
    """Where Spark's Kafka connector itself does not do what the case says: the case is wrong. Empty where it does."""
    if bool(case.words) != bool(kafka.error):
        return f"an error was expected: {bool(case.words)}; it says: {kafka.error or 'nothing'}"
    missing = unsaid(case, kafka.error)
    if missing:
        return f"its error does not say {missing}: {kafka.error}"
    if not case.words and case.rows is not None and len(kafka.rows) != case.rows:
        return f"it has {len(kafka.rows)} rows, not {case.rows}"
    return ""


def differences(case: Case, kafka: Outcome, ours: Outcome) -> dict[str, str]:
    """aspect → how the two differ."""
    if bool(kafka.error) != bool(ours.error):
        return {"fails": f"{_ended(kafka)} / {_ended(ours)}"}
    found = {}
    if kafka.error:
        if kafka.condition and kafka.condition != ours.condition:
            found["condition"] = f"{kafka.condition} / {ours.condition or 'none'}"
        missing = unsaid(case, ours.error)
        if missing:
            found["words"] = f"{missing} / {_headline(ours.error)}"
    for aspect in ("schema", "rows", "tasks", "batches", "offsets"):
        theirs, own = getattr(kafka, aspect), getattr(ours, aspect)
        if theirs != own and aspect not in case.ignores:
            found[aspect] = _how(theirs, own)
    return found


def verdict(case: Case, found: Mapping[str, str], known: Iterable[Known]) -> tuple[list[str], dict[str, str]]:
    """(what is wrong with the table of known differences, aspect → why it differs)."""
    reasons = {aspect: each.why for each in known if case.name in each.cases for aspect in each.aspects.split()}
    wrong = [f"differs in its {aspect}: {how}" for aspect, how in found.items() if aspect not in reasons]
    wrong += [f"does not differ in its {aspect} any more" for aspect in reasons if aspect not in found]
    return wrong, {aspect: why for aspect, why in reasons.items() if aspect in found}


def unsaid(case: Case, error: str) -> list[str]:
    """Those of the decisive words that an error lacks; capitals do not matter, since options have none inside Spark."""
    return [each for each in case.words if each.lower() not in error.lower()]


def _ended(outcome: Outcome) -> str:
    return _headline(outcome.error) if outcome.error else f"{len(outcome.rows)} rows"


def _headline(error: str, most: int = 300) -> str:
    """The line that says it: Spark puts others around what a source raises."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1][:most] if lines else ""


def _how(theirs: Any, own: Any) -> str:
    if not isinstance(theirs, tuple):
        return f"{theirs} / {own}"
    only_theirs = [each for each in theirs if each not in own]
    only_own = [each for each in own if each not in theirs]
    if not only_theirs and not only_own:
        return f"{len(theirs)} / {len(own)} of them, or in another order"
    return f"{len(theirs)} / {len(own)}; only there: {str(only_theirs[:2])[:300]}; only here: {str(only_own[:2])[:300]}"


# --- What both call differently ----------------------------------------------------------------------------------


def plain_offset(text: str, names: Mapping[str, str]) -> str:
    """A stream's offset as both sources have it: without what ours adds, topics under the names that they share."""
    found = {names.get(topic, topic): at for topic, at in json.loads(text).items() if not topic.startswith("#")}
    return json.dumps(found, sort_keys=True)


def condition_of(text: str) -> str:
    """The condition that a text in Python names last, of those that are not Spark's wrapping."""
    wrapping = ("PYTHON_", "STREAM_FAILED", "UDF_", "SOURCE_")
    found = [each for each in re.findall(r"\[([A-Z][A-Z0-9_.]{4,})\]", text) if not each.startswith(wrapping)]
    return found[-1] if found else ""
