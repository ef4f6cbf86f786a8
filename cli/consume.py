"""`strandline consume`: prints records of some partitions of one topic, from and up to given offsets, or those that a
group gives it.

Rules: only committed records are seen (the brokers serve nothing else); the count on stderr comes whatever ends the
command. A partition of which nothing can be read for a while is waited for, and stderr says why (`waits`). Records are
read and printed in `consume_loop`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.consume_start import (
    RESET_SETTING,
    chosen_partitions,
    known_partitions,
    reset_policy,
    start_reading,
    wanted_range,
)
from strandline.cli.group_commits import GroupCommits, group_settings
from strandline.cli.offset_range import NEW_ONLY, OffsetRange
from strandline.cli.options import bootstrap_option, client_settings, output_option, settings_option, topic_option
from strandline.cli.record_format import InvalidFormat, Writer, compile_format, console_format, json_format
from strandline.cli.session import EXIT_INTERRUPTED, bootstrap_of, session_of

if TYPE_CHECKING:
    from strandline import Consumer

API_TIMEOUT_MS = 10_000
"""How long a person should wait for an answer, or for the reason why there is none."""


@click.command(
    epilog="Examples: strandline consume -t greetings --from-beginning --print-key; "
    "strandline consume -t greetings -o -10:end -f '%p@%o %k=%v\\n'; strandline consume -t greetings -o @-1h -e -J; "
    "strandline consume -t greetings --group readers --from-beginning"
)
@bootstrap_option
@topic_option("Topic to read.")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Short for -o start; by default only new records are read, or what -X auto.offset.reset says.",
)
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
def consume(ctx: click.Context, /, **options: Any) -> None:
    """Read records from a topic."""
    asked = Asked(**options)
    session = session_of(ctx)
    if asked.group is not None and (asked.offset is not None or asked.partitions or asked.exit_at_end):
        raise click.UsageError("a --group says itself what is read and from where: without -o, -p and -e", ctx)
    settings = client_settings(asked.settings)
    policy = reset_policy(settings)
    wanted = NEW_ONLY
    if asked.group is None:
        wanted = wanted_range(asked.offset, asked.from_beginning, asked.exit_at_end, session.now_ms(), policy)
    write = writer_of(asked)
    policy = "earliest" if asked.from_beginning else policy or "latest"
    limits = {"default_api_timeout_ms": API_TIMEOUT_MS, RESET_SETTING: policy}
    given = {**limits, **group_settings(asked.group, asked.group_instance_id), **settings}
    with session.consumer(bootstrap_of(session, asked.bootstrap), **given) as consumer:
        read(ctx, asked, consumer, write, wanted)


class Asked(NamedTuple):
    """The options of one command line."""

    bootstrap: str | None
    topic: str
    from_beginning: bool
    offset: str | None
    partitions: tuple[int, ...]
    group: str | None
    group_instance_id: str | None
    max_messages: int | None
    timeout_ms: int | None
    exit_at_end: bool
    template: str | None
    as_json: bool
    output: str
    print_key: bool
    print_offset: bool
    print_partition: bool
    print_timestamp: bool
    print_headers: bool
    key_separator: str
    settings: tuple[str, ...]


def writer_of(asked: Asked) -> Writer:
    """How records are printed. UsageError."""
    as_json = asked.as_json or asked.output == "json"
    if as_json and asked.template is not None:
        raise click.UsageError("--format and --output json exclude each other")
    if as_json:
        return json_format()
    if asked.template is not None:
        try:
            return compile_format(asked.template)
        except InvalidFormat as error:
            raise click.UsageError(str(error)) from None
    return console_format(
        timestamp=asked.print_timestamp,
        partition=asked.print_partition,
        offset=asked.print_offset,
        headers=asked.print_headers,
        key=asked.print_key,
        separator=asked.key_separator.encode("utf-8", "surrogateescape"),
    )


def read(ctx: click.Context, asked: Asked, consumer: Consumer, write: Writer, wanted: OffsetRange) -> None:
    """Print what is wanted, or what the group gives; the count comes in any case."""
    from strandline.cli.consume_loop import ConsumeLoop

    session = session_of(ctx)
    loop = ConsumeLoop(
        write, sys.stdout.buffer, max_messages=asked.max_messages, timeout_ms=asked.timeout_ms, session=session
    )
    commits = stops = None
    if asked.group is not None:
        known_partitions(consumer, asked.topic)
        commits = GroupCommits(consumer, loop.printed, session.monotonic)
        commits.subscribe(asked.topic)
    else:
        parts = start_reading(consumer, chosen_partitions(consumer, asked.topic, asked.partitions), wanted)
        stops = {each: stop for each, (_, stop) in parts.items()}
    try:
        loop.run(consumer, stops, commits)
    except KeyboardInterrupt:
        ctx.exit(EXIT_INTERRUPTED)  # how an endless read is ended: the count is all there is to say
    finally:
        if commits is not None:
            commits.commit()
        click.echo(f"Processed a total of {loop.count} messages", err=True)
