"""Methods of the trio clients, carried over to the fronts: one line each, with their name, signature and docstring.

    class AioAdmin(…):
        create_topic = awaited(TrioAdmin.create_topic)

So what a method takes and promises is written down once. `help` and type checkers see the method as it is there, only
that `blocking` makes it one that is not awaited.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_COPIED = (list, dict, set)


def awaited(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """For asyncio: awaited here, carried out in the background thread."""

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = await self._cross(_begun(method, self, args, options))
        return result

    return call


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """For threads: carried out in the background thread, and waited for. A method without `timeout_ms` ends within
    `default_api_timeout_ms`."""
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        timeout_ms = signature.bind(self, *args, **options).arguments.get("timeout_ms")
        result: T = self._within(_begun(method, self, args, options), timeout_ms)
        return result

    return call


def plain(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """For both: a plain function there and here, which costs one crossing into the background thread."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        result: T = self._now(_begun(method, self, args, options))
        return result

    return call


def told(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """As `plain`; of a client that was closed it is called here, without a crossing."""
    ask = plain(method)

    @wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        if getattr(self, "_front", self)._closed:
            return method(self._client, *args, **options)
        return ask(self, *args, **options)

    return call


def _begun(method: Callable[..., T], front: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Callable[[], T]:
    """The call, of the client that `front` fronts."""
    kept = {name: _kept(value) for name, value in options.items()}
    return partial(method, front._client, *map(_kept, args), **kept)


def _kept(value: Any) -> Any:
    """An argument as it is now: what the program changes meanwhile is not looked at, and what it generates is generated
    in its own thread."""
    if isinstance(value, _COPIED):
        return value.copy()
    return list(value) if isinstance(value, Iterator) else value
