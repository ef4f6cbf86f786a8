"""`strandline archive` and `strandline restore`: a topic into a folder of Parquet files, and back.

Both start a Spark of their own on this machine, once the cluster has answered; what they do is
`spark_connector.pipelines`, which programs call with the session of their cluster. `--output json` shows one object;
warnings and the progress go to stderr.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.options import (
    ask_cluster,
    bootstrap_option,
    client_settings,
    key_value,
    legal_topic,
    output_option,
    page_option,
    setting_name,
    settings_option,
    show_json,
    topic_option,
)
from strandline.cli.session import bootstrap_of, session_of
from strandline.cli.spark_session import pipeline, warn
from strandline.cli.tables import show_table

if TYPE_CHECKING:
    from strandline.spark_connector.pipelines.archive import ArchiveSummary
    from strandline.spark_connector.pipelines.restore import RestoreSummary


@click.command(
    epilog="Examples: strandline archive clicks --to /data/clicks; a second run archives what came since: "
    "strandline archive clicks --to /data/clicks --output json"
)
@bootstrap_option
@click.argument("topic", callback=lambda ctx, parameter, value: legal_topic(value))
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of this topic's archive; made if absent.",
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Go on where records were deleted before they were archived; the manifest notes them.",
)
@output_option
@settings_option
@click.pass_context
def archive(
    ctx: click.Context,
    bootstrap: str | None,
    topic: str,
    folder: Path,
    allow_missing: bool,
    output: str,
    settings: tuple[str, ...],
) -> None:
    """Archive a topic as Parquet, by day; later runs add what is new, each record exactly once.

    Spark, pandas and the like read DIR as it is, at any time. DIR/_overview.html shows what is in it."""
    servers = bootstrap_of(session_of(ctx), bootstrap)
    source_options = {f"kafka.{key}": value for key, value in (key_value(each, "-X") for each in settings)}
    ask_cluster(ctx, servers, settings)
    folder = folder.expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with pipeline("archive", output) as (spark, on_step):
        from strandline.runtime.disk_posix import PosixDisk
        from strandline.spark_connector.pipelines.archive import ArchiveOptions
        from strandline.spark_connector.pipelines.archive import archive as run

        asked = ArchiveOptions(servers, topic, str(folder), allow_missing, source_options)
        summary = run(spark, asked, PosixDisk(), on_step=on_step, warn=warn)
    if output == "json":
        show_json("archive", **asdict(summary))
    else:
        _show_archive(summary)


@click.command(
    epilog="Examples: strandline restore /data/clicks --topic clicks-again; after an interruption: "
    "strandline restore /data/clicks --topic clicks-again --resume"
)
@bootstrap_option
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@topic_option("Where to: created if absent, with the partitions of the archive and unlimited retention.")
@click.option("--resume", is_flag=True, help="Compare what the topic holds with the archive, and go on behind it.")
@click.option("--replication-factor", type=click.IntRange(1), help="Of a topic that is created; else the brokers' own.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE", help="Of a topic that is created; repeatable.")
@page_option
@output_option
@settings_option
@click.pass_context
def restore(
    ctx: click.Context,
    bootstrap: str | None,
    folder: Path,
    topic: str,
    resume: bool,
    replication_factor: int | None,
    configs: tuple[str, ...],
    page: Path | None,
    output: str,
    settings: tuple[str, ...],
) -> None:
    """Write an archive into a topic: same keys, values, headers, timestamps and order in each partition.

    Offsets begin at 0 and differ from the archived ones behind a gap. A topic that is not empty is refused, unless
    --resume finds that it holds the beginning of the archive."""
    servers = bootstrap_of(session_of(ctx), bootstrap)
    topic_configs = dict(key_value(each, "--config") for each in configs)
    writer_settings = {setting_name(key): value for key, value in client_settings(settings).items()}
    ask_cluster(ctx, servers, settings)
    with pipeline("restore", output) as (spark, on_step):
        from strandline.runtime.disk_posix import PosixDisk
        from strandline.spark_connector.pipelines.restore import RestoreOptions, restore_page
        from strandline.spark_connector.pipelines.restore import restore as run

        asked = RestoreOptions(
            servers,
            str(folder.expanduser().absolute()),
            topic,
            resume,
            -1 if replication_factor is None else replication_factor,
            topic_configs,
            writer_settings,
        )
        summary = run(spark, asked, PosixDisk(), on_step=on_step, warn=warn)
    if page is not None:
        page.write_text(restore_page(summary), encoding="utf-8")
    if output == "json":
        show_json("restore", **asdict(summary))
    else:
        _show_restore(summary)


def _show_archive(summary: ArchiveSummary) -> None:
    from strandline.spark_connector.pipelines.pictures import size_text

    if summary.run is None:
        click.echo(f"nothing new in {summary.topic}; {summary.archived_records:,} records are archived")
        return
    columns = ("partition", "from offset", "to offset", "records", "data")
    rows = [
        (str(each.partition), str(each.start), str(each.end), str(each.records), size_text(each.data_bytes))
        for each in summary.partitions
    ]
    show_table(columns, rows, columns)
    files = f"{summary.files} file{'s' if summary.files != 1 else ''}, {size_text(summary.size_bytes)}"
    click.echo(
        f"run {summary.run}: {summary.records:,} records in {files}; {summary.archived_records:,} records are archived"
    )
    click.echo(f"overview: {summary.overview}")


def _show_restore(summary: RestoreSummary) -> None:
    from strandline.spark_connector.pipelines.pictures import size_text

    columns = ("partition", "found there", "written", "data", "offsets")
    rows: list[tuple[Any, ...]] = [
        (
            str(each.partition),
            str(each.verified),
            str(each.written),
            size_text(each.data_bytes),
            "same" if each.same_offsets else "without gaps",
        )
        for each in summary.partitions
    ]
    show_table(columns, rows, columns[:4])
    found = f", {summary.verified:,} were there" if summary.verified else ""
    created = " (created)" if summary.created else ""
    click.echo(f"{summary.written:,} records of {summary.archived_topic} written to {summary.topic}{created}{found}")
    if not summary.same_offsets:
        click.echo("offsets differ from the archived ones behind gaps; the order is the same")
