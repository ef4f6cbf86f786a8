"""`strandline produce`: each line of a file or of stdin becomes a record.

Rules: a line is what stands between two `\\n` (a `\\r` stays); bytes are never decoded; the first record that fails for
good ends the command, which then says how many were acknowledged. What becomes of records is shown as it is known, also
while no input comes, and so is what partitions wait for (`waits`); what is settled shortly after Ctrl-C counts. An
empty input asks for nothing: no broker is needed, and it is no failure.
"""

from __future__ import annotations

import collections
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.options import (
    bootstrap_option,
    client_settings,
    key_value,
    output_option,
    settings_option,
    topic_option,
)
from strandline.cli.session import EXIT_INTERRUPTED, Session, bootstrap_of, session_of
from strandline.cli.waits import LOOK_EVERY_S, Waits
from strandline.cli.wording import counted
from strandline.runtime.input_lines import PULSE_S, input_lines

if TYPE_CHECKING:
    from strandline import Producer

MAX_PENDING = 20_000
"""Records whose outcome is not known yet; beyond it the oldest is waited for."""

MAX_BLOCK_MS = 10_000
"""How long a person should wait to learn that the topic or the cluster is not there."""

GIVE_UP_S = 0.5
"""How long records that are on their way may take once the command has failed or was interrupted."""


class LineRules(NamedTuple):
    """How a line becomes key and value."""

    key_separator: bytes | None
    fixed_key: bytes | None
    empty_is_null: bool


class Tally:
    """What came of the records so far, in their order, and where each acknowledgement is shown. `waits` is looked at
    whenever time passes."""

    def __init__(self, waits: Waits, *, verbose: bool, as_json: bool) -> None:
        self.acked = 0
        self.acked_bytes = 0
        self.lost = 0
        """Of an end before its time: not acknowledged, as far as anybody knows."""
        self.partitions: set[int] = set()
        self._pending: collections.deque[tuple[Any, int]] = collections.deque()
        self._waits = waits
        self._verbose = verbose
        self._as_json = as_json

    def sent(self, future: Any, size_bytes: int) -> None:
        self._pending.append((future, size_bytes))

    def reap(self) -> None:
        """Count what is settled; wait for the oldest while too many are not. Raises what a record failed with."""
        while self._pending and (self._pending[0][0].done() or len(self._pending) > MAX_PENDING):
            self._await_oldest()
            self._acknowledged(*self._take_oldest())
        self._waits.look()

    def reap_all(self) -> None:
        """Wait for every record. Raises what the first one that failed did so with."""
        while self._pending:
            self._await_oldest()
            self._acknowledged(*self._take_oldest())

    def _await_oldest(self) -> None:
        """Until it is settled, well or badly."""
        future, _ = self._pending[0]
        while not future.done():
            with contextlib.suppress(Exception):  # raised anew by whoever takes it
                future.result(LOOK_EVERY_S)
            self._waits.look()

    def reap_rest(self) -> None:
        """After an end before its time: nothing is waited for, and why it ended is told by others. All are counted,
        also where they cannot be shown any more: OSError after the last."""
        unseen: OSError | None = None
        while self._pending:
            try:
                settled = self._take_oldest(0)
            except Exception:
                continue
            try:
                self._acknowledged(*settled)
            except OSError as error:
                unseen = error
        if unseen is not None:
            raise unseen

    def _take_oldest(self, timeout_s: float | None = None) -> tuple[Any, int]:
        """Where the oldest record stands, and its size. It stays if the wait is interrupted."""
        future, size_bytes = self._pending[0]
        try:
            metadata = future.result(timeout_s)
        except Exception:
            self._pending.popleft()
            self.lost += 1
            raise
        self._pending.popleft()
        return metadata, size_bytes

    def _acknowledged(self, metadata: Any, size_bytes: int) -> None:
        self.acked += 1
        self.acked_bytes += size_bytes
        self.partitions.add(metadata.partition)
        if self._as_json:
            fields = {
                "topic": metadata.topic,
                "partition": metadata.partition,
                "offset": metadata.offset,
                "ts": metadata.timestamp_ms,
            }
            click.echo(json.dumps(fields, separators=(",", ":")))
        elif self._verbose:
            click.echo(f"{metadata.partition}@{metadata.offset}")


def key_and_value(line: bytes, rules: LineRules) -> tuple[bytes | None, bytes | None]:
    """Raises ClickException where the line has no separator."""
    key: bytes | None = rules.fixed_key
    value: bytes | None = line
    if rules.key_separator is not None:
        key, found, value = line.partition(rules.key_separator)
        if not found:
            raise click.ClickException(
                f"no separator {rules.key_separator!r} in line {line[:40]!r}; change --key-separator or leave it out"
            )
    if rules.empty_is_null:
        return key or None, value or None
    return key, value


