"""`strandline produce`: each line of a file or of stdin becomes a record, or what stands there by another format.

Rules: bytes are never decoded; the first record that fails for good, or cannot be read, ends the command, which then
says how many were acknowledged. What becomes of records is shown as it is known, also while no input comes, and so is
what partitions wait for (`waits`); what is settled shortly after Ctrl-C counts. An empty input asks for nothing: no
broker is needed, and it is no failure. What is read is in `record_input` and `input_format`, what becomes of it in
`sending`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.created_topic import TopicCheck
from strandline.cli.idle_readers import a_moment, in_passing
from strandline.cli.input_format import input_reader
from strandline.cli.json_input import JsonReader
from strandline.cli.kcat_letters import kcat_letters
from strandline.cli.options import (
    MOST_PER_SECOND,
    BoundedFloat,
    acks_option,
    bootstrap_option,
    client_settings,
    compression_option,
    key_of_setting,
    key_value,
    output_option,
    settings_option,
    topic_option,
)
from strandline.cli.progress import Done, ProgressLine, fraction_read, is_terminal_for_progress
from strandline.cli.record_format import Header, InvalidFormat, pieces_of
from strandline.cli.record_input import InputReader, LineReader, LineRules, Records
from strandline.cli.sending import Tally, summary
from strandline.cli.session import EXIT_INTERRUPTED, Session, bootstrap_of, session_of
from strandline.cli.text_options import ESCAPED, properties_of_console, property_option
from strandline.cli.waits import LOOK_EVERY_S, Waits
from strandline.cli.wording import counted
from strandline.runtime.input_chunks import PULSE_S, input_chunks

if TYPE_CHECKING:
    from strandline import Producer

MAX_BLOCK_MS = 10_000
"""How long a person should wait to learn that the topic or the cluster is not there."""

GIVE_UP_S = 0.5
"""How long records that are on their way may take once the command has failed or was interrupted."""

MADE_UP_S = 0.02
"""How far --rate may lag behind and still catch up: machines sleep longer than they are asked to, if not by much."""

CREATES_SETTING = "allow_auto_create_topics"

PROPERTIES: dict[str, type] = {
    "parse.key": bool,
    "key.separator": bytes,
    "parse.headers": bool,
    "headers.delimiter": bytes,
    "headers.separator": bytes,
    "headers.key.separator": bytes,
    "null.marker": bytes,
}

EPILOG = """
\b
Example: printf 'k1:hello\\nk2:world\\n' | strandline produce -t greetings -K :

\b
The template of -F is that of 'strandline consume -f'; both ways keep a record:
  consume -t a -f '%T %K %k%V %v%H %h{%K %k%V %v}\\n' |
    produce -t b -F '%T %K %k%V %v%H %h{%K %k%V %v}\\n'
  consume -t a -J | produce -t b -J

\b
  %v %s %k        value, key: up to what stands behind, or as long as said before
  %V %S %R  %K    length of the value (%R: four bytes), of the key; -1: null
  %T %d           timestamp in ms; %d{strftime[%F %T]}: in UTC
  %h  %H          headers as k=v,k=v; %h{%k=%v;}: each like that; %H: how many
  %p              partition to write to
  %t %o %e %i     read and passed over
  %v{hex} %v{base64} %v{json}    of %k, too
  %% \\n \\t \\r \\\\ \\0 \\xNN

