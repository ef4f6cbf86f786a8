"""Where each broker's admin port is, and what it tells: for commands that look at all brokers of a cluster.

1. `--admin ID=HOST:PORT` names it.
2. Else the broker says in its configuration where the port listens; one that listens on every interface is asked at the
   host that the broker advertises.

Which broker answers is checked before its figures are taken for those of another: a port on loopback belongs to
whichever broker runs on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.options import LOOK_TIMEOUT_MS, no_such_broker

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.balance.indicators import Look
    from strandline.client.metadata import BrokerView
    from strandline.runtime.network import Address

TIMEOUT_S = 5.0
METRICS_TIMEOUT_S = 30.0
"""A busy broker makes so many figures in small steps, beside its work."""
MAX_METRICS_BYTES = 64 * 2**20
"""Ten thousand partitions take some ten."""
KEY = "admin.listener"


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def admin_ports_option(function: F) -> F:
    """`--admin ID=HOST:PORT`, as often as wanted; `named_ports` reads it."""
    return click.option(
        "--admin",
        "told",
        multiple=True,
        metavar="ID=HOST:PORT",
        help="Where the admin port of a broker is reached from here, if not where it says; may be repeated.",
    )(function)


class NotTold(Exception):
    """A broker's figures cannot be had; the text says why, and what helps."""


def named_ports(texts: tuple[str, ...]) -> dict[int, Address]:
    """`1=host:9644`. UsageError."""
    from strandline.runtime.config.listeners import parse_address
    from strandline.runtime.config.values import InvalidConfig

    found: dict[int, Address] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name.isascii() and name.isdigit()):
            raise click.UsageError(f"--admin '{text}' is not ID=HOST:PORT; give for example 1=localhost:9644")
        if int(name) in found:
            raise click.UsageError(f"--admin names broker {name} twice")
        try:
            address = parse_address("--admin", value)
        except InvalidConfig as error:
            raise click.UsageError(f"--admin '{text}': the address {error.why}") from None
        if address is None or address.port == 0:
            raise click.UsageError(f"--admin '{text}' names no port; give for example {name}=localhost:9644")
        found[int(name)] = address
    return found


def check_named(named: Iterable[int], running: Collection[int], away: Collection[int] = ()) -> None:
    """UsageError where `--admin` is for a broker that there is not: its id is wrong, and nobody would be asked there.
    away: brokers that are known, and may be named though they do not run."""
    for broker_id in named:
        if broker_id not in running and broker_id not in away:
            raise no_such_broker("--admin", broker_id, running)


def from_each(brokers: Iterable[int], ask: Callable[[int], T]) -> tuple[dict[int, T], dict[int, str]]:
    """What brokers say, all asked at once, and why others do not. ask: of a broker, or NotTold."""
    from strandline.runtime.processes.at_once import at_once

    def answer(broker_id: int) -> T | NotTold:
        try:
            return ask(broker_id)
        except NotTold as error:
            return error

    answers = at_once(answer, sorted(brokers))
    told = {broker_id: each for broker_id, each in answers.items() if not isinstance(each, NotTold)}
    return told, {broker_id: str(each) for broker_id, each in answers.items() if isinstance(each, NotTold)}


def admin_ports(
    admin: Admin, brokers: Mapping[int, BrokerView], named: Mapping[int, Address]
) -> tuple[dict[int, Address], dict[int, str]]:
    """Where each broker's is, and why it is not known of others. named: by the command line."""
    return from_each(brokers, lambda each: named[each] if each in named else admin_port(admin, brokers[each]))


def admin_port(admin: Admin, broker: BrokerView) -> Address:
    """Where the broker says that it listens. NotTold."""
    from strandline.client.errors import ClientError
    from strandline.protocol.messages import ConfigResource
    from strandline.runtime.config.listeners import EVERY_INTERFACE, parse_address
    from strandline.runtime.config.values import InvalidConfig
    from strandline.runtime.network import Address

    remedy = f"say where it is: --admin {broker.broker_id}=HOST:PORT"
    try:
        entries = admin.describe_configs(
            ConfigResource.BROKER, str(broker.broker_id), [KEY], timeout_ms=LOOK_TIMEOUT_MS
        )
        told = next((entry.value for entry in entries if entry.name == KEY), None)
        address = parse_address(KEY, told or "")
    except ClientError as error:
        raise NotTold(f"it does not say where its admin port is: {error}") from None
    except InvalidConfig as error:
        raise NotTold(f"its {KEY} is '{told}', which {error.why}; {remedy}") from None
    if address is None:
        raise NotTold(f"its admin port is switched off ({KEY} is empty); give it one, or {remedy}")
    return Address(broker.address.host, address.port) if address.host in EVERY_INTERFACE else address


def status_of(address: Address, broker_id: int, cluster_id: str, *, named: bool) -> Mapping[str, object]:
    """What the broker says of itself, once it is certain that this is its admin port. named: by the command line; then
    what does not say who it is (an exporter in front of another system's broker) is taken for it, and its status is
    empty. NotTold."""
    from strandline.runtime import http_client
    from strandline.runtime.network import CannotConnect

    remedy = f"say where it is reached from here: --admin {broker_id}=HOST:PORT"
    try:
        status, body = http_client.get(address, "/status", TIMEOUT_S)
    except CannotConnect as error:
        raise NotTold(f"{error}; {remedy}, or give it an {KEY} that is") from None
    told: object = None
    if status == 200:
        try:
            told = http_client.json_in(body)
        except ValueError:
            told = None
    if not isinstance(told, Mapping) or "broker_id" not in told:
        if named:
            return {}
        raise NotTold(f"{address} is no broker's admin port: it answered {status}; {remedy}")
    if (told["broker_id"], told.get("cluster_id")) != (broker_id, cluster_id):
        who = f"broker {told['broker_id']} of cluster {told.get('cluster_id')}"
        raise NotTold(f"at {address} is {who}; {remedy}")
    return told


def scraped(address: Address, at_s: float) -> Look:
    """The broker's figures. NotTold."""
    from strandline.client.balance.indicators import NoMetrics, parsed
    from strandline.runtime import http_client
    from strandline.runtime.network import CannotConnect

    try:
        status, body = http_client.get(address, "/metrics", METRICS_TIMEOUT_S, MAX_METRICS_BYTES)
        if status != 200:
            raise NotTold(f"http://{address}/metrics answered {status}, and no figures")
        return parsed(body.decode("utf-8", "replace"), at_s)
    except CannotConnect as error:
        raise NotTold(str(error)) from None
    except NoMetrics as error:
        raise NotTold(f"http://{address}/metrics: {error}") from None
