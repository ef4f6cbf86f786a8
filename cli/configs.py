"""`strandline configs`: what is configured for a topic, a broker or all brokers, and where that stands; change it.

    strandline configs describe --topic clicks               what somebody has set; --all: every key, with its meaning
    strandline configs describe --topic clicks retention.ms  that key, set or not
    strandline configs alter --topic clicks --add retention.ms=60000 --delete segment.bytes
    strandline configs alter --all-brokers --add log.cleaner.threads=2

Brokers take a change over at once, but for keys that `describe` says to count at the next start. Keys are those of
`docs/configuration.md`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from strandline.cli.key_changes import changes_json, tell_changes
from strandline.cli.options import (
    admin_of,
    bootstrap_option,
    key_value,
    legal_topic,
    no_such_broker,
    output_option,
    settings_option,
    show_json,
)
from strandline.cli.tables import show_table

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.protocol.messages import ConfigResource, DescribeConfigsResourceResult, DescribeConfigsSynonym
    from strandline.runtime.config.keys import ConfigKey

F = TypeVar("F", bound=Callable[..., Any])
TIMEOUT_MS = 30_000
PLACES = {1: "topic", 2: "broker, dynamic", 3: "all brokers, dynamic", 4: "broker's file", 5: "default"}
"""By `ConfigSource`."""
_NEXT_KEY = re.compile(r",\s*[a-z]+(\.[a-z]+)+=")


@click.group(
    no_args_is_help=False,
    epilog="Examples: strandline configs describe --topic clicks; strandline configs alter --topic clicks "
    "--add retention.ms=60000 --delete segment.bytes",
)
def configs() -> None:
    """Show and change what is configured for topics and brokers."""


class Entity(NamedTuple):
    """Whose keys: of a topic (its name), of a broker (its id as text), of all brokers (no name)."""

    is_topic: bool
    name: str

    @property
    def kind(self) -> ConfigResource:
        from strandline.protocol.messages import ConfigResource

        return ConfigResource.TOPIC if self.is_topic else ConfigResource.BROKER

    @property
    def own_source(self) -> int:
        """The `ConfigSource` of what is set for it, and not for more."""
        from strandline.protocol.messages import ConfigSource

        if self.is_topic:
            return ConfigSource.TOPIC
        return ConfigSource.DYNAMIC_BROKER if self.name else ConfigSource.DYNAMIC_DEFAULT_BROKER

    def __str__(self) -> str:
        return f"topic {self.name}" if self.is_topic else f"broker {self.name}" if self.name else "all brokers"

    def as_json(self) -> dict[str, str | None]:
        return {"entity_type": "topic" if self.is_topic else "broker", "entity_name": self.name or None}

    def keys(self) -> dict[str, ConfigKey]:
        """Those that this version knows."""
        from strandline.runtime.config.broker import BROKER_KEYS
        from strandline.runtime.config.topic import TOPIC_KEYS

        return dict(TOPIC_KEYS if self.is_topic else BROKER_KEYS)


def _entity_options(function: F) -> F:
    function = click.option("--all-brokers", is_flag=True, help="What is set for all brokers together.")(function)
    function = click.option("--broker", type=click.IntRange(0, 2**31 - 1), metavar="ID", help="Of that broker.")(
        function
    )
    return click.option("-t", "--topic", metavar="NAME", help="Of that topic.")(function)


def _entity(topic: str | None, broker: int | None, all_brokers: bool) -> Entity:
    """UsageError unless exactly one is given."""
    if (topic is not None) + (broker is not None) + all_brokers != 1:
        raise click.UsageError("give one of --topic NAME, --broker ID, --all-brokers")
    return Entity(True, legal_topic(topic)) if topic is not None else Entity(False, "" if all_brokers else str(broker))


def _check_runs(admin: Admin, entity: Entity) -> None:
    """UsageError for a broker that does not run: only itself answers for its keys, and the client would wait for it."""
    if entity.is_topic or not entity.name:
        return
    running = admin.describe_cluster().brokers
    if int(entity.name) not in running:
        raise no_such_broker("--broker", int(entity.name), running)


def _check_known(keys: Iterable[str], known: Iterable[str], entity: Entity) -> None:
    """ClickException for the first one that nobody knows, with the nearest one that is known."""
    offered = set(known)
    for key in keys:
        if key not in offered:
            near = difflib.get_close_matches(key, sorted(offered), n=1)
            hint = f"did you mean {near[0]}?" if near else f"strandline configs describe --all shows those of {entity}"
            raise click.ClickException(f"there is no key {key} of {entity}; {hint}")


# --- describe --------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A key. `changes`: when another value counts. `meaning`: as the broker tells it. `otherwise`: what stands below,
    the first of which counts when this is no longer set."""

    key: str
    value: str
    set_in: str
    changes: str
    unit: str
    meaning: str
    otherwise: str


