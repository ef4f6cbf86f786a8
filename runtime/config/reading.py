"""From key and text to a broker's configuration, which is checked as a whole.

Rules: a value that is not allowed raises `InvalidConfig`, naming key, value and what is allowed. A key that nobody
knows is a warning that names the nearest known one; a key that this build does not act on is a warning, too, since
believing in it could cost data. Warnings go into `BrokerConfig.warnings`; whoever starts the broker prints them.
"""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from strandline.runtime.config.broker import BROKER_KEYS, LATER_PREFIXES, REPLACED_KEYS, BrokerConfig
from strandline.runtime.config.contradictions import contradictions
from strandline.runtime.config.listener_keys import broker_key, listener_that_is_not_there
from strandline.runtime.config.listeners import advertised, parse_address, parse_listeners, parse_protocol_map
from strandline.runtime.config.values import InvalidConfig, Value

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


def load_broker_config(given: Mapping[str, str]) -> BrokerConfig:
    """The broker's configuration from key → text, as `parse_properties` returns it. InvalidConfig: see the module."""
    values: dict[str, Value] = {key.attribute: key.default for key in BROKER_KEYS.values()}
    warnings: list[str] = []
    explicit: list[str] = []
    of_listeners: dict[str, int] = {}
    for name, text in given.items():
        key = broker_key(name)
        if key is None:
            warnings.append(_unknown(name))
            continue
        if name in BROKER_KEYS:
            values[key.attribute] = key.parse(text)
        elif key.honoured:
            of_listeners[name] = key.parse(text)
        explicit.append(name)
        if key.without_effect:
            warnings.append(f"{name}={text.strip()} has no effect: {key.without_effect}")
    _resolve_identity(values)
    _resolve_listeners(values)
    _resolve_times(values)
    _resolve_folders(values, given)
    for contradiction in contradictions(values):
        raise contradiction.error
    warnings += _doubts(values, given)
    config = BrokerConfig(**values, explicit=tuple(explicit), of_listeners=of_listeners)
    warnings += [
        f"{name} has no effect: listeners has no {listener.upper()}"
        for name in of_listeners
        if (listener := listener_that_is_not_there(name, config)) is not None
    ]
    return msgspec.structs.replace(config, warnings=tuple(warnings))


def _unknown(name: str) -> str:
    if name in REPLACED_KEYS:
        return f"{name} is not honoured: write {REPLACED_KEYS[name]} instead"
    if name.startswith(LATER_PREFIXES):
        return f"{name} is not honoured yet by this version"
    near = difflib.get_close_matches(name, BROKER_KEYS, n=1)
    return f"unknown key {name} is ignored" + (f"; did you mean {near[0]}?" if near else "")


# --- from what was written to what counts ------------------------------------------------------------------------

_ZOOKEEPER_CONNECT = re.compile(r"[^\s,/:]+(:[0-9]{1,5})?(,[^\s,/:]+(:[0-9]{1,5})?)*(/[^\s]*)?|(\[[^\]]+\].*)")


def _resolve_identity(values: dict[str, Value]) -> None:
    if values["broker_id"] < 0:
        raise InvalidConfig("broker.id", values["broker_id"], "give this broker a number of its own, 0 or more")
    connect = values["zookeeper_connect"]
    if connect is None:
        raise InvalidConfig("zookeeper.connect", "", "required: where ZooKeeper is, for example localhost:2181")
    if _ZOOKEEPER_CONNECT.fullmatch(connect) is None:
        raise InvalidConfig("zookeeper.connect", connect, "must be host:port,host:port… with an optional /chroot")
    if values["zookeeper_connection_timeout_ms"] is None:
        values["zookeeper_connection_timeout_ms"] = values["zookeeper_session_timeout_ms"]


