"""`strandline configs`: what is configured for a topic, a broker or all brokers, and where that stands; set and delete.

    strandline configs describe --topic clicks               what somebody has set; --all: every key
    strandline configs set --topic clicks retention.ms=60000
    strandline configs delete --broker 1 log.cleaner.threads

Brokers take a change over at once. Keys are those of `docs/configuration.md`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.options import (
    admin_of,
    bootstrap_option,
    key_value,
    legal_topic,
    output_option,
    settings_option,
    show_json,
)

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.protocol.messages import ConfigResource, DescribeConfigsResourceResult

ACTIONS = ("describe", "set", "delete")
TIMEOUT_MS = 30_000
PLACES = {1: "topic", 2: "broker, dynamic", 3: "all brokers, dynamic", 4: "broker's file", 5: "default"}
"""By `ConfigSource`."""


@click.command(
    epilog="Examples: strandline configs describe --topic clicks; strandline configs set --topic clicks "
    "retention.ms=60000; strandline configs delete --broker 1 log.cleaner.threads"
)
@bootstrap_option
@click.argument("words", nargs=-1, metavar="describe|set KEY=VALUE…|delete KEY…")
@click.option("-t", "--topic", metavar="NAME", help="Of that topic.")
@click.option("--broker", type=click.IntRange(0, 2**31 - 1), metavar="ID", help="Of that broker.")
@click.option("--all-brokers", is_flag=True, help="What is set for all brokers together.")
@click.option("--all", "everything", is_flag=True, help="With describe: every key, not only those that somebody set.")
@click.option("--dry-run", is_flag=True, help="Only check what would be changed.")
@output_option
@settings_option
@click.pass_context
def configs(
    ctx: click.Context,
    bootstrap: str | None,
    words: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    everything: bool,
    dry_run: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Show and change what is configured."""
    if not words or words[0] not in ACTIONS:
        raise click.UsageError(f"give one of {', '.join(ACTIONS)}", ctx)
    if (topic is not None) + (broker is not None) + all_brokers != 1:
        raise click.UsageError("give one of --topic NAME, --broker ID, --all-brokers", ctx)
    action, rest = words[0], words[1:]
    if action == "describe" and (rest or dry_run):
        raise click.UsageError("describe takes no keys and no --dry-run", ctx)
    if action != "describe" and (everything or not rest):
        raise click.UsageError("set takes KEY=VALUE…, delete KEY…; --all goes with describe", ctx)
    from strandline.protocol.messages import ConfigResource

    kind = ConfigResource.BROKER if topic is None else ConfigResource.TOPIC
    name = legal_topic(topic) if topic is not None else "" if broker is None else str(broker)
    changes = dict.fromkeys(rest) if action == "delete" else dict(key_value(text, "set") for text in rest)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        if action == "describe":
            return _describe(admin, kind, name, everything, as_json=output == "json")
        admin.alter_configs(kind, name, changes, validate_only=dry_run)
        _tell(action, changes, dry_run, as_json=output == "json")
    return 0


def _tell(action: str, changes: dict[str, str | None] | dict[str, str], dry_run: bool, *, as_json: bool) -> None:
    if as_json:
        show_json(f"configs.{action}", dry_run=dry_run, keys=list(changes))
        return
    done = "Would change" if dry_run else "Changed"
    click.echo(f"{done} {', '.join(changes)}.")


def _describe(admin: Admin, kind: ConfigResource, name: str, everything: bool, *, as_json: bool) -> int:
    found = sorted(admin.describe_configs(kind, name), key=lambda entry: entry.name)
    shown = [entry for entry in found if everything or entry.config_source < max(PLACES)]
    if as_json:
        show_json("configs.describe", configs=[_fields(entry) for entry in shown])
    elif sys.stdout.isatty():
        _show_table(shown)
    else:
        for entry in shown:
            click.echo(f"{entry.name}={_value(entry)}\t{PLACES.get(entry.config_source, '')}")
    return 0


def _value(entry: DescribeConfigsResourceResult) -> str:
    return "(not shown)" if entry.is_sensitive else entry.value or ""


def _show_table(entries: list[DescribeConfigsResourceResult]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for column in ("key", "value", "set in"):
        table.add_column(column)
    for entry in entries:
        table.add_row(entry.name, _value(entry), PLACES.get(entry.config_source, ""))
    Console(highlight=False).print(table)


def _fields(entry: DescribeConfigsResourceResult) -> dict[str, Any]:
    return {
        "key": entry.name,
        "value": entry.value,
        "set_in": PLACES.get(entry.config_source),
        "read_only": entry.read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"key": each.name, "value": each.value, "set_in": PLACES.get(each.source)} for each in entry.synonyms
        ],
    }
