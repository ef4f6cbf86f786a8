"""How a key is declared: once, as an attribute of a class, with all there is to know of it.

    class BrokerConfig(msgspec.Struct):
        log_retention_ms: int = int64(None, at_least(-1), "Records older may be deleted; -1: never.", dynamic=True)

The kind (`int64`) says how text is read, and returns what a type checker takes for a value of the attribute; really it
is a row of the table that `keys_of` reads off the class, so an instance is made with a value for every key. A key has
the name of its attribute with dots for underscores, and the unit that its name ends in, if it does in one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from strandline.runtime.config.values import InvalidConfig, Value

T = TypeVar("T")

_UNITS_IN_NAMES = ("ms", "bytes", "hours", "minutes", "seconds")


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


def some_of(*names: str) -> Allowed:
    """A list of some of these names; it may be empty."""
    return Allowed("any of " + ", ".join(names), lambda value: set(value) <= {*names})


class ConfigKey(NamedTuple):
    """One row of the configuration table.

    default: typed; None means "left out". unit: ms, bytes, hours …, "" where there is none. dynamic: may stand in
    ZooKeeper, over the broker's file (Kafka's table). honoured: this build acts on it; setting another key gives a
    warning. live: where dynamic, a change takes effect while the broker runs, else at its next start. why_not: why it
    is not honoured, where that is no matter of time. broker_attribute: of a topic's key, where BrokerConfig has its
    default; None where there is none.
    """

    kind: Kind[Value]
    default: Value
    allowed: Allowed
    doc: str
    unit: str
    dynamic: bool
    honoured: bool
    live: bool
    why_not: str = ""
    name: str = ""
    broker_attribute: str | None = None

    @property
    def attribute(self) -> str:
        """The name in BrokerConfig or TopicConfig."""
        return self.name.replace(".", "_")

    @property
    def without_effect(self) -> str:
        """Why it has none, as half a sentence; "" where it has."""
        return "" if self.honoured else self.why_not or "not honoured yet by this version"

    @property
    def meaning(self) -> str:
        """Its documentation, and why setting it would be in vain where it always will be."""
        return f"{self.doc} Without effect: {self.why_not}." if self.why_not else self.doc

    def parse(self, text: str) -> Value:
        """The typed value of `text`. InvalidConfig names the key, the value and what is allowed."""
        text = text.strip()
        try:
            value = self.kind.read(text)
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


class Kind(NamedTuple, Generic[T]):
    """A type of values: its name in the reference, and how text is read. Called, it declares a key (see the module)."""

    name: str
    read: Callable[[str], T]

    def __call__(
        self,
        default: T | None,
        allowed: Allowed,
        doc: str,
        unit: str = "",
        *,
        dynamic: bool = False,
        honoured: bool = True,
        live: bool = True,
        why_not: str = "",
    ) -> T:
        return cast(T, ConfigKey(self, default, allowed, doc, unit, dynamic, honoured and not why_not, live, why_not))


def read_further(declared: object) -> Any:
    """Declares a key whose attribute holds what `reading` makes of its value, so that its type is another one."""
    return declared


def attribute_of(declared: object) -> str:
    """The name of an attribute that is given through its class (`BrokerConfig.max_connections`), as mypy can check."""
    return cast(MemberDescriptorType, declared).__name__


def keys_of(declared: type[msgspec.Struct]) -> dict[str, ConfigKey]:
    """Name → key of those that the class declares, in its order."""
    keys: dict[str, ConfigKey] = {}
    for attribute, key in zip(declared.__struct_fields__, declared.__struct_defaults__, strict=True):
        if isinstance(key, ConfigKey):
            name = attribute.replace("_", ".")
            ending = name.rpartition(".")[2]
            unit = key.unit or (ending if ending in _UNITS_IN_NAMES else "")
            keys[name] = key._replace(name=name, unit=unit)
    return keys


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


boolean = Kind("bool", _bool)
int32 = Kind("int", _integer(32))
int64 = Kind("long", _integer(64))
double = Kind("double", _double)
string = Kind("string", str)
strings = Kind("list", _list)
