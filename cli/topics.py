"""`strandline topics`: create, enlarge, list, describe and delete topics, with the flags and the lines of Kafka's tool.

Two spellings: `topics --create --topic t` as in Kafka, `topics create t` for people. Plain output keeps Kafka's lines;
a terminal gets a table; `--output json` gives one object whose shape is kept, errors included.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from strandline.cli.options import (
    LOOK_TIMEOUT_MS,
    admin_of,
    bootstrap_option,
    consumer_of,
    key_value,
    legal_topic,
    output_option,
    settings_option,
    show_json,
)
from strandline.cli.prompts import ask_first
from strandline.cli.session import session_of
from strandline.cli.tables import show_table
from strandline.cli.topic_choice import chosen, include_option
from strandline.cli.topic_outcomes import change_each, report
from strandline.cli.topics_describe import Filters, describe
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.metadata import TopicView

ACTIONS = ("create", "alter", "list", "describe", "delete")
CHANGE_TIMEOUT_MS = 30_000
"""How long a person should wait for an answer, or for the reason why there is none."""


class Wanted(NamedTuple):
    """What the command line asks for."""

    action: str
    names: tuple[str, ...]
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    if_exists: bool
    if_not_exists: bool
    as_json: bool
    yes: bool
    assignments: tuple[tuple[int, ...], ...] | None
    validate_only: bool


@click.command(
    epilog="Examples: strandline topics --create --topic clicks --partitions 6 --replication-factor 3; "
    "strandline topics --alter --topic clicks --partitions 12; strandline topics describe clicks --offsets; "
    "strandline topics --describe --under-replicated-partitions; strandline topics delete --include 'tmp-.*'"
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
@click.option("--offsets", is_flag=True, help="Of each partition also where it begins and ends; for --describe.")
@include_option("Topics whose whole name matches, in place of names; not the brokers' own.")
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
    offsets: bool,
    include: re.Pattern[str] | None,
    yes: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Create, enlarge, list, describe and delete topics."""
    action, names = action_and_names(words, flags, topics)
    session_of(ctx).line.command = f"topics.{action}"
    if action != "create" and (replication_factor is not None or configs or if_not_exists):
        raise click.UsageError("--replication-factor, --config and --if-not-exists go with --create", ctx)
    require_effect(action, if_exists=if_exists, yes=yes)
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
    if offsets and action != "describe":
        raise click.UsageError("--offsets goes with --describe", ctx)
    if include is not None and (action == "create" or names):
        raise click.UsageError("--include takes the place of names of topics that there are", ctx)
    if action in ("create", "alter", "delete") and not names and include is None:
        raise click.UsageError(f"--{action} needs --topic NAME", ctx)
    if action == "list" and names:
        raise click.UsageError(f"--list takes no topic; did you mean --describe --topic {names[0]}?", ctx)
    wanted = Wanted(
        action,
        names,
        partitions if partitions is not None else -1,
        replication_factor if replication_factor is not None else -1,
        configs_of(configs),
        if_exists,
        if_not_exists,
        output == "json",
        yes,
        assignments,
        validate_only,
    )
    timeout_ms = LOOK_TIMEOUT_MS if action in ("list", "describe") else CHANGE_TIMEOUT_MS
    with admin_of(ctx, bootstrap, settings, timeout_ms) as admin:
        if include is not None:
            wanted = wanted._replace(names=tuple(chosen(admin.describe_topics().values(), include, internal=False)))
        if action == "describe":
            filters = Filters(under_replicated_partitions, unavailable_partitions, if_exists)
            asking = partial(consumer_of, ctx, bootstrap, settings, timeout_ms)
            offsets_by = (asking, session_of(ctx).monotonic) if offsets else None
            return describe(admin, wanted.names, filters, offsets_by=offsets_by, as_json=wanted.as_json)
        return {"create": create, "alter": alter, "list": list_all, "delete": delete}[action](admin, wanted)


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