From memory of kcat: -f is the template here, too, and files are given with -l.
"""


@click.command(epilog=EPILOG)
@bootstrap_option
@topic_option("Topic to write to.")
@click.option("--no-create", is_flag=True, help="Fail where the topic does not exist; by default brokers create it.")
@click.option(
    "-K",
    "--key-separator",
    type=ESCAPED,
    help=r"What stands between key and value in a line, for example : or \t; without it there is no key.",
)
@click.option("-k", "--key", "fixed_key", help="The same key for every record.")
@click.option("-D", "--delimiter", type=ESCAPED, default=r"\n", show_default=True, help="What ends a record.")
@click.option("-F", "-f", "--format", "template", metavar="TEMPLATE", help="How a record is written; see below.")
@click.option("-J", "--json-input", is_flag=True, help="Each line is an object as 'strandline consume -J' prints it.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Partition; by default chosen by the key.")
@acks_option
@compression_option
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option("--null", type=ESCAPED, help="A key or value that is this text is sent as null (a tombstone).")
@click.option("-Z", "--empty-is-null", is_flag=True, help="An empty key or value is sent as null.")
@click.option(
    "-l",
    "--file",
    "source",
    type=click.File("rb"),
    default="-",
    metavar="FILE",
    help="Where the records are read; default: stdin.",
)
@click.option("-c", "-n", "--max-messages", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option(
    "--rate", type=BoundedFloat(0, MOST_PER_SECOND, min_open=True), help="At most so many records per second."
)
@click.option("-v", "--verbose", is_flag=True, help="Print partition@offset of every record.")
@click.option("-q", "--quiet", is_flag=True, help="Without the count at the end.")
@property_option(PROPERTIES)
@output_option
@settings_option
@kcat_letters(
    "P", C="'strandline consume' reads records", G="'strandline consume --group NAME -t TOPIC' reads as a group"
)
@click.pass_context
def produce(ctx: click.Context, /, **options: Any) -> None:
    """Write lines to a topic, one record each."""
    asked = Asked(**options)
    session = session_of(ctx)
    reader = reader_of(asked)
    headers = [header_of(text) for text in asked.headers]
    servers = bootstrap_of(session, asked.bootstrap)
    settings = settings_of(asked)
    producer = session.producer(servers, **settings)
    waits = Waits(producer, session.monotonic)
    tally = Tally(producer, asked.topic, waits, verbose=asked.verbose, as_json=asked.output == "json")
    check = TopicCheck(session, servers, asked.settings, asked.topic, may_create=may_create(settings))
    interactive = asked.source.isatty() and sys.stdout.isatty()
    progress = ProgressLine(
        lambda: Done(
            tally.sent_records,
            tally.sent_bytes,
            fraction_read(asked.source) if asked.rate is None else None,  # what is read waits for its turn then
            tally.acked,
            max(tally.lost, producer.failed_records),
        ),
        session.monotonic,
    )
    if is_terminal_for_progress(is_output_shown=tally.is_each_shown) and not asked.source.isatty():
        waits.also = progress.show
    records = limited(records_of(asked.source, reader, tally.reap, prompt=interactive), asked.max_messages)
    if asked.rate is not None:
        records = paced(records, asked.rate, session, tally.reap)
    finished = interrupted = False

    def tell() -> None:
        if (finished or tally.acked or (interrupted and tally.lost)) and not asked.quiet:
            with in_passing() if interrupted else contextlib.nullcontext():
                click.echo(summary(tally, asked.topic), err=True)

    with contextlib.ExitStack() as ending:  # from the last to the first, and all of them, whatever interrupts one
        ending.callback(tell)
        ending.callback(lambda: tally.reap_rest(a_moment if interrupted else contextlib.nullcontext))
        ending.callback(lambda: close(producer, wait=finished))
        ending.callback(progress.stop)
        ending.callback(setattr, waits, "also", progress.stop)  # it stays away
        try:
            if asked.partition is not None:
                check.before_first(producer)
                require_partition(producer, asked.topic, asked.partition)
            for found in records:
                check.before_first(producer)
                tally.send(found, asked.partition, headers)
                if tally.refused is not None:
                    break
                if interactive:
                    flush(producer, waits)
                tally.reap()
            flush(producer, waits)
            tally.reap_all()
            finished = True
        except KeyboardInterrupt:
            interrupted = True
    error = tally.refused
    if asked.max_messages is None or tally.sent_records < asked.max_messages:  # what stands behind them is not wanted
        error = error or reader.error
    if error is not None and finished:
        raise click.ClickException(str(error))
    if interrupted and (asked.output == "json" or not (tally.acked or tally.lost)):
        raise KeyboardInterrupt(*([f"{counted(tally.lost, 'record')} not acknowledged"] if tally.lost else []))
    if interrupted:
        ctx.exit(EXIT_INTERRUPTED)


class Asked(NamedTuple):
    """The options of one command line."""

    bootstrap: str | None
    topic: str
    no_create: bool
    key_separator: bytes | None
    fixed_key: str | None
    delimiter: bytes
    template: str | None
    json_input: bool
    partition: int | None
    acks: str
    compression: str
    headers: tuple[str, ...]
    null: bytes | None
    empty_is_null: bool
    source: IO[bytes]
    max_messages: int | None
    rate: float | None
    verbose: bool
    quiet: bool
    properties: tuple[str, ...]
    output: str
    settings: tuple[str, ...]


def settings_of(asked: Asked) -> dict[str, object]:
    """Those of the producer. UsageError."""
    settings: dict[str, object] = {
        "acks": asked.acks,
        "compression_type": asked.compression,
        "max_block_ms": MAX_BLOCK_MS,
        **client_settings(asked.settings),
    }
    if asked.no_create:  # not only for the first record: the topic may be deleted later
        key = key_of_setting(settings, CREATES_SETTING) or CREATES_SETTING
        if settings.get(key) is True:
            raise click.UsageError(f"--no-create and -X {key}=true exclude each other")
        settings[key] = False
    return settings


def may_create(settings: dict[str, object]) -> bool:
    """Whether brokers are asked to create the topic."""
    return settings.get(key_of_setting(settings, CREATES_SETTING) or "") is not False


def reader_of(asked: Asked) -> InputReader:
    """How the input is read. UsageError where options contradict each other."""
    rules = line_rules(asked)
    if asked.template is None and not asked.json_input:
        return LineReader(rules)
    name = "--json-input" if asked.json_input else "--format"
    if asked.template is not None and asked.json_input:
        raise click.UsageError("--format and --json-input exclude each other")
    if rules._replace(null=None) != LineRules():
        raise click.UsageError(f"{name} says itself how a record is written: without -K, -k, -D and their properties")
    if asked.json_input:
        if rules.null is not None:
            raise click.UsageError("--json-input has a null of its own: without --null and -Z")
        return JsonReader()
    try:
        reader = input_reader(asked.template or "", null=rules.null)
        pieces = pieces_of(asked.template or "")
    except InvalidFormat as error:
        raise click.UsageError(str(error)) from None
    if asked.partition is not None and any(piece.verb == "p" for piece in pieces):
        raise click.UsageError("--partition and %p of --format both say where records go: leave one of them out")
    return reader


def line_rules(asked: Asked) -> LineRules:
    """What the options and properties say of a line. UsageError."""
    given = properties_of_console(asked.properties, PROPERTIES)
    separator = asked.key_separator
    if "key.separator" in given and not given.get("parse.key"):
        raise click.UsageError("--property key.separator counts with parse.key=true only, as in Kafka; or say -K")
    if given.get("parse.key"):
        if separator is not None:
            raise click.UsageError("--key-separator and --property parse.key say the same twice")
        separator = given.get("key.separator", b"\t")
    if separator is not None and asked.fixed_key is not None:
        raise click.UsageError("--key and --key-separator exclude each other")
    if separator == b"":
        raise click.UsageError("--key-separator is empty; leave it out for records without a key")
    nulls = [
        text
        for text in (asked.null, b"" if asked.empty_is_null else None, given.get("null.marker"))
        if text is not None
    ]
    if len(nulls) > 1:
        raise click.UsageError("--null, --empty-is-null and --property null.marker exclude each other")
    rules = LineRules(
        delimiter=asked.delimiter,
        key_separator=separator,
        fixed_key=None if asked.fixed_key is None else asked.fixed_key.encode("utf-8", "surrogateescape"),
        null=nulls[0] if nulls else None,
        headers_delimiter=given.get("headers.delimiter", b"\t") if given.get("parse.headers") else None,
        headers_separator=given.get("headers.separator", b","),
        headers_key_separator=given.get("headers.key.separator", b":"),
    )
    if b"" in (rules.delimiter, rules.headers_delimiter, rules.headers_separator, rules.headers_key_separator):
        raise click.UsageError("a delimiter or separator is empty")
    return rules


def records_of(source: IO[bytes], reader: InputReader, pulse: Callable[[], None], *, prompt: bool) -> Iterator[Records]:
    """What is read, until the end or until something cannot be read; shows `>` before each line where a person types
    them. `pulse`: see input_chunks."""
    chunks = input_chunks(source, pulse)
    while reader.error is None:
        if prompt:
            click.echo(">", nl=False)
            sys.stdout.flush()
        chunk = next(chunks, None)
        yield from reader.end() if chunk is None else reader.feed(chunk)
        if chunk is None:
            return


def limited(records: Iterable[Records], limit: int | None) -> Iterator[Records]:
    """The first so many."""
    left = sys.maxsize if limit is None else limit
    for found in records:
        count = len(found.records)
        yield found if count <= left else found.part(0, left)
        left -= count
        if left <= 0:
            return


def flush(producer: Producer, waits: Waits) -> None:
    """Wait for all that was sent: each record is settled some time, well or badly, which its future tells."""
    from strandline.client.errors import FlushTimedOut, SendsFailed

    while True:
        try:
            producer.flush(LOOK_EVERY_S)
            return
        except FlushTimedOut:
            waits.look()
        except SendsFailed:
            return


def close(producer: Producer, *, wait: bool) -> None:
    """End the producer; after a failure what is still on its way is not waited for."""
    if wait:
        producer.close()
        return
    from strandline.client.errors import FlushTimedOut, SendsFailed

    try:
        producer.close(timeout=GIVE_UP_S)
    except (FlushTimedOut, SendsFailed):
        return  # the failure that led here is the one to tell about


def header_of(text: str) -> Header:
    """`NAME=VALUE` of the command line; UsageError unless the name is UTF-8 (a value may be any bytes)."""
    name, value = key_value(text, "--header")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"--header '{text}': the name is not UTF-8; only a value may be any bytes") from None
    return name, value.encode("utf-8", "surrogateescape")


def require_partition(producer: Producer, topic: str, partition: int) -> None:
    """UsageError, before any input is read, for a partition that the topic does not have."""
    known = producer.partitions_for(topic)
    if partition not in known:
        raise click.UsageError(f"topic '{topic}' has no partition {partition}; it has {known[0]} to {known[-1]}")


def paced(
    records: Iterable[Records], records_per_second: float, session: Session, pulse: Callable[[], None]
) -> Iterator[Records]:
    """Let a record through no earlier than 1 / rate seconds after the one before; `pulse` is called while it waits.
    What a sleep took too long is made up for, up to MADE_UP_S; the time in which no input came is not."""
    due: float | None = None
    for found in records:
        for place in range(len(found.records)):
            now = session.monotonic()
            due = now if due is None else max(due, now - MADE_UP_S)
            while now < due:
                session.sleep(min(due - now, PULSE_S))
                pulse()
                now = session.monotonic()
            yield found.part(place, place + 1)
            due += 1 / records_per_second
