"""Keys of one listener, as Kafka names them: `listener.name.<listener, in lower case>.<key>`. Pure.

Such a key bounds that listener beside the broker's own bound, which counts for all of them together. It may stand in
the broker's file and in ZooKeeper. Their values are no attributes of BrokerConfig, since their names depend on the
configuration: `BrokerConfig.of_listeners` has them by the whole name of the key.
"""

from __future__ import annotations

import re

from strandline.runtime.config.broker import BROKER_KEYS, BrokerConfig
from strandline.runtime.config.keys import ConfigKey

MAX_CONNECTIONS = "listener.name.{}.max.connections"
OF_LISTENERS = {
    MAX_CONNECTIONS: "Open connections of that listener; max.connections counts for all of them together.",
}
"""What is served → its meaning."""
_NAME = re.compile(r"listener\.name\.([a-z0-9_.-]+?)\.(max\.connections|num\.network\.threads)")
_WHY_NOT = {"num.network.threads": "processors are shared by all listeners: set num.network.threads"}


def max_connections_of(listener: str) -> str:
    """The key that bounds the connections of a listener."""
    return MAX_CONNECTIONS.format(listener.lower())


def broker_key(name: str) -> ConfigKey | None:
    """A key of the broker, or of one of its listeners; None where it is not known."""
    match = _NAME.fullmatch(name)
    if match is None:
        return BROKER_KEYS.get(name)
    base, why_not = BROKER_KEYS[match[2]], _WHY_NOT.get(match[2], "")
    doc = OF_LISTENERS.get(name.replace(match[1], "{}", 1), base.doc)
    return base._replace(name=name, default=None, doc=doc, honoured=not why_not, why_not=why_not)


def listener_that_is_not_there(name: str, config: BrokerConfig) -> str | None:
    """The listener that a key of one names and that this broker does not have."""
    match = _NAME.fullmatch(name)
    if match is None or match[1] in {listener.name.lower() for listener in config.listeners}:
        return None
    return match[1]
