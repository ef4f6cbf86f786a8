"""What happened to partitions, brokers and controllers: told by Spark from the change logs of all brokers.

    disk = PosixDisk()
    found = find_change_logs(disk, ["/data/strandline"])
    summary = history(spark, HistoryOptions(found.files), disk)
    with told_histories(spark, HistoryOptions(found.files), disk) as told:
        told.df.where("unavailable_ms > 0").show()

Tasks read the lines of some files each (`history_files`); what says who lived and who was controller is small and comes
to the driver, what says something of a partition goes to the task that tells its history (`history_rows`). The rules,
and what an outage is, stand in `protocol/history`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.protocol.history.figures import BrokerFigures, Range
from strandline.protocol.history.lines import OF_PARTITIONS, Event
from strandline.protocol.history.lives import NEVER_MS, Lives, Run, lives
from strandline.protocol.history.summary import (
    MOST_SHOWN_INTERVALS,
    BrokerSummary,
    HistorySummary,
    PartitionOutage,
    PartitionSummary,
    Totals,
    broker_summaries,
    controllers_in,
)
from strandline.protocol.history.wanted import Wanted
from strandline.protocol.topic_name import INTERNAL_TOPICS
from strandline.runtime.disk import Disk
from strandline.spark_connector.errors import InvalidOption, NoChangeLogs
from strandline.spark_connector.pipelines.pictures import time_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN = 100
_NOTABLE_SKEW_MS = 1000


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """files: change logs, by absolute paths (`find_change_logs`), no symbolic links. since_ms, until_ms: what of
    the history is told; lines from before it are read, since they say how things stood then. topics: a pattern for the
    whole name."""

    files: Sequence[str]
    since_ms: int | None = None
    until_ms: int | None = None
    topics: str = ""
    partitions: frozenset[int] = frozenset()
    shown: int = SHOWN
    """Partitions and outages in the summary, the worst first."""


class Logs(NamedTuple):
    """What is not of partitions. unreadable: file → lines that nobody can read; too_long: such that were skipped; cut:
    files that were read as far as they go."""

    events: list[Event]
    runs: list[Run]
    unreadable: Counter[str]
    too_long: Counter[str]
    cut: set[str]


class Histories(NamedTuple):
    """df: a row per partition and topic id (`history_rows.HISTORIES`), persisted. lives: of brokers and controllers."""

    df: DataFrame
    lives: Lives
    span: Range
    logs: Logs
    files: int


def history(
    spark: SparkSession,
    options: HistoryOptions,
    disk: Disk,
    *,
    on_step: Callable[[str], None] = lambda step: None,
    warn: Callable[[str], None] = lambda text: None,
) -> HistorySummary:
    """The whole story in short; `on_step` is told what is done now, `warn` what cannot be told. NoChangeLogs,
    InvalidOption, OSError. disk: where tasks read the files, too."""
    with told_histories(spark, options, disk, on_step=on_step) as told:
        on_step("adding up")
        summary = _summary(told, options)
    for text in _doubts(summary, told, options):
        warn(text)
    return summary


@contextmanager
def told_histories(
    spark: SparkSession, options: HistoryOptions, disk: Disk, *, on_step: Callable[[str], None] = lambda step: None
) -> Iterator[Histories]:
    """The history of every partition, as a data frame that lasts as long as the context. NoChangeLogs,
    InvalidOption, OSError."""
    from strandline.runtime.log_lines import pieces
    from strandline.spark_connector.pipelines import history_rows as rows
    from strandline.spark_connector.pipelines.history_files import ReadTask

    check_options(options)
    on_step(f"reading {len(options.files)} files")
    parts = pieces(disk, options.files)
    task = ReadTask(disk, parts, Wanted(options.topics, options.partitions))
    numbers = spark.range(0, len(parts), 1, max(1, len(parts)))
    events = numbers.mapInArrow(task, _spark_schema(rows.EVENTS)).persist()
    df = None
    try:
        logs = _of_brokers(events)
        if not logs.runs:
            raise NoChangeLogs(
                f"Of the {logs.unreadable.total():,} lines in {len(options.files)} files none is one of a change log; "
                "name the folders of brokers (log.folder), or state-change.log and controller.log"
            )
        of_brokers = lives(logs.events, logs.runs)
        span = span_of(options, logs.runs)
        on_step("telling histories")
        of_partitions = events.where(events.kind.isin(sorted(OF_PARTITIONS)))
        df = (
            of_partitions.repartition("topic", "partition")
            .sortWithinPartitions("topic", "partition")
            .mapInArrow(partial(rows.tell, lives=of_brokers, span=span), _spark_schema(rows.HISTORIES))
            .persist()
        )
        yield Histories(df, of_brokers, span, logs, len(options.files))
    finally:
        if df is not None:
            df.unpersist()
        events.unpersist()


def check_options(options: HistoryOptions) -> None:
    """Needs no Spark. NoChangeLogs, InvalidOption."""
    if not options.files:
        raise NoChangeLogs(
            "There is no change log to read; name the folders of brokers (log.folder), or state-change.log and "
            "controller.log"
        )
    odd = next((file for file in options.files if not file.startswith("/")), None)
    if odd is not None:
        raise InvalidOption(f"The change log {odd!r} must be an absolute path of a local or mounted file system")
    try:
        re.compile(options.topics)
    except re.error as error:
        raise InvalidOption(
            f"topics {options.topics!r} is no pattern: {error}; give for example clicks|orders.*"
        ) from None
    if options.since_ms is not None and options.until_ms is not None and options.since_ms >= options.until_ms:
        raise InvalidOption("The range of time ends before it begins; give an earlier beginning (since)")


def span_of(options: HistoryOptions, runs: Sequence[Run]) -> Range:
    """InvalidOption: the logs tell of another time."""
    first_ms, last_ms = min(run.first_ms for run in runs), max(run.last_ms for run in runs)
    since_ms = first_ms if options.since_ms is None else options.since_ms
    until_ms = NEVER_MS if options.until_ms is None else options.until_ms
    if since_ms > last_ms or until_ms <= first_ms:
        raise InvalidOption(
            f"The logs tell of {time_text(first_ms)} to {time_text(last_ms)} UTC; ask for a part of that (since, until)"
        )
    return Range(since_ms, until_ms, last_ms)


def _of_brokers(events: DataFrame) -> Logs:
    """A few rows for each life, term and topic, and two for a thousand lines."""
    from strandline.spark_connector.pipelines.history_rows import CUT, RUN, TOO_LONG, UNREADABLE, event_of

    logs = Logs([], [], Counter(), Counter(), set())
    for row in events.where(~events.kind.isin(sorted(OF_PARTITIONS))).collect():
        if row.kind == RUN:
            logs.runs.append(Run(row.broker_id, row.time_ms, row.last_ms, row.lines))
        elif row.kind == UNREADABLE:
            logs.unreadable[row.file] += row.lines
        elif row.kind == TOO_LONG:
            logs.too_long[row.file] += row.lines
        elif row.kind == CUT:
            logs.cut.add(row.file)
        else:
            logs.events.append(event_of(row))
    return logs


def _spark_schema(schema: Any) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


# --- In short --------------------------------------------------------------------------------------------------


def _summary(told: Histories, options: HistoryOptions) -> HistorySummary:
    from pyspark.sql import functions as sql

    from strandline.spark_connector.pipelines.history_rows import FIGURES

    df, span = told.df, told.span
    longest = [name for name in FIGURES if name.startswith("longest")]
    totals = df.agg(
        sql.count("*").alias("partitions"),
        *(sql.coalesce((sql.max if name in longest else sql.sum)(name), sql.lit(0)).alias(name) for name in FIGURES),
        sql.coalesce(sql.sum("unknown_changes"), sql.lit(0)).alias("unknown_changes"),
        sql.coalesce(sql.max("clock_skew_ms"), sql.lit(0)).alias("clock_skew_ms"),
    ).first()
    return HistorySummary(
        since_ms=span.since_ms,
        until_ms=min(span.until_ms, span.last_ms),
        files=told.files,
        lines=sum(run.lines for run in told.logs.runs),
        unreadable_lines=told.logs.unreadable.total(),
        lines_too_long=told.logs.too_long.total(),
        cut_files=tuple(sorted(told.logs.cut)),
        totals=Totals(**totals.asDict()),
        controllers=controllers_in(told.lives, told.span),
        brokers=_brokers(told),
        outages=_outages(df, options.shown),
        partitions=_partitions(df, options.shown),
    )


def _brokers(told: Histories) -> tuple[BrokerSummary, ...]:
    from pyspark.sql import functions as sql

    each = told.df.select(sql.explode("brokers").alias("each")).select("each.*").groupBy("broker_id")
    names = BrokerFigures._fields
    rows = each.agg(*(sql.sum(name).alias(name) for name in names)).collect()
    figures = {row.broker_id: BrokerFigures(*(row[name] for name in names)) for row in rows}
    return broker_summaries(figures, told.lives, told.logs.runs, told.span)


def _outages(df: DataFrame, most: int) -> tuple[PartitionOutage, ...]:
    from pyspark.sql import functions as sql

    each = df.select("topic", "topic_id", "partition", sql.explode("outages").alias("each"))
    longest = each.orderBy(sql.desc("each.length_ms"), "each.from_ms", "topic", "partition").limit(most)
    return tuple(
        PartitionOutage(row.topic, row.topic_id, row.partition, **row.each.asDict()) for row in longest.collect()
    )


def worst_first() -> list[Any]:
    """Columns by which partitions are ordered: the worst first; where all are well, by name. Internal topics last: they
    have so many partitions that nobody would find his own."""
    from pyspark.sql import functions as sql

    worst = [sql.desc(name) for name in ("unavailable_ms", "under_min_isr_ms", "under_replicated_ms", "elections")]
    names = [sql.col(name) for name in ("topic", "partition", "topic_id")]
    return [sql.col("topic").isin(sorted(INTERNAL_TOPICS)), *worst, *names]


def _partitions(df: DataFrame, most: int) -> tuple[PartitionSummary, ...]:
    from pyspark.sql import functions as sql

    shown = (
        df.withColumn("intervals_count", sql.size("intervals"))
        .orderBy(*worst_first())
        .limit(most)
        .withColumn("intervals", _newest("intervals"))
        .withColumn("outages", _newest("outages"))
        .drop("services", "brokers")
    )
    return tuple(PartitionSummary.of(row.asDict(recursive=True)) for row in shown.collect())


def _newest(column: str) -> Any:
    from pyspark.sql import functions as sql

    most = MOST_SHOWN_INTERVALS
    return sql.expr(f"slice({column}, greatest(size({column}) - {most - 1}, 1), {most})")


def _doubts(summary: HistorySummary, told: Histories, options: HistoryOptions) -> Iterator[str]:
    """What the reader of a summary has to know of the logs."""
    if summary.unreadable_lines:
        [(worst, lines)] = told.logs.unreadable.most_common(1)
        yield (
            f"{summary.unreadable_lines:,} lines are cut, garbled or of an earlier version and were passed over, "
            f"{lines:,} of them in {worst}"
        )
    if summary.lines_too_long:
        [(worst, lines)] = told.logs.too_long.most_common(1)
        yield f"{summary.lines_too_long:,} lines are too long and were skipped, {lines:,} of them in {worst}"
    for file in summary.cut_files:
        yield f"{file} is cut or damaged and was read as far as it goes"
    without = [broker.broker_id for broker in summary.brokers if not broker.lines]
    if without:
        yield (
            f"no logs of broker {', '.join(map(str, without))} were found: what they led, and whom they took in or out "
            "of an ISR, is known from others alone"
        )
    late = [
        broker.broker_id
        for broker in summary.brokers
        if options.since_ms is not None and broker.first_line_ms is not None and broker.first_line_ms > options.since_ms
    ]
    if late:
        yield f"the logs of broker {', '.join(map(str, late))} begin only after the time from which you want to know"
    if summary.totals.unknown_changes:
        yield f"{summary.totals.unknown_changes:,} changes of partitions stand in no log that was read"
    if summary.totals.clock_skew_ms > _NOTABLE_SKEW_MS:
        yield (
            f"the clocks of brokers differ by {summary.totals.clock_skew_ms / 1000:.1f} s or more: times are as wrong, "
            "the order of states is right"
        )
