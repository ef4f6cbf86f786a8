"""Which options a read or a sink was given, by the table: refused ones, unknown ones, those without effect there, and
what is handed to the client. Pure.

`given` are options with their names in lower case.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from strandline.client.errors import InvalidClientConfig
from strandline.client.settings import ClientSettings, ConsumerSettings, ProducerSettings, from_mapping, parse_addresses
from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.table import (
    OPTIONS,
    REFUSED_OPTIONS,
    SINK_SETTINGS,
    SOURCE_SETTINGS,
    USES,
    Use,
)
from strandline.spark_connector.options.values import MAX_INT

_LONGS = (
    "buffer.memory",
    "linger.ms",
    "max.block.ms",
    "metadata.max.age.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
)
"""Numbers that Kafka's clients have as longs. The others are ints, some of which travel in requests as such."""

_BY_NAME = {option.name.lower(): option for option in OPTIONS}


def check_names(given: Mapping[str, str], use: Use) -> list[str]:
    """A warning for each option that is unknown, or has no effect in this use; `client_settings` looks at those of
    Kafka's clients. Raises InvalidOption for one that a query must not set."""
    for refused in REFUSED_OPTIONS:
        if use in refused.uses and refused.name in given:
            raise InvalidOption(f"Option {refused.name} is not supported: {refused.why}")
    warnings = []
    # Also names that are for another use: who misspells one of those is told of the other mistake next.
    known = [option.name for option in OPTIONS]
    for key in given:
        option = _BY_NAME.get(key)
        if option is None and not key.startswith("kafka."):
            warnings.append(f"option {key} is unknown and has no effect{near(key, known)}")
        elif option is not None and use not in option.uses:
            warnings.append(f"option {option.name} is for {USES[option.uses]} and has no effect in {USES[use]}")
    return warnings


NO_OPTIONS = (
    "a table of Spark's catalog hands on no options: use CREATE TEMPORARY VIEW … USING strandline OPTIONS (…), also "
    "for INSERT INTO"
)


def bootstrap_servers(given: Mapping[str, str]) -> str:
    """Where sources and sinks find the cluster. Raises InvalidOption."""
    names = [name for name in ("kafka.bootstrap.servers", "servers") if name in given]
    servers = {given[name].strip() for name in names}
    if not servers or servers == {""}:
        raise InvalidOption(
            "Option 'kafka.bootstrap.servers' (or 'servers') must be specified: the host:port of one or more brokers"
            + ("" if given else f"; {NO_OPTIONS}")
        )
    if len(servers) > 1:
        raise InvalidOption("'servers' and 'kafka.bootstrap.servers' differ; give one of them")
    found = servers.pop()
    try:
        parse_addresses(found)
    except InvalidClientConfig:
        raise InvalidOption(
            f"{names[0]} must be host:port of one or more brokers (host:port,…), not {found!r}"
        ) from None
    return found


def client_settings(given: Mapping[str, str], use: Use) -> tuple[dict[str, str], list[str]]:
    """`kafka.*` options by our client's names, and a warning for each that it does not have. Raises InvalidOption, also
    where a value is one that the client refuses: it would say so on an executor, and by a name of its own."""
    passed_on = SINK_SETTINGS if use is Use.SINK else SOURCE_SETTINGS
    kind: type[ClientSettings] = ProducerSettings if use is Use.SINK else ConsumerSettings
    settings: dict[str, str] = {}
    warnings: list[str] = []
    for key, value in given.items():
        if not key.startswith("kafka.") or key in _BY_NAME:
            continue
        name = key.removeprefix("kafka.")
        if name in passed_on:
            _check_setting(kind, name, value)
            settings[name.replace(".", "_")] = value
        elif name != "security.protocol":
            warnings.append(f"option {key} has no effect: no such client setting{near(name, passed_on)}")
        elif value.strip().upper() != "PLAINTEXT":
            raise InvalidOption(f"kafka.security.protocol {value!r} is not supported; only PLAINTEXT is")
    return settings, warnings


def _check_setting(kind: type[ClientSettings], name: str, value: str) -> None:
    try:
        checked = from_mapping(kind, {"bootstrap_servers": "any:1", name: value})
    except InvalidClientConfig as error:  # its text begins with the name as it was given
        raise InvalidOption(f"kafka.{error}") from None
    found = getattr(checked, name.replace(".", "_"))
    if isinstance(found, int | float) and found > MAX_INT and name not in _LONGS:
        raise InvalidOption(f"kafka.{name}={value!r}: at most {MAX_INT}")


def near(name: str, known: Iterable[str]) -> str:
    """Words that name the nearest known one; empty where none is near."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""
