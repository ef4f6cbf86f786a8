"""What DescribeConfigs says of a topic or a broker: each key with its value, and all places where one stands. Pure.

The order is Kafka's (KIP-226): the topic's own, `/config/brokers/<id>`, `/config/brokers/<default>`, the broker's file,
the built-in default; the first one counts. Where other keys stand in for one (`log.retention.hours` for
`log.retention.ms`), they are named only behind a place of that key itself; Kafka does so, too.

What stands in ZooKeeper and does not count is named, else nobody finds what is to be mended. Where one asks what is
set for a topic or for all brokers it is shown as it stands. Values of one broker are what counts, since programs go by
them; there it is named behind the places that count, out of the order. So that this is seen of a key without a default,
too, one that has no value stands between them then. What is not known to this version is named without its value, which
may be a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import dropwhile

from strandline.protocol.messages import (
    ConfigSource,
    ConfigType,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from strandline.runtime.config.broker import BROKER_KEYS, BrokerConfig
from strandline.runtime.config.dynamic import Layer, with_dynamic
from strandline.runtime.config.keys import ConfigKey
from strandline.runtime.config.listener_keys import broker_key
from strandline.runtime.config.topic import TOPIC_KEYS, read_topic_config
from strandline.runtime.config.values import Value
from strandline.runtime.network import Address

STAND_INS = {
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.hours",),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
}
"""Key → those that count where it is left out, in their order."""

NOT_KNOWN = "Not known to this version: without effect."

_TYPES = {
    "bool": ConfigType.BOOLEAN,
    "int": ConfigType.INT,
    "long": ConfigType.LONG,
    "double": ConfigType.DOUBLE,
    "string": ConfigType.STRING,
    "list": ConfigType.LIST,
}
_KAFKAS_TYPES = {
    "advertised.listeners": ConfigType.STRING,
    "listener.security.protocol.map": ConfigType.STRING,
    "listeners": ConfigType.STRING,
    "log.dirs": ConfigType.STRING,
    "max.connections.per.ip.overrides": ConfigType.STRING,
    "offsets.commit.required.acks": ConfigType.SHORT,
    "offsets.topic.replication.factor": ConfigType.SHORT,
    "transaction.state.log.replication.factor": ConfigType.SHORT,
}
"""Where Kafka calls a key something else than its kind says."""


def type_of(key: ConfigKey) -> ConfigType:
    return _KAFKAS_TYPES.get(key.name) or _TYPES[key.kind.name]


def text_of(value: Value) -> str | None:
    """As one would write it in a file, numbers as Java writes them; None where there is none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple) and not isinstance(value, Address):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{name}:{each}" for name, each in value.items())
    return str(value)


