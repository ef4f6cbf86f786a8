"""`strandline groups reset`: let a group without members go on from elsewhere.

    strandline groups reset billing --topic clicks --to-earliest              what would change
    strandline groups reset billing --topic clicks:0,1 --shift-by -100 --execute
    strandline groups reset billing --all-topics --by-duration P1D            what was written since then, again
    strandline groups reset billing --from-file offsets.csv                   lines of topic,partition,offset

1. The command line says where to: one `Target` for all partitions.
2. The group is looked at: with members it is left alone, since they would go on from where they are and commit that.
3. What the partitions hold is asked for, and `planned` decides each: never outside of the log.
4. Nothing is changed without --execute.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.item_errors import error_fields
from strandline.cli.offset_range import START, BoundKind, InvalidOffset, parse_offset_range
from strandline.cli.options import (
    admin_of,
    bootstrap_option,
    consumer_of,
    legal_topic,
    output_option,
    settings_option,
    show_json,
    topic_and_partitions,
)
from strandline.cli.session import session_of
from strandline.cli.tables import show_table
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline import Admin, Consumer
    from strandline.client.groups.administration import GroupOffset, GroupView
    from strandline.protocol.types import TopicPartition

TIMEOUT_MS = 30_000
MAX_FILE_BYTES = 16 * 2**20
_OFFSET_MAX = 2**63 - 1
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,3})?)S)?)?", re.ASCII)
_IDLE_STATES = ("Empty", "Dead")

Named = list[tuple[str, list[int] | None]]
"""Topics, and which of their partitions; None: all."""


class Target(NamedTuple):
    """Where to: `kind` is the option, `value` its number (an offset, a distance, or a time in ms since 1970), `offsets`
    those of --from-file."""

    kind: str
    value: int = 0
    offsets: Mapping[TopicPartition, int] = {}


class Holding(NamedTuple):
    """What is known of a partition: what the group has committed, what the log has, where the time lies that is asked
    for (None: after the last record)."""

    committed: int | None
    beginning: int
    end: int
    at_time: int | None = None


class Plan(NamedTuple):
    """`note`: what the operator has to know; `after` None: nothing can be set."""

    after: int | None
    note: str = ""


def planned(target: Target, partition: TopicPartition, holding: Holding) -> Plan:
    """Where the group goes on in this partition. Pure."""
    match target.kind:
        case "to-earliest":
            return Plan(holding.beginning)
        case "to-latest":
            return Plan(holding.end)
        case "to-current":
            if holding.committed is None:
                return Plan(holding.end, "nothing is committed, so it goes on at the end")
            wanted = holding.committed
        case "shift-by":
            if holding.committed is None:
                return Plan(None, "nothing is committed from which to shift")
            wanted = holding.committed + target.value
        case "to-datetime" | "by-duration":
            return Plan(holding.end if holding.at_time is None else holding.at_time)
        case "from-file":
            wanted = target.offsets[partition]
        case _:
            wanted = target.value
    if wanted < holding.beginning:
        return Plan(holding.beginning, f"{wanted} lies before the log's start")
    if wanted > holding.end:
        return Plan(holding.end, f"{wanted} lies behind the log's end")
    return Plan(wanted)


@click.command(
    short_help="Let a group go on from elsewhere.",
    epilog="Examples: strandline groups reset billing --topic clicks --to-earliest; strandline groups reset billing "
    "--topic clicks:0,1 --shift-by -100 --execute; strandline groups reset billing --all-topics --by-duration P1D",
)
@bootstrap_option
@click.argument("name", metavar="GROUP")
@click.option("-t", "--topic", "topics", multiple=True, metavar="NAME[:0,1]", help="May be repeated.")
@click.option("--all-topics", is_flag=True, help="Every topic of which the group has committed something.")
@click.option("--to-earliest", is_flag=True, help="To the first record that there is.")
@click.option("--to-latest", is_flag=True, help="To the end: only what is new from now on.")
@click.option("--to-offset", type=click.IntRange(0, _OFFSET_MAX), metavar="N", help="To that offset.")
@click.option("--shift-by", type=click.IntRange(-_OFFSET_MAX, _OFFSET_MAX), metavar="N", help="So many offsets on.")
@click.option(
    "--to-datetime",
    metavar="ISO",
    help="To the first record since 2024-02-14T10:00:00+01:00, for example; without a zone it is UTC.",
)
@click.option("--by-duration", metavar="P1D", help="To the first record of the last day; also P1DT2H, 90m.")
@click.option("--to-current", is_flag=True, help="To what is committed, as far as the log still has it.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="CSV",
    help="To the offsets of a file: a line per partition, topic,partition,offset.",
)
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@output_option
@settings_option
@click.pass_context
def reset(
    ctx: click.Context,
    /,
    bootstrap: str | None,
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    output: str,
    settings: tuple[str, ...],
    **where_to: Any,
) -> int:
    """Let a group without members go on from elsewhere; without --execute only what would change is shown."""
    target = _target(where_to, session_of(ctx).now_ms())
    if (target.kind == "from-file") + bool(topics) + all_topics != 1:
        raise click.UsageError("give one of --topic NAME[:0,1], --all-topics, --from-file CSV", ctx)
    named: Named = [topic_and_partitions(text) for text in topics]
    with (
        admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin,
        consumer_of(ctx, bootstrap, settings, TIMEOUT_MS) as consumer,
    ):
        _check_idle(admin, name)
        committed = admin.list_group_offsets(name)
        partitions = _partitions(admin, name, named, target, committed)
        plans = _plans(consumer, target, partitions, committed)
        failures = _execute(admin, name, plans) if execute else {}
    if output == "json":
        _show_json(name, plans, committed, failures, execute)
    else:
        _show(name, plans, committed, failures, execute)
    return 1 if any(failures.values()) or any(plan.after is None for plan in plans.values()) else 0


# --- 1. the command line ---------------------------------------------------------------------------------------------


def _target(where_to: Mapping[str, Any], now_ms: int) -> Target:
    """UsageError unless exactly one is given, and can be read."""
    given = {
        option.replace("_", "-"): value
        for option, value in where_to.items()
        if value is not None and value is not False
    }
    if len(given) != 1:
        options = ", ".join(f"--{option.replace('_', '-')}" for option in where_to)
        raise click.UsageError(f"give one of {options}")
    [(kind, value)] = given.items()
    if kind == "from-file":
        return Target(kind, offsets=_from_file(value))
    if kind == "to-datetime":
        return Target(kind, _moment(value, now_ms))
    if kind == "by-duration":
        return Target(kind, _moment_ago(value, now_ms))
    return Target(kind, int(value))


def _moment(text: str, now_ms: int) -> int:
    """Milliseconds since 1970."""
    try:
        start, stop = parse_offset_range(f"@{text}", now_ms)
    except InvalidOffset as error:
        raise click.UsageError(f"--to-datetime {error}") from None
    if start.kind is not BoundKind.TIMESTAMP or stop is not None or text.endswith(":"):
        raise click.UsageError(f"--to-datetime '{text}' is no time; give for example 2024-02-14T10:00:00Z")
    return start.value


def _moment_ago(text: str, now_ms: int) -> int:
    """ISO 8601 as Kafka's tool takes it, or the units of `strandline consume`."""
    iso = _ISO_DURATION.fullmatch(text)
    if iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return max(0, now_ms - round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000))
    try:
        start, stop = parse_offset_range(f"@-{text}", now_ms)
    except InvalidOffset:
        start, stop = START, None
    if start is START or stop is not None or text.endswith(":"):
        raise click.UsageError(f"--by-duration '{text}' is no duration; give for example P1D, PT1H30M or 90m")
    return start.value


