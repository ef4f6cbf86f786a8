"""What leaves a trio nursery comes in a group of exceptions, whose own text names none of them."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def first_cause(group: BaseExceptionGroup[E]) -> E:
    """The first exception in it that is no group itself."""
    first = group.exceptions[0]
    return first_cause(first) if isinstance(first, BaseExceptionGroup) else first
