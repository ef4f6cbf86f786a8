"""What the benchmarks share: their options, a topic of their own, what is shown meanwhile and in the end.

A benchmark without `-t` makes a topic, and deletes it whatever happens; topics of others are only written and read.
Kafka's lines go to stdout as they come. In a terminal progress is on stderr and a table comes last; `--output json` is
one object at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import click

from strandline.cli.bar import Bar
from strandline.cli.bench_measure import Interval, Measurement, Result, result_fields
from strandline.cli.bench_text import failure_line, table_rows
from strandline.cli.options import (
    DAY_S,
    LOOK_TIMEOUT_MS,
    BoundedFloat,
    bootstrap_option,
    common_settings,
    legal_topic,
    output_option,
    page_option,
    settings_option,
    show_json,
)
from strandline.cli.session import EXIT_INTERRUPTED, Session, bootstrap_of, session_of
from strandline.cli.tables import show_table
from strandline.cli.wording import sized

F = TypeVar("F", bound=Callable[..., Any])

EXIT_FAILED = 1
DEFAULT_SECONDS = 10.0
"""Of a benchmark that is not told when it is over."""
MOST_REPLICAS = 3
GIVE_UP_S = 0.5
"""How long what is under way may take once the command was interrupted."""


class RunOptions(NamedTuple):
    """The options that all benchmarks have, by their names on the command line."""

    bootstrap: str | None
    topic: str | None
    partitions: int | None
    replication_factor: int | None
    keep_topic: bool
    records: int | None
    seconds: float | None
    size: int
    interval: float
    page: Path | None
    output: str
    settings: tuple[str, ...]

    @classmethod
    def taken(cls, given: dict[str, Any]) -> RunOptions:
        """Takes them out of what click found."""
        options = cls(**{name: given.pop(name) for name in cls._fields})
        if options.topic is not None:
            for name in ("partitions", "replication_factor", "keep_topic"):
                if getattr(options, name):
                    raise click.UsageError(f"--{name.replace('_', '-')} is for a topic of its own: leave --topic out")
        return options


def run_options(function: F) -> F:
    """Those of `RunOptions`."""
    for option in reversed(
        (
            bootstrap_option,
            click.option(
                "-t",
                "--topic",
                help="A topic that exists; without it one is made for the benchmark, and deleted after it.",
                callback=lambda ctx, parameter, value: value and legal_topic(value),
            ),
            click.option("--partitions", type=click.IntRange(min=1), help="Of a topic of its own.  [default: 1]"),
            click.option(
                "--replication-factor",
                type=click.IntRange(min=1),
                help="Of a topic of its own.  [default: 3, or as many as there are brokers]",
            ),
            click.option("--keep-topic", is_flag=True, help="Do not delete a topic of its own in the end."),
            click.option(
                "--records",
                "--num-records",
                "--messages",
                "records",
                type=click.IntRange(min=1),
                help="End after so many.",
            ),
            click.option(
                "--seconds",
                type=BoundedFloat(0, 30 * DAY_S, min_open=True),
                help="End after so long, or what is first.",
            ),
            click.option(
                "--size",
                "--record-size",
                "size",
                type=click.IntRange(min=1),
                default=100,
                show_default=True,
                help="Bytes of a value.",
            ),
            click.option(
                "--interval",
                type=BoundedFloat(0.1, DAY_S),
                default=1.0,
                show_default=True,
                help="Seconds between two lines.",
            ),
            page_option,
            output_option,
            settings_option,
        )
    ):
        function = option(function)
    return function


@contextmanager
def topic_of(ctx: click.Context, options: RunOptions) -> Iterator[str]:
    """The topic to be used. ClickException where the one that was named does not exist; ClientError where none can be
    made."""
    from strandline.client.errors import UnknownTopic

    session = session_of(ctx)
    servers = bootstrap_of(session, options.bootstrap)
    limits = {"default_api_timeout_ms": LOOK_TIMEOUT_MS, **common_settings(options.settings)}
    with session.admin(servers, **limits) as admin:
        if options.topic is not None:
            try:
                admin.describe_topics([options.topic])
            except UnknownTopic:
                raise click.ClickException(
                    f"topic '{options.topic}' does not exist; without --topic one is made for the benchmark"
                ) from None
            yield options.topic
            return
        name = f"bench-{session.now_ms()}"
        factor = options.replication_factor or max(1, min(MOST_REPLICAS, len(admin.describe_cluster().brokers)))
        admin.create_topic(name, options.partitions or 1, factor, {}, assignments=None, validate_only=False)
        try:
            yield name
        finally:
            if options.keep_topic:
                click.echo(f"topic {name} was kept", err=True)
            else:
                delete(admin, name)


def delete(admin: Any, name: str) -> None:
    """A topic of a benchmark's own; where that fails it is said who can do it."""
    from strandline.client.errors import ClientError

    try:
        admin.delete_topic(name)
    except ClientError as error:
        click.echo(f"strandline: topic {name} is still there: {error}; 'strandline topics delete {name}'", err=True)


