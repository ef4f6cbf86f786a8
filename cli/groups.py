"""`strandline groups`: list and describe groups, reset what they have committed, delete it, or all of a group.

    strandline groups list --state Stable
    strandline groups describe billing                      what it has read, and what is left: the lag
    strandline groups reset billing -t clicks --to-earliest what would change; --execute changes it
    strandline groups delete billing --yes

A group whose members run cannot be reset or deleted: they would not hear of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.group_reset import reset
from strandline.cli.item_errors import error_fields
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
from strandline.cli.prompts import ask_first
from strandline.cli.tables import show_table
from strandline.cli.wording import counted, printable

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.groups.administration import GroupMemberView, GroupOffset, GroupView
    from strandline.protocol.types import TopicPartition

LEADER_TIMEOUT_MS = 1_000
"""So long at least each leader may take to say where its logs end; together they have the time of a look."""
GROUP_TIMEOUT_MS = 20
"""So much longer may reading what groups have committed take for each of them."""
CHANGE_TIMEOUT_MS = 30_000
TO_PEOPLE = {name: name for name in ("topic", "partition", "committed", "log end", "lag", "member", "host")}
TO_PROGRAMS = {
    "group": "group",
    "topic": "topic",
    "partition": "partition",
    "committed": "current offset",
    "log end": "log end offset",
    "lag": "lag",
    "member": "consumer id",
    "host": "host",
    "client": "client id",
}
"""Columns and their headings, in the order of the cells; programs get those of Kafka's tool."""
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance")


@click.group(
    no_args_is_help=False,
    epilog="Examples: strandline groups list; strandline groups describe billing --members; "
    "strandline groups reset billing --topic clicks --to-earliest --execute; strandline groups delete billing --yes",
)
def groups() -> None:
    """List, describe, reset and delete groups of consumers."""


groups.add_command(reset)


# --- list ------------------------------------------------------------------------------------------------------------


