"""Whose quota counts: entities, Kafka's precedence among them, and what may be written into their znodes. Pure.

    /config/users/<user>/clients/<client id>           first
    /config/users/<user>/clients/<default>
    /config/users/<user>
    /config/users/<default>/clients/<client id>
    /config/users/<default>/clients/<default>
    /config/users/<default>
    /config/clients/<client id>
    /config/clients/<default>                          last
    /config/ips/<ip>, then /config/ips/<default>       of connections

The first one that has the key decides, for each key by itself, and what decides says who shares a quota: one of a user
all of the user's client ids, one of a user and client id that pair, one of a client id whoever uses it. So nobody
dodges a quota of a user by other client ids.

Names are percent-encoded in znodes (Kafka's `Sanitizer`), and here they stay so: `<default>` is nobody's name then.
Source: ClientQuotaManager.DefaultQuotaCallback and QuotaConfigs of Kafka 3.9, KIP-55, KIP-124, KIP-546, KIP-612.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from strandline.runtime.config.address_counts import is_address, plain_address
from strandline.runtime.config.values import LONG_MAX

DEFAULT = "<default>"
USERS, CLIENTS, IPS = "users", "clients", "ips"
KINDS = (USERS, CLIENTS, IPS)
"""Folders below /config."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
INT_MAX = 2**31 - 1


class QuotaKey(NamedTuple):
    """What may be limited. is_whole: a fraction of it is an error. lowest: that may be set (0: not even that)."""

    unit: str
    is_whole: bool
    lowest: int
    highest: int


OF_CLIENTS: Mapping[str, QuotaKey] = {
    PRODUCER_BYTE_RATE: QuotaKey("bytes per second", True, 1, LONG_MAX),
    CONSUMER_BYTE_RATE: QuotaKey("bytes per second", True, 1, LONG_MAX),
    REQUEST_PERCENTAGE: QuotaKey("percent of a broker's event loop", False, 0, LONG_MAX),
    CONTROLLER_MUTATION_RATE: QuotaKey("partitions created or deleted per second", False, 0, LONG_MAX),
}
"""Of users and client ids."""
OF_IPS: Mapping[str, QuotaKey] = {CONNECTION_CREATION_RATE: QuotaKey("new connections per second", True, 0, INT_MAX)}


class InvalidQuota(ValueError):
    """A key or a value that no quota has; says which, and what is allowed."""


class QuotaEntity(NamedTuple):
    """Percent-encoded names, or DEFAULT; None: not told apart by that. `ip` stands alone, one of the three is there."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def path(self) -> str:
        """Below /config, as announcements name it."""
        if self.ip is not None:
            return f"{IPS}/{self.ip}"
        of_client = f"{CLIENTS}/{self.client_id}"
        if self.user is None:
            return of_client
        return f"{USERS}/{self.user}" + ("" if self.client_id is None else f"/{of_client}")

    @property
    def keys(self) -> Mapping[str, QuotaKey]:
        return OF_CLIENTS if self.ip is None else OF_IPS


def entity_at(path: str) -> QuotaEntity | None:
    """The entity of a path below /config; None: it is none."""
    match path.split("/"):
        case ["ips", ip] if ip:
            return QuotaEntity(ip=ip)
        case ["clients", client_id] if client_id:
            return QuotaEntity(client_id=client_id)
        case ["users", user] if user:
            return QuotaEntity(user)
        case ["users", user, "clients", client_id] if user and client_id:
            return QuotaEntity(user, client_id)
    return None


def encoded(name: str) -> str:
    """As Kafka's Sanitizer has it: the name of a user or client id in a znode's path. Lone surrogates become '?'."""
    return quote(name.encode("utf-8", "replace"), safe="").replace("~", "%7E")


def decoded(name: str) -> str:
    """The name that a znode's stands for."""
    return unquote(name.replace("+", " "))


def encoded_ip(name: str) -> str:
    """The name of an address in a znode's path: its one spelling. What is no address is encoded as other names are."""
    address = plain_address(name)
    return address if is_address(address) else encoded(name)


def address_at(name: str) -> str:
    """Which address a znode with this name below /config/ips is of, as `encoded_ip` has it: others spell it in their
    own way, and Kafka also encodes it."""
    return DEFAULT if name == DEFAULT else encoded_ip(decoded(name))


def read_quota(entity: QuotaEntity, key: str, text: str) -> float:
    """What a znode or a request has for that key. InvalidQuota."""
    if entity.ip not in (None, DEFAULT) and not is_address(address_at(entity.ip)):
        # Kafka looks it up, once, when the quota is set. Tomorrow the name may lead to another address.
        raise InvalidQuota(f"{decoded(entity.ip)[:100]!r} is no IP address, and names are not looked up")
    known = entity.keys.get(key)
    if known is None:
        allowed = ", ".join(entity.keys)
        raise InvalidQuota(f"there is no quota {key!r} of {entity.path}; allowed is {allowed}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    lowest = max(known.lowest, 1) if _must_get_in(entity.ip) else known.lowest
    whole = math.isfinite(value) and abs(value - round(value)) < 1e-6
    is_low = value < lowest if known.is_whole else value <= lowest
    if not math.isfinite(value) or is_low or value > known.highest or (known.is_whole and not whole):
        kind = f"a whole number, {lowest} or more" if known.is_whole else f"a number above {lowest}"
        raise InvalidQuota(f"{key}={text[:40]!r} of {entity.path}: allowed is {kind} ({known.unit})")
    return round(value) if known.is_whole else value


def _must_get_in(ip: str | None) -> bool:
    """With 0 no connection is served. An address may be kept out so, but not all of them, nor a broker's own machine:
    nobody would be left who could remove that."""
    return ip is not None and (ip == DEFAULT or ipaddress.ip_address(address_at(ip)).is_loopback)


def quota_text(value: float) -> str:
    """As it stands in a znode, and is told: the shortest text that is read as this number again."""
    return str(int(value)) if value == int(value) else repr(value)


Bounds = Mapping[QuotaEntity, float]
"""Of one key."""


class Decided(NamedTuple):
    """Which entity's quota counts for a client, and who shares it: user and client id, each "" where all do."""

    entity: QuotaEntity
    bound: float
    user: str
    client_id: str


def decide(bounds: Bounds, user: str, client_id: str) -> Decided | None:
    """Of a client with these encoded names; None: no quota counts for it. See the module."""
    for entity in (
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT),
        QuotaEntity(user),
        QuotaEntity(DEFAULT, client_id),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT),
        QuotaEntity(client_id=client_id),
        QuotaEntity(client_id=DEFAULT),
    ):
        bound = bounds.get(entity)
        if bound is not None:
            of_user = "" if entity.user is None else user
            return Decided(entity, bound, of_user, "" if entity.client_id is None else client_id)
    return None


def decide_ip(bounds: Bounds, ip: str) -> float | None:
    """Of connections from there; None: no quota counts."""
    bound = bounds.get(QuotaEntity(ip=ip))
    return bounds.get(QuotaEntity(ip=DEFAULT)) if bound is None else bound
