"""`strandline quotas`: how much users, client ids and addresses may ask of each broker; show it, change it.

    strandline quotas describe                                    all of them
    strandline quotas describe --user alice                       hers, also together with client ids
    strandline quotas alter --user alice producer_byte_rate=1MiB consumer_byte_rate=2MiB
    strandline quotas alter --user alice --client-id app request_percentage=25
    strandline quotas alter --user-default --remove producer_byte_rate
    strandline quotas alter --ip 10.0.0.7 connection_creation_rate=5

Brokers take a change over at once. A quota counts at each broker by itself, as Kafka's do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.broker.quotas.entities import quota_text
from strandline.cli.key_changes import changes_json, tell_changes
from strandline.cli.options import admin_of, bootstrap_option, key_value, output_option, settings_option, show_json
from strandline.cli.session import session_of
from strandline.cli.tables import show_table
from strandline.cli.waiting import shown_waiting

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.quotas import Name, QuotaOwner

F = TypeVar("F", bound=Callable[..., Any])
TIMEOUT_MS = 60_000
"""Of one answer, and of the whole: who is held by a quota shall be able to see it, and to take it back."""
HELD = (
    "a broker has told its versions, so a quota (request_percentage) may hold this client and all that share it: ask "
    "by another client id (-X client.id=NAME) or as another user, or stop those clients, and try again"
)
LOWEST_USUAL_PERCENTAGE = 1.0
"""Less is most likely a mistake, such as 0.25 for 25 %."""
KEYS = {
    "producer_byte_rate": "bytes per second",
    "consumer_byte_rate": "bytes per second",
    "request_percentage": "percent of a broker's event loop",
    "controller_mutation_rate": "partitions per second",
    "connection_creation_rate": "connections per second",
}
"""Key → unit."""
_IN_BYTES = ("producer_byte_rate", "consumer_byte_rate")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmg]i?)?b?(?:/s)?", re.ASCII | re.IGNORECASE)


@click.group(
    no_args_is_help=False,
    epilog="Examples: strandline quotas describe; strandline quotas alter --user alice producer_byte_rate=1MiB; "
    "strandline quotas alter --user-default --remove producer_byte_rate",
)
def quotas() -> None:
    """Show and change how much users, client ids and addresses may ask of each broker."""


def _owner_options(function: F) -> F:
    for name, metavar, help_text in (
        ("ip", "ADDRESS", "Of connections from that address."),
        ("client-id", "ID", "Of that client id; with --user: of the two together."),
        ("user", "NAME", "Of that user; ANONYMOUS where nobody logs in."),
    ):
        default_help = f"Of every {name} without a quota of its own."
        function = click.option(f"--{name}-default", is_flag=True, help=default_help)(function)
        function = click.option(f"--{name}", metavar=metavar, help=help_text)(function)
    return function


def _owner(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> QuotaOwner:
    """UsageError where two contradict each other."""
    from strandline.client.quotas import QuotaOwner

    owner = QuotaOwner(
        _name("user", user, user_default),
        _name("client-id", client_id, client_id_default),
        _name("ip", ip, ip_default),
    )
    if owner.ip is not None and (owner.user is not None or owner.client_id is not None):
        raise click.UsageError("an address has quotas of its own: give --ip without --user and --client-id")
    return owner


def _name(kind: str, name: str | None, is_default: bool) -> Name:
    from strandline.client.quotas import DEFAULT_ENTITY

    if name is not None and is_default:
        raise click.UsageError(f"give either --{kind} or --{kind}-default")
    if name == "":
        raise click.UsageError(f"--{kind} is empty; --{kind}-default is of every {kind} without a quota of its own")
    return DEFAULT_ENTITY if is_default else name


@contextmanager
def _patient_admin(ctx: click.Context, bootstrap: str | None, settings: Sequence[str]) -> Iterator[Admin]:
    """Whose requests keep their places in the line of a quota; for a block that prints nothing."""
    session = session_of(ctx)
    session.line.unless_answered = HELD
    with (
        admin_of(ctx, bootstrap, settings, TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS) as admin,
        shown_waiting(partial(_waiting_text, admin), session.monotonic),
    ):
        yield admin


def _waiting_text(admin: Admin) -> str:
    """A broker's versions are told whatever is owed: one that is silent before hangs, and no quota is why."""
    from strandline.client.errors import ClientError

    try:
        may_be_held = admin.was_reached()
    except ClientError:  # the client has ended, which the command tells
        may_be_held = False
    return "no answer yet: a quota may hold this client" if may_be_held else "no answer yet"


# --- describe --------------------------------------------------------------------------------------------------------