def _resolve_listeners(values: dict[str, Value]) -> None:
    protocols = parse_protocol_map("listener.security.protocol.map", values["listener_security_protocol_map"])
    listeners = parse_listeners("listeners", values["listeners"], protocols)
    values["listener_security_protocol_map"] = protocols
    values["listeners"] = listeners
    values["advertised_listeners"] = advertised(values["advertised_listeners"], listeners, protocols)
    values["admin_listener"] = parse_address("admin.listener", values["admin_listener"])
    names = [listener.name for listener in listeners]
    wanted = values["inter_broker_listener_name"]
    if wanted is None:
        values["inter_broker_listener_name"] = "PLAINTEXT" if "PLAINTEXT" in names else names[0]
    elif wanted.upper() in names:
        values["inter_broker_listener_name"] = wanted.upper()
    else:
        raise InvalidConfig("inter.broker.listener.name", wanted, "must be one of listeners: " + ", ".join(names))


def _resolve_times(values: dict[str, Value]) -> None:
    """The most precise key that was set wins: ms before minutes before hours. −1 stays −1 (no limit)."""
    if values["log_retention_ms"] is None:
        minutes, hours = values["log_retention_minutes"], values["log_retention_hours"]
        coarse, unit_ms = (hours, _MS_PER_HOUR) if minutes is None else (minutes, _MS_PER_MINUTE)
        values["log_retention_ms"] = -1 if coarse == -1 else coarse * unit_ms
    if values["log_retention_ms"] == 0:
        raise InvalidConfig("log.retention.ms", 0, "allowed is -1 (no limit) or 1 ms or more")
    if values["log_roll_ms"] is None:
        values["log_roll_ms"] = values["log_roll_hours"] * _MS_PER_HOUR
    if values["log_roll_jitter_ms"] is None:
        values["log_roll_jitter_ms"] = values["log_roll_jitter_hours"] * _MS_PER_HOUR
    if values["log_flush_interval_ms"] is None:
        values["log_flush_interval_ms"] = values["log_flush_scheduler_interval_ms"]


def _resolve_folders(values: dict[str, Value], given: Mapping[str, str]) -> None:
    if values["log_dirs"] is None:
        values["log_dirs"] = (values["log_dir"],)
    elif "log.dir" in given:
        raise InvalidConfig("log.dir", values["log_dir"], "set log.dirs or log.dir, not both")
    folders: list[str] = []
    for folder in values["log_dirs"]:
        normal = posixpath.normpath(folder)
        if not posixpath.isabs(folder):
            raise InvalidConfig("log.dirs", folder, "must be absolute: a relative folder depends on where one starts")
        if normal in folders:
            raise InvalidConfig("log.dirs", folder, "stands there twice")
        folders.append(normal)
    values["log_dirs"] = tuple(folders)
    values["log_folder"] = None if values["log_folder"] is None else Path(values["log_folder"])


def _doubts(values: dict[str, Value], given: Mapping[str, str]) -> Iterator[str]:
    for listener in values["listeners"]:
        if not listener.is_loopback:
            yield f"listener {listener} takes connections from other machines without encryption or password"
    bound = {listener.name: listener for listener in values["listeners"]}
    for told in values["advertised_listeners"]:
        if bound[told.name].is_loopback and not told.is_loopback:
            yield (
                f"others are told {told}, but listener {bound[told.name]} is reached from this machine or container "
                "only: bind it to 0.0.0.0 or to an address of the network"
            )
    if "log.dirs" not in given and "log.dir" not in given:
        yield f"log.dirs is not set: records go to {values['log_dir']}, which may be emptied when the machine starts"
    if values["min_insync_replicas"] > values["default_replication_factor"]:
        yield (
            f"min.insync.replicas={values['min_insync_replicas']} is above default.replication.factor="
            f"{values['default_replication_factor']}: acks=all fails on topics created with the defaults"
        )
    if values["message_max_bytes"] > values["socket_request_max_bytes"]:
        yield "message.max.bytes is above socket.request.max.bytes: batches of that size never arrive"