@configs.command(
    short_help="What is set, and where.",
    epilog="Examples: strandline configs describe --topic clicks; strandline configs describe --broker 1 --all; "
    "strandline configs describe --topic clicks retention.ms",
)
@bootstrap_option
@click.argument("keys", nargs=-1, metavar="[KEY]…")
@_entity_options
@click.option("--all", "everything", is_flag=True, help="Every key, with unit and meaning, not only what is set.")
@output_option
@settings_option
@click.pass_context
def describe(
    ctx: click.Context,
    bootstrap: str | None,
    keys: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    everything: bool,
    output: str,
    settings: tuple[str, ...],
) -> None:
    """Show what somebody has set for a topic, a broker or all brokers: the value, where it stands, and whether it is
    dynamic (may be changed while brokers run) or read-only (stands in a broker's file)."""
    entity = _entity(topic, broker, all_brokers)
    if keys and everything:
        raise click.UsageError("give either KEY… or --all", ctx)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        _check_runs(admin, entity)
        found = sorted(admin.describe_configs(entity.kind, entity.name), key=lambda entry: entry.name)
    if keys:
        _check_known(keys, {*(entry.name for entry in found), *(entity.keys() if all_brokers else ())}, entity)
    shown = [
        e for e in found if (e.name in keys if keys else everything or e.config_source < max(PLACES) or _in_vain(e))
    ]
    table = entity.keys()
    if output == "json":
        show_json("configs.describe", **entity.as_json(), configs=[_fields(each, table) for each in shown])
        return
    rows = [_row(entry, table) for entry in shown]
    if not rows:
        click.echo(f"note: nothing is set for {entity}", err=True)
        return
    for place in (place for entry in shown for place in _in_vain(entry)):
        text = f"{place.name}={place.value} ({PLACES[place.source]}) does not count; the broker's log says why"
        click.echo(f"note: {text}", err=True)
    if sys.stdout.isatty():
        columns = ("key", "value", "set in", "changes", *(("unit", "meaning") if everything else ("otherwise",)))
        last = slice(4, 6) if everything else slice(6, 7)
        show_table(columns, [(*row[:4], *row[last]) for row in rows])
        return
    for row in rows:
        meaning = f"\t{row.unit}\t{' '.join(row.meaning.split())}" if everything else ""
        click.echo(f"{row.key}={row.value}\t{row.set_in}\t{row.changes}{meaning}")


def _in_vain(entry: DescribeConfigsResourceResult) -> list[DescribeConfigsSynonym]:
    """What cannot be used, or has no effect where it stands: brokers name it behind lower places."""
    found, lowest = [], entry.config_source
    for place in entry.synonyms:
        if place.source < lowest:
            found.append(place)
        lowest = max(lowest, place.source)
    return found


def _row(entry: DescribeConfigsResourceResult, keys: dict[str, ConfigKey]) -> Row:
    value = "(not shown)" if entry.is_sensitive else entry.value or ""
    unit = keys[entry.name].unit if entry.name in keys else ""
    place = PLACES.get(entry.config_source, "")
    in_vain = _in_vain(entry)
    others = [] if entry.is_sensitive else [place for place in entry.synonyms if place not in in_vain][1:]
    below = "; ".join(
        f"{each.value} ({PLACES.get(each.source, each.name)})" for each in others if each.value is not None
    )
    return Row(entry.name, value, place, _changes(entry, keys.get(entry.name)), unit, entry.documentation or "", below)


def _changes(entry: DescribeConfigsResourceResult, key: ConfigKey | None) -> str:
    if entry.read_only:
        return "read-only"
    return "dynamic" if key is None or key.live else "dynamic, at the next start"


