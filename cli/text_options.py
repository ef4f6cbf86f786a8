"""Options of `produce` and `consume` that are texts with escapes, and `--property`, by which Kafka's console tools take
what are options here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from strandline.cli.escapes import InvalidEscape, unescaped
from strandline.cli.options import key_value

F = TypeVar("F", bound=Callable[..., Any])


class _EscapedText(click.ParamType[bytes]):
    """The bytes that were typed, where `\\t` and the like stand for one."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return unescaped(value)
        except InvalidEscape as error:
            self.fail(str(error), param, ctx)


ESCAPED = _EscapedText()


def property_option(names: Iterable[str]) -> Callable[[F], F]:
    """`--property KEY=VALUE`, as often as wanted."""
    return click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help=f"As of Kafka's console tools: {', '.join(names)}.",
    )


def properties_of_console(pairs: Iterable[str], kinds: Mapping[str, type]) -> dict[str, Any]:
    """Name → value, a boolean or bytes as `kinds` says. UsageError for a name that is none, with the nearest, and for
    one that is given twice."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, value = key_value(pair, "--property")
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(kinds)}"
            raise click.UsageError(f"--property {name} is not known; {hint}")
        if name in found:
            raise click.UsageError(f"--property {name} is given twice")
        if kinds[name] is bool:
            if value.lower() not in ("true", "false"):
                raise click.UsageError(f"--property {pair} is neither true nor false")
            found[name] = value.lower() == "true"
            continue
        try:
            found[name] = unescaped(value)
        except InvalidEscape as error:
            raise click.UsageError(f"--property {name}={error}") from None
    return found
