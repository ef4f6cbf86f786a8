"""`strandline topics describe`: who has which partition, what is set for a topic, and with --offsets what it holds.

Plain output has the lines of Kafka's tool; fields of our own follow theirs.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from strandline.cli.item_errors import error_fields, error_name
from strandline.cli.log_bounds import Asked, bounds_of
from strandline.cli.options import show_json
from strandline.cli.topic_outcomes import Outcome, code_of
from strandline.cli.wording import counted, printable
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Admin, Consumer
    from strandline.client.metadata import PartitionView, TopicView
    from strandline.client.reassignments import OngoingReassignment

MOVES_TIMEOUT_MS = 2_000
"""So long the controller may take to say what is being moved; without one, topics are shown without that."""
Partitions: TypeAlias = "list[tuple[int, PartitionView]]"


class Filters(NamedTuple):
    """Which partitions are shown. `if_exists`: a topic that does not exist is no error."""

    under_replicated: bool
    unavailable: bool
    if_exists: bool

    @property
    def is_any(self) -> bool:
        return self.under_replicated or self.unavailable


class Picture(NamedTuple):
    """What is known beside the layout. `configs`: topic → what is set for it, of topics of which that is known.
    `offsets`: of each partition that was asked for."""

    moves: Mapping[TopicPartition, OngoingReassignment]
    configs: Mapping[str, Mapping[str, str | None]]
    offsets: Asked

    def told_offsets(self, topic: str, number: int) -> tuple[int, int] | None:
        found = self.offsets.get(TopicPartition(topic, number))
        return None if found is None or isinstance(found, Exception) else (found.beginning, found.end)


def describe(
    admin: Admin,
    names: Sequence[str],
    filters: Filters,
    *,
    offsets_by: tuple[Callable[[], Consumer], Callable[[], float]] | None,
    as_json: bool,
) -> int:
    """Show the topics asked for (all of them if none was named), with errors for those that do not exist. offsets_by: a
    consumer to ask for offsets and the clock for that; None: they are not asked for."""
    found, failed = _topics(admin, names, filters)
    moves = _moves(admin, found)
    rows = [(topic, _partitions_shown(topic, filters, moves)) for topic in found]
    if filters.is_any:
        rows = [(topic, partitions) for topic, partitions in rows if partitions]
    offsets = {} if offsets_by is None else _offsets(rows, *offsets_by)
    with_configs = as_json or not filters.is_any
    configs = _configs(admin, [topic.name for topic, _ in rows]) if with_configs else {}
    picture = Picture(moves, configs, offsets)
    if as_json:
        entries: list[dict[str, Any]] = [_topic_fields(topic, partitions, picture) for topic, partitions in rows]
        entries += [{"topic": each.topic, "error": each.error, "message": each.message} for each in failed]
        show_json("topics.describe", topics=entries)
    else:
        for topic, partitions in rows:
            _show_topic(topic, partitions, picture, headline=not filters.is_any)
        for each in failed:
            click.echo(f"strandline: {each.message}", err=True)
    unasked = [(tp, error) for tp, error in offsets.items() if isinstance(error, Exception)]
    for tp, error in unasked:
        click.echo(f"strandline: {printable(f'the offsets of {tp} cannot be told: {error}')}", err=True)
    return 1 if failed or unasked else 0


# --- what there is ---------------------------------------------------------------------------------------------------


def _topics(admin: Admin, names: Sequence[str], filters: Filters) -> tuple[list[TopicView], list[Outcome]]:
    if not names:
        return sorted(admin.describe_topics().values(), key=lambda topic: topic.name), []
    found, failed = [], []
    for name in sorted(names):
        try:
            found.append(admin.describe_topics([name])[name])
        except Exception as error:
            if code_of(error) is None:
                raise
            if not filters.if_exists:
                failed.append(Outcome(name, str(error), error_name(error)))
    return found, failed


def _moves(admin: Admin, topics: Iterable[TopicView]) -> Mapping[TopicPartition, OngoingReassignment]:
    """What of these topics is being moved to other brokers."""
    from strandline.client.errors import ClientError

    partitions = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    try:
        return dict(admin.list_partition_reassignments(partitions, timeout_ms=MOVES_TIMEOUT_MS))
    except ClientError:
        return {}


def _configs(admin: Admin, names: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """As in Kafka's tool: whatever is no default, also what stands in a broker's file. None: it is not shown."""
    from strandline.client.errors import ClientError
    from strandline.protocol.messages import ConfigSource

    try:
        told = admin.describe_topic_configs(names) if names else {}
    except ClientError as error:
        click.echo(f"note: what is configured for topics cannot be told: {printable(str(error))}", err=True)
        return {}
    return {
        name: {
            each.name: None if each.is_sensitive else each.value
            for each in sorted(entries, key=lambda entry: entry.name)
            if each.config_source != ConfigSource.DEFAULT
        }
        for name, entries in told.items()
        if not isinstance(entries, Exception)  # it was deleted a moment ago
    }


def _offsets(
    rows: Iterable[tuple[TopicView, Partitions]], consumer: Callable[[], Consumer], monotonic: Callable[[], float]
) -> Asked:
    leaders = {
        TopicPartition(topic.name, number): each.leader
        for topic, partitions in rows
        for number, each in partitions
        if each.leader >= 0
    }
    if not leaders:
        return {}
    with consumer() as asking:
        return bounds_of(asking, leaders, monotonic)


def _partitions_shown(
    topic: TopicView, filters: Filters, moves: Mapping[TopicPartition, OngoingReassignment]
) -> Partitions:
    """The partitions that the filters let through, in order."""

    def lacks(number: int, each: PartitionView) -> bool:
        return len(each.in_sync_replicas) < len(_lasting_replicas(topic, number, each, moves))

    return [
        (number, each)
        for number, each in sorted(topic.partitions.items())
        if (not filters.under_replicated or lacks(number, each)) and (not filters.unavailable or each.leader < 0)
    ]


def _lasting_replicas(
    topic: TopicView, number: int, partition: PartitionView, moves: Mapping[TopicPartition, OngoingReassignment]
) -> tuple[int, ...]:
    """As in Kafka, a replica that is only being added neither lacks nor counts."""
    move = moves.get(TopicPartition(topic.name, number))
    return partition.replicas if move is None else move.original


# --- how it is shown -------------------------------------------------------------------------------------------------


def _topic_id_text(topic_id: bytes) -> str:
    """Kafka's spelling of a topic id: base64url without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _configs_text(topic: TopicView, picture: Picture, separator: str) -> str:
    configs = picture.configs.get(topic.name, {})
    return separator.join(f"{key}={'(not shown)' if value is None else value}" for key, value in configs.items())


