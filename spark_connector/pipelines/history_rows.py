"""Lines of change logs as Arrow batches, and these as histories: what the tasks of `history` do. Pure.

    lines of a file ─ read_lines ─> EVENTS ─ sorted by topic and partition ─ tell ─> HISTORIES

Rows of EVENTS are the events of `protocol/history`, and beside them, per batch, the runs of lines that each broker
wrote (kind `run`: `time_ms` to `last_ms`, so many `lines`) and how many lines nobody can read (kind `unreadable`). Of a
file: how many lines were too long to be read (`too long`), and that it is `cut` (`runtime/log_lines`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from strandline.protocol.history.figures import BrokerFigures, Range, broker_figures, figures, in_range
from strandline.protocol.history.lines import Event, Kind, UnreadableLine, read_line
from strandline.protocol.history.lives import Lives, Runs
from strandline.protocol.history.timeline import PartitionHistory, histories
from strandline.protocol.history.wanted import Wanted

RUN, UNREADABLE, TOO_LONG, CUT = "run", "unreadable", "too long", "cut"
HISTORIES_PER_BATCH = 200
MOST_INTERVALS_PER_BATCH = 20_000

_BROKERS = pa.list_(pa.int32())
EVENTS = pa.schema(
    {
        "kind": pa.string(),
        "time_ms": pa.int64(),
        "broker_id": pa.int32(),
        "topic": pa.string(),
        "topic_id": pa.string(),
        "partition": pa.int32(),
        "leader": pa.int32(),
        "leader_epoch": pa.int32(),
        "zk_version": pa.int32(),
        "isr": _BROKERS,
        "replicas": _BROKERS,
        "min_isr": pa.int32(),
        "controller_epoch": pa.int32(),
        "peer": pa.int32(),
        "broker_epoch": pa.int64(),
        "session_timeout_ms": pa.int32(),
        "why": pa.string(),
        "log_end_offset": pa.int64(),
        "high_watermark": pa.int64(),
        "brokers": _BROKERS,
        "last_ms": pa.int64(),
        "lines": pa.int64(),
        "file": pa.string(),
    }
)
_NOTHING_MORE = (0, 0, "")
"""The last three columns of an event."""

_INTERVAL = pa.struct(
    {
        "from_ms": pa.int64(),
        "to_ms": pa.int64(),
        "leader": pa.int32(),
        "leader_epoch": pa.int32(),
        "zk_version": pa.int32(),
        "isr": _BROKERS,
        "replicas": _BROKERS,
        "min_isr": pa.int32(),
    }
)
_SERVICE = pa.struct({"from_ms": pa.int64(), "to_ms": pa.int64(), "leader": pa.int32()})
_OUTAGE = pa.struct(
    {
        "from_ms": pa.int64(),
        "to_ms": pa.int64(),
        "why": pa.string(),
        "leader_before": pa.int32(),
        "leader_after": pa.int32(),
        "length_ms": pa.int64(),
    }
)
_BROKER = pa.struct(
    {
        "broker_id": pa.int32(),
        "led_ms": pa.int64(),
        "elections": pa.int64(),
        "left_isr": pa.int64(),
        "joined_isr": pa.int64(),
    }
)
FIGURES = (
    "elections",
    "leader_changes",
    "isr_shrinks",
    "isr_expansions",
    "outages_count",
    "unavailable_ms",
    "longest_outage_ms",
    "under_replicated_ms",
    "under_min_isr_ms",
    "hand_overs",
    "longest_hand_over_ms",
)
"""Columns of HISTORIES in the order of `Figures`."""
HISTORIES = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in FIGURES),
        ("unknown_changes", pa.int64()),
        ("clock_skew_ms", pa.int64()),
        ("intervals", pa.list_(_INTERVAL)),
        ("services", pa.list_(_SERVICE)),
        ("outages", pa.list_(_OUTAGE)),
        ("brokers", pa.list_(_BROKER)),
    ]
)


# --- Lines to events -------------------------------------------------------------------------------------------


def read_lines(file: str, batches: Iterable[Iterable[bytes]], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """One batch of EVENTS for each batch of lines of this file."""
    for lines in batches:
        rows: list[tuple[Any, ...]] = []
        runs = Runs()
        unreadable = 0
        for text in lines:
            try:
                line = read_line(text)
            except UnreadableLine:
                unreadable += 1
                continue
            runs.add(line)
            rows += [(*event, *_NOTHING_MORE) for event in line.events if wanted.has(event)]
        rows += [_more_row(RUN, run.first_ms, run.broker_id, run.last_ms, run.lines, file) for run in runs.end()]
        if unreadable:
            rows.append(_more_row(UNREADABLE, lines=unreadable, file=file))
        yield _batch(EVENTS, rows)


def noted(kind: str, file: str, lines: int = 0) -> pa.RecordBatch:
    """What is to be said of a file, as EVENTS."""
    return _batch(EVENTS, [_more_row(kind, lines=lines, file=file)])


def _more_row(
    kind: str, time_ms: int = 0, broker_id: int = -1, last_ms: int = 0, lines: int = 0, file: str = ""
) -> tuple[Any, ...]:
    event = Event(Kind.TOLD, time_ms, broker_id)
    return (kind, *event[1:], last_ms, lines, file)


def _batch(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def event_of(row: Iterable[Any]) -> Event:
    """From a row of EVENTS, all of its columns or those of the event."""
    values = list(row)[: len(Event._fields)]
    event = Event(*values)
    isr, replicas, brokers = tuple(event.isr), tuple(event.replicas), tuple(event.brokers)
    return event._replace(kind=Kind(event.kind), isr=isr, replicas=replicas, brokers=brokers)


# --- Events to histories ---------------------------------------------------------------------------------------


def tell(batches: Iterable[pa.RecordBatch], lives: Lives, span: Range) -> Iterator[pa.RecordBatch]:
    """Rows of EVENTS, sorted by topic and partition, to HISTORIES: one partition at a time is in memory."""
    events = (event_of(row) for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
    rows: list[tuple[Any, ...]] = []
    intervals = 0
    for _, own in groupby(events, key=lambda event: (event.topic, event.partition)):
        for history in histories(own, lives):
            cut = in_range(history, span)
            if cut is None:
                continue
            rows.append(_history_row(cut, span))
            intervals += len(cut.intervals)
            if len(rows) >= HISTORIES_PER_BATCH or intervals >= MOST_INTERVALS_PER_BATCH:
                yield _batch(HISTORIES, rows)
                rows, intervals = [], 0
    if rows:
        yield _batch(HISTORIES, rows)


def _history_row(history: PartitionHistory, span: Range) -> tuple[Any, ...]:
    return (
        history.topic,
        history.topic_id,
        history.partition,
        *figures(history, span),
        history.unknown_changes,
        history.clock_skew_ms,
        [each._asdict() for each in history.intervals],
        [each._asdict() for each in history.services],
        [{**each._asdict(), "length_ms": span.length_ms(each)} for each in history.outages],
        [{"broker_id": broker_id, **each._asdict()} for broker_id, each in _of_brokers(history, span).items()],
    )


def _of_brokers(history: PartitionHistory, span: Range) -> dict[int, BrokerFigures]:
    """Also of those that have a replica and to which nothing happened."""
    known = {replica for each in history.intervals for replica in (*each.replicas, *each.isr)}
    return {**dict.fromkeys(sorted(known), BrokerFigures()), **broker_figures(history, span)}
