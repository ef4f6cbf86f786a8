"""`strandline history`: what the brokers' change logs say, told by a Spark of its own on this machine.

Without a path it reads the logs of the embedded cluster, whether that is up or not. What it does is
`spark_connector.pipelines.history`, which programs call with the session of their cluster.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strandline.cli.history_options import change_log_options, check_pattern, files_of, time_range
from strandline.cli.options import output_option, page_option, partition_numbers, show_json
from strandline.cli.session import session_of
from strandline.cli.spark_session import pipeline, warn
from strandline.cli.tables import show_table
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline.protocol.history.summary import HistorySummary

SHOWN_ROWS = 20


@click.command(
    epilog="Examples: strandline history --since -2h --page history.html; "
    "strandline history /var/log/broker-1 /var/log/broker-2 --topics 'clicks|orders.*' --output json"
)
@change_log_options
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Partitions and outages that the page and JSON tell one by one, the worst first.",
)
@page_option
@output_option
@click.pass_context
def history(
    ctx: click.Context,
    paths: tuple[Path, ...],
    logs: tuple[Path, ...],
    data_dir: Path,
    since: str | None,
    until: str | None,
    topics: str,
    partitions: str,
    limit: int,
    page: Path | None,
    output: str,
) -> None:
    """Show who led what when, who was in sync, every outage, and who was controller.

    Read are state-change.log and controller.log of all brokers, with what they were rolled to, in the folders named
    and below: else in the folder of the embedded cluster. An outage lasts from the last sign of life of a leader (or
    from when nobody in sync was left) until the next one leads."""
    since_ms, until_ms = time_range(since, until, session_of(ctx).now_ms())
    check_pattern(topics)
    numbers = partition_numbers("--partitions", partitions)
    files, missing = files_of((*paths, *logs), data_dir)
    for path in missing:
        warn(f"{path} is missing: what it would tell is left out")
    from strandline.runtime.disk_posix import PosixDisk
    from strandline.spark_connector.pipelines.history import HistoryOptions, check_options
    from strandline.spark_connector.pipelines.history import history as run

    asked = HistoryOptions(files, since_ms, until_ms, topics, numbers, limit)
    check_options(asked)
    with pipeline("history", output) as (spark, on_step):
        summary = run(spark, asked, PosixDisk(), on_step=on_step, warn=warn)
    if page is not None:
        from strandline.spark_connector.pipelines.history_page import history_page

        page.write_text(history_page(summary), encoding="utf-8")
    if output == "json":
        show_json("history", **asdict(summary))
    else:
        _show(summary, page)


# --- What is shown ---------------------------------------------------------------------------------------------


def _show(summary: HistorySummary, page: Path | None) -> None:
    from strandline.spark_connector.pipelines.pictures import duration_text, time_text

    totals = summary.totals
    click.echo(f"{time_text(summary.since_ms)} to {time_text(summary.until_ms)} UTC, {summary.sources}")
    _show_terms(summary)
    _show_brokers(summary)
    _show_outages(summary)
    changes = f"ISRs shrank {totals.isr_shrinks:,} times and grew {totals.isr_expansions:,} times"
    of = counted(totals.partitions, "partition")
    click.echo(f"{of}: {totals.elections:,} elections, {changes}, {counted(totals.outages_count, 'outage')}")
    click.echo(
        f"partition time without a leader {duration_text(totals.unavailable_ms)}, under-replicated "
        f"{duration_text(totals.under_replicated_ms)}, under min ISR {duration_text(totals.under_min_isr_ms)}; "
        f"{counted(totals.hand_overs, 'hand-over')}, the longest {duration_text(totals.longest_hand_over_ms)}"
    )
    if page is not None:
        click.echo(f"page: {page}")


def _show_terms(summary: HistorySummary) -> None:
    from strandline.spark_connector.pipelines.pictures import time_text

    columns = ("controller", "epoch", "from", "until", "ended")
    rows = [
        (str(each.broker_id), str(each.controller_epoch), time_text(each.from_ms), _end(each.to_ms), each.ended)
        for each in summary.controllers[-SHOWN_ROWS:]
    ]
    show_table(columns, rows, columns[:2])


def _show_brokers(summary: HistorySummary) -> None:
    from strandline.spark_connector.pipelines.pictures import duration_text

    columns = ("broker", "led", "elections won", "left isrs", "joined isrs", "away", "away for", "lines")
    rows = [
        (
            str(each.broker_id),
            duration_text(each.led_ms),
            str(each.elections),
            str(each.left_isr),
            str(each.joined_isr),
            str(len(each.away)),
            duration_text(each.away_ms),
            str(each.lines) if each.lines else "none",
        )
        for each in summary.brokers
    ]
    show_table(columns, rows, columns)


def _show_outages(summary: HistorySummary) -> None:
    from strandline.spark_connector.pipelines.pictures import duration_text, time_text

    if not summary.outages:
        return
    columns = ("outage of", "from", "until", "length", "why")
    rows = [
        (
            f"{each.topic}-{each.partition}",
            time_text(each.from_ms),
            _end(each.to_ms),
            duration_text(each.length_ms),
            each.why,
        )
        for each in summary.outages[:SHOWN_ROWS]
    ]
    show_table(columns, rows, ("length",))
    left_out = summary.totals.outages_count - len(rows)
    if left_out:
        click.echo(f"… and {left_out:,} shorter ones")


def _end(to_ms: int | None) -> str:
    from strandline.spark_connector.pipelines.pictures import time_text

    return "still" if to_ms is None else time_text(to_ms)
