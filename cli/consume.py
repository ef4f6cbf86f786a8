"""`strandline consume`: prints records of some partitions of one topic, from and up to given offsets, or those that a
group gives it.

Rules: only committed records are seen (the brokers serve nothing else); the count on stderr comes whatever ends the
command. A partition of which nothing can be read for a while is waited for, and stderr says why (`waits`). Records are
read and printed in `consume_loop`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.group_commits import GroupCommits, group_settings
from strandline.cli.offset_range import (
    FROM_START,
    NEW_ONLY,
    BoundKind,
    InvalidOffset,
    OffsetRange,
    PartitionBounds,
    parse_offset_range,
    resolve,
)
from strandline.cli.options import bootstrap_option, client_settings, output_option, settings_option, topic_option
from strandline.cli.record_format import InvalidFormat, compile_format, console_format, json_format
from strandline.cli.session import EXIT_INTERRUPTED, bootstrap_of, session_of
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Consumer

UNKNOWN_AFTER_MS = 5_000
"""A topic that no broker has heard of by then does not exist."""

API_TIMEOUT_MS = 10_000
"""How long a person should wait for an answer, or for the reason why there is none."""


@click.command(
    epilog="Examples: strandline consume -t greetings --from-beginning --print-key; "
    "strandline consume -t greetings -o -10:end -f '%p@%o %k=%v\\n'; strandline consume -t greetings -o @-1h -e -J; "
    "strandline consume -t greetings --group readers --from-beginning"
)
@bootstrap_option
@topic_option("Topic to read.")
@click.option("--from-beginning", is_flag=True, help="Short for -o start; by default only new records are read.")
@click.option(
    "-o",
    "--offset",
    "offset",
    metavar="OFFSET",
    help="start, end, 47, +10, -10 (before the end), ranges 47:90 and :end, times @-1h, @2024-02-14:1h, …",
)
@click.option("-p", "--partition", "partitions", multiple=True, type=click.IntRange(min=0), help="May be repeated.")
@click.option("--group", metavar="NAME", help="As a member of that group: where it stands; commits what was printed.")
@click.option("--group-instance-id", metavar="ID", help="… a static member, which keeps its partitions for a while.")
@click.option("-n", "--max-messages", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Stop when none came for so long.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at what is the end of the topic now.")
@click.option("-f", "--format", "template", metavar="TEMPLATE", help=r"For example '%t %p %o %k=%v\n'.")
@click.option("-J", "as_json", is_flag=True, help="The same as --output json.")
@output_option
@click.option("--print-key", is_flag=True)
@click.option("--print-offset", is_flag=True)
@click.option("--print-partition", is_flag=True)
@click.option("--print-timestamp", is_flag=True)
@click.option("--print-headers", is_flag=True)
@click.option("--key-separator", default="\t", help="Between the printed fields.  [default: tab]")
@settings_option
@click.pass_context
def consume(
    ctx: click.Context,
    bootstrap: str | None,
    topic: str,
    from_beginning: bool,
    offset: str | None,
    partitions: tuple[int, ...],
    group: str | None,
    group_instance_id: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    exit_at_end: bool,
    template: str | None,
    as_json: bool,
    output: str,
    print_key: bool,
    print_offset: bool,
    print_partition: bool,
    print_timestamp: bool,
    print_headers: bool,
    key_separator: str,
    settings: tuple[str, ...],
) -> None:
    """Read records from a topic."""
    from strandline.cli.consume_loop import ConsumeLoop

    session = session_of(ctx)
    as_json = as_json or output == "json"
    if as_json and template is not None:
        raise click.UsageError("--format and --output json exclude each other", ctx)
    if group is not None and (offset is not None or partitions or exit_at_end):
        raise click.UsageError("a --group says itself what is read and from where: without -o, -p and -e", ctx)
    wanted = wanted_range(offset, from_beginning, exit_at_end, session.now_ms())
    try:
        write = compile_format(template) if template is not None else None
    except InvalidFormat as error:
        raise click.UsageError(str(error), ctx) from None
    if write is None:
        write = (
            json_format()
            if as_json
            else console_format(
                timestamp=print_timestamp,
                partition=print_partition,
                offset=print_offset,
                headers=print_headers,
                key=print_key,
                separator=key_separator.encode("utf-8", "surrogateescape"),
            )
        )
    loop = ConsumeLoop(write, sys.stdout.buffer, max_messages=max_messages, timeout_ms=timeout_ms, session=session)
    limits = {"default_api_timeout_ms": API_TIMEOUT_MS}
    given = {**limits, **group_settings(group, group_instance_id, from_beginning), **client_settings(settings)}
    with session.consumer(bootstrap_of(session, bootstrap), **given) as consumer:
        commits = None if group is None else GroupCommits(consumer, loop.printed, session.monotonic)
        if commits is not None:
            known_partitions(consumer, topic)
            commits.subscribe(topic)
        stops = None if commits is not None else start_reading(consumer, topic, partitions, wanted)
        try:
            loop.run(consumer, stops, commits)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)  # how an endless read is ended: the count is all there is to say
        finally:
            if commits is not None:
                commits.commit()
            click.echo(f"Processed a total of {loop.count} messages", err=True)


def wanted_range(offset: str | None, from_beginning: bool, exit_at_end: bool, now_ms: int) -> OffsetRange:
    """What -o, --from-beginning and -e ask for together. Raises UsageError."""
    if offset is not None and from_beginning:
        raise click.UsageError("--from-beginning and --offset exclude each other")
    try:
        wanted = (
            parse_offset_range(offset, now_ms) if offset is not None else FROM_START if from_beginning else NEW_ONLY
        )
    except InvalidOffset as error:
        raise click.UsageError(str(error)) from None
    if not exit_at_end:
        return wanted
    if offset is None and not from_beginning:
        wanted = FROM_START
    if wanted.stop is not None:
        raise click.UsageError(f"--exit-at-end and the end in --offset '{offset}' exclude each other")
    return wanted._replace(stop=NEW_ONLY.start)


def start_reading(
    consumer: Consumer, topic: str, partitions: tuple[int, ...], wanted: OffsetRange
) -> dict[TopicPartition, int | None]:
    """Assign and seek; returns per partition where to stop (None: never)."""
    known = known_partitions(consumer, topic)
    if missing := sorted(set(partitions) - set(known)):
        raise click.UsageError(f"topic '{topic}' has no partition {missing[0]}; it has {known[0]} to {known[-1]}")
    assigned = [TopicPartition(topic, number) for number in (sorted(set(partitions)) or known)]
    beginnings, ends = consumer.beginning_offsets(assigned), consumer.end_offsets(assigned)
    start_times = _offsets_at(consumer, assigned, wanted.start)
    stop_times = _offsets_at(consumer, assigned, wanted.stop)
    consumer.assign(assigned)
    stops: dict[TopicPartition, int | None] = {}
    for partition in assigned:
        bounds = PartitionBounds(
            beginnings[partition], ends[partition], start_times.get(partition), stop_times.get(partition)
        )
        start, stops[partition] = resolve(wanted, bounds)
        consumer.seek(partition, start)
    return stops


def known_partitions(consumer: Consumer, topic: str) -> list[int]:
    """Raises ClickException for a topic that does not exist."""
    from strandline.client.errors import UnknownTopic

    try:
        return sorted(consumer.partitions_for_topic(topic, timeout_ms=UNKNOWN_AFTER_MS))
    except UnknownTopic:
        raise click.ClickException(
            f"topic '{topic}' does not exist; 'strandline topics --list' shows those that do, "
            f"'strandline topics --create --topic {topic}' makes it"
        ) from None


def _offsets_at(consumer: Consumer, partitions: list[TopicPartition], bound: Any) -> dict[TopicPartition, int | None]:
    """First offset at or after a time, per partition; nothing where the bound is not a time."""
    if bound is None or bound.kind is not BoundKind.TIMESTAMP:
        return {}
    found = consumer.offsets_for_times(dict.fromkeys(partitions, bound.value))
    return {partition: None if at is None else at.offset for partition, at in found.items()}
