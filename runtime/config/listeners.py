"""Listeners: `NAME://host:port,…` and the security protocol of each name."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.runtime.config.values import InvalidConfig
from strandline.runtime.network import Address

SERVED_PROTOCOLS = ("PLAINTEXT",)
KNOWN_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOOPBACK = "127.0.0.1"
EVERY_INTERFACE = ("0.0.0.0", "::")

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.]+)\]|([^:/\[\]\s]*)):([0-9]{1,5})")


class Listener(NamedTuple):
    """One listener: name (upper case), host, port (0: any free one), security protocol."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it, as far as the name tells."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_protocol_map(key: str, pairs: Iterable[str]) -> dict[str, str]:
    """`NAME:PROTOCOL` pairs. InvalidConfig: not a pair, a name twice, an unknown protocol."""
    protocols: dict[str, str] = {}
    for pair in pairs:
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not (name and colon and protocol in KNOWN_PROTOCOLS):
            raise InvalidConfig(key, pair, "must be NAME:PROTOCOL with one of " + ", ".join(KNOWN_PROTOCOLS))
        if name in protocols:
            raise InvalidConfig(key, pair, f"names {name} twice")
        protocols[name] = protocol
    return protocols


def parse_listeners(key: str, entries: Sequence[str], protocols: dict[str, str]) -> tuple[Listener, ...]:
    """`NAME://host:port` entries. InvalidConfig: malformed, a name or address twice, a protocol not served."""
    listeners: dict[str, Listener] = {}
    addresses: dict[tuple[str, int], str] = {}
    for entry in entries:
        match = _LISTENER.fullmatch(entry)
        if match is None or int(match[4]) > 65535:
            raise InvalidConfig(key, entry, "must be NAME://host:port, for example PLAINTEXT://127.0.0.1:9092")
        name, host, port = match[1].upper(), match[2] or match[3] or LOOPBACK, int(match[4])
        protocol = protocols.get(name)
        if protocol is None:
            raise InvalidConfig(key, entry, f"listener.security.protocol.map has no entry for {name}")
        if protocol not in SERVED_PROTOCOLS:
            raise InvalidConfig(key, entry, f"{protocol} is not served yet, only " + ", ".join(SERVED_PROTOCOLS))
        if name in listeners:
            raise InvalidConfig(key, entry, f"names the listener {name} twice")
        if port and (host, port) in addresses:
            raise InvalidConfig(key, entry, f"has the address of listener {addresses[host, port]}")
        listeners[name] = Listener(name, host, port, protocol)
        addresses[host, port] = name
    if not listeners:
        raise InvalidConfig(key, "", "names no listener, for example PLAINTEXT://127.0.0.1:9092")
    return tuple(listeners.values())


def parse_address(key: str, text: str) -> Address | None:
    """`host:port`; an empty text is None. InvalidConfig: anything else."""
    if not text.strip():
        return None
    try:
        (listener,) = parse_listeners(key, [f"ADMIN://{text.strip()}"], {"ADMIN": "PLAINTEXT"})
    except InvalidConfig:
        raise InvalidConfig(key, text, "must be host:port, for example 127.0.0.1:9644") from None
    return Address(listener.host, listener.port)


def advertised(
    entries: Sequence[str] | None, listeners: tuple[Listener, ...], protocols: dict[str, str]
) -> tuple[Listener, ...]:
    """What peers are told: `entries`, or the listeners themselves. InvalidConfig: not the same names, or an address
    that cannot be connected to."""
    key = "advertised.listeners"
    told = listeners if entries is None else parse_listeners(key, entries, protocols)
    names = {listener.name for listener in told}
    for listener in listeners:
        if listener.name not in names:
            raise InvalidConfig(key, ",".join(entries or ()), f"has no address for listener {listener.name}")
    bound = {listener.name for listener in listeners}
    for listener in told:
        if listener.name not in bound:
            raise InvalidConfig(key, str(listener), f"listeners does not bind {listener.name}")
        if listener.host in EVERY_INTERFACE and entries is None:
            raise InvalidConfig(
                "listeners",
                str(listener),
                "nobody can connect to that address, which peers are told where advertised.listeners is left out: set "
                "advertised.listeners to the host that peers reach this broker by",
            )
        if listener.host in EVERY_INTERFACE:
            raise InvalidConfig(
                key, str(listener), "nobody can connect to that address: name the host that peers reach this broker by"
            )
    return told
