"""`strandline consume`: prints records of topics, from and up to given offsets, or those that a group gives it.

Rules: only committed records are seen (the brokers serve nothing else); the count on stderr comes whatever ends the
command. A partition of which nothing can be read for a while is waited for, and stderr says why (`waits`). Records are
read and printed in `consume_loop`; where to begin is in `consume_start`, which topics in `consume_topics`.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.consume_settings import refuse_settings_of_programs
from strandline.cli.consume_start import (
    RESET_SETTING,
    known_partitions,
    one_offset,
    reset_policy,
    start_reading,
    wanted_range,
)
from strandline.cli.consume_topics import (
    LOOK_EVERY_S,
    TopicsOfGroup,
    TopicsToRead,
    compiled_pattern,
    named_topics,
    start_line,
    subscription,
)
from strandline.cli.group_commits import GroupCommits, group_settings
from strandline.cli.group_starts import GroupStarts
from strandline.cli.idle_readers import in_passing
from strandline.cli.kcat_letters import kcat_letters
from strandline.cli.offset_range import NEW_ONLY, OffsetRange
from strandline.cli.options import (
    bootstrap_option,
    client_settings,
    common_settings,
    key_of_setting,
    output_option,
    settings_option,
)
from strandline.cli.progress import Done, ProgressLine, is_terminal_for_progress
from strandline.cli.record_format import InvalidFormat, Writer, compile_format, console_format, json_format
from strandline.cli.session import EXIT_INTERRUPTED, bootstrap_of, session_of
from strandline.cli.text_options import ESCAPED, properties_of_console, property_option
from strandline.cli.waits import MOST_NAMED
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Consumer
    from strandline.cli.consume_loop import ConsumeLoop

API_TIMEOUT_MS = 10_000
"""How long a person should wait for an answer, or for the reason why there is none."""

PROPERTIES: dict[str, type] = {
    "print.key": bool,
    "print.value": bool,
    "print.timestamp": bool,
    "print.offset": bool,
    "print.partition": bool,
    "print.headers": bool,
    "key.separator": bytes,
    "line.separator": bytes,
    "null.literal": bytes,
}

EPILOG = """
\b
Examples: strandline consume -t greetings --from-beginning --print-key
  strandline consume -t greetings -o -10:end -f '%p@%o %k=%v\\n'
  strandline consume -t greetings -o @-1h -e -J
  strandline consume -t clicks -t orders --group readers --from-beginning
  strandline consume -r 'clicks-.*' -o s@1700000000000 -o e@1700000060000

\b
Verbs of -f, which 'strandline produce -F' reads, too:
  %v %s %k        value, key; %v{hex} %v{base64}
  %v{json}        a text in JSON; a byte that is no UTF-8 is \\udcXX; of %k, too
  %V %S %R  %K    length of the value (%R: four bytes), of the key; -1: null
  %t %p %o %e     topic, partition, offset, leader epoch
  %T %d           timestamp in ms; %d{strftime[%F %T]}: in UTC
  %h  %H          headers as k=v,k=v; %h{%k=%v;}: each like that; %H: how many
  %i              number of the record, from 1
  %% \\n \\t \\r \\\\ \\0 \\xNN

