"""Configuration values: how text becomes a typed value, what is allowed, and the error that says what is not."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

Value = Any
"""What a key holds after reading: bool, int, float, str, a tuple of str, or None where the key was left out."""


class InvalidConfig(ValueError):
    """A configuration that cannot be used; one line that names key, value and what is allowed."""

    def __init__(self, key: str, value: object, why: str) -> None:
        shown = repr(value) if isinstance(value, str) else str(value)
        super().__init__(f"configuration {key}={shown[:200]}: {why}")
        self.key = key
        self.value = value
        self.why = why


_UNUSABLE_FOLDERS = {
    errno.EEXIST: "it is a file, not a folder; name a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder; name a folder",
    errno.ENOENT: "nothing can be created there; name a folder on a disk",
    errno.EACCES: "this user may not use it; give the folder to the user that runs the broker (chown)",
    errno.EPERM: "this user may not use it; give the folder to the user that runs the broker (chown)",
    errno.EROFS: "the file system is read-only; mount it for writing or name another folder",
    errno.ENOSPC: "the file system is full; free space or name another folder",
    errno.EDQUOT: "this user's quota is used up; free space or name another folder",
    errno.ELOOP: "it is a symbolic link where none is followed; name the folder itself",
    errno.ENAMETOOLONG: "the path is too long; name a shorter one",
    errno.EIO: "the disk fails (input/output error); replace it or name another folder",
}


def unusable_folder(key: str, path: str, error: OSError) -> InvalidConfig:
    """What the operator should know where a folder that `key` names cannot be used."""
    number = error.errno or 0
    where = f"{error.filename}: " if error.filename and error.filename != path else ""
    reason = _UNUSABLE_FOLDERS.get(number, f"{os.strerror(number) if number else error}; mend it or name another")
    return InvalidConfig(key, path, where + reason)


class Allowed(NamedTuple):
    """A validator and the words that describe it in errors and in the reference."""

    text: str
    test: Callable[[Value], bool]


ANY = Allowed("", lambda _: True)
NOT_EMPTY = Allowed("not empty", bool)


def at_least(lowest: float) -> Allowed:
    return Allowed(f"{lowest} or more", lambda value: value >= lowest)


def between(lowest: float, highest: float) -> Allowed:
    return Allowed(f"from {lowest} to {highest}", lambda value: lowest <= value <= highest)


def one_of(*names: str) -> Allowed:
    return Allowed("one of " + ", ".join(name or "(empty)" for name in names), lambda value: value in names)


def all_of(*names: str) -> Allowed:
    """A list, not empty, of some of these names."""
    return Allowed("one or more of " + ", ".join(names), lambda value: bool(value) and set(value) <= {*names})


class ConfigKey(NamedTuple):
    """One row of the configuration table.

    kind: bool, int (32 bits), long (64 bits), double, string or list (comma separated). default: typed; None means
    "left out". unit: ms, bytes, hours …, "" where there is none. dynamic: may stand in ZooKeeper, over the broker's
    file (Kafka's table). honoured: this build acts on it; setting another key gives a warning. live: where dynamic, a
    change takes effect while the broker runs, else at its next start.
    """

    name: str
    kind: str
    default: Value
    unit: str
    allowed: Allowed
    doc: str
    dynamic: bool = False
    honoured: bool = True
    live: bool = True

    @property
    def attribute(self) -> str:
        """The name in BrokerConfig or TopicConfig: dots become underscores."""
        return self.name.replace(".", "_")

    def parse(self, text: str) -> Value:
        """The typed value of `text`. InvalidConfig names the key, the value and what is allowed."""
        text = text.strip()
        try:
            value = _PARSERS[self.kind](text)
        except ValueError as error:
            allowed = f" ({self.allowed.text})" if self.allowed.text else ""
            raise InvalidConfig(self.name, text, f"{error}{allowed}") from None
        if not self.allowed.test(value):
            unit = f" {self.unit}" if self.unit else ""
            raise InvalidConfig(self.name, text, f"allowed is {self.allowed.text}{unit}")
        return value

    @property
    def default_text(self) -> str:
        """The default as one would write it in a file."""
        if self.default is None:
            return ""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("not true or false")
    return text.lower() == "true"


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")


def _integer(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if _WHOLE_NUMBER.fullmatch(text) is None:
            raise ValueError("not a whole number")
        value = int(text)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError(f"does not fit {bits} bits")
        return value

    return parse


def _double(text: str) -> float:
    try:
        value = float(text.replace("_", "?"))  # Python's digit separator is not Java's
    except ValueError:
        raise ValueError("not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("not a finite number")
    return value


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_PARSERS: dict[str, Callable[[str], Value]] = {
    "bool": _bool,
    "int": _integer(32),
    "long": _integer(64),
    "double": _double,
    "string": str,
    "list": _list,
}

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
