"""What commands that compare replicas have in common: how topics are chosen, and what was found as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.options import topic_and_partitions
from strandline.cli.tables import show_table
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline.client.replicas.audit import AuditedPartition, AuditSummary

F = TypeVar("F", bound=Callable[..., Any])

MOST_FINDINGS = 20
"""Of one replica as text; JSON and the page have all."""


def chosen_options(function: F) -> F:
    """`[TOPIC[:PARTITION,…]]… --topics REGEX --internal --allow-offline`: `topics_of` makes sense of them."""
    for option in (
        click.option(
            "--allow-offline", is_flag=True, help="Exit with 0 though brokers are not running, if the rest is equal."
        ),
        click.option("--internal", is_flag=True, help="Internal topics, too: the brokers' own (__consumer_offsets)."),
        click.option(
            "--topics",
            "pattern",
            metavar="REGEX",
            help="Topics whose whole name matches; else all topics but internal ones.",
        ),
        click.argument("wanted", nargs=-1, metavar="[TOPIC[:PARTITION,…]]…"),
    ):
        function = option(function)
    return function


def topics_of(
    wanted: tuple[str, ...], pattern: str | None, *, internal: bool
) -> tuple[dict[str, tuple[int, ...] | None], str | None]:
    """Topics that are named, with the numbers of their partitions, or the pattern. UsageError."""
    topics: dict[str, tuple[int, ...] | None] = {}
    for each in wanted:
        topic, numbers = topic_and_partitions(each)
        if topic in topics:
            raise click.UsageError(f"topic {topic} is named twice")
        topics[topic] = None if numbers is None else tuple(numbers)
    if topics and (pattern is not None or internal):
        raise click.UsageError("name topics, or choose them by --topics and --internal, not both")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise click.UsageError(f"--topics '{pattern}' is no regular expression: {error}") from None
    return topics, pattern


def show_audit(summary: AuditSummary) -> None:
    """A line per partition, then what was found, then what it amounts to."""
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
        for line in finding_lines(partition):
            click.echo(line)
    for line in offline_lines(summary.partitions):
        click.echo(line)
    counts = ", ".join(f"{count:,} {state}" for state, count in summary.replicas_by_state.items() if count)
    partitions = counted(len(summary.partitions), "partition")
    click.echo(
        f"{partitions}, {summary.replicas:,} replicas: {counts or 'nothing to compare'}; "
        f"{summary.batches:,} batches, {size_text(summary.size_bytes)} compared"
    )
    if summary.internal_left_out:
        click.echo(f"internal topics were left out (--internal compares them): {', '.join(summary.internal_left_out)}")


def finding_lines(partition: AuditedPartition) -> Iterator[str]:
    """What was found, but for what `offline_lines` tells."""
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


def offline_lines(partitions: Iterable[AuditedPartition]) -> Iterator[str]:
    """Why replicas were not there, and how many: a broker that is down has thousands, which say all the same."""
    from strandline.client.replicas.comparison import OFFLINE

    texts = Counter(
        finding.text
        for partition in partitions
        for replica in partition.replicas
        for finding in replica.findings
        if finding.kind == OFFLINE
    )
    for why, replicas in texts.items():
        yield f"{counted(replicas, 'replica')}: {why}"