@quotas.command(
    short_help="Which quotas there are.",
    epilog="Examples: strandline quotas describe; strandline quotas describe --user alice; "
    "strandline quotas describe --ip-default --output json",
)
@bootstrap_option
@_owner_options
@output_option
@settings_option
@click.pass_context
def describe(
    ctx: click.Context, /, bootstrap: str | None, output: str, settings: tuple[str, ...], **owner: Any
) -> None:
    """Show the quotas of those that match what is given, or all. The most exact one counts: user and client id before
    user, a name before the default, users before client ids."""
    wanted = _owner(**owner)
    with _patient_admin(ctx, bootstrap, settings) as admin:
        found = admin.describe_quotas(wanted)
    rows = [(each, key, value) for each, values in found.items() for key, value in sorted(values.items())]
    if output == "json":
        shown = [{**_fields(each), "key": key, "value": value, "unit": KEYS.get(key)} for each, key, value in rows]
        show_json("quotas.describe", quotas=shown)
        return
    if not rows:
        whom = "" if str(wanted) == "nobody" else f" for {wanted}"
        click.echo(f"note: no quota is set{whom}", err=True)
        return
    show_table(
        ("user", "client id", "ip", "quota", "value", "unit"),
        [(*map(_shown, each), key, quota_text(value), KEYS.get(key, "")) for each, key, value in rows],
        ("value",),
    )


def _shown(name: Name) -> str:
    return "" if name is None else name if isinstance(name, str) else "<default>"


def _fields(owner: QuotaOwner) -> dict[str, Any]:
    """A part that does not matter is left out, null is the default."""
    parts = zip(("user", "client_id", "ip"), owner, strict=True)
    return {kind: name if isinstance(name, str) else None for kind, name in parts if name is not None}


# --- alter -----------------------------------------------------------------------------------------------------------


@quotas.command(
    short_help="Set quotas, or remove them.",
    epilog="Examples: strandline quotas alter --user alice --client-id app producer_byte_rate=1MiB; "
    "strandline quotas alter --ip 10.0.0.7 connection_creation_rate=5; "
    "strandline quotas alter --user-default --remove producer_byte_rate",
)
@bootstrap_option
@click.argument("quota", nargs=-1, metavar="[KEY=VALUE]…")
@_owner_options
@click.option("--remove", "removed", multiple=True, metavar="KEY", help="Have it no longer set; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only have it checked.")
@output_option
@settings_option
@click.pass_context
def alter(
    ctx: click.Context,
    /,
    bootstrap: str | None,
    quota: tuple[str, ...],
    removed: tuple[str, ...],
    dry_run: bool,
    output: str,
    settings: tuple[str, ...],
    **owner: Any,
) -> None:
    """Set quotas of a user, a client id, both together or an address, or remove them: then the next one counts that is
    less exact. KEY: producer_byte_rate, consumer_byte_rate (bytes per second, also 500k, 1MiB), request_percentage,
    controller_mutation_rate; with --ip connection_creation_rate."""
    whose = _owner(**owner)
    if str(whose) == "nobody":
        raise click.UsageError("whose quotas? give --user, --client-id or --ip, or one of them with -default")
    changes = _changes(quota, removed)
    percentage = changes.get("request_percentage")
    if percentage is not None and percentage < LOWEST_USUAL_PERCENTAGE:
        click.echo(f"note: {_low_text(percentage, whose)}", err=True)
    with _patient_admin(ctx, bootstrap, settings) as admin:
        admin.alter_quotas(whose, changes, validate_only=dry_run)
    if output == "json":
        show_json("quotas.alter", **_fields(whose), dry_run=dry_run, changes=changes_json(changes))
        return
    texts = {key: None if value is None else f"{quota_text(value)} ({KEYS[key]})" for key, value in changes.items()}
    tell_changes(texts, whose, dry_run=dry_run)


def _low_text(percentage: float, whose: QuotaOwner) -> str:
    return (
        f"request_percentage={quota_text(percentage)} holds {whose} to {percentage * 10:g} ms of each second of a "
        f"broker, all clients together; where this command is one of them, taking it back waits in the same line"
    )


def _changes(quota: Sequence[str], removed: Sequence[str]) -> Mapping[str, float | None]:
    """Key → value, None: it is removed. UsageError."""
    if not quota and not removed:
        raise click.UsageError("give KEY=VALUE or --remove KEY")
    changes: dict[str, float | None] = {}
    pairs = [key_value(text, "quota") for text in quota]
    for key, text in (*pairs, *((key, None) for key in removed)):
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            raise click.UsageError(f"there is no quota {key}; {f'did you mean {near[0]}?' if near else _allowed()}")
        if key in changes:
            raise click.UsageError(f"{key} is given twice")
        changes[key] = None if text is None else _amount(key, text)
    return changes


def _allowed() -> str:
    return f"there are {', '.join(KEYS)}"


def _amount(key: str, text: str) -> float:
    found = _AMOUNT.fullmatch(text.strip().removesuffix("%" if key == "request_percentage" else ""))
    if found is None or (found[2] and key not in _IN_BYTES):
        example = "1048576, 500k or 1MiB" if key in _IN_BYTES else "2.5"
        raise click.UsageError(f"{key}={text[:40]} is no amount ({KEYS[key]}); it looks like {example}")
    return float(found[1]) * _UNITS[(found[2] or "").lower()]
