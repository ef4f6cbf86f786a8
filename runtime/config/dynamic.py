"""What ZooKeeper has over a broker's own file, and who hears when it changes: pure.

`/config/brokers/<id>` comes before `/config/brokers/<default>`, that before the file, and that before the built-in
default (KIP-226). Only keys that the table calls dynamic count there. Each key stands alone: one that is not served is
named, never with its value, which may be a password. Where a value cannot be used the next lower one counts, and where
it is the default of a topic's key nobody knows what was meant: it is `undecided`, and nothing is deleted by it
(`topic`). So is every such key while a whole znode cannot be read, unless a higher one says it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from strandline.runtime.config.broker import BROKER_KEYS, LATER_PREFIXES, BrokerConfig
from strandline.runtime.config.contradictions import contradictions
from strandline.runtime.config.keys import ConfigKey, attribute_of
from strandline.runtime.config.listener_keys import broker_key, listener_that_is_not_there
from strandline.runtime.config.listeners import advertised
from strandline.runtime.config.topic import TOPIC_KEYS
from strandline.runtime.config.values import InvalidConfig, Value

ONE_BROKERS = frozenset({"advertised.listeners"})
"""Of no use in `/config/brokers/<default>`: brokers differ in it."""
TOPIC_DEFAULTS = frozenset(key.broker_attribute for key in TOPIC_KEYS.values() if key.broker_attribute)
_DYNAMIC = tuple(key for key in BROKER_KEYS.values() if key.dynamic and key.honoured)


_NO_TIER = "Kafka's remote tier is not served"
_KAFKAS = {
    "remote.": _NO_TIER,
    "log.local.retention.": _NO_TIER,
    "compression.": "the level of each codec is fixed here",
    "principal.builder.class": "clients are not asked who they are yet",
    "replica.alter.log.dirs.io.": "replicas are not moved between the log directories of a broker",
}
"""Beginnings of keys that are dynamic in Kafka 3.9 and that are not in the table → why they have no effect."""


class Layer(NamedTuple):
    """One znode. overrides: key → text, None where it cannot be read."""

    path: str
    overrides: Mapping[str, str] | None
    is_of_one: bool
    """Of this broker, not of all."""


class UnservedKey(NamedTuple):
    path: str
    key: str
    why: str


class DynamicReading(NamedTuple):
    """config: what counts. unusable: named with their values, none of which is a secret."""

    config: BrokerConfig
    not_served: tuple[UnservedKey, ...]
    unusable: tuple[InvalidConfig, ...]


def with_dynamic(static: BrokerConfig, layers: Sequence[Layer]) -> DynamicReading:
    """static: of the broker's file. layers: the lowest first."""
    values: dict[str, Value] = {}
    of_listeners = dict(static.of_listeners)
    undecided: set[str] = set()
    not_served: list[UnservedKey] = []
    unusable: list[InvalidConfig] = []
    for layer in layers:
        if layer.overrides is None:
            undecided |= TOPIC_DEFAULTS
            continue
        for name, text in layer.overrides.items():
            key, why = broker_key(name), why_not_served(name, layer, static)
            if key is None or why is not None:
                not_served.append(UnservedKey(layer.path, name, why or ""))
                continue
            try:
                value = _parsed(key, text, static)
                if name in BROKER_KEYS:
                    values[key.attribute] = value
                else:
                    of_listeners[name] = value
                undecided.discard(key.attribute)
            except InvalidConfig as error:
                unusable.append(error)
                undecided.add(key.attribute)
    for contradiction in contradictions(msgspec.structs.asdict(static) | values):
        unusable.append(contradiction.error)
        for name in contradiction.keys:
            values.pop(BROKER_KEYS[name].attribute, None)
            undecided.add(BROKER_KEYS[name].attribute)
    undecided &= TOPIC_DEFAULTS
    config = msgspec.structs.replace(static, **values, of_listeners=of_listeners, undecided=frozenset(undecided))
    return DynamicReading(config, tuple(not_served), tuple(unusable))


def usable(layer: Layer, static: BrokerConfig) -> dict[str, str]:
    """Those of its overrides that count, each looked at by itself; key → text."""
    return {name: text for name, text in (layer.overrides or {}).items() if _is_usable(name, text, layer, static)}


def _is_usable(name: str, text: str, layer: Layer, static: BrokerConfig) -> bool:
    key = broker_key(name)
    if key is None or why_not_served(name, layer, static) is not None:
        return False
    try:
        _parsed(key, text, static)
    except InvalidConfig:
        return False
    return True


def why_not_served(name: str, layer: Layer, static: BrokerConfig) -> str | None:
    """Why a key has no effect in that znode; None where it has. static: of the broker's file."""
    key = broker_key(name)
    if key is None and name.startswith(LATER_PREFIXES):
        return "not honoured yet by this version"
    if key is None and (reasons := [why for begin, why in _KAFKAS.items() if name.startswith(begin)]):
        return reasons[0]
    if key is None:
        return f"not known to this version{_meant(name)}"
    if key.without_effect:
        return key.without_effect
    if not key.dynamic:
        return "read from the broker's file only"
    if name in ONE_BROKERS and not layer.is_of_one:
        return "counts for one broker only, in /config/brokers/<id>"
    if layer.is_of_one and (listener := listener_that_is_not_there(name, static)) is not None:
        return f"this broker has no listener {listener.upper()}"
    return None


def _meant(name: str) -> str:
    """Who writes a key for brokers that is none may mean that of topics, or has mistyped it."""
    topic_key = TOPIC_KEYS.get(name)
    if topic_key is not None and topic_key.broker_attribute is not None:
        return f"; topics have it, and brokers its default: {topic_key.broker_attribute.replace('_', '.')}"
    near = difflib.get_close_matches(name, BROKER_KEYS, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _parsed(key: ConfigKey, text: str, static: BrokerConfig) -> Value:
    value = key.parse(text)
    if key.name == "log.retention.ms" and value == 0:
        raise InvalidConfig(key.name, 0, "allowed is -1 (no limit) or 1 ms or more")
    if key.name == "advertised.listeners":
        return advertised(value, static.listeners, static.listener_security_protocol_map)
    return value


class CurrentConfig:
    """The broker's configuration as it is now. Who works by a dynamic key reads `value` each time, or, where something
    was made of the key, watches it. What is handed a BrokerConfig has the values that the broker began with."""

    def __init__(self, value: BrokerConfig) -> None:
        self.value = value
        self._watches: list[tuple[tuple[str, ...], Callable[[], None]]] = []

    def watch(self, told: Callable[[], None], *attributes: object) -> None:
        """told: called after one of these changed, all named through the class (`BrokerConfig.max_connections`)."""
        self._watches.append((tuple(map(attribute_of, attributes)), told))

    def change(self, after: BrokerConfig) -> list[str]:
        """Takes over what may change while the broker runs. Returns the keys that have to wait for its next start."""
        before = self.value
        later = [key for key in _DYNAMIC if not key.live and not _same(before, after, key.attribute)]
        kept = {key.attribute: getattr(before, key.attribute) for key in later}
        self.value = msgspec.structs.replace(after, **kept)
        for attributes, told in self._watches:
            if not all(_same(before, self.value, attribute) for attribute in attributes):
                told()
        return [key.name for key in later]


def _same(before: BrokerConfig, after: BrokerConfig, attribute: str) -> bool:
    return bool(getattr(before, attribute) == getattr(after, attribute))
