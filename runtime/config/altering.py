"""What AlterConfigs and IncrementalAlterConfigs make of the overrides that stand in a znode. Pure.

Keys that another Kafka wrote and that this version does not know stay as they are, unless somebody deletes them by
name. What stands there already and cannot be used does not hinder other changes; nothing of that kind is added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    AlterableConfig,
    ConfigOperation,
    ConfigType,
    IncrementalAlterableConfig,
)
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.describing import text_of, type_of
from strandline.runtime.config.dynamic import Layer, why_not_served, with_dynamic
from strandline.runtime.config.keys import ConfigKey
from strandline.runtime.config.listener_keys import broker_key
from strandline.runtime.config.listeners import Listener
from strandline.runtime.config.topic import REMOTE_STORAGE, TOPIC_KEYS, read_topic_config
from strandline.runtime.config.values import InvalidConfig, check_length

Overrides = Mapping[str, str]


class Entity(NamedTuple):
    """Whose overrides: a topic's or a broker's.

    key_of: by name; None where it has no such key. below: attribute → what counts where it has no override of its own.
    check: raises for what may not be made of the first, by changes of these keys, the second.
    """

    key_of: Callable[[str], ConfigKey | None]
    below: Callable[[str], object]
    check: Callable[[Overrides, Overrides, Collection[str]], None]


def replaced(entity: Entity, standing: Overrides, wanted: Sequence[AlterableConfig]) -> dict[str, str]:
    """AlterConfigs. BrokerError."""
    _check_once(each.name for each in wanted)
    values = {each.name: _given(each.name, each.value) for each in wanted}
    kept = {name: text for name, text in standing.items() if entity.key_of(name) is None}
    after = kept | values
    return _checked(entity, standing, after, [name for name in after if after[name] != kept.get(name)])


def incremented(entity: Entity, standing: Overrides, changes: Sequence[IncrementalAlterableConfig]) -> dict[str, str]:
    """IncrementalAlterConfigs. BrokerError."""
    _check_once(change.name for change in changes)
    after = dict(standing)
    for change in changes:
        name = change.name
        match change.config_operation:
            case ConfigOperation.SET:
                after[name] = _given(name, change.value)
            case ConfigOperation.DELETE:
                after.pop(name, None)  # whatever it was: who asks again after a lost answer is not refused
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                after[name] = _listed(entity, standing, change)
            case operation:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"configuration {name}: operation {operation} is unknown")
    touched = [change.name for change in changes if change.config_operation != ConfigOperation.DELETE]
    return _checked(entity, standing, after, touched)


def _checked(entity: Entity, before: Overrides, after: dict[str, str], touched: Sequence[str]) -> dict[str, str]:
    """What is to stand there. BrokerError."""
    entity.check(before, after, touched)
    for name in touched:
        try:
            check_length(name, after[name])
        except InvalidConfig as error:
            raise _refused(error) from None
    return after


def _check_once(names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"configuration {name} stands in the request twice")


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"configuration {name} has no value: give one, or delete the key")
    return value


def _listed(entity: Entity, standing: Overrides, change: IncrementalAlterableConfig) -> str:
    key = entity.key_of(change.name)
    if key is None:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"configuration {change.name}: there is no such key")
    given = _given(change.name, change.value)
    if type_of(key) is not ConfigType.LIST:
        raise _refused(InvalidConfig(key.name, given, "it is no list: set it instead of adding to it or taking away"))
    now = _parts(standing[key.name] if key.name in standing else text_of(entity.below(key.attribute)) or "")
    parts = _parts(given)
    if change.config_operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys((*now, *parts)))
    return ",".join(part for part in now if part not in parts)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _refused(error: InvalidConfig) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_CONFIG, str(error))


# --- topics ------------------------------------------------------------------------------------------------------


def topic_entity(config: BrokerConfig) -> Entity:
    """config: of the broker, as it counts now."""
    defaults = read_topic_config(config, {}).config

    def unusable(overrides: Overrides) -> Sequence[InvalidConfig]:
        return read_topic_config(config, {name: overrides[name] for name in TOPIC_KEYS if name in overrides}).unusable

    def check(before: Overrides, after: Overrides, touched: Collection[str]) -> None:
        if before.get(REMOTE_STORAGE) != after.get(REMOTE_STORAGE):
            why = "Kafka's remote tier is not served: change that with the Kafka that began it"
            raise _refused(InvalidConfig(REMOTE_STORAGE, after.get(REMOTE_STORAGE, ""), why))
        for name in touched:
            if name not in TOPIC_KEYS and before.get(name) != after[name]:
                raise _refused(read_topic_config(config, {name: after[name]}).unknown[0])
        stood = set(map(str, unusable(before)))
        for error in unusable(after):
            if error.key in touched or str(error) not in stood:
                raise _refused(error)

    return Entity(TOPIC_KEYS.get, lambda attribute: getattr(defaults, attribute), check)


# --- brokers -----------------------------------------------------------------------------------------------------


def broker_entity(
    static: BrokerConfig, layers: Sequence[Layer], index: int, *, is_inter_broker: bool = False
) -> Entity:
    """static: of the broker's file. index: which of its layers is to change. is_inter_broker: a broker asks, and may
    have others go elsewhere to reach this one. What may not be is INVALID_REQUEST, as Kafka says of brokers, and not
    INVALID_CONFIG, as it says of topics (DynamicBrokerConfig, ZkAdminManager)."""
    below = with_dynamic(static, layers[:index]).config

    def with_overrides(overrides: Overrides) -> list[Layer]:
        return [layer._replace(overrides=overrides) if n == index else layer for n, layer in enumerate(layers)]

    def check(before: Overrides, after: Overrides, touched: Collection[str]) -> None:
        for name in touched:
            why = why_not_served(name, layers[index], static)
            if why is not None and before.get(name) != after.get(name):  # without the value: it may be a password
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"configuration {name}: {why}")
        standing, wanted = (with_dynamic(static, with_overrides(each)) for each in (before, after))
        stood = {str(error) for error in standing.unusable}
        for error in wanted.unusable:
            if error.key in touched or str(error) not in stood:
                raise BrokerError(ErrorCode.INVALID_REQUEST, str(error))
        if not is_inter_broker:
            _check_inter_broker_address(static, standing.config, wanted.config)

    return Entity(broker_key, lambda attribute: getattr(below, attribute), check)


def _check_inter_broker_address(static: BrokerConfig, standing: BrokerConfig, wanted: BrokerConfig) -> None:
    """Brokers tell their key to whoever is there (`broker/membership/broker_key`): a client may not say where that is.
    Back to what the broker's file says it may."""
    before, after = _inter_broker_listener(standing), _inter_broker_listener(wanted)
    if after not in (before, _inter_broker_listener(static)):
        text = (
            f"configuration advertised.listeners: {before} is where brokers reach this one, and no client may change "
            "that: change it in the broker's file, delete this key where it is set, and restart the broker"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)


def _inter_broker_listener(config: BrokerConfig) -> Listener:
    return next(each for each in config.advertised_listeners if each.name == config.inter_broker_listener_name)
