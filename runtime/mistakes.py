"""Mistakes of the program that uses a client: told, and nothing ends by them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import trio

F = TypeVar("F")


REMEMBERED_WARNINGS = 100
"""So many different ones are shown once each; then all of them may be shown again."""

_shown: dict[Any, Any] = {}
"""As a module's `__warningregistry__`, which would keep the text of each for ever."""


def warn(text: str) -> None:
    """Warn of it, but never raise: where warnings are made errors it is shown all the same."""
    if len(_shown) > REMEMBERED_WARNINGS:
        _shown.clear()
    try:
        warnings.warn_explicit(text, RuntimeWarning, __name__, 0, module=__name__, registry=_shown)
    except RuntimeWarning as warning:
        warnings.showwarning(warning, RuntimeWarning, __name__, 0)


def call_back(callback: Callable[[F], object], future: F) -> None:
    """Call a function of the program's with its future. What it raises, `SystemExit` too, is warned of: it must keep
    nobody else from being told, and not end the loop of all clients."""
    try:
        callback(future)
    except trio.Cancelled:  # ends a task of the loop's, and is for that to catch
        raise
    except BaseException as mistake:
        if isinstance(mistake, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C, whatever was running
        warn(f"a callback of {type(future).__name__} raised {mistake!r}")