class Report:
    """Shows how far a benchmark is: a line for each interval, and a bar on stderr where somebody looks at it."""

    def __init__(
        self, session: Session, options: RunOptions, line_of: Callable[[Interval, Measurement], str | None]
    ) -> None:
        """line_of: the line of an interval that is over; None for none."""
        self.measurement = Measurement(options.interval)
        self._session = session
        self._started_s = session.monotonic()
        self._options = options
        self._line_of = line_of
        self._bar = Bar()
        self._is_shown = False

    def now_s(self) -> float:
        """Seconds since the beginning."""
        return self._session.monotonic() - self._started_s

    def begin_anew(self) -> None:
        """Time counts from here: all before was preparation."""
        self._started_s = self._session.monotonic()

    def look(self, now_s: float) -> None:
        """To be called often: shows what is new."""
        over = self.measurement.next_interval(now_s)
        if over is not None:
            if self._options.output == "text" and (line := self._line_of(over, self.measurement)) is not None:
                self.line(line)
            self._show(now_s, over)

    def line(self, text: str) -> None:
        """One on stdout; above the bar where both are on the same screen."""
        self._bar.line(text)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within it there is a bar, if stderr is a terminal."""
        self._is_shown = sys.stderr.isatty()
        if self._is_shown:
            self._bar.draw("begins", 0.0 if self._options.records or self._options.seconds else None)
        try:
            yield
        finally:
            self._is_shown = False
            self._bar.stop()

    def _show(self, now_s: float, last: Interval) -> None:
        if not self._is_shown:
            return
        records, total = self._options, self.measurement.total
        shares = [total.records / records.records] if records.records else []
        shares += [now_s / records.seconds] if records.seconds else []
        failed = sum(each.records for each in self.measurement.failures.values())
        text = f"{now_s:.0f} s, {total.records:,} records"
        text += f", {last.records_per_second:,.0f}/s, {last.mib_per_second:.1f} MiB/s"
        text += f", p99 {last.latencies.percentile_us(99) / 1000:.1f} ms" if last.latencies.count else ""
        text += f", {failed:,} failed" if failed else ""
        self._bar.draw(text, min(max(shares), 1.0) if shares else None)


class Told(NamedTuple):
    """What a benchmark has to say in the end. lines: Kafka's, for stdout; settings: what was measured; fields: what
    else JSON has."""

    command: str
    latency_of: str
    lines: str
    settings: Mapping[str, str]
    fields: Mapping[str, object] = MappingProxyType({})


def finish(ctx: click.Context, options: RunOptions, result: Result, told: Told, *, is_interrupted: bool) -> None:
    """Show it, write the page, and end with the exit code: 1 where records failed, 130 after Ctrl-C."""
    if options.page is not None:
        from strandline.cli.bench_page import bench_page

        title = f"strandline {told.command}"
        options.page.write_text(bench_page(title, result, told.settings, told.latency_of), encoding="utf-8")
    if options.output == "json":
        show_json(
            told.command.replace(" ", "."),
            settings=dict(told.settings),
            interrupted=is_interrupted,
            **told.fields,
            **result_fields(result),
        )
    else:
        if told.lines:
            click.echo(told.lines)
        if sys.stdout.isatty():
            show_table(("what", "how much"), table_rows(result, told.latency_of), ("how much",))
        if options.page is not None:
            click.echo(f"page: {options.page}", err=True)
    if result.failures:
        click.echo(f"strandline: {failure_line(result)}", err=True)
    if is_interrupted:
        ctx.exit(EXIT_INTERRUPTED)
    if result.failures:
        ctx.exit(EXIT_FAILED)


def told_settings(options: RunOptions, topic: str, *, is_sending: bool, **others: object) -> dict[str, str]:
    """For JSON and the page: what was measured. Of a topic of others that is only read nobody knows how large values
    are."""
    of_topic = {"topic": topic, "topic of its own": "no" if options.topic else "yes"}
    if is_sending:
        of_topic["value"] = sized(options.size)
    given = {name.replace("_", " "): str(value) for name, value in others.items() if value is not None}
    return {**of_topic, **given, **dict(pair.split("=", 1) for pair in options.settings if "=" in pair)}
