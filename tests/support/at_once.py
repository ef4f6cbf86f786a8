"""Work that yields after each of its steps, done while nobody else runs."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar, cast

T = TypeVar("T")


def at_once(work: Generator[None, None, T]) -> T:
    """What it returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast(T, end.value)
