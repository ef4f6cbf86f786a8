"""Has `help` and `inspect.signature` of a client show its settings, out of their table.

A client takes them as `**settings`, so that dotted names and strings are understood, too; what a reader shall see is
each name with its default, its type, its unit and what it does.
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from strandline.client.settings import ClientSettings

T = TypeVar("T", bound=type)

_WIDTH = 112
_GIVEN_APART = ("bootstrap_servers",)
"""They are parameters of their own."""


def shows_settings(table: type[ClientSettings], options: type) -> Callable[[T], T]:
    """A class decorator: the settings of `table` become visible parameters, typed as in `options`, and a list at the
    end of the class's docstring."""

    def show(client: T) -> T:
        shown = [each for each in dataclasses.fields(table) if each.name not in _GIVEN_APART]
        types = get_type_hints(options)
        init: Any = client.__init__  # type: ignore[misc]  # of this very class
        init.__signature__ = _signature(init, shown, types)
        client.__doc__ = f"{inspect.cleandoc(client.__doc__ or '')}\n\n{_listed(shown)}"
        return client

    return show


def _signature(
    init: Callable[..., None], shown: list[dataclasses.Field[Any]], types: dict[str, Any]
) -> inspect.Signature:
    plain = inspect.signature(init)
    own = [each for each in plain.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    settings = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(each),
            annotation=types.get(each.name, each.type),
        )
        for each in shown
    ]
    return plain.replace(parameters=[*own, *settings])


def _listed(shown: list[dataclasses.Field[Any]]) -> str:
    lines = ["Settings, all of them keyword arguments:", ""]
    for each in shown:
        unit = f" {each.metadata['unit']}" if "unit" in each.metadata else ""
        choices = each.metadata.get("choices") or each.metadata.get("several_of")
        allowed = f" ({', '.join(choices)})" if choices else ""
        text = f"{each.name} = {_default(each)!r}{unit}: {each.metadata['doc']}{allowed}"
        lines += textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def _default(setting: dataclasses.Field[Any]) -> Any:
    """As somebody would write it."""
    return "all" if setting.name == "acks" else setting.default
