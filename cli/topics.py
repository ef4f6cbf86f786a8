"""`strandline topics`: create, enlarge, list, describe and delete topics, with the flags and the lines of Kafka's tool.

Two spellings: `topics --create --topic t` as in Kafka, `topics create t` for people. Plain output keeps Kafka's lines;
a terminal gets a table; `--output json` gives one object whose shape is kept, errors included.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from strandline.cli.options import (
    LOOK_TIMEOUT_MS,
    admin_of,
    bootstrap_option,
    key_value,
    legal_topic,
    output_option,
    settings_option,
    show_json,
)
from strandline.cli.prompts import ask_first
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.metadata import PartitionView, TopicView
    from strandline.client.reassignments import OngoingReassignment
    from strandline.protocol.errors import ErrorCode
    from strandline.protocol.types import TopicPartition

ACTIONS = ("create", "alter", "list", "describe", "delete")
MOVES_TIMEOUT_MS = 2_000
"""So long the controller may take to say what is being moved; without one, topics are shown without that."""
CHANGE_TIMEOUT_MS = 30_000
"""How long a person should wait for an answer, or for the reason why there is none."""
Partitions: TypeAlias = "list[tuple[int, PartitionView]]"
Moves: TypeAlias = "Mapping[TopicPartition, OngoingReassignment]"


class Wanted(NamedTuple):
    """What the command line asks for."""

    action: str
    names: tuple[str, ...]
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    if_exists: bool
    if_not_exists: bool
    under_replicated: bool
    unavailable: bool
    as_json: bool
    yes: bool
    assignments: tuple[tuple[int, ...], ...] | None
    validate_only: bool


@click.command(
    epilog="Examples: strandline topics --create --topic clicks --partitions 6 --replication-factor 3; "
    "strandline topics --alter --topic clicks --partitions 12; strandline topics describe clicks; "
    "strandline topics --describe --under-replicated-partitions"
)
@bootstrap_option
@click.argument("words", nargs=-1, metavar="[create|alter|list|describe|delete [TOPIC]…]")
@click.option("--create", "flags", flag_value="create", multiple=True, help="Create the topic.")
@click.option("--alter", "flags", flag_value="alter", multiple=True, help="Add partitions to the topic.")
@click.option("--list", "flags", flag_value="list", multiple=True, help="List the names of all topics.")
@click.option("--describe", "flags", flag_value="describe", multiple=True, help="Show partitions, leaders, replicas.")
@click.option("--delete", "flags", flag_value="delete", multiple=True, help="Delete the topic and its records.")
@click.option("-t", "--topic", "topics", multiple=True, metavar="NAME[,NAME]…", help="May be repeated.")
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Default: the brokers' num.partitions.")
@click.option("-r", "--replication-factor", type=click.IntRange(1, 32_767), help="Default: the brokers' default.")
@click.option(
    "--replica-assignment",
    metavar="ID:ID,ID:ID",
    help="The brokers of each partition, the leader first, in place of both counts. For --alter of all partitions: "
    "those of the present ones are passed over.",
)
@click.option("--validate-only", is_flag=True, help="Have --create or --alter checked only.")
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="For --create; may be repeated.")
@click.option("--if-exists", is_flag=True, help="Topics that do not exist are no error.")
@click.option("--if-not-exists", is_flag=True, help="Topics that exist already are no error.")
@click.option("--under-replicated-partitions", is_flag=True, help="Only those with replicas out of sync.")
@click.option("--unavailable-partitions", is_flag=True, help="Only those without a leader.")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@output_option
@settings_option
@click.pass_context
def topics(
    ctx: click.Context,
    bootstrap: str | None,
    words: tuple[str, ...],
    flags: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    validate_only: bool,
    configs: tuple[str, ...],
    if_exists: bool,
    if_not_exists: bool,
    under_replicated_partitions: bool,
    unavailable_partitions: bool,
    yes: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Create, enlarge, list, describe and delete topics."""
    action, names = action_and_names(words, flags, topics)
    if action != "create" and (replication_factor is not None or configs or if_not_exists):
        raise click.UsageError("--replication-factor, --config and --if-not-exists go with --create", ctx)
    if action not in ("create", "alter") and (partitions is not None or replica_assignment or validate_only):
        raise click.UsageError(
            "--partitions, --replica-assignment and --validate-only go with --create and --alter", ctx
        )
    assignments = None if replica_assignment is None else replica_lists(replica_assignment)
    if action == "create" and assignments is not None and (partitions, replication_factor) != (None, None):
        raise click.UsageError("--replica-assignment takes the place of --partitions and --replication-factor", ctx)
    if action == "alter":
        partitions = partitions_wanted(partitions, assignments)
    if action != "describe" and (under_replicated_partitions or unavailable_partitions):
        raise click.UsageError("--under-replicated-partitions and --unavailable-partitions go with --describe", ctx)
    if action in ("create", "alter", "delete") and not names:
        raise click.UsageError(f"--{action} needs --topic NAME", ctx)
    if action == "list" and names:
        raise click.UsageError(f"--list takes no topic; did you mean --describe --topic {names[0]}?", ctx)
    wanted = Wanted(
        action,
        names,
        partitions if partitions is not None else -1,
        replication_factor if replication_factor is not None else -1,
        dict(key_value(text, "--config") for text in configs),
        if_exists,
        if_not_exists,
        under_replicated_partitions,
        unavailable_partitions,
        output == "json",
        yes,
        assignments,
        validate_only,
    )
    timeout_ms = LOOK_TIMEOUT_MS if action in ("list", "describe") else CHANGE_TIMEOUT_MS
    act = {"create": create, "alter": alter, "list": list_all, "describe": describe, "delete": delete}[action]
    with admin_of(ctx, bootstrap, settings, timeout_ms) as admin:
        return act(admin, wanted)


