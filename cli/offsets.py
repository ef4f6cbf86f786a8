"""`strandline offsets`: where partitions begin and end, what lies between, and which offset a time has.

    strandline offsets                                  every topic but internal ones
    strandline offsets clicks:0,1 --at @-1h             since an hour ago: offset, and records since then
    strandline offsets --include 'clicks-.*' --at @2024-02-14:1h

`records` are offsets between: of a compacted topic, or one with markers of transactions, there are fewer. A partition
that cannot be asked is told on stderr and makes exit code 1; the others are shown all the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.item_errors import error_fields, error_name
from strandline.cli.log_bounds import bounds_of, sizes_of
from strandline.cli.offset_range import FROM_START, InvalidOffset, parse_offset_range, resolve
from strandline.cli.options import (
    LOOK_TIMEOUT_MS,
    admin_of,
    bootstrap_option,
    consumer_of,
    output_option,
    settings_option,
    show_json,
    topic_and_partitions,
)
from strandline.cli.session import session_of
from strandline.cli.tables import show_table
from strandline.cli.topic_choice import chosen, include_option
from strandline.cli.wording import counted, printable, sized

if TYPE_CHECKING:
    from strandline.client.metadata import TopicView
    from strandline.protocol.types import TopicPartition

Named = list[tuple[str, list[int] | None]]
"""Topics, and which of their partitions; None: all."""


class Row(NamedTuple):
    """A partition. `first`, `stop`: what --at chooses of it. `size_bytes`: of the leader's log, None where nobody
    says."""

    topic: str
    partition: int
    leader: int
    earliest: int
    latest: int
    first: int
    stop: int
    size_bytes: int | None

    @property
    def records(self) -> int:
        return max(0, self.stop - self.first)


class Failure(NamedTuple):
    """A partition, or a whole topic (None), of which nothing can be told."""

    topic: str
    partition: int | None
    error: str
    message: str


@click.command(
    epilog="Examples: strandline offsets; strandline offsets clicks:0,1 --at @-1h; "
    "strandline offsets --include 'clicks-.*' --at @2024-02-14:1h"
)
@bootstrap_option
@click.argument("targets", nargs=-1, metavar="[TOPIC[:0,1]]…")
@include_option("Topics whose whole name matches; without names and this, all topics but internal ones.")
@click.option("--internal", is_flag=True, help="Internal topics, too: the brokers' own (__consumer_offsets).")
@click.option(
    "-o",
    "--at",
    metavar="OFFSET",
    help="Of what part: a time @-1h, @2024-02-14, a range @-2h:-1h, -10, 47:90, … as `strandline consume -o`.",
)
@output_option
@settings_option
@click.pass_context
def offsets(
    ctx: click.Context,
    bootstrap: str | None,
    targets: tuple[str, ...],
    include: re.Pattern[str] | None,
    internal: bool,
    at: str | None,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Show where partitions begin and end, how many records that is, and who leads them. Exit code 1 where one of them
    cannot be asked."""
    if targets and (include is not None or internal):
        raise click.UsageError("name topics, or choose them by --include and --internal, not both", ctx)
    session = session_of(ctx)
    try:
        wanted = FROM_START if at is None else parse_offset_range(at, session.now_ms())
    except InvalidOffset as error:
        raise click.UsageError(f"--at: {error}", ctx) from None
    named: Named = [topic_and_partitions(text) for text in targets]
    with admin_of(ctx, bootstrap, settings, LOOK_TIMEOUT_MS) as admin:
        topics = admin.describe_topics()
        if not named:
            named = [(name, None) for name in chosen(topics.values(), include, internal=internal)]
        leaders, failures = _leaders(topics, named)
        sizes, silent = sizes_of(admin, leaders) if leaders else ({}, {})
        with consumer_of(ctx, bootstrap, settings, LOOK_TIMEOUT_MS) as consumer:
            found = bounds_of(consumer, leaders, session.monotonic, wanted)
    rows = []
    for tp, bounds in sorted(found.items()):
        if isinstance(bounds, Exception):
            failures.append(Failure(tp.topic, tp.partition, error_name(bounds), f"{tp}: {bounds}"))
            continue
        first, stop = resolve(wanted, bounds)
        end = bounds.end if stop is None else min(stop, bounds.end)
        held = (bounds.beginning, bounds.end, first, max(first, end), sizes.get(tp))
        rows.append(Row(tp.topic, tp.partition, leaders[tp], *held))
    if output == "json":
        _show_json(rows, failures, silent)
    else:
        _show(rows, with_part=wanted != FROM_START)
        for each in failures:
            click.echo(f"strandline: {printable(each.message)}", err=True)
        for broker_id, why in silent.items():
            text = f"broker {broker_id} does not say how large its logs are: {why}"
            click.echo(f"strandline: {printable(text)}", err=True)
    return 1 if failures or silent else 0