def _from_file(path: Path) -> dict[TopicPartition, int]:
    """UsageError naming what is wrong with the file."""
    from strandline.protocol.types import TopicPartition

    if path.stat().st_size > MAX_FILE_BYTES:
        raise click.UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    asked: dict[TopicPartition, int] = {}
    for number, fields in enumerate(csv.reader(lines), 1):
        cells = [cell.strip() for cell in fields]
        if not any(cells):
            continue
        is_one = len(cells) == 3 and all(cell.isascii() and cell.isdigit() for cell in cells[1:])
        if not is_one or int(cells[1]) >= 2**31 or int(cells[2]) > _OFFSET_MAX:
            raise click.UsageError(f"{path}, line {number}: it is not topic,partition,offset")
        tp = TopicPartition(legal_topic(cells[0]), int(cells[1]))
        if tp in asked:
            raise click.UsageError(f"{path} names {tp} twice")
        asked[tp] = int(cells[2])
    if not asked:
        raise click.UsageError(f"{path} names no partition")
    return asked


# --- 2. and 3. the group, and what its partitions hold ---------------------------------------------------------------


def _check_idle(admin: Admin, name: str) -> None:
    """A group that does not exist yet may be told where to begin."""
    from strandline.client.errors import GroupNotEmpty, UnknownGroup
    from strandline.protocol.errors import ErrorCode

    view: GroupView | Exception = admin.describe_groups([name])[name]
    if isinstance(view, UnknownGroup):
        return
    if isinstance(view, Exception):
        raise view
    if view.state not in _IDLE_STATES:
        text = f"group {name!r} is {view.state} with {counted(len(view.members), 'member')}; stop them first"
        raise GroupNotEmpty(ErrorCode.NON_EMPTY_GROUP, text)


