"""What ZooKeeper has over a broker's own file, and who hears when it changes: pure.

`/config/brokers/<id>` comes before `/config/brokers/<default>`, that before the file, and that before the built-in
default (KIP-226). Only keys that the table calls dynamic count there. Each key stands alone: one that is not served is
named, never with its value, which may be a password. Where a value cannot be used, or excludes another one, the next
lower one counts, and where it is the default of a topic's key nobody knows what was meant: it is `undecided`, and
nothing is deleted by it (`topic`). So is every such key while a whole znode cannot be read, unless a higher one says
it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from strandline.runtime.config.broker import BROKER_KEYS, LATER_PREFIXES, BrokerConfig
from strandline.runtime.config.contradictions import Contradiction, contradictions
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
    """config: what counts. counting: of each layer, key → text of what counts unless a higher one says it, too.
    unusable: named with their values, none of which is a secret."""

    config: BrokerConfig
    counting: tuple[dict[str, str], ...]
    not_served: tuple[UnservedKey, ...]
    unusable: tuple[InvalidConfig, ...]


def with_dynamic(static: BrokerConfig, layers: Sequence[Layer]) -> DynamicReading:
    """static: of the broker's file. layers: the lowest first."""
    found: list[dict[str, Value]] = []
    undecided: set[str] = set()
    not_served: list[UnservedKey] = []
    unusable: list[InvalidConfig] = []
    for layer in layers:
        found.append({})
        if layer.overrides is None:
            undecided |= TOPIC_DEFAULTS
            continue
        for name, text in layer.overrides.items():
            key, why = broker_key(name), why_not_served(name, layer, static)
            if key is None or why is not None:
                not_served.append(UnservedKey(layer.path, name, why or ""))
                continue
            try:
                found[-1][name] = _parsed(key, text, static)
                undecided.discard(key.attribute)
            except InvalidConfig as error:
                unusable.append(error)
                undecided.add(key.attribute)
    for contradiction in _without_contradictions(static, found):
        unusable.append(contradiction.error)
        undecided |= {BROKER_KEYS[name].attribute for name in contradiction.keys}
    config = msgspec.structs.replace(_merged(static, found), undecided=frozenset(undecided & TOPIC_DEFAULTS))
    counting = tuple(
        {name: (layer.overrides or {})[name] for name in values} for layer, values in zip(layers, found, strict=True)
    )
    return DynamicReading(config, counting, tuple(not_served), tuple(unusable))


def _merged(static: BrokerConfig, found: Sequence[Mapping[str, Value]]) -> BrokerConfig:
    values = {name: value for layer in found for name, value in layer.items()}
    of_broker = {BROKER_KEYS[name].attribute: value for name, value in values.items() if name in BROKER_KEYS}
    of_listeners = {name: value for name, value in values.items() if name not in BROKER_KEYS}
    return msgspec.structs.replace(static, **of_broker, of_listeners=static.of_listeners | of_listeners)


def _without_contradictions(static: BrokerConfig, found: Sequence[dict[str, Value]]) -> Iterator[Contradiction]:
    """Of two that exclude each other, what the highest layer says goes, until none are left."""
    while contradiction := next(contradictions(msgspec.structs.asdict(_merged(static, found))), None):
        yield contradiction
        for values in reversed(found):
            if to_drop := [name for name in contradiction.keys if name in values]:
                for name in to_drop:
                    del values[name]
                break
        else:
            return  # the file's own, which a start refuses


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
