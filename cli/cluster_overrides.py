"""Broker keys of the user's own for the embedded cluster: `strandline up --override KEY=VALUE`.

They are kept in the cluster's data folder, in `overrides.properties`, and count for all its brokers at every start,
until they are overridden anew or the file loses the line: a broker that died and is started again must not differ from
the others. The keys that make the brokers one cluster are refused, since `up` and `down` rely on them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from strandline.runtime.config.properties import parse_properties
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.values import InvalidConfig

OVERRIDES_FILE = "overrides.properties"

_COMMENT = "# Kept by `strandline up --override`, for all brokers at every start. Remove a line to go without it.\n"
_STAND_INS = {"log.dir": "log.dirs", "advertised.listeners": "listeners"}
"""Keys that would take the place of one that the cluster sets."""
_KEY = re.compile(r"[A-Za-z0-9._-]+")


class OverrideRefused(ValueError):
    """An override that the embedded cluster cannot have; one line that names it and the remedy."""


def checked(overrides: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """Check overrides before anything is started. own: what the cluster sets itself. Returns warnings about them (keys
    that are unknown, say). OverrideRefused."""
    for key in overrides:
        if _KEY.fullmatch(key) is None:
            raise OverrideRefused(f"--override {key!r} is no broker key; strandline broker --reference lists them")
        if key in own or key in _STAND_INS:
            raise OverrideRefused(
                f"--override {key}: the embedded cluster sets {_STAND_INS.get(key, key)} itself; leave it out, or run "
                "brokers of your own: strandline broker"
            )
    try:
        usual = load_broker_config(own).warnings
        return [warning for warning in load_broker_config({**own, **overrides}).warnings if warning not in usual]
    except InvalidConfig as error:
        raise OverrideRefused(f"overrides of the embedded cluster: {error}") from error


def kept_overrides(data_dir: Path) -> dict[str, str]:
    """What earlier starts were told. OverrideRefused where the file is damaged."""
    path = data_dir / OVERRIDES_FILE
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (InvalidConfig, UnicodeDecodeError) as error:
        raise OverrideRefused(f"{path}: {error}; mend the line or remove the file") from error


def keep_overrides(data_dir: Path, overrides: Mapping[str, str]) -> None:
    """Write them down for later starts, whole or not at all."""
    path = data_dir / OVERRIDES_FILE
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(_COMMENT + "".join(property_lines(overrides.items())), encoding="utf-8")
    os.replace(unfinished, path)


def property_lines(properties: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of a properties file that `parse_properties` reads as these keys and (stripped) values."""
    return [f"{key}={_escaped(value.strip())}\n" for key, value in properties]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