def _partitions(
    admin: Admin, name: str, named: Named, target: Target, committed: Mapping[TopicPartition, GroupOffset]
) -> list[TopicPartition]:
    """Those that are meant, of all topics those that are still there; the error of a topic or partition that does not
    exist, or of a group that has nothing."""
    from strandline.client.errors import UnknownGroup, UnknownTopic
    from strandline.protocol.errors import ErrorCode
    from strandline.protocol.types import TopicPartition

    if not named and not target.offsets:
        topics = admin.describe_topics()
        wanted = [tp for tp in committed if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
        if not wanted:
            text = f"group {name!r} does not exist, or has committed nothing; name a --topic"
            raise UnknownGroup(ErrorCode.GROUP_ID_NOT_FOUND, text)
        return wanted
    wanted = list(target.offsets)
    topics = admin.describe_topics(sorted({topic for topic, _ in [*named, *wanted]}))
    for topic, numbers in named:
        wanted += [TopicPartition(topic, number) for number in (numbers or sorted(topics[topic].partitions))]
    for tp in wanted:
        if tp.partition not in topics[tp.topic].partitions:
            count = counted(len(topics[tp.topic].partitions), "partition")
            raise UnknownTopic(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {tp.topic!r} has no partition {tp.partition}: it has {count}",
            )
    return sorted(set(wanted))


def _plans(
    consumer: Consumer,
    target: Target,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, GroupOffset],
) -> dict[TopicPartition, Plan]:
    beginnings, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    by_time = target.kind in ("to-datetime", "by-duration")
    times = consumer.offsets_for_times(dict.fromkeys(partitions, target.value)) if by_time else {}
    plans = {}
    for tp in partitions:
        at_time = times.get(tp)
        known = committed[tp].offset if tp in committed else None
        holding = Holding(known, beginnings[tp], ends[tp], None if at_time is None else at_time.offset)
        plans[tp] = planned(target, tp, holding)
    return plans


# --- 4. doing it, and telling ----------------------------------------------------------------------------------------


def _execute(
    admin: Admin, name: str, plans: Mapping[TopicPartition, Plan]
) -> Mapping[TopicPartition, Exception | None]:
    from strandline.client.groups.administration import GroupOffset

    offsets = {tp: GroupOffset(plan.after) for tp, plan in plans.items() if plan.after is not None}
    return admin.alter_group_offsets(name, offsets) if offsets else {}


def _show(
    name: str,
    plans: Mapping[TopicPartition, Plan],
    committed: Mapping[TopicPartition, GroupOffset],
    failures: Mapping[TopicPartition, Exception | None],
    execute: bool,
) -> None:
    columns = ("group", "topic", "partition", "before", "new offset")
    show_table(columns, [_cells(name, tp, plan, committed) for tp, plan in plans.items()], columns[2:])
    for tp, plan in plans.items():
        if plan.note:
            click.echo(f"note: {tp}: {plan.note}", err=True)
    for error in filter(None, failures.values()):
        click.echo(f"strandline: {error}", err=True)
    if not execute:
        click.echo("nothing was changed; add --execute to do it", err=True)


def _cells(
    name: str, tp: TopicPartition, plan: Plan, committed: Mapping[TopicPartition, GroupOffset]
) -> tuple[str, ...]:
    before = str(committed[tp].offset) if tp in committed else ""
    return name, tp.topic, str(tp.partition), before, "" if plan.after is None else str(plan.after)


def _show_json(
    name: str,
    plans: Mapping[TopicPartition, Plan],
    committed: Mapping[TopicPartition, GroupOffset],
    failures: Mapping[TopicPartition, Exception | None],
    execute: bool,
) -> None:
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "before": committed[tp].offset if tp in committed else None,
            "after": plan.after,
            "note": plan.note,
            **error_fields(failures.get(tp)),
        }
        for tp, plan in plans.items()
    ]
    show_json("groups.reset", group=name, executed=execute, partitions=rows)
