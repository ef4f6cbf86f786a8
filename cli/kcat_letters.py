"""Letters that fingers type from memory of kcat, whose one command says by them what it is to do: those that say what
the command does anyhow are taken and change nothing; the others are answered with what is said here. The help leaves
them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def kcat_letters(*accepted: str, **elsewhere: str) -> Callable[[F], F]:
    """`accepted`: letters without a meaning of their own here. `elsewhere`: letter → what to say in its place."""

    def with_letters(function: F) -> F:
        for letter in accepted:
            function = click.option(f"-{letter}", f"kcat_{letter}", is_flag=True, hidden=True, expose_value=False)(
                function
            )
        for letter, advice in elsewhere.items():
            function = click.option(
                f"-{letter}",
                f"kcat_{letter}",
                is_flag=True,
                hidden=True,
                expose_value=False,
                is_eager=True,
                callback=_refusing(f"-{letter} is kcat's: {advice}"),
            )(function)
        return function

    return with_letters


def _refusing(text: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def refuse(ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        if is_given:
            raise click.UsageError(text)

    return refuse