@groups.command(
    "list",
    short_help="All groups and their states.",
    epilog="Example: strandline groups list --state Stable --state Empty",
)
@bootstrap_option
@click.option("--state", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only those.")
@output_option
@settings_option
@click.pass_context
def list_all(
    ctx: click.Context, bootstrap: str | None, states: tuple[str, ...], output: str, settings: tuple[str, ...]
) -> int:
    """List all groups. Exit code 1 where a broker did not answer, whose groups may be missing."""
    with admin_of(ctx, bootstrap, settings, LOOK_TIMEOUT_MS) as admin:
        listing = admin.list_groups(states)
    if output == "json":
        show_json(
            "groups.list",
            groups=[
                {"group": each.group_id, "state": each.state, "protocol_type": each.protocol_type}
                for each in listing.groups
            ],
            failures=_unheard(listing.failures),
        )
    else:
        show_table(("group", "state", "type"), listing.groups)
        _tell_failures(listing.failures)
    return 1 if listing.failures else 0


def _unheard(failures: Mapping[int, Exception]) -> list[dict[str, Any]]:
    return [{"broker": broker_id, **error_fields(error)} for broker_id, error in failures.items()]


def _tell_failures(failures: Mapping[int, Exception]) -> None:
    for broker_id, error in failures.items():
        text = f"broker {broker_id} did not answer, so groups may be missing: {error}"
        click.echo(f"strandline: {printable(text)}", err=True)


# --- describe --------------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A partition of a group; None: nothing is committed, the log's end cannot be told, nobody has it."""

    partition: TopicPartition
    committed: int | None
    log_end: int | None
    member: GroupMemberView | None

    @property
    def lag(self) -> int | None:
        """Records that were not read yet."""
        return None if self.committed is None or self.log_end is None else max(0, self.log_end - self.committed)


@groups.command(
    short_help="What groups have read and what is left.",
    epilog="Examples: strandline groups describe billing; strandline groups describe --all-groups --members",
)
@bootstrap_option
@click.argument("names", nargs=-1, metavar="GROUP…")
@click.option("--all-groups", is_flag=True, help="Every group that there is.")
@click.option("--members", is_flag=True, help="Who is in it, and which partitions each one has.")
@click.option("--lag", is_flag=True, help="What is committed and what is left (this is shown unless --members is).")
@output_option
@settings_option
@click.pass_context
def describe(
    ctx: click.Context,
    bootstrap: str | None,
    names: tuple[str, ...],
    all_groups: bool,
    members: bool,
    lag: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Show what groups have committed, how far they are behind, and who is in them."""
    if bool(names) == all_groups:
        raise click.UsageError("give either GROUP… or --all-groups", ctx)

    failures: Mapping[int, Exception] = {}
    with admin_of(ctx, bootstrap, settings, LOOK_TIMEOUT_MS) as admin:
        if all_groups:
            listing = admin.list_groups()
            names, failures = tuple(each.group_id for each in listing.groups), listing.failures
        described = admin.describe_groups(names)
        there = [name for name, view in described.items() if not isinstance(view, Exception)]
        limit_ms = LOOK_TIMEOUT_MS + GROUP_TIMEOUT_MS * len(there)
        read = admin.list_offsets_of_groups(there, timeout_ms=limit_ms)
        errors = {name: each for name, each in [*described.items(), *read.items()] if isinstance(each, Exception)}
        committed = {name: each for name, each in read.items() if not isinstance(each, Exception)}
        views = {
            name: view for name, view in described.items() if name in committed and not isinstance(view, Exception)
        }
        wanted = {tp for name, view in views.items() for tp in [*committed[name], *_owners(view)]}
        ends = _log_ends(ctx, admin, bootstrap, settings, wanted)
    parts = {name: _parts(view, committed[name], ends) for name, view in views.items()}
    if output == "json":
        entries = [_fields(view, parts[name]) for name, view in views.items()]
        entries += [{"group": name, **error_fields(error)} for name, error in errors.items()]
        show_json("groups.describe", groups=entries, failures=_unheard(failures))
    else:
        for name, view in views.items():
            _show(view, parts[name], members=members, lag=lag or not members)
        for error in errors.values():
            click.echo(f"strandline: {printable(str(error))}", err=True)
        _tell_failures(failures)
    return 1 if errors or failures else 0


def _log_ends(
    ctx: click.Context,
    admin: Admin,
    bootstrap: str | None,
    settings: Iterable[str],
    partitions: set[TopicPartition],
) -> dict[TopicPartition, int]:
    """Where the logs end, of those partitions that exist and have a leader who answers; stderr names the others. Leader
    by leader: one that has died, and is not replaced yet, hides nothing of the others."""
    from strandline.client.errors import ClientError

    by_leader: dict[int, list[TopicPartition]] = {}
    topics = admin.describe_topics() if partitions else {}
    for tp in sorted(partitions):
        known = topics[tp.topic].partitions.get(tp.partition) if tp.topic in topics else None
        if known is not None and known.leader >= 0:
            by_leader.setdefault(known.leader, []).append(tp)
    if not by_leader:
        return {}
    limit_ms = max(LEADER_TIMEOUT_MS, LOOK_TIMEOUT_MS / len(by_leader))
    ends: dict[TopicPartition, int] = {}
    with consumer_of(ctx, bootstrap, settings, LOOK_TIMEOUT_MS) as consumer:
        for leader, led in by_leader.items():
            try:
                ends |= consumer.end_offsets(led, timeout_ms=limit_ms)
            except ClientError as error:
                text = f"the ends of the logs that broker {leader} leads cannot be told: {error}"
                click.echo(f"strandline: {printable(text)}", err=True)
    return ends


def _owners(view: GroupView) -> dict[TopicPartition, GroupMemberView]:
    return {tp: member for member in view.members for tp in member.assignment or ()}


def _parts(
    view: GroupView, committed: Mapping[TopicPartition, GroupOffset], ends: Mapping[TopicPartition, int]
) -> list[Part]:
    """What is committed, and what is assigned though nothing is committed of it yet."""
    owners = _owners(view)
    return [
        Part(tp, committed[tp].offset if tp in committed else None, ends.get(tp), owners.get(tp))
        for tp in sorted({**committed, **owners})
    ]


def _show(view: GroupView, parts: list[Part], *, members: bool, lag: bool) -> None:
    name = printable(view.group_id)
    if sys.stdout.isatty():
        protocol = f", {view.protocol}" if view.protocol else ""
        who = counted(len(view.members), "member")
        click.echo(f"{name}: {view.state}{protocol}, {who}, coordinated by broker {view.coordinator}")
    if members:
        rows = [
            (view.group_id, each.member_id, each.group_instance_id or "", each.host, each.client_id, _assigned(each))
            for each in view.members
        ]
        show_table(("group", "consumer id", "instance", "host", "client id", "partitions"), rows)
    if lag:
        columns = TO_PEOPLE if sys.stdout.isatty() else TO_PROGRAMS
        show_table(
            list(columns.values()),
            [[cell for name, cell in _cells(view, part).items() if name in columns] for part in parts],
            [columns[name] for name in ("partition", "committed", "log end", "lag")],
        )
        total = sum(part.lag or 0 for part in parts)
        unknown = sum(part.lag is None for part in parts)
        note = f", not counting {unknown} whose lag cannot be told" if unknown else ""
        click.echo(f"{name}: lag {total} in {counted(len(parts), 'partition')}{note}")


def _assigned(member: GroupMemberView) -> str:
    """`clicks:0,1 orders:4`; `?` for what cannot be read."""
    if member.assignment is None:
        return "?"
    by_topic: dict[str, list[str]] = {}
    for tp in member.assignment:
        by_topic.setdefault(tp.topic, []).append(str(tp.partition))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())


def _cells(view: GroupView, part: Part) -> dict[str, str]:
    """By the names of the columns."""
    member = part.member
    numbers = {"committed": part.committed, "log end": part.log_end, "lag": part.lag}
    return {
        "group": view.group_id,
        "topic": part.partition.topic,
        "partition": str(part.partition.partition),
        **{name: "" if number is None else str(number) for name, number in numbers.items()},
        "member": "" if member is None else member.member_id,
        "host": "" if member is None else member.host,
        "client": "" if member is None else member.client_id,
    }


def _fields(view: GroupView, parts: list[Part]) -> dict[str, Any]:
    return {
        "group": view.group_id,
        "state": view.state,
        "protocol_type": view.protocol_type,
        "protocol": view.protocol,
        "coordinator": view.coordinator,
        "lag": sum(part.lag or 0 for part in parts),
        "members": [
            {
                "member": each.member_id,
                "instance": each.group_instance_id,
                "client_id": each.client_id,
                "host": each.host,
                "partitions": None
                if each.assignment is None
                else [{"topic": tp.topic, "partition": tp.partition} for tp in each.assignment],
            }
            for each in view.members
        ],
        "partitions": [
            {
                "topic": part.partition.topic,
                "partition": part.partition.partition,
                "committed": part.committed,
                "log_end": part.log_end,
                "lag": part.lag,
                "member": None if part.member is None else part.member.member_id,
            }
            for part in parts
        ],
        **error_fields(None),
    }


# --- delete ----------------------------------------------------------------------------------------------------------


@groups.command(short_help="Delete groups without members.", epilog="Example: strandline groups delete billing --yes")
@bootstrap_option
@click.argument("names", nargs=-1, required=True, metavar="GROUP…")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@output_option
@settings_option
@click.pass_context
def delete(
    ctx: click.Context,
    bootstrap: str | None,
    names: tuple[str, ...],
    yes: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Delete groups without members, and what they have committed."""
    _confirm(f"group {', '.join(names)} and what it has committed", yes)
    with admin_of(ctx, bootstrap, settings, CHANGE_TIMEOUT_MS) as admin:
        results = admin.delete_groups(names)
    if output == "json":
        show_json("groups.delete", groups=[{"group": name, **error_fields(error)} for name, error in results.items()])
        return 1 if any(results.values()) else 0
    return _tell({f"Deleted group {name}.": error for name, error in results.items()})


@groups.command(
    "delete-offsets",
    short_help="Forget what a group has committed of a topic.",
    epilog="Example: strandline groups delete-offsets billing --topic clicks:0,1 --yes",
)
@bootstrap_option
@click.argument("name", metavar="GROUP")
@click.option("-t", "--topic", "topics", multiple=True, required=True, metavar="NAME[:0,1]", help="May be repeated.")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@output_option
@settings_option
@click.pass_context
def delete_offsets(
    ctx: click.Context,
    bootstrap: str | None,
    name: str,
    topics: tuple[str, ...],
    yes: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Forget what a group has committed of a topic that none of its members subscribes to."""
    named = [topic_and_partitions(text) for text in topics]
    _confirm(f"what group {name} has committed of {', '.join(topics)}", yes)
    with admin_of(ctx, bootstrap, settings, CHANGE_TIMEOUT_MS) as admin:
        partitions = list(_committed(admin, name, named))
        results = admin.delete_group_offsets(name, partitions)
    if output == "json":
        rows = [{"topic": tp.topic, "partition": tp.partition, **error_fields(e)} for tp, e in results.items()]
        show_json("groups.delete-offsets", group=name, partitions=rows)
        return 1 if any(results.values()) else 0
    return _tell({f"Deleted what group {name} had committed of {tp}.": error for tp, error in results.items()})


def _committed(admin: Admin, name: str, named: Iterable[tuple[str, list[int] | None]]) -> Iterable[TopicPartition]:
    """The partitions that are named; of a topic without numbers those of which something is committed, also where the
    topic is gone. The error of a group that does not exist; UsageError: nothing is committed of a topic."""
    from strandline.protocol.types import TopicPartition

    view = admin.describe_groups([name])[name]
    if isinstance(view, Exception):
        raise view
    known = admin.list_group_offsets(name)
    for topic, numbers in named:
        found = [tp for tp in known if tp.topic == topic] if numbers is None else []
        found += [TopicPartition(topic, number) for number in numbers or ()]
        if not found:
            raise click.ClickException(f"group {name!r} has committed nothing of topic {topic!r}")
        yield from found


def _confirm(what: str, yes: bool) -> None:
    ask_first(f"Delete {what}?", f"this deletes {what} for good", yes=yes)


def _tell(results: Mapping[str, Exception | None]) -> int:
    """What was done, or why not; 1 if any failed."""
    for done, error in results.items():
        told = printable(done) if error is None else f"strandline: {printable(str(error))}"
        click.echo(told, err=error is not None)
    return 1 if any(results.values()) else 0