def action_and_names(
    words: tuple[str, ...], flags: tuple[str, ...], topics: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """The one action and the topics it is for, whichever way they were written. Raises UsageError."""
    actions = list(dict.fromkeys(flags))
    names = [name.strip() for text in topics for name in text.split(",") if name.strip()]
    if not actions and words:
        if words[0] not in ACTIONS:
            raise click.UsageError(f"'{words[0]}' is no action; give one of {', '.join(ACTIONS)}")
        actions, words = [words[0]], words[1:]
    if len(actions) != 1:
        raise click.UsageError("give exactly one of --create, --alter, --list, --describe, --delete")
    return actions[0], tuple(dict.fromkeys(legal_topic(name) for name in [*names, *words]))


def replica_lists(text: str) -> tuple[tuple[int, ...], ...]:
    """`1:2,2:3`, partition by partition. UsageError."""
    found = []
    for number, part in enumerate(text.split(",")):
        brokers = [each.strip() for each in part.split(":")]
        if not all(each.isascii() and each.isdigit() and int(each) < 2**31 for each in brokers):
            raise click.UsageError(f"--replica-assignment: '{part}' is no list of broker ids; give for example 1:2,2:3")
        if len(set(brokers)) < len(brokers):
            raise click.UsageError(f"--replica-assignment: '{part}' (partition {number}) names a broker twice")
        found.append(tuple(map(int, brokers)))
    return tuple(found)


def partitions_wanted(partitions: int | None, assignments: Sequence[Sequence[int]] | None) -> int:
    """How many --alter is to lead to. UsageError."""
    if partitions is None and assignments is None:
        raise click.UsageError("--alter needs --partitions, how many there are to be in all")
    if assignments is None or partitions in (None, len(assignments)):
        return len(assignments) if assignments is not None else partitions or 0
    raise click.UsageError(
        f"--replica-assignment names {counted(len(assignments), 'partition')}, --partitions asks for {partitions}: "
        "for --alter it has all of them, the present ones, too"
    )


class Outcome(NamedTuple):
    """What became of one topic; `error` is empty where it worked."""

    topic: str
    message: str = ""
    error: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.error)


def create(admin: Admin, wanted: Wanted) -> int:
    from strandline.protocol.errors import ErrorCode
    from strandline.runtime.config.topic import not_honoured_yet

    fine = ErrorCode.TOPIC_ALREADY_EXISTS if wanted.if_not_exists else None

    def create_one(name: str) -> None:
        assigned = None if wanted.assignments is None else dict(enumerate(wanted.assignments))
        admin.create_topic(
            name,
            wanted.partitions,
            wanted.replication_factor,
            wanted.configs,
            assignments=assigned,
            validate_only=wanted.validate_only,
        )

    done = "Topic {} can be created so." if wanted.validate_only else "Created topic {}."
    outcomes = change_each(wanted.names, create_one, done, fine, "Topic {} already exists.")
    for key in not_honoured_yet(wanted.configs):
        click.echo(f"warning: {key} is kept, but this version does not act on it yet", err=True)
    return report(wanted, outcomes)


