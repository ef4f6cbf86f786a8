"""Reading a configuration: the properties file, the broker's keys, a topic's keys. The one module to import for them.

* `table`, `table_logs`  the table: one row per key
* `broker`, `topic`      the resolved values as typed attributes
* `values`, `listeners`  kinds, validators, listeners
* `contradictions`              values that exclude each other
* `dynamic`, `standing`  what ZooKeeper has over the broker's file
* `reference`                   the page `docs/configuration.md`, made from the table

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

from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.contradictions import contradictions
from strandline.runtime.config.dynamic import DynamicReading, Layer, with_dynamic
from strandline.runtime.config.listeners import Listener, advertised, parse_address, parse_listeners, parse_protocol_map
from strandline.runtime.config.reference import reference
from strandline.runtime.config.table_logs import BROKER_KEY, BROKER_KEYS, LATER_PREFIXES, REPLACED_KEYS
from strandline.runtime.config.topic import (
    TOPIC_KEYS,
    TopicConfig,
    TopicReading,
    not_honoured_yet,
    read_topic_config,
    topic_config,
)
from strandline.runtime.config.values import ConfigKey, InvalidConfig, Value

__all__ = [
    "BROKER_KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigKey",
    "DynamicReading",
    "InvalidConfig",
    "Layer",
    "Listener",
    "TopicConfig",
    "TopicReading",
    "layered",
    "load_broker_config",
    "not_honoured_yet",
    "parse_properties",
    "read_topic_config",
    "reference",
    "topic_config",
    "with_dynamic",
]

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000
_FOLDER_KEYS = ("log.dirs", "log.dir")


def layered(*layers: Mapping[str, str]) -> dict[str, str]:
    """Key → text of several sources, a later one wins. log.dir and log.dirs say the same thing: the later source's
    replaces both."""
    properties: dict[str, str] = {}
    for layer in layers:
        if not layer.keys().isdisjoint(_FOLDER_KEYS):
            for key in _FOLDER_KEYS:
                properties.pop(key, None)
        properties.update(layer)
    return properties


def load_broker_config(given: Mapping[str, str]) -> BrokerConfig:
    """The broker's configuration from key → text, as `parse_properties` returns it. InvalidConfig: see the module."""
    values: dict[str, Value] = {key.attribute: key.default for key in BROKER_KEYS}
    warnings: list[str] = []
    explicit: list[str] = []
    for name, text in given.items():
        key = BROKER_KEY.get(name)
        if key is None:
            warnings.append(_unknown(name))
            continue
        values[key.attribute] = key.parse(text)
        explicit.append(name)
        if not key.honoured:
            warnings.append(f"{name} is not honoured yet by this version: {name}={text.strip()} has no effect")
    _resolve_identity(values)
    _resolve_listeners(values)
    _resolve_times(values)
    _resolve_folders(values, given)
    for contradiction in contradictions(values):
        raise contradiction.error
    warnings += _doubts(values, given)
    return BrokerConfig(**values, warnings=tuple(warnings), explicit=tuple(explicit))


def _unknown(name: str) -> str:
    if name in REPLACED_KEYS:
        return f"{name} is not honoured: write {REPLACED_KEYS[name]} instead"
    if name.startswith(LATER_PREFIXES):
        return f"{name} is not honoured yet by this version"
    near = difflib.get_close_matches(name, BROKER_KEY, n=1)
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


# --- the file ----------------------------------------------------------------------------------------------------

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR = re.compile(r"((?:\\.|[^\\:=\s])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Key → value of a Java properties file: `key=value`, `key: value` or `key value`; # and ! begin comments, a
    backslash at the end continues a line, \\t \\n \\uXXXX are escapes; of two lines with one key the last one counts.

    InvalidConfig: a line without a key, or a \\u without four hexadecimal digits.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        assert match is not None  # every text has the shape: all parts may be empty
        key = _unescape(match[1], number)
        if not key:
            raise InvalidConfig(f"line {number}", line, "has no key before the separator")
        properties[key] = _unescape(match[2], number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line number, line) without comments and blank lines, continued lines joined."""
    pending, first = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(" \t\f")
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] != "u":
            return _ESCAPES.get(escape, escape)
        if len(escape) != 5:
            raise InvalidConfig(f"line {number}", text, "\\u needs four hexadecimal digits; write \\\\ for a backslash")
        return chr(int(escape[1:], 16))

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", replace, text, flags=re.DOTALL)