def _topic_lines(topic: TopicView, partitions: Partitions, picture: Picture, *, headline: bool) -> Iterable[str]:
    """Kafka's lines: tabs, `none` for a missing leader, ids joined by commas. `Configs:` is left out where nobody says
    what is set: an empty field would say that nothing is. Ours are `Earliest:` and `Latest:`, where they were asked
    for, and `Refused:`, where a live broker does not serve its replica."""
    if headline:
        lasting = [len(_lasting_replicas(topic, *each, picture.moves)) for each in topic.partitions.items()]
        configs = f"\tConfigs: {_configs_text(topic, picture, ',')}" if topic.name in picture.configs else ""
        yield (
            f"Topic: {topic.name}\tTopicId: {_topic_id_text(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {max(lasting, default=0)}{configs}"
        )
    for number, each in partitions:
        leader = str(each.leader) if each.leader >= 0 else "none"
        refused = "; ".join(f"broker {broker_id}: {why}" for broker_id, why in each.refused_replicas.items())
        offsets = picture.told_offsets(topic.name, number)
        yield (
            f"\tTopic: {topic.name}\tPartition: {number}\tLeader: {leader}"
            f"\tReplicas: {_ids(each.replicas)}\tIsr: {_ids(each.in_sync_replicas)}"
            + _moves_text(topic.name, number, picture, "\tAdding Replicas: {}\tRemoving Replicas: {}")
            + ("" if offsets is None else f"\tEarliest: {offsets[0]}\tLatest: {offsets[1]}")
        ) + (f"\tRefused: {refused}" if refused else "")


def _moves_text(topic: str, number: int, picture: Picture, text: str) -> str:
    """Nothing, where nothing is moved."""
    move = picture.moves.get(TopicPartition(topic, number))
    return "" if move is None else text.format(_ids(move.adding), _ids(move.removing))


def _ids(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _show_topic(topic: TopicView, partitions: Partitions, picture: Picture, *, headline: bool) -> None:
    if not sys.stdout.isatty():
        for line in _topic_lines(topic, partitions, picture, headline=headline):
            click.echo(line)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    click.echo(
        f"{click.style(topic.name, bold=True)}  {counted(len(topic.partitions), 'partition')}, "
        f"id {_topic_id_text(topic.topic_id)}"
    )
    if configs := _configs_text(topic, picture, ", "):
        click.echo(f"configured: {printable(configs)}")
    table = Table(box=None)
    for column in ("partition", "leader", "epoch", *(("earliest", "latest") if picture.offsets else ())):
        table.add_column(column, justify="right")
    table.add_column("replicas")
    table.add_column("in sync")
    for number, each in partitions:
        leader = Text(str(each.leader)) if each.leader >= 0 else Text("none", "bold red")
        offsets = (picture.told_offsets(topic.name, number) or ("", "")) if picture.offsets else ()
        replicas = _ids(each.replicas) + _moves_text(topic.name, number, picture, " (comes: {}; goes: {})")
        is_whole = len(each.in_sync_replicas) == len(each.replicas)
        in_sync = Text(_ids(each.in_sync_replicas), "" if is_whole else "yellow")
        table.add_row(str(number), leader, str(each.leader_epoch), *map(str, offsets), replicas, in_sync)
    Console(highlight=False).print(table)
    for number, each in partitions:
        for broker_id, why in each.refused_replicas.items():
            click.echo(f"partition {number}: broker {broker_id} does not serve its replica: {why}")


def _topic_fields(topic: TopicView, partitions: Partitions, picture: Picture) -> dict[str, Any]:
    def moved(number: int, which: str) -> list[int]:
        move = picture.moves.get(TopicPartition(topic.name, number))
        return [] if move is None else list(getattr(move, which))

    configs = picture.configs.get(topic.name)
    return {
        "topic": topic.name,
        "topic_id": _topic_id_text(topic.topic_id),
        "configs": None if configs is None else dict(configs),
        "partitions": [
            {
                "partition": number,
                "leader": each.leader if each.leader >= 0 else None,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.in_sync_replicas),
                "adding_replicas": moved(number, "adding"),
                "removing_replicas": moved(number, "removing"),
                "refused_replicas": [
                    {"broker": broker_id, "why": why} for broker_id, why in each.refused_replicas.items()
                ],
                **_offset_fields(topic.name, number, picture),
            }
            for number, each in partitions
        ],
        **error_fields(None),
    }


def _offset_fields(topic: str, number: int, picture: Picture) -> dict[str, int | None]:
    earliest, latest = picture.told_offsets(topic, number) or (None, None)
    return {"earliest": earliest, "latest": latest}
