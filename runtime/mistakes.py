"""Mistakes of the program that uses a client: told, and nothing ends by them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F")


def warn(text: str) -> None:
    """Warn of it, but never raise: where warnings are made errors it is shown all the same."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except RuntimeWarning as warning:
        warnings.showwarning(warning, RuntimeWarning, __name__, 0)


def call_back(callback: Callable[[F], object], future: F) -> None:
    """Call a function of the program's with its future. What it raises is warned of: it must not take the connection
    to the broker with it."""
    try:
        callback(future)
    except Exception as mistake:
        warn(f"a callback of {type(future).__name__} raised {mistake!r}")
