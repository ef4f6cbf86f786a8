"""Methods of brokers' classes, and functions of their modules, that are watched while a run lasts; the code under test
does not know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Wrap(NamedTuple):
    """owner: a class or, of a function that is called by its module, that module. watch: called with the original, and
    its arguments, `self` first where it is a method; returns what the caller gets."""

    owner: object
    name: str
    watch: Callable[..., Any]


@contextmanager
def wrapped(*wraps: Wrap) -> Iterator[None]:
    """Watch, until the block ends."""
    originals = [(wrap, getattr(wrap.owner, wrap.name)) for wrap in wraps]
    for wrap, original in originals:
        setattr(wrap.owner, wrap.name, _watched(original, wrap.watch))
    try:
        yield
    finally:
        for wrap, original in reversed(originals):
            setattr(wrap.owner, wrap.name, original)


def _watched(original: Callable[..., Any], watch: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **options: Any) -> Any:
        return watch(original, self, *args, **options)

    return call