def _fields(entry: DescribeConfigsResourceResult, keys: dict[str, ConfigKey]) -> dict[str, Any]:
    key = keys.get(entry.name)
    return {
        "key": entry.name,
        "value": entry.value,
        "set_in": PLACES.get(entry.config_source),
        "read_only": entry.read_only,
        "takes_effect": None if entry.read_only else "at once" if key is None or key.live else "at the next start",
        "sensitive": entry.is_sensitive,
        "unit": (key.unit or None) if key is not None else None,
        "documentation": entry.documentation,
        "synonyms": [
            {"key": each.name, "value": each.value, "set_in": PLACES.get(each.source)} for each in entry.synonyms
        ],
    }


# --- alter -----------------------------------------------------------------------------------------------------------


@configs.command(
    short_help="Set keys, or have them no longer set.",
    epilog="Examples: strandline configs alter --topic clicks --add retention.ms=60000 --delete segment.bytes; "
    "strandline configs alter --all-brokers --add log.cleaner.threads=2 --dry-run",
)
@bootstrap_option
@_entity_options
@click.option("--add", "added", multiple=True, metavar="KEY=VALUE", help="Set it to that; may be repeated.")
@click.option("--delete", "deleted", multiple=True, metavar="KEY", help="Have it no longer set; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only have it checked.")
@output_option
@settings_option
@click.pass_context
def alter(
    ctx: click.Context,
    bootstrap: str | None,
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    added: tuple[str, ...],
    deleted: tuple[str, ...],
    dry_run: bool,
    output: str,
    settings: tuple[str, ...],
) -> None:
    """Set keys of a topic, of a broker or of all brokers, or have them no longer set: then the next place counts, down
    to the default. All of one call is done, or nothing."""
    entity = _entity(topic, broker, all_brokers)
    changes = _changes_asked_for(added, deleted)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        _check_runs(admin, entity)
        notes = _checked_deletions(entity, changes, admin.describe_configs(entity.kind, entity.name))
        admin.alter_configs(entity.kind, entity.name, changes, validate_only=dry_run)
    keys = entity.keys()
    notes += [
        f"{key} counts at a broker's next start"
        for key in changes
        if not entity.is_topic and key in keys and not keys[key].live
    ]
    notes += [
        f"{key} is kept without effect: {keys[key].without_effect}"
        for key, value in changes.items()
        if value is not None and key in keys and keys[key].without_effect
    ]
    if output == "json":
        show_json("configs.alter", **entity.as_json(), dry_run=dry_run, changes=changes_json(changes), notes=notes)
        return
    tell_changes(changes, entity, dry_run=dry_run)
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _changes_asked_for(added: Sequence[str], deleted: Sequence[str]) -> dict[str, str | None]:
    """Key → value, None: it is no longer to be set. UsageError."""
    if not added and not deleted:
        raise click.UsageError("give --add KEY=VALUE or --delete KEY")
    changes: dict[str, str | None] = {}
    for text in (*added, *deleted):
        key, value = key_value(text, "--add") if len(changes) < len(added) else (text.strip(), None)
        if value is not None and _NEXT_KEY.search(value):
            raise click.UsageError(f"--add '{text}' has several keys; give --add for each of them")
        if value is None and (not key or "=" in key or "," in key):
            raise click.UsageError(f"--delete '{text}' is no key; give --delete for each of several")
        if key in changes:
            raise click.UsageError(f"{key} is given twice")
        changes[key] = value
    return changes


def _checked_deletions(
    entity: Entity, changes: dict[str, str | None], found: Iterable[DescribeConfigsResourceResult]
) -> list[str]:
    """What somebody should know who deletes what is not set; brokers take that for done. ClickException for a key that
    does not exist: brokers take that for done, too."""
    entries = {entry.name: entry for entry in found}
    deleted = [key for key, value in changes.items() if value is None]
    _check_known(deleted, {*entries, *(() if entity.is_topic else entity.keys())}, entity)
    return [
        f"{key} was not set for {entity}"
        for key in deleted
        if key not in entries or all(place.source != entity.own_source for place in entries[key].synonyms)
    ]