From memory of kcat: -Z shows NULL for null, -K shows the key in front, -u is not needed. Its -G is --group.
"""


@click.command(epilog=EPILOG)
@bootstrap_option
@click.option("-t", "--topic", "topics", multiple=True, callback=named_topics, help="May be repeated, or be a,b,c.")
@click.option("-r", "--include", "pattern", metavar="REGEX", callback=compiled_pattern, help="Topics with such names.")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Short for -o start; by default only new records are read, or what -X auto.offset.reset says.",
)
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="start (beginning), end, 47, +10, -10 (before the end), ranges 47:90 and :end, times @-1h, @2024-02-14:1h, "
    "s@ and e@ as in kcat, stored (what a group does).",
)
@click.option("-p", "--partition", "partitions", multiple=True, type=click.IntRange(min=0), help="May be repeated.")
@click.option(
    "-g", "--group", metavar="NAME", help="As a member of that group: where it stands; commits what was printed."
)
@click.option("--group-instance-id", metavar="ID", help="… a static member, which keeps its partitions for a while.")
@click.option("-c", "-n", "--max-messages", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Stop when none came for so long.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at what is the end of the topic now.")
@click.option(
    "-f", "-F", "--format", "template", metavar="TEMPLATE", help=r"For example '%t %p %o %k=%v\n'; see below."
)
@click.option("-J", "as_json", is_flag=True, help="The same as --output json.")
@output_option
@click.option("--print-key", is_flag=True)
@click.option("--print-offset", is_flag=True)
@click.option("--print-partition", is_flag=True)
@click.option("--print-timestamp", is_flag=True)
@click.option("--print-headers", is_flag=True)
@click.option(
    "-K",
    "--key-separator",
    type=ESCAPED,
    help=r"Between the printed fields; alone it asks for the key.  [default: \t]",
)
@click.option("-D", "--delimiter", type=ESCAPED, help=r"Behind each record.  [default: \n]")
@click.option("--null", type=ESCAPED, help="How null is shown.  [default: null; with -f: nothing]")
@click.option("-Z", "--show-null", is_flag=True, help="Short for --null NULL.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr which offsets are read.")
@click.option("-q", "--quiet", is_flag=True, help="Without the count at the end.")
@property_option(PROPERTIES)
@settings_option
@kcat_letters(
    "u", "C", P="'strandline produce' writes records", G="a group is --group NAME here, and its topics are -t TOPIC"
)
@click.pass_context
def consume(ctx: click.Context, /, **options: Any) -> None:
    """Read records from topics."""
    asked = Asked(**options)
    session = session_of(ctx)
    check(asked)
    offset = one_offset(asked.offsets, asked.group)
    settings = client_settings(asked.settings)
    refuse_settings_of_programs(settings)
    policy = reset_policy(settings)
    wanted = NEW_ONLY
    if asked.group is None:
        wanted = wanted_range(offset, asked.from_beginning, asked.exit_at_end, session.now_ms(), policy)
    write = writer_of(asked)
    if asked.group is None:
        # Where to begin is sought: the policy is for places that the log loses later, of which nothing is to be missed.
        policy = policy or "earliest"
    else:
        policy = "earliest" if asked.from_beginning else policy or "latest"
    limits = {
        "default_api_timeout_ms": API_TIMEOUT_MS,
        "metadata_max_age_ms": LOOK_EVERY_S * 1000,
        RESET_SETTING: policy,
    }
    given = {**limits, **group_settings(asked.group, asked.group_instance_id), **settings}
    with session.consumer(bootstrap_of(session, asked.bootstrap), **given) as consumer:
        read(ctx, asked, consumer, write, wanted, policy)


class Asked(NamedTuple):
    """The options of one command line."""

    bootstrap: str | None
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    from_beginning: bool
    offsets: tuple[str, ...]
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
    key_separator: bytes | None
    delimiter: bytes | None
    null: bytes | None
    show_null: bool
    verbose: bool
    quiet: bool
    properties: tuple[str, ...]
    settings: tuple[str, ...]


def check(asked: Asked) -> None:
    """UsageError for options that contradict each other."""
    if bool(asked.topics) == (asked.pattern is not None):
        raise click.UsageError("say what is read: --topic (it may be repeated), or --include with a pattern")
    if asked.partitions and (asked.pattern is not None or len(asked.topics) > 1):
        raise click.UsageError("--partition goes with one topic")
    offsets = [text for text in asked.offsets if text != "stored"]
    if asked.group is not None and (offsets or asked.partitions or asked.exit_at_end):
        raise click.UsageError("a --group says itself what is read and from where: without -o, -p and -e")


def writer_of(asked: Asked) -> Writer:
    """How records are printed. UsageError."""
    given = properties_of_console(asked.properties, PROPERTIES)
    nulls = [
        text
        for text in (asked.null, b"NULL" if asked.show_null else None, given.get("null.literal"))
        if text is not None
    ]
    if len(nulls) > 1:
        raise click.UsageError("--null, -Z and --property null.literal exclude each other")
    as_json = asked.as_json or asked.output == "json"
    if as_json and asked.template is not None:
        raise click.UsageError("--format and --output json exclude each other")
    prints = {name: getattr(asked, f"print_{name}") for name in ("key", "offset", "partition", "timestamp", "headers")}
    if (as_json or asked.template is not None) and (
        any(prints.values())
        or asked.key_separator is not None
        or asked.delimiter is not None
        or set(given) - {"null.literal"}
    ):
        raise click.UsageError(
            "--format and JSON say themselves what is printed: without --print-…, -K, -D, --property"
        )
    if as_json:
        if nulls:
            raise click.UsageError("JSON has a null of its own: without --null and -Z")
        return json_format()
    if asked.template is not None:
        try:
            return compile_format(asked.template, *nulls)
        except InvalidFormat as error:
            raise click.UsageError(str(error)) from None
    if asked.key_separator is not None and not any(prints.values()):
        prints["key"] = True
    prints |= {name.removeprefix("print."): is_on for name, is_on in given.items() if name.startswith("print.")}
    return console_format(
        **prints,
        separator=first_of(asked.key_separator, given.get("key.separator"), b"\t"),
        ending=first_of(asked.delimiter, given.get("line.separator"), b"\n"),
        null=first_of(*nulls, b"null"),
    )


def first_of(*texts: bytes | None) -> bytes:
    """The first that is given."""
    return next(text for text in texts if text is not None)


def read(
    ctx: click.Context, asked: Asked, consumer: Consumer, write: Writer, wanted: OffsetRange, reset_policy: str
) -> None:
    """Print what is wanted, or what the group gives; the count comes in any case."""
    from strandline.cli.consume_loop import ConsumeLoop
    from strandline.cli.lost_offsets import LostOffsets

    session = session_of(ctx)
    loop = ConsumeLoop(
        write, sys.stdout.buffer, max_messages=asked.max_messages, timeout_ms=asked.timeout_ms, session=session
    )
    settings = client_settings(asked.settings)
    loop.check_crcs = settings.get(key_of_setting(settings, "check_crcs") or "") is not False
    commits = stops = None
    ranges: Ranges = {}
    ends: Offsets = {}
    with contextlib.ExitStack() as stack:
        if asked.group is not None:
            for topic in asked.topics:
                known_partitions(consumer, topic)
            commits = GroupCommits(consumer, loop.printed, session.monotonic, lambda: loop.speaking())
            loop.lost = LostOffsets(consumer, {}, reset_policy, session.monotonic)
            starts = GroupStarts(consumer, loop.lost, is_told=asked.verbose)
            commits.subscribe(starts, **subscription(asked.topics, asked.pattern))
            look = TopicsOfGroup(consumer, asked.topics, session.monotonic, asked.timeout_ms).look
        else:
            topics = stack.enter_context(topics_to_read(ctx, asked, consumer))
            ranges, ends = begin(asked, consumer, topics, wanted)
            begins = {each: start for each, (start, _) in ranges.items()}
            loop.lost = LostOffsets(consumer, begins, reset_policy, session.monotonic)
            if wanted.stop is not None:
                stops = {each: stop for each, (_, stop) in ranges.items()}
            topics.follows_new, topics.tells_new = stops is None, asked.verbose
            loop.gone, loop.unknown, look = topics.gone, topics.unknown, topics.look
        progress = ProgressLine(lambda: Done(loop.count, loop.bytes_out, loop.fraction(ranges)), session.monotonic)
        is_shown = is_terminal_for_progress(is_output_shown=True)
        loop.look = looks(look, progress if is_shown else None)
        if not asked.quiet:
            stack.callback(tell_count, loop)
        if commits is not None:
            stack.callback(commits.commit)
        stack.callback(progress.stop)  # the first of these three to be done; all are, whatever interrupts one
        try:
            loop.run(consumer, stops, commits)
        except KeyboardInterrupt:
            loop.speaking = in_passing
            if session.line.as_json:  # a program is to see that this is not the end
                if loop.is_cut:
                    with in_passing():
                        click.echo()
                raise
            ctx.exit(EXIT_INTERRUPTED)  # how an endless read is ended: the count is all there is to say
        if stops is not None and (loop.gone or loop.cut):
            raise click.ClickException("not all of what was asked for could be read: see above what has gone")
        if loop.unfinished:
            tell_unfinished(loop.unfinished, {each: loop.reached.get(each, ranges[each][0]) for each in ranges}, ends)


def tell_count(loop: ConsumeLoop) -> None:
    with loop.speaking():
        click.echo(f"Processed a total of {loop.count} messages", err=True)


def tell_unfinished(stops: Offsets, reached: Offsets, ends: Offsets) -> None:
    """None came for too long, before the stops. ClickException where something was to be read that was there from the
    start (`ends`: of the partitions then): offsets that were named need not exist yet."""
    parts = [f"{each} up to {reached[each]}, not {stop}" for each, stop in stops.items()]
    left_out = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    text = f"not all was read before --timeout-ms passed: {'; '.join(parts[:MOST_NAMED])}{left_out}"
    if any(min(stop, ends[each]) > reached[each] for each, stop in stops.items()):
        raise click.ClickException(text)
    click.echo(f"strandline: {text}", err=True)


Ranges = dict[TopicPartition, tuple[int, int | None]]
"""Partition → where it begins and where to stop."""
Offsets = Mapping[TopicPartition, int]


@contextlib.contextmanager
def topics_to_read(ctx: click.Context, asked: Asked, consumer: Consumer) -> Iterator[TopicsToRead]:
    """With somebody to ask for all topics, where that is needed."""
    session = session_of(ctx)
    numbers, pattern = asked.partitions, asked.pattern
    if pattern is None:
        yield TopicsToRead(consumer, asked.topics, numbers, None, None, session.monotonic, asked.timeout_ms)
        return
    limits = {"default_api_timeout_ms": API_TIMEOUT_MS, **common_settings(asked.settings)}
    with session.admin(bootstrap_of(session, asked.bootstrap), **limits) as admin:
        yield TopicsToRead(consumer, (), numbers, pattern, admin, session.monotonic, asked.timeout_ms)


def begin(asked: Asked, consumer: Consumer, topics: TopicsToRead, wanted: OffsetRange) -> tuple[Ranges, Offsets]:
    """Go to where to read, and tell what a person should know; returns also where each partition ends now."""
    ranges, ends = start_reading(consumer, topics.partitions(), wanted)
    for each, (start, stop) in ranges.items() if asked.verbose else ():
        click.echo(f"strandline: {start_line(each, start, stop)}", err=True)
    if not ranges and asked.pattern is not None:
        tell_no_topic(asked.pattern, is_awaited=wanted.stop is None)
    return ranges, ends


def looks(at_topics: Callable[[], None], progress: ProgressLine | None) -> Callable[[], None]:
    """What is done now and then while it is read."""

    def look() -> None:
        at_topics()
        if progress is not None:
            progress.show()

    return look


def tell_no_topic(pattern: re.Pattern[str], *, is_awaited: bool) -> None:
    """ClickException where nothing is left to do then."""
    if not is_awaited:
        raise click.ClickException(f"no topic matches '{pattern.pattern}'; 'strandline topics --list' shows all")
    click.echo(f"strandline: no topic matches '{pattern.pattern}' yet; those that appear are read", err=True)
