"""`strandline bench scenarios`: the six scenarios of a known benchmark of Kafka, its tables beside what a cluster does.

What is repeated is data (`bench_scenario_tables`), how a row is run is in `bench_scenario_runs`, what is said of it in
`bench_scenario_text` and `bench_scenario_page`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from strandline.cli.bar import Bar
from strandline.cli.options import (
    LOOK_TIMEOUT_MS,
    BoundedFloat,
    bootstrap_option,
    output_option,
    page_option,
    show_json,
)
from strandline.cli.session import EXIT_INTERRUPTED, Session, bootstrap_of, session_of
from strandline.cli.tables import show_table
from strandline.cli.wording import sized

if TYPE_CHECKING:
    from strandline.cli.bench_scenario_runs import Outcome
    from strandline.cli.bench_scenario_tables import Scenario
    from strandline.cli.cluster import EmbeddedCluster

EXIT_FAILED = 1
DRAW_EVERY_S = 0.1
ALL = tuple(map(str, range(1, 7)))
INTERRUPTED = "interrupted"


@click.command(
    epilog="Examples: strandline bench scenarios --embedded --page scenarios.html; "
    "strandline bench scenarios --scenario 1 --scenario 4 --scale 0.01; "
    "strandline bench scenarios -b localhost:9092 --output json"
)
@bootstrap_option
@click.option(
    "--embedded",
    is_flag=True,
    help="Start four brokers for it on this machine, in the folder for temporary files ($TMPDIR), and remove them "
    "afterwards. They need 1.1 GiB there at --scale 0.1, 8.6 GiB at 1; it is refused where they are not free.",
)
@click.option("--scenario", "numbers", multiple=True, type=click.Choice(ALL), help="This one only; may be repeated.")
@click.option(
    "--scale",
    type=BoundedFloat(0, 100, min_open=True),
    default=0.1,
    show_default=True,
    help="1: a million records of 1 KiB a row (scenario 6: 100,000), 0.01: a hundredth of that.",
)
@page_option
@output_option
@click.pass_context
def scenarios(
    ctx: click.Context,
    bootstrap: str | None,
    embedded: bool,
    numbers: tuple[str, ...],
    scale: float,
    page: Path | None,
    output: str,
) -> None:
    """Run six scenarios that were published of Kafka, and show their figures beside those of this cluster.

    Replicas, acks, min.insync.replicas and partitions against records per second (TPS), brokers that are killed
    meanwhile, and latency. Machines differ: compare the ratio of each row to the first of its table. Each row has a
    topic of its own, which is deleted. Rows for which brokers are lacking are named; those that kill brokers run with
    --embedded only."""
    session = session_of(ctx)
    if embedded and (bootstrap is not None or session.line.data_dir is not None):
        raise click.UsageError("--embedded starts a cluster of its own: leave --bootstrap and --data out")
    from strandline.cli.bench_scenario_tables import SCENARIOS

    wanted = [each for each in SCENARIOS if not numbers or str(each.number) in numbers]
    with _cluster(session, bootstrap, wanted, scale, embedded=embedded) as (servers, cluster):
        with session.admin(servers, default_api_timeout_ms=LOOK_TIMEOUT_MS) as admin:
            brokers = len(admin.describe_cluster().brokers)
        ran = _run(session, servers, cluster, brokers, wanted, scale)
    where = f"{brokers} brokers, started for this on one machine" if embedded else f"{brokers} brokers at {servers}"
    _tell(ran, page, output, scale, where, brokers, embedded=embedded)
    if ran.is_interrupted:
        ctx.exit(EXIT_INTERRUPTED)
    if ran.cut or any(outcome.has_failed for _, outcomes in ran.done for outcome in outcomes):
        ctx.exit(EXIT_FAILED)


class Ran(NamedTuple):
    """What became of each row that was begun, how many were wanted, and why the rest was not run, if it was not."""

    done: list[tuple[Scenario, list[Outcome]]]
    wanted: int
    cut: str = ""

    @property
    def is_interrupted(self) -> bool:
        return self.cut == INTERRUPTED

    @property
    def rows(self) -> str:
        """`2 of 37: interrupted`."""
        count = f"{sum(len(outcomes) for _, outcomes in self.done)} of {self.wanted}"
        return f"{count}: {self.cut}" if self.cut else count


@contextmanager
def _cluster(
    session: Session, bootstrap: str | None, wanted: Sequence[Scenario], scale: float, *, embedded: bool
) -> Iterator[tuple[str, EmbeddedCluster | None]]:
    """Where it is, and the cluster itself where it was started for this. ClickException: there is no room for it."""
    if not embedded:
        yield bootstrap_of(session, bootstrap), None
        return
    from strandline.cli.bench_scenario_runs import room_bytes
    from strandline.cli.bench_scenario_tables import BROKERS

    needed_bytes, (folder, free_bytes) = room_bytes(wanted, scale), session.temporary_room()
    room = f"need {sized(needed_bytes)} in {folder}, where {sized(free_bytes)} are free"
    if needed_bytes > free_bytes:
        raise click.ClickException(
            f"{BROKERS} brokers {room}; give a smaller --scale, or name a larger folder in $TMPDIR"
        )
    click.echo(f"starting {BROKERS} brokers, which {room}", err=True)
    with session.temporary_cluster(BROKERS) as cluster:
        try:
            yield cluster.bootstrap_servers, cluster
        finally:
            click.echo("stopping the brokers", err=True)


def _run(
    session: Session,
    servers: str,
    cluster: EmbeddedCluster | None,
    brokers: int,
    wanted: Sequence[Scenario],
    scale: float,
) -> Ran:
    """All rows, unless somebody interrupts it or the cluster is not whole any more."""
    from strandline.cli.bench_scenario_runs import Runner

    rows = sum(len(each.rows) for each in wanted)
    shown = _Shown(session, rows)
    runner = Runner(session, servers, cluster, scale, shown.records)
    done: list[tuple[Scenario, list[Outcome]]] = []
    try:
        for scenario in wanted:
            outcomes: list[Outcome] = []
            done.append((scenario, outcomes))
            for place, row in enumerate(scenario.rows, 1):
                shown.begin(f"scenario {scenario.number}, row {place} of {len(scenario.rows)}")
                outcomes.append(runner.run(scenario, row, brokers))
                if why := runner.ended():
                    return Ran(done, rows, why)
    except KeyboardInterrupt:
        return Ran(done, rows, INTERRUPTED)
    finally:
        shown.stop()
    return Ran(done, rows)


class _Shown:
    """How far it is, on stderr where that is a terminal."""

    def __init__(self, session: Session, rows: int) -> None:
        self._session = session
        self._rows = rows
        self._done = -1
        self._what = ""
        self._bar = Bar() if sys.stderr.isatty() else None
        self._due_s = 0.0

    def begin(self, what: str) -> None:
        self._done += 1
        self._what = what
        self._draw(what, 0.0)

    def records(self, settled: int, of: int) -> None:
        """Cheap, unless it is time."""
        if self._bar is not None and (now_s := self._session.monotonic()) >= self._due_s:
            self._due_s = now_s + DRAW_EVERY_S
            self._draw(f"{self._what}: {settled:,} of {of:,} records", settled / of)

    def _draw(self, text: str, of_row: float) -> None:
        if self._bar is not None:
            self._bar.draw(text, (self._done + of_row) / self._rows)

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _tell(ran: Ran, page: Path | None, output: str, scale: float, where: str, brokers: int, *, embedded: bool) -> None:
    from strandline.cli.bench_scenario_tables import RECORDS, VALUE_BYTES
    from strandline.cli.bench_scenario_text import scenario_fields, table_of

    if ran.cut:
        click.echo(f"strandline: rows that were run: {ran.rows}", err=True)
    if page is not None:
        from strandline.cli.bench_scenario_page import scenarios_page

        settings = {
            "rows": ran.rows,
            "scale": f"{scale:g} of {RECORDS:,} records a row",
            "value": sized(VALUE_BYTES),
            "here": f"{where}; {os.cpu_count()} cores where the client runs",
            "text": "Kafka 0.10.1.0, four brokers and a client of 24 cores each, 1 kB",
        }
        page.write_text(scenarios_page(ran.done, settings), encoding="utf-8")
    if output == "json":
        show_json(
            "bench.scenarios",
            scale=scale,
            value_bytes=VALUE_BYTES,
            brokers=brokers,
            embedded=embedded,
            interrupted=ran.is_interrupted,
            scenarios=[scenario_fields(*each) for each in ran.done],
        )
        return
    click.echo(f"{where}; scale {scale:g}")
    for scenario, outcomes in ran.done:
        click.echo(f"\n{scenario.number}. {scenario.title}")
        columns, rows, numbers = table_of(scenario, outcomes)
        if rows:
            show_table(columns, rows, numbers)
        click.echo(f"The text: {scenario.finding}")
    if page is not None:
        click.echo(f"page: {page}", err=True)