def lines_of(source: IO[bytes], pulse: Callable[[], None], *, prompt: bool) -> Iterator[bytes]:
    """The lines without their `\\n`; shows `>` before each where a person types them. `pulse`: see input_lines."""
    lines = input_lines(source, pulse)
    while True:
        if prompt:
            click.echo(">", nl=False)
            sys.stdout.flush()
        line = next(lines, None)
        if line is None:
            return
        yield line


@click.command(epilog="Example: printf 'k1:hello\\nk2:world\\n' | strandline produce -t greetings --key-separator :")
@bootstrap_option
@topic_option("Topic to write to.")
@click.option("-K", "--key-separator", help="What stands between key and value in a line; without it there is no key.")
@click.option("-k", "--key", "fixed_key", help="The same key for every record.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Partition; by default chosen by the key.")
@click.option(
    "--acks",
    type=click.Choice(["all", "-1", "1", "0"]),
    default="all",
    show_default=True,
    help="With all, no record stands twice, however often it was sent.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option("-Z", "--empty-is-null", is_flag=True, help="An empty key or value is sent as null (a tombstone).")
@click.option("-f", "--file", "source", type=click.File("rb"), default="-", metavar="FILE", help="Default: stdin.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many records per second.")
@click.option("-v", "--verbose", is_flag=True, help="Print partition@offset of every record.")
@output_option
@settings_option
@click.pass_context
def produce(
    ctx: click.Context,
    bootstrap: str | None,
    topic: str,
    key_separator: str | None,
    fixed_key: str | None,
    partition: int | None,
    acks: str,
    compression: str,
    headers: tuple[str, ...],
    empty_is_null: bool,
    source: IO[bytes],
    rate: float | None,
    verbose: bool,
    output: str,
    settings: tuple[str, ...],
) -> None:
    """Write lines to a topic, one record each."""
    session = session_of(ctx)
    if key_separator is not None and fixed_key is not None:
        raise click.UsageError("--key and --key-separator exclude each other", ctx)
    if key_separator == "":
        raise click.UsageError("--key-separator is empty; leave it out for records without a key", ctx)
    rules = LineRules(_encoded(key_separator), _encoded(fixed_key), empty_is_null)
    header_pairs = [header_of(text) for text in headers]
    producer = session.producer(
        bootstrap_of(session, bootstrap),
        **{
            "acks": acks,
            "compression_type": compression,
            "max_block_ms": MAX_BLOCK_MS,
            **client_settings(settings),
        },
    )
    waits = Waits(producer, session.monotonic)
    tally = Tally(waits, verbose=verbose, as_json=output == "json")
    interactive = source.isatty() and sys.stdout.isatty()
    lines: Iterable[bytes] = lines_of(source, tally.reap, prompt=interactive)
    if rate is not None:
        lines = paced(lines, rate, session, tally.reap)
    finished = interrupted = False
    try:
        if partition is not None:
            require_partition(producer, topic, partition)
        send_all(producer, topic, lines, rules, partition, header_pairs, tally, waits, wait_for_each=interactive)
        finished = True
    except KeyboardInterrupt:
        interrupted = True
    finally:
        try:
            close(producer, wait=finished)
            tally.reap_rest()
        finally:  # also where nobody reads what is shown: that ends the command, not the counting
            if finished or tally.acked:
                click.echo(summary(tally, topic), err=True)
    if interrupted and not tally.acked:
        raise KeyboardInterrupt
    if interrupted:
        ctx.exit(EXIT_INTERRUPTED)


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


def header_of(text: str) -> tuple[str, bytes]:
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


def _encoded(text: str | None) -> bytes | None:
    """Command line text as the bytes that were typed."""
    return None if text is None else text.encode("utf-8", "surrogateescape")


def send_all(
    producer: Producer,
    topic: str,
    lines: Iterable[bytes],
    rules: LineRules,
    partition: int | None,
    headers: list[tuple[str, bytes]],
    tally: Tally,
    waits: Waits,
    *,
    wait_for_each: bool,
) -> None:
    """Send every line and wait for every acknowledgement. Raises what the first failed record failed with."""
    for line in lines:
        key, value = key_and_value(line, rules)
        tally.sent(producer.send(topic, value, key=key, partition=partition, headers=headers), len(line))
        if wait_for_each:
            flush(producer, waits)
        tally.reap()
    flush(producer, waits)
    tally.reap_all()


def summary(tally: Tally, topic: str) -> str:
    where = f" in {counted(len(tally.partitions), 'partition')}" if tally.partitions else ""
    lost = f"; {tally.lost} more not acknowledged" if tally.lost else ""
    return f"{counted(tally.acked, 'record')} produced to {topic}{where} ({counted(tally.acked_bytes, 'byte')}){lost}"


def paced(
    lines: Iterable[bytes], records_per_second: float, session: Session, pulse: Callable[[], None]
) -> Iterator[bytes]:
    """Let line n through no earlier than n / rate seconds after the first; `pulse` is called while it waits."""
    started = session.monotonic()
    for count, line in enumerate(lines):
        due = started + count / records_per_second
        while (delay := due - session.monotonic()) > 0:
            session.sleep(min(delay, PULSE_S))
            pulse()
        yield line