def _leaders(topics: Mapping[str, TopicView], named: Named) -> tuple[dict[TopicPartition, int], list[Failure]]:
    """Who leads what was named, and what is not there or led by nobody."""
    from strandline.protocol.types import TopicPartition

    leaders: dict[TopicPartition, int] = {}
    failures = []
    for name, numbers in named:
        topic = topics.get(name)
        if topic is None:
            text = f"topic '{name}' does not exist; strandline topics list shows those that do"
            failures.append(Failure(name, None, "UNKNOWN_TOPIC_OR_PARTITION", text))
            continue
        for number in sorted(topic.partitions) if numbers is None else numbers:
            known = topic.partitions.get(number)
            if known is None:
                text = f"topic '{name}' has no partition {number}: it has {counted(len(topic.partitions), 'partition')}"
                failures.append(Failure(name, number, "UNKNOWN_TOPIC_OR_PARTITION", text))
            elif known.leader < 0:
                text = f"nobody leads {name}-{number}; strandline recover {name}:{number} shows who could"
                failures.append(Failure(name, number, "LEADER_NOT_AVAILABLE", text))
            else:
                leaders[TopicPartition(name, number)] = known.leader
    return leaders, failures


def _show(rows: list[Row], *, with_part: bool) -> None:
    to_people = sys.stdout.isatty()
    numbers = ["partition", "leader", "earliest", "latest", *(["from", "to"] if with_part else []), "records", "size"]
    show_table(["topic", *numbers], [_cells(row, with_part, to_people) for row in rows], numbers)
    if to_people and len(rows) > 1:
        size = sum(row.size_bytes or 0 for row in rows)
        records = counted(sum(row.records for row in rows), "record")
        click.echo(f"{counted(len(rows), 'partition')}: {records}, {sized(size)} on the leaders")


def _cells(row: Row, with_part: bool, to_people: bool) -> list[str]:
    part: Iterable[int] = (row.first, row.stop) if with_part else ()
    shown = (row.partition, row.leader, row.earliest, row.latest, *part, row.records)
    size = "" if row.size_bytes is None else sized(row.size_bytes) if to_people else str(row.size_bytes)
    return [row.topic, *map(str, shown), size]


def _show_json(rows: list[Row], failures: list[Failure], silent: Mapping[int, Exception]) -> None:
    nothing = dict.fromkeys(("leader", "earliest", "latest", "from", "to", "records", "size_bytes"))
    partitions: list[dict[str, Any]] = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "leader": row.leader,
            "earliest": row.earliest,
            "latest": row.latest,
            "from": row.first,
            "to": row.stop,
            "records": row.records,
            "size_bytes": row.size_bytes,
            **error_fields(None),
        }
        for row in rows
    ]
    partitions += [
        {"topic": each.topic, "partition": each.partition, **nothing, "error": each.error, "message": each.message}
        for each in failures
    ]
    unheard = [{"broker": broker_id, **error_fields(why)} for broker_id, why in silent.items()]
    show_json("offsets", partitions=partitions, failures=unheard)
