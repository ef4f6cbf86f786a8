"""`strandline ready`: does a broker do its share? What a container's health check runs.

Asks the broker's admin port for `/ready`. Where that is, is found as a broker in the same container finds it: the
variables of `admin.listener`, else the defaults of the image. Exit code 0 when it is ready; 1 when it is not, with the
reasons, when nobody answers, or when the admin port is switched off: nobody can tell then.
"""

from __future__ import annotations

import os
from typing import IO

import click

from strandline.cli.options import defaults_option, output_option, properties_of, show_json

TIMEOUT_S = 5.0


@click.command(epilog="Example: strandline ready --admin 127.0.0.1:9644 && echo serving")
@click.option(
    "-a",
    "--admin",
    "told",
    metavar="HOST:PORT",
    help="The broker's admin.listener; $STRANDLINE_ADMIN_LISTENER, else what --defaults says.",
)
@defaults_option("The broker's --defaults; $STRANDLINE_DEFAULTS.")
@output_option
def ready(told: str | None, defaults: IO[bytes] | None, output: str) -> int:
    """Say whether a broker is ready, and if not why."""
    from strandline.runtime.config.listeners import EVERY_INTERFACE, LOOPBACK, parse_address
    from strandline.runtime.config.values import InvalidConfig
    from strandline.runtime.config.variables import value_from_environment
    from strandline.runtime.http_client import get, json_in
    from strandline.runtime.network import Address, CannotConnect

    try:
        text = told
        if text is None:
            text = value_from_environment(os.environ, "admin.listener")
        if text is None:
            text = properties_of(defaults).get("admin.listener")
        if text is None:
            raise click.UsageError("whom to ask? give --admin HOST:PORT, the broker's admin.listener")
        address = parse_address("--admin", text)
    except InvalidConfig as error:
        raise click.UsageError(f"--admin '{text}' {error.why}") from None
    if address is None:
        raise click.ClickException(
            "the admin port is switched off (admin.listener is empty), so nobody can tell: give the broker one, or "
            "switch the health check off as well"
        )
    if address.port == 0:
        raise click.UsageError(f"--admin {text!r} names no port: give the one that the broker printed at its start")
    if address.host in EVERY_INTERFACE:
        address = Address(LOOPBACK, address.port)
    try:
        status, body = get(address, "/ready", TIMEOUT_S)
        answer = json_in(body)
        waits = [str(reason) for reason in answer["waits"]]
    except CannotConnect as error:
        raise click.ClickException(f"{error}; is the broker running, and is its admin.listener {address}?") from None
    except (ValueError, KeyError, TypeError):
        raise click.ClickException(f"{address} is no broker's admin port: it answered {status}") from None
    if output == "json":
        show_json("ready", ready=not waits, waits=waits)
    else:
        click.echo("ready" if not waits else "\n".join(f"not ready: {reason}" for reason in waits))
    return 1 if waits else 0