def _java_double(value: float) -> str:
    """Double.toString: a power of ten outside of 0.001 to 10,000,000, and always a fraction."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    shown = "".join(map(str, digits)).rstrip("0")
    power = len(digits) + int(exponent) - 1
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{power}"


class BrokerView:
    """A broker's configuration with all its places. layers: `<default>`, then the broker's own."""

    def __init__(self, static: BrokerConfig, layers: Sequence[Layer]) -> None:
        reading = with_dynamic(static, layers)
        self.config = reading.config
        default, own = reading.counting
        self._for_all, self._own = ({k: v.strip() for k, v in (each.overrides or {}).items()} for each in layers)
        in_file = {name: text_of(_value(static, name)) for name in static.explicit}
        built_in = {name: text_of(key.default) for name, key in BROKER_KEYS.items() if key.default is not None}
        self._places = (
            (own, ConfigSource.DYNAMIC_BROKER),
            (default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (in_file, ConfigSource.STATIC_BROKER),
            (built_in, ConfigSource.DEFAULT),
        )
        self._in_vain = (
            (_in_vain(self._own, own), ConfigSource.DYNAMIC_BROKER),
            (_in_vain(self._for_all, default), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        )

    def places(self, name: str) -> list[DescribeConfigsSynonym]:
        """Where a broker's key stands and counts, unless a higher one does, too: the highest first."""
        names = (name, *STAND_INS.get(name, ()))
        found = (
            DescribeConfigsSynonym(each, values[each], source)
            for values, source in self._places
            for each in names
            if each in values
        )
        return list(dropwhile(lambda place: place.name != name, found))

    def places_in_vain(self, name: str) -> list[DescribeConfigsSynonym]:
        """Where a broker's key stands and does not count."""
        return [
            DescribeConfigsSynonym(name, values[name], source) for values, source in self._in_vain if name in values
        ]

    def of_this_broker(self) -> Iterator[DescribeConfigsResourceResult]:
        for name in dict.fromkeys((*BROKER_KEYS, *self.config.of_listeners, *self._own, *self._for_all)):
            if (key := broker_key(name)) is not None:
                value = text_of(_value(self.config, name))
                yield _result(key, value, self.places(name), _is_fixed(key), self.places_in_vain(name))
        yield from _unknown(broker_key, self._own, ConfigSource.DYNAMIC_BROKER)

    def of_all_brokers(self) -> Iterator[DescribeConfigsResourceResult]:
        """What is set for all of them, and nothing else."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        for name, text in self._for_all.items():
            if (key := broker_key(name)) is not None:
                yield _result(key, text, [DescribeConfigsSynonym(name, text, source)], _is_fixed(key))
        yield from _unknown(broker_key, self._for_all, source)

    def of_topic(self, overrides: Mapping[str, str]) -> Iterator[DescribeConfigsResourceResult]:
        """overrides: the topic's own. One that cannot be used is shown as it stands; the others as they count then."""
        config = read_topic_config(self.config, overrides).config
        for name, key in TOPIC_KEYS.items():
            broker_name = (key.broker_attribute or "").replace("_", ".")
            places = self.places(broker_name)
            value = text_of(getattr(config, key.attribute))
            if name in overrides:
                value = overrides[name].strip()
                places.insert(0, DescribeConfigsSynonym(name, value, ConfigSource.TOPIC))
            yield _result(key, value, places, False, self.places_in_vain(broker_name))
        yield from _unknown(TOPIC_KEYS.get, overrides, ConfigSource.TOPIC)


def is_read_only(name: str) -> bool:
    """A broker's key that counts as it is in the file, until the next start; False also where it is not known."""
    key = broker_key(name)
    return key is not None and _is_fixed(key)


def _value(config: BrokerConfig, name: str) -> Value:
    return getattr(config, BROKER_KEYS[name].attribute) if name in BROKER_KEYS else config.of_listeners.get(name)


def _in_vain(standing: Mapping[str, str], counting: Mapping[str, str]) -> dict[str, str]:
    """Known keys only: the value of another one may be a password."""
    return {name: text for name, text in standing.items() if name not in counting and broker_key(name) is not None}


def _is_fixed(key: ConfigKey) -> bool:
    return not (key.dynamic and key.honoured)


def _result(
    key: ConfigKey,
    value: str | None,
    places: list[DescribeConfigsSynonym],
    read_only: bool,
    in_vain: Sequence[DescribeConfigsSynonym] = (),
) -> DescribeConfigsResourceResult:
    source = places[0].source if places else ConfigSource.DEFAULT
    is_order_clear = not places or not in_vain or places[-1].source == ConfigSource.DEFAULT
    between = [] if is_order_clear else [DescribeConfigsSynonym(in_vain[0].name, None, ConfigSource.DEFAULT)]
    every_place = [*places, *between, *in_vain]
    return DescribeConfigsResourceResult(
        key.name, value, read_only, False, source, every_place, type_of(key), key.meaning
    )


def _unknown(
    key_of: Callable[[str], ConfigKey | None], standing: Mapping[str, str], source: ConfigSource
) -> Iterator[DescribeConfigsResourceResult]:
    for name in standing:
        if key_of(name) is None:
            places = [DescribeConfigsSynonym(name, None, source)]
            yield DescribeConfigsResourceResult(name, None, False, True, source, places, ConfigType.UNKNOWN, NOT_KNOWN)