def alter(admin: Admin, wanted: Wanted) -> int:
    from strandline.protocol.errors import ErrorCode

    def enlarge(name: str) -> None:
        new = None
        if wanted.assignments is not None:  # as in Kafka's tool: the first ones are those that there are
            new = wanted.assignments[len(admin.describe_topics([name])[name].partitions) :]
        admin.create_partitions(name, wanted.partitions, assignments=new, validate_only=wanted.validate_only)

    fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if wanted.if_exists else None
    verb = "can have" if wanted.validate_only else "has"
    done = f"Topic {{}} {verb} {counted(wanted.partitions, 'partition')}{'' if wanted.validate_only else ' now'}."
    outcomes = change_each(wanted.names, enlarge, done, fine, "Topic {} does not exist.")
    if not wanted.validate_only and any(each.message == done.format(each.topic) for each in outcomes):
        click.echo("note: records with keys go to other partitions from now on than those before", err=True)
    return report(wanted, outcomes)


def delete(admin: Admin, wanted: Wanted) -> int:
    from strandline.protocol.errors import ErrorCode

    names = ", ".join(wanted.names)
    ask_first(
        f"Delete {names} and all records there?", f"--delete removes the records of {names} for good", yes=wanted.yes
    )
    fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if wanted.if_exists else None
    return report(
        wanted, change_each(wanted.names, admin.delete_topic, "Deleted topic {}.", fine, "Topic {} does not exist.")
    )


def change_each(
    names: Iterable[str], change: Callable[[str], None], done: str, fine: ErrorCode | None, why_fine: str
) -> list[Outcome]:
    """Change one topic after the other. fine: an error that counts as none, of which `why_fine` is said."""
    from strandline.protocol.errors import error_code

    outcomes = []
    for name in names:
        try:
            change(name)
        except Exception as error:
            code = code_of(error)
            if code is None:
                raise
            if code == fine:
                outcomes.append(Outcome(name, why_fine.format(name)))
            else:
                outcomes.append(Outcome(name, str(error), error_code(code).name))
        else:
            outcomes.append(Outcome(name, done.format(name)))
    return outcomes


def code_of(error: Exception) -> int | None:
    """The broker's error code that a client exception carries; None where there was no answer about this topic."""
    code = getattr(error, "code", None)
    return code if isinstance(code, int) else None


def report(wanted: Wanted, outcomes: list[Outcome]) -> int:
    """Show what became of each topic; 1 if any failed."""
    failed = any(outcome.failed for outcome in outcomes)
    if wanted.as_json:
        rows = [{"topic": each.topic, "error": each.error or None, "message": each.message} for each in outcomes]
        show_json(f"topics.{wanted.action}", topics=rows)
    else:
        for outcome in outcomes:
            click.echo(f"strandline: {outcome.message}" if outcome.failed else outcome.message, err=outcome.failed)
    return 1 if failed else 0


def list_all(admin: Admin, wanted: Wanted) -> int:
    names = sorted(admin.list_topics())
    if wanted.as_json:
        show_json("topics.list", topics=[{"topic": name} for name in names])
    else:
        for name in names:
            click.echo(name)
    return 0


def describe(admin: Admin, wanted: Wanted) -> int:
    """Show the topics asked for (all of them if none was named), with errors for those that do not exist."""
    from strandline.protocol.errors import error_code

    found, errors = [], []
    if not wanted.names:
        found = sorted(admin.describe_topics().values(), key=lambda topic: topic.name)
    for name in sorted(wanted.names):
        try:
            found.append(admin.describe_topics([name])[name])
        except Exception as error:
            code = code_of(error)
            if code is None:
                raise
            if not wanted.if_exists:
                errors.append(Outcome(name, str(error), error_code(code).name))
    moving = moves_of(admin, found)
    rows = [(topic, partitions_shown(topic, wanted, moving)) for topic in found]
    filtered = wanted.under_replicated or wanted.unavailable
    if filtered:
        rows = [(topic, partitions) for topic, partitions in rows if partitions]
    if wanted.as_json:
        entries: list[dict[str, Any]] = [topic_fields(topic, partitions, moving) for topic, partitions in rows]
        entries += [{"topic": each.topic, "error": each.error, "message": each.message} for each in errors]
        show_json("topics.describe", topics=entries)
    else:
        for topic, partitions in rows:
            show_topic(topic, partitions, moving, headline=not filtered)
        for each in errors:
            click.echo(f"strandline: {each.message}", err=True)
    return 1 if errors else 0


