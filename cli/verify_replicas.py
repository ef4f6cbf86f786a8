"""`strandline verify-replicas`: every replica compared with its leader's, in this process, once or round by round.

It shares its core with `strandline audit`, which spreads the work over Spark: `client.replicas`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strandline.cli.audit_text import chosen_options, finding_lines, offline_lines, show_audit, topics_of
from strandline.cli.bar import Bar
from strandline.cli.options import (
    DAY_S,
    LOOK_TIMEOUT_MS,
    BoundedFloat,
    admin_of,
    bootstrap_option,
    output_option,
    page_option,
    settings_option,
    show_json,
)
from strandline.cli.session import bootstrap_of, session_of
from strandline.cli.spark_session import warn
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline.client.replicas.audit import AuditSummary
    from strandline.client.replicas.looking import Work
    from strandline.client.replicas.rounds import Lag, Round, Rounds

EXIT_NOT_WELL = 1
READ_BYTES = 2 << 20


@click.command(
    "verify-replicas",
    epilog="Examples: strandline verify-replicas --topics 'clicks-.*' --once --page replicas.html; "
    "strandline verify-replicas --time latest --report-interval 10",
)
@bootstrap_option
@chosen_options
@click.option(
    "--time",
    "begin",
    default="earliest",
    show_default=True,
    metavar="TIME",
    help="From where on: earliest, latest (what is written from now on), -2h (ago), 2024-02-14, "
    "2024-02-14T10:00:00Z or ms since 1970. Kafka's -2 and -1 are earliest and latest.",
)
@click.option("--once", is_flag=True, help="One round; else it goes on until Ctrl-C, with what has come since.")
@click.option(
    "--report-interval",
    type=BoundedFloat(0.1, DAY_S),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="Between two rounds.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1, max=1 << 30),
    default=READ_BYTES,
    show_default=True,
    help="Of one replica at a time (Kafka's --fetch-size); so many of each are in memory.",
)
@page_option
@output_option
@settings_option
@click.pass_context
def verify_replicas(
    ctx: click.Context,
    bootstrap: str | None,
    wanted: tuple[str, ...],
    pattern: str | None,
    internal: bool,
    allow_offline: bool,
    begin: str,
    once: bool,
    report_interval: float,
    max_bytes: int,
    page: Path | None,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Compare the replicas of partitions by checksum, below the high watermark, and say who lags most.

    Needs no Spark: `audit` is for what one process would take too long for. What was written since is compared in each
    further round; a replica that lags or was away, from where it had come to. With --output json there is an object a
    line, of each round. With --once, it exits with 1 unless all replicas are equal, could be read, and those that lag
    are in sync."""
    topics, pattern = topics_of(wanted, pattern, internal=internal)
    if page is not None and not once:
        raise click.UsageError("--page is of one round: say --once, too")
    session = session_of(ctx)
    timestamp = _timestamp(begin, session.now_ms())
    with admin_of(ctx, bootstrap, settings, LOOK_TIMEOUT_MS) as admin, _progress(output) as on_piece:
        from strandline.client.errors import UnknownTopic
        from strandline.client.replicas.audit import AuditOptions, run_here
        from strandline.client.replicas.looking import Begin
        from strandline.client.replicas.rounds import Rounds

        asked = AuditOptions("", topics, pattern, internal, allow_offline, begin=Begin(timestamp))
        run = run_here(partial(admin.read_replica, max_bytes=max_bytes), on_piece)
        rounds = Rounds(admin, asked, run, warn=warn)
        try:
            first = rounds.next()
        except UnknownTopic as error:
            if pattern is None:
                raise
            raise click.UsageError(str(error)) from None
        if once:
            return _show_once(first, page, output, bootstrap_of(session, bootstrap))
        told: Round | None = first
        while True:
            if told is not None:
                (_show_line if output == "json" else _show_lines)(told, session.now_ms())
            session.sleep(report_interval)
            told = _next(rounds)


