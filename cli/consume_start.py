"""Where `strandline consume` begins and ends: what the options ask for, and which offsets of each partition that is.

Rules: -o and --from-beginning say where to begin, else `-X auto.offset.reset`, else only new records are read. What the
log does not have is never skipped over in silence: who asks for an offset behind the end is told where the end is, and
so with one before the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from strandline.cli.offset_range import (
    FROM_START,
    NEW_ONLY,
    Bound,
    BoundKind,
    InvalidOffset,
    OffsetRange,
    PartitionBounds,
    before_beginning,
    beyond_end,
    parse_offset_range,
    resolve,
)
from strandline.cli.options import key_of_setting
from strandline.cli.waits import MOST_NAMED
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Consumer

UNKNOWN_AFTER_MS = 5_000
"""A topic that no broker has heard of by then does not exist."""

RESET_SETTING = "auto_offset_reset"


def reset_policy(settings: dict[str, object]) -> str | None:
    """What `-X auto.offset.reset` says, taken out of the settings: here it says where to begin, too. UsageError for a
    value that it cannot have."""
    key = key_of_setting(settings, RESET_SETTING)
    if key is None:
        return None
    policy = settings.pop(key)
    if policy not in ("earliest", "latest", "none"):
        raise click.UsageError(f"-X {key}={policy} is none of earliest, latest, none")
    return str(policy)


def one_offset(given: Sequence[str], group: str | None) -> str | None:
    """What all -o say together, kcat's words among them: `stored` is what a group does by itself; `s@TIME` and `e@TIME`
    are two ends of one range. UsageError."""
    times = {text[0]: text[2:] for text in given if text[:2] in ("s@", "e@")}
    others = [text for text in given if text[:2] not in ("s@", "e@")]
    if others == ["stored"] and not times:
        if group is None:
            raise click.UsageError("-o stored is where a group stands; say which with --group")
        return None
    if len(others) > 1 or (others and times) or len(times) + len(others) < len(given):
        raise click.UsageError("--offset is given twice; only s@TIME and e@TIME go together")
    if others:
        return others[0]
    return f"@{times.get('s', 'start')}{':' + times['e'] if 'e' in times else ''}" if times else None


def wanted_range(
    offset: str | None, from_beginning: bool, exit_at_end: bool, now_ms: int, policy: str | None = None
) -> OffsetRange:
    """What -o, --from-beginning, -e and `auto.offset.reset` ask for together. Raises UsageError."""
    if offset is not None and from_beginning:
        raise click.UsageError("--from-beginning and --offset exclude each other")
    if offset is None and not from_beginning and policy == "none":
        raise click.UsageError("-X auto.offset.reset=none leaves open where to begin; say it with -o")
    try:
        wanted = parse_offset_range(offset, now_ms) if offset is not None else None
    except InvalidOffset as error:
        raise click.UsageError(str(error)) from None
    if not exit_at_end:
        from_start = from_beginning or policy == "earliest"
        return wanted or (FROM_START if from_start else NEW_ONLY)
    if wanted is None:
        wanted = NEW_ONLY if policy == "latest" and not from_beginning else FROM_START
    if wanted.stop is not None:
        raise click.UsageError(f"--exit-at-end and the end in --offset '{offset}' exclude each other")
    return wanted._replace(stop=NEW_ONLY.start)


def start_reading(
    consumer: Consumer, assigned: Sequence[TopicPartition], wanted: OffsetRange
) -> tuple[dict[TopicPartition, tuple[int, int | None]], dict[TopicPartition, int]]:
    """Assign and seek; returns per partition where it begins and where to stop (None: never), and where it ends now."""
    beginnings, ends = consumer.beginning_offsets(assigned), consumer.end_offsets(assigned)
    start_times = _offsets_at(consumer, assigned, wanted.start)
    stop_times = _offsets_at(consumer, assigned, wanted.stop)
    consumer.assign(assigned)
    bounds = {
        each: PartitionBounds(beginnings[each], ends[each], start_times.get(each), stop_times.get(each))
        for each in assigned
    }
    parts = {each: resolve(wanted, bounds[each]) for each in assigned}
    for each, (start, _) in parts.items():
        consumer.seek(each, start)
    for line in [*lines_about_beginnings(wanted, bounds), *lines_about_ends(wanted, bounds)]:
        click.echo(f"strandline: {line}", err=True)
    return parts, {each: bounds[each].end for each in assigned}


def lines_about_beginnings(wanted: OffsetRange, bounds: Mapping[TopicPartition, PartitionBounds]) -> list[str]:
    """For people: which partitions begin after the offset from which they were to be read."""
    late = {each: asked for each in bounds if (asked := before_beginning(wanted, bounds[each])) is not None}
    lines = [
        f"{each} begins at {bounds[each].beginning}, after offset {asked}: what was before has gone from the log"
        for each, asked in list(late.items())[:MOST_NAMED]
    ]
    left_out = len(late) - len(lines)
    return lines + ([f"{left_out} more partitions begin after that, too"] if left_out else [])


def lines_about_ends(wanted: OffsetRange, bounds: Mapping[TopicPartition, PartitionBounds]) -> list[str]:
    """For people: which partitions end before the offset from which they were to be read."""
    short = {each: asked for each in bounds if (asked := beyond_end(wanted, bounds[each])) is not None}
    goes_on = "nothing of it is read" if wanted.stop is not None else "what comes after its end is read"
    lines = [
        f"{each} ends at {bounds[each].end}, before offset {asked}: {goes_on}"
        for each, asked in list(short.items())[:MOST_NAMED]
    ]
    left_out = len(short) - len(lines)
    return lines + ([f"{left_out} more partitions end before that, too"] if left_out else [])


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


def chosen_partitions(consumer: Consumer, topic: str, numbers: Sequence[int]) -> list[TopicPartition]:
    """Those of the topic that are asked for; all without a number. UsageError for one that it does not have."""
    known = known_partitions(consumer, topic)
    if missing := sorted(set(numbers) - set(known)):
        raise click.UsageError(f"topic '{topic}' has no partition {missing[0]}; it has {known[0]} to {known[-1]}")
    return [TopicPartition(topic, number) for number in (sorted(set(numbers)) or known)]


def _offsets_at(
    consumer: Consumer, partitions: Sequence[TopicPartition], bound: Bound | None
) -> dict[TopicPartition, int | None]:
    """First offset at or after a time, per partition; nothing where the bound is not a time."""
    if bound is None or bound.kind is not BoundKind.TIMESTAMP:
        return {}
    found = consumer.offsets_for_times(dict.fromkeys(partitions, bound.value))
    return {partition: None if at is None else at.offset for partition, at in found.items()}