def moves_of(admin: Admin, topics: Iterable[TopicView]) -> Moves:
    """What of these topics is being moved to other brokers."""
    from strandline.client.errors import ClientError

    partitions = [as_partition(topic.name, number) for topic in topics for number in topic.partitions]
    try:
        found: Moves = admin.list_partition_reassignments(partitions, timeout_ms=MOVES_TIMEOUT_MS)
    except ClientError:
        return {}
    return found


def partitions_shown(topic: TopicView, wanted: Wanted, moving: Moves) -> Partitions:
    """The partitions that the filters let through, in order."""

    def lacks(number: int, each: PartitionView) -> bool:
        return len(each.in_sync_replicas) < len(lasting_replicas(topic, number, each, moving))

    return [
        (number, each)
        for number, each in sorted(topic.partitions.items())
        if (not wanted.under_replicated or lacks(number, each)) and (not wanted.unavailable or each.leader < 0)
    ]


def lasting_replicas(topic: TopicView, number: int, partition: PartitionView, moving: Moves) -> tuple[int, ...]:
    """As in Kafka, a replica that is only being added neither lacks nor counts."""
    move = moving.get(as_partition(topic.name, number))
    return partition.replicas if move is None else move.original


def as_partition(topic: str, number: int) -> TopicPartition:
    from strandline.protocol.types import TopicPartition

    return TopicPartition(topic, number)


def topic_id_text(topic_id: bytes) -> str:
    """Kafka's spelling of a topic id: base64url without padding."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def topic_lines(topic: TopicView, partitions: Partitions, moving: Moves, *, headline: bool) -> Iterable[str]:
    """Kafka's lines: tabs, `none` for a missing leader, ids joined by commas; and a field of our own, `Refused:`, where
    a live broker does not serve its replica. Its last field, `Configs:`, is left out: brokers do not tell a topic's
    configs, and an empty field would say that there are none."""
    if headline:
        replication = max((len(lasting_replicas(topic, *each, moving)) for each in topic.partitions.items()), default=0)
        yield (
            f"Topic: {topic.name}\tTopicId: {topic_id_text(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {replication}"
        )
    for number, each in partitions:
        leader = str(each.leader) if each.leader >= 0 else "none"
        refused = "; ".join(f"broker {broker_id}: {why}" for broker_id, why in each.refused_replicas.items())
        yield (
            f"\tTopic: {topic.name}\tPartition: {number}\tLeader: {leader}"
            f"\tReplicas: {ids(each.replicas)}\tIsr: {ids(each.in_sync_replicas)}"
            + moves_text(topic.name, number, moving, "\tAdding Replicas: {}\tRemoving Replicas: {}")
        ) + (f"\tRefused: {refused}" if refused else "")


def moves_text(topic: str, number: int, moving: Moves, text: str) -> str:
    """Nothing, where nothing is moved."""
    move = moving.get(as_partition(topic, number))
    return "" if move is None else text.format(ids(move.adding), ids(move.removing))


def ids(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def show_topic(topic: TopicView, partitions: Partitions, moving: Moves, *, headline: bool) -> None:
    if not sys.stdout.isatty():
        for line in topic_lines(topic, partitions, moving, headline=headline):
            click.echo(line)
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(
        f"[bold]{topic.name}[/]  {counted(len(topic.partitions), 'partition')}, id {topic_id_text(topic.topic_id)}"
    )
    table = Table(box=None)
    for column in ("partition", "leader", "epoch", "replicas", "in sync"):
        table.add_column(column, justify="right" if column in ("partition", "leader", "epoch") else "left")
    for number, each in partitions:
        whole = len(each.in_sync_replicas) == len(each.replicas)
        leader = str(each.leader) if each.leader >= 0 else "[bold red]none[/]"
        in_sync = ids(each.in_sync_replicas) if whole else f"[yellow]{ids(each.in_sync_replicas)}[/]"
        replicas = ids(each.replicas) + moves_text(topic.name, number, moving, " (comes: {}; goes: {})")
        table.add_row(str(number), leader, str(each.leader_epoch), replicas, in_sync)
    console.print(table)
    for number, each in partitions:
        for broker_id, why in each.refused_replicas.items():
            click.echo(f"partition {number}: broker {broker_id} does not serve its replica: {why}")


def topic_fields(topic: TopicView, partitions: Partitions, moving: Moves) -> dict[str, Any]:
    def moved(number: int, which: str) -> list[int]:
        move = moving.get(as_partition(topic.name, number))
        return [] if move is None else list(getattr(move, which))

    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
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
            }
            for number, each in partitions
        ],
        "error": None,
    }