def require_effect(action: str, *, if_exists: bool, yes: bool) -> None:
    """UsageError where these would be ignored."""
    if if_exists and action not in ("alter", "describe", "delete"):
        raise click.UsageError("--if-exists goes with --alter, --describe and --delete")
    if yes and action != "delete":
        raise click.UsageError("--yes goes with --delete: nothing else asks")


def configs_of(pairs: Sequence[str]) -> dict[str, str]:
    """UsageError, also for a key that is given twice: only one of its values could count."""
    found: dict[str, str] = {}
    for text in pairs:
        key, value = key_value(text, "--config")
        if key in found:
            raise click.UsageError(f"--config {key} is given twice")
        found[key] = value
    return found


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


def create(admin: Admin, wanted: Wanted) -> int:
    from strandline.protocol.errors import ErrorCode
    from strandline.runtime.config.topic import not_honoured

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
    for key, why in not_honoured(wanted.configs).items():
        click.echo(f"warning: {key} is kept without effect: {why}", err=True)
    return report(wanted.action, outcomes, as_json=wanted.as_json)


def alter(admin: Admin, wanted: Wanted) -> int:
    from strandline.client.errors import AnsweredError
    from strandline.protocol.errors import ErrorCode

    def enlarge(name: str) -> None:
        new = None
        if wanted.assignments is not None:  # as in Kafka's tool: the first ones are those that there are
            new = wanted.assignments[len(admin.describe_topics([name])[name].partitions) :]
        try:
            admin.create_partitions(name, wanted.partitions, assignments=new, validate_only=wanted.validate_only)
        except AnsweredError as error:
            if error.code != ErrorCode.INVALID_PARTITIONS:
                raise
            remedy = "--partitions is how many there are to be in all, and partitions are added only, never taken away"
            raise AnsweredError(error.code, f"{error} ({remedy})") from None

    fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if wanted.if_exists else None
    verb = "can have" if wanted.validate_only else "has"
    done = f"Topic {{}} {verb} {counted(wanted.partitions, 'partition')}{'' if wanted.validate_only else ' now'}."
    outcomes = change_each(wanted.names, enlarge, done, fine, "Topic {} does not exist.")
    if not wanted.validate_only and any(each.message == done.format(each.topic) for each in outcomes):
        click.echo("note: records with keys go to other partitions from now on than those before", err=True)
    return report(wanted.action, outcomes, as_json=wanted.as_json)


def delete(admin: Admin, wanted: Wanted) -> int:
    from strandline.protocol.errors import ErrorCode

    names = ", ".join(wanted.names)
    if len(wanted.names) > 1 and not wanted.yes:
        for name in wanted.names:
            click.echo(f"  {name}", err=True)
    which = names if len(wanted.names) == 1 else f"these {len(wanted.names)} topics"
    ask_first(
        f"Delete {which} and all records there?", f"--delete removes the records of {names} for good", yes=wanted.yes
    )
    fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if wanted.if_exists else None
    outcomes = change_each(wanted.names, admin.delete_topic, "Deleted topic {}.", fine, "Topic {} does not exist.")
    return report(wanted.action, outcomes, as_json=wanted.as_json)


def list_all(admin: Admin, wanted: Wanted) -> int:
    """A name a line, as Kafka's tool; people and programs also hear how many partitions and replicas there are."""
    topics = admin.describe_topics()
    shown = [topics[name] for name in wanted.names or sorted(topics) if name in topics]
    rows = [(topic.name, len(topic.partitions), _replication_factor(topic), topic.is_internal) for topic in shown]
    if wanted.as_json:
        fields = ("topic", "partitions", "replication_factor", "internal")
        show_json("topics.list", topics=[dict(zip(fields, row, strict=True)) for row in rows])
    elif sys.stdout.isatty():
        columns = ("topic", "partitions", "replicas")
        show_table(columns, [[name, str(count), str(factor)] for name, count, factor, _ in rows], columns[1:])
    else:
        for name, *_ in rows:
            click.echo(name)
    return 0


def _replication_factor(topic: TopicView) -> int:
    """Of the partition that has most; one that is being moved has some more for a while."""
    return max((len(each.replicas) for each in topic.partitions.values()), default=0)
