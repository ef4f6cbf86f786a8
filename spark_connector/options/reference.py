"""The reference page of the Spark options, `docs/spark-options.md`, made from the table and the error classes.

`python -m strandline.spark_connector.options.reference` prints it, `make docs` writes it; a test says when the file is
stale.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from strandline.spark_connector import errors
from strandline.spark_connector.errors import SourceError
from strandline.spark_connector.options.table import (
    OPTIONS,
    REFUSED_OPTIONS,
    SINK_SETTINGS,
    SOURCE_SETTINGS,
    Use,
)

_INTRODUCTION = """\
# Options of the Spark source and sink

Made by `make docs` from `spark_connector/options/table.py`.

`spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `format("strandline")` take these options. Names
are case-insensitive; they, their defaults and their meaning are those of Spark's Kafka connector where the last column
says nothing else. An option that is unknown, or has no effect where it is given, is a warning; a value that is not
allowed is an error at `load()`, or where Spark does not say before whether it is a batch or a stream, when the query is
planned.

A batch is planned once for each `load()`, and all that is asked of its DataFrame or view afterwards gets the same
records; the JVM connector looks anew with every query. That is how Spark treats sources in Python: call `load()` again
to see what was written since."""

_PASSED_ON = """\
`kafka.<name>` is handed to the client as its setting `<name>`; others bring a warning.

* reading: {source}
* writing: {sink}

`kafka.security.protocol` may only be `PLAINTEXT`."""

_ERRORS = """\
Each message begins with its condition in brackets and ends with the remedy. Those of Spark's Kafka connector have its
names."""

NOT_RAISED = {
    "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED": "A partition that was not there when a run with "
    "Trigger.AvailableNow began waits for the next run; one of an earlier run's batch that is gone is "
    "KAFKA_DATA_LOSS.PARTITIONS_DELETED.",
    "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT": "`kafka.group.id` has no effect, so no other "
    "member of a group can be the reason.",
    "KAFKA_MALFORMED_RECORD_TIMESTAMP": "A timestamp beyond what Spark holds becomes the last one that it does: one "
    "bad record does not stop a query.",
}
"""Conditions of Spark's Kafka connector that cannot occur here, and why."""


def reference() -> str:
    """The page in Markdown."""
    return "\n".join(_lines()) + "\n"


def conditions() -> dict[str, str]:
    """What may be raised: condition → when."""
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, SourceError)]
    found = {each.condition: each for each in classes if "condition" in vars(each) and each is not SourceError}
    return {name: " ".join((inspect.getdoc(each) or "").split()) for name, each in sorted(found.items())}


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield from ("", "## Options", "")
    yield from _head("option", "type", "default", "batch", "stream", "sink", "meaning", "difference")
    for option in OPTIONS:
        where = ["yes" if use in option.uses else "" for use in (Use.BATCH, Use.STREAM, Use.SINK)]
        yield _row(_code(option.name), option.kind, _code(option.default), *where, option.meaning, option.difference)
    yield from ("", "## Settings of the client", "")
    named = {name: ", ".join(map(_code, each)) for name, each in (("source", SOURCE_SETTINGS), ("sink", SINK_SETTINGS))}
    yield _PASSED_ON.format(**named)
    yield from ("", "Refused, since a query rests on them:", "", *_head("option", "where", "instead, or why"))
    for refused in REFUSED_OPTIONS:
        yield _row(_code(refused.name), "writing" if refused.uses is Use.SINK else "reading", refused.why)
    yield from ("", "## Errors", "", _ERRORS, "", *_head("condition", "when"))
    yield from (_row(_code(name), when) for name, when in conditions().items())
    yield from ("", "Of Spark's Kafka connector these cannot occur:", "", *_head("condition", "why"))
    yield from (_row(_code(name), why) for name, why in sorted(NOT_RAISED.items()))


def _head(*names: str) -> tuple[str, str]:
    return _row(*names), "|" + "---|" * len(names)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(name: str) -> str:
    return f"`{name}`" if name else ""


if __name__ == "__main__":
    sys.stdout.write(reference())