def _timestamp(text: str, now_ms: int) -> int:
    from strandline.cli.offset_range import InvalidOffset, parse_time
    from strandline.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

    words = {
        **dict.fromkeys(("earliest", "-2"), EARLIEST_TIMESTAMP),
        **dict.fromkeys(("latest", "-1"), LATEST_TIMESTAMP),
    }
    if text in words:
        return words[text]
    try:
        time_ms = parse_time(text, now_ms)
    except InvalidOffset as error:
        raise click.UsageError(f"--time: {error}; or earliest, latest") from None
    if time_ms > now_ms:
        raise click.UsageError(f"--time: {text} is still to come; latest is what is written from now on")
    return time_ms


def _next(rounds: Rounds) -> Round | None:
    """None where the cluster could not be asked: who watches wants to go on once it can."""
    from strandline.client.errors import ClientError

    try:
        return rounds.next()
    except ClientError as error:
        warn(f"this round could not be made: {error}")
        return None


@contextmanager
def _progress(output: str) -> Iterator[Callable[[Work, int, int], None]]:
    """Gives the function to call before each piece."""
    if output == "json" or not sys.stderr.isatty():
        yield lambda work, number, of: None
        return
    bar = Bar()

    def draw(work: Work, number: int, of: int) -> None:
        bar.draw(f"comparing {work.partition} from offset {work.start}", number / of)

    try:
        yield draw
    finally:
        bar.stop()


# --- What is shown ---------------------------------------------------------------------------------------------


def is_well(summary: AuditSummary) -> bool:
    """Equal, and nobody out of sync lacks anything: that could not be compared."""
    return summary.is_equal and not any(
        replica.lag and not replica.in_sync for partition in summary.partitions for replica in partition.replicas
    )


def _show_once(told: Round, page: Path | None, output: str, servers: str) -> int:
    summary = told.summary
    if page is not None:
        from strandline.spark_connector.pipelines.audit_page import audit_page

        page.write_text(audit_page(summary, cluster=servers), encoding="utf-8")
    if output == "json":
        show_json("verify-replicas", is_well=is_well(summary), max_lag=_lag_fields(told.max_lag), **asdict(summary))
    else:
        show_audit(summary)
        if not summary.batches:
            why = "" if _unread(summary) else ": no record stands there, or none since --time"
            click.echo(f"nothing was compared{why}")
        click.echo(_lag_text(told))
    return 0 if is_well(summary) else EXIT_NOT_WELL


def _show_lines(told: Round, now_ms: int) -> None:
    """What is new, then the line of Kafka's tool; each with the time."""
    from strandline.spark_connector.pipelines.pictures import time_text

    lines = [line for partition in told.new for line in finding_lines(partition)]
    for line in (*lines, *offline_lines(told.new), _lag_text(told)):
        click.echo(f"{time_text(now_ms)}: {line}")


def _show_line(told: Round, now_ms: int) -> None:
    """The summary of a round, with those partitions alone of which there is something new."""
    fields = {**asdict(told.summary), "partitions": [asdict(each) for each in told.new]}
    shown = {"time_ms": now_ms, "is_well": is_well(told.summary), "max_lag": _lag_fields(told.max_lag), **fields}
    click.echo(json.dumps(shown))


def _lag_text(told: Round) -> str:
    if told.max_lag is None:
        return "max lag is not known: no replica could be compared"
    partition, broker_id, offset, lag = told.max_lag
    whose = f" on broker {broker_id}" if lag else ""
    partitions = counted(len(told.summary.partitions), "partition")
    unread = _unread(told.summary)
    but = f", without {counted(unread, 'replica')} that could not be read" if unread else ""
    return f"max lag is {lag} for partition {partition} at offset {offset}{whose} among {partitions}{but}"


def _unread(summary: AuditSummary) -> int:
    """How many replicas could not be read: nobody knows what stands there."""
    return sum(not replica.is_read for each in summary.partitions for replica in each.replicas)


def _lag_fields(lag: Lag | None) -> dict[str, object] | None:
    if lag is None:
        return None
    topic, partition = lag.partition
    return {"topic": topic, "partition": partition, "broker_id": lag.broker_id, "offset": lag.offset, "lag": lag.lag}
