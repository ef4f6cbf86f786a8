"""`strandline audit`: every replica compared with its leader's; exit code 3 unless all are equal.

It starts a Spark of its own on this machine, once the cluster has answered; what it does is
`spark_connector.pipelines.audit`, which programs call with the session of their cluster.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strandline.cli.options import (
    ask_cluster,
    bootstrap_option,
    client_settings,
    output_option,
    page_option,
    settings_option,
    show_json,
    topic_and_partitions,
)
from strandline.cli.session import EXIT_DIFFERENT, bootstrap_of, session_of
from strandline.cli.spark_session import pipeline, warn
from strandline.cli.tables import show_table
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline.client.replicas.audit import AuditedPartition, AuditSummary

MOST_FINDINGS = 20
"""Of one replica as text; JSON and the page have all."""


@click.command(
    epilog="Examples: strandline audit; strandline audit clicks orders:0,1 --page audit.html; "
    "strandline audit --topics 'clicks-.*' --output json"
)
@bootstrap_option
@click.argument("wanted", nargs=-1, metavar="[TOPIC[:PARTITION,…]]…")
@click.option(
    "--topics", "pattern", metavar="REGEX", help="Topics whose whole name matches; else all topics but internal ones."
)
@click.option("--internal", is_flag=True, help="Internal topics, too: the brokers' own (__consumer_offsets).")
@click.option("--allow-offline", is_flag=True, help="Exit with 0 though brokers are not running, if the rest is equal.")
@page_option
@output_option
@settings_option
@click.pass_context
def audit(
    ctx: click.Context,
    bootstrap: str | None,
    wanted: tuple[str, ...],
    pattern: str | None,
    internal: bool,
    allow_offline: bool,
    page: Path | None,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Compare every replica of every partition with its leader's, by checksum, below the high watermark.

    Finds damaged bytes, missing and different batches, replicas ahead of their leader. Compacted topics are compared by
    their records. Brokers go on working meanwhile; what is found is looked at twice. Exits with 3 unless all is equal:
    a replica that lags counts as equal as far as it has come."""
    topics, pattern = _topics(wanted), _checked(pattern)
    if topics and (pattern is not None or internal):
        raise click.UsageError("name topics, or choose them by --topics and --internal, not both")
    servers = bootstrap_of(session_of(ctx), bootstrap)
    _check_settings(servers, settings)
    ask_cluster(ctx, servers, settings)
    with pipeline("audit", output) as (spark, on_step):
        from strandline.client.replicas.audit import AuditOptions
        from strandline.spark_connector.pipelines.audit import audit as run

        asked = AuditOptions(servers, topics, pattern, internal, allow_offline, client_settings(settings))
        summary = run(spark, asked, on_step=on_step, warn=warn)
    if page is not None:
        from strandline.spark_connector.pipelines.audit_page import audit_page

        page.write_text(audit_page(summary, cluster=servers), encoding="utf-8")
    if output == "json":
        show_json("audit", **asdict(summary))
    else:
        _show(summary)
    return 0 if summary.is_equal else EXIT_DIFFERENT


def _topics(wanted: tuple[str, ...]) -> dict[str, tuple[int, ...] | None]:
    topics: dict[str, tuple[int, ...] | None] = {}
    for each in wanted:
        topic, numbers = topic_and_partitions(each)
        if topic in topics:
            raise click.UsageError(f"topic {topic} is named twice")
        topics[topic] = None if numbers is None else tuple(numbers)
    return topics


def _checked(pattern: str | None) -> str | None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise click.UsageError(f"--topics '{pattern}' is no regular expression: {error}") from None
    return pattern


def _check_settings(servers: str, settings: tuple[str, ...]) -> None:
    """Before Spark starts."""
    from strandline.client.errors import InvalidClientConfig
    from strandline.client.settings import AdminSettings, from_mapping

    try:
        from_mapping(AdminSettings, {"bootstrap_servers": servers, **client_settings(settings)})
    except InvalidClientConfig as error:
        raise click.UsageError(str(error)) from None


def _show(summary: AuditSummary) -> None:
    from strandline.spark_connector.pipelines.pictures import size_text

    columns = ("partition", "leader", "replicas", "from offset", "to offset", "batches", "data", "result")
    rows = [
        (
            f"{each.topic}-{each.partition}",
            str(each.leader),
            ",".join(str(replica.broker_id) for replica in each.replicas),
            str(min((replica.start for replica in each.replicas if replica.batches), default=0)),
            str(max((replica.end for replica in each.replicas), default=0)),
            str(sum(replica.batches for replica in each.replicas)),
            size_text(sum(replica.size_bytes for replica in each.replicas)),
            each.state,
        )
        for each in summary.partitions
    ]
    if rows:
        show_table(columns, rows, columns[3:7])
    for partition in summary.partitions:
        for line in _lines(partition):
            click.echo(line)
    for why, replicas in _offline(summary).items():
        click.echo(f"{counted(replicas, 'replica')}: {why}")
    counts = ", ".join(f"{count:,} {state}" for state, count in summary.replicas_by_state.items() if count)
    partitions = counted(len(summary.partitions), "partition")
    click.echo(
        f"{partitions}, {summary.replicas:,} replicas: {counts or 'nothing to compare'}; "
        f"{summary.batches:,} batches, {size_text(summary.size_bytes)} compared"
    )
    if summary.internal_left_out:
        click.echo(f"internal topics were left out (--internal compares them): {', '.join(summary.internal_left_out)}")


def _lines(partition: AuditedPartition) -> Iterator[str]:
    """What was found, but for what `_offline` tells."""
    from strandline.client.replicas.audit import why
    from strandline.client.replicas.comparison import OFFLINE

    name = f"{partition.topic}-{partition.partition}"
    for replica in partition.replicas:
        where = f"{name} on broker {replica.broker_id}"
        findings = [finding for finding in replica.findings if finding.kind != OFFLINE]
        for finding in findings[:MOST_FINDINGS]:
            place = f" [{finding.start}, {finding.end})" if finding.end > finding.start else ""
            more = f" (the first of {finding.count})" if finding.count > 1 else ""
            yield f"{where}: {finding.kind}{place}: {why(finding)}{more}"
        if len(findings) > MOST_FINDINGS:
            yield f"{where}: {len(findings) - MOST_FINDINGS} more findings (--output json and --page have them)"
        if replica.lag:
            sync = "" if replica.in_sync else ", not in sync"
            yield f"{where}: behind: {replica.lag} offsets from {replica.end} on could not be compared{sync}"


def _offline(summary: AuditSummary) -> dict[str, int]:
    """Why replicas were not there, and how many: a broker that is down has thousands, which say all the same."""
    from strandline.client.replicas.comparison import OFFLINE

    texts = (
        finding.text
        for partition in summary.partitions
        for replica in partition.replicas
        for finding in replica.findings
        if finding.kind == OFFLINE
    )
    return Counter(texts)
