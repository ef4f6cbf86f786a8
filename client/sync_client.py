"""What the synchronous fronts share: one background thread per process, crossings into it, deadlines, an end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, NoReturn, Self, TypeVar

import trio

from strandline.client.admin import TrioAdmin
from strandline.client.consumer import TrioConsumer
from strandline.client.errors import ClientClosed, ClientError, RequestTimedOut
from strandline.runtime.exception_groups import first_cause
from strandline.runtime.mistakes import warn
from strandline.runtime.processes.portal import (
    CallTimedOut,
    Crossing,
    ForkedPortal,
    Portal,
    PortalClosed,
    close_at_exit,
)

T = TypeVar("T")
C = TypeVar("C", TrioConsumer, TrioAdmin)

GRACE_S = 5.0
"""Every trio call ends by itself in time; this much later the thread stops waiting for it all the same."""


class SyncClient:
    """What the three fronts share: the portal, the service's end, refusal of forks and pickles."""

    def __init__(self) -> None:
        self._portal = Portal.acquire(self)
        self._closed = False
        self._own_failure: BaseException | None = None
        self._under_way: dict[trio.CancelScope, None] = {}
        """The calls that are in the loop now; only the loop's thread looks at it."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be sent to another process (it holds connections and a thread): make one "
            f"there from the same settings"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop; idempotent."""
        self._closed = True
        self._portal.release(self)

    def _close_at_exit(self) -> None:
        """Close when the interpreter ends. Whatever goes wrong is only warned of: the other clients have to be closed,
        too."""
        try:
            self._close_unasked()
        except Exception as mistake:
            warn(f"a {type(self).__name__} that was left open could not be closed: {mistake!r}")

    def _close_unasked(self) -> None:
        """`close`, where nobody is left to be told what went wrong."""
        self.close()

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any, timeout_s: float) -> T:
        """One crossing. ClientClosed, RequestTimedOut and what the function raises."""
        with self._explained():
            call: Callable[[], Awaitable[T]] = partial(self._until_failure, function, *args)
            return self._portal.call(call, timeout_s=timeout_s)

    def _begin(self, function: Callable[..., Awaitable[T]], *args: Any) -> Crossing[T]:
        """One crossing that nobody waits for here. ClientClosed; what else goes wrong is in the call, to be taken out
        of it within `_explained`."""
        with self._explained():
            call: Crossing[T] = Crossing(self._portal, partial(self._until_failure, function, *args))
            self._portal.begin(call)
            return call

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """A crossing is begun or ends in here: what went wrong is told in this client's words."""
        if self._closed:
            raise ClientClosed(f"the {type(self).__name__.lower()} is closed")
        try:
            yield
        except ForkedPortal:
            raise self._forked_error() from None
        except (ClientError, PortalClosed) as error:
            if self._failure is None and isinstance(error, ClientError):
                raise
            raise self._ended_error() from self._failure
        except CallTimedOut as error:
            raise RequestTimedOut(f"the event loop of this client is stuck: {error}") from error

    async def _until_failure(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await `function(*args)` in the loop, but no longer than the client works: it may wait for its tasks."""
        if self._own_failure is None:
            with trio.CancelScope() as scope:
                self._under_way[scope] = None
                try:
                    return await function(*args)
                finally:
                    del self._under_way[scope]
        raise self._ended_error() from self._failure

    def _now(self, function: Callable[..., T], *args: Any) -> T:
        """One crossing to a plain function; none where a callback asks that runs in the loop."""
        if self._portal.is_current:
            return function(*args)

        async def call() -> T:
            return function(*args)

        return self._call(call, timeout_s=GRACE_S)

    def _open(self, make_and_serve: Callable[[], Awaitable[T]]) -> T:
        """The client that this one is the front of, made in the loop. Where the program is interrupted meanwhile it is
        not made, or stopped: nobody else would."""
        made: list[Any] = []
        is_wanted = True

        async def make() -> T:
            if not is_wanted:
                raise ClientClosed("nobody waits for it any more")
            client = await make_and_serve()
            made.append(client)
            return client

        def give_up() -> None:
            nonlocal is_wanted
            is_wanted = False
            for client in made:
                client.stop()

        try:
            return self._call(make, timeout_s=GRACE_S + 25)
        except BaseException:
            with suppress(PortalClosed, ForkedPortal):
                self._portal.post(give_up)
            SyncClient.close(self)
            raise

    def _forked_error(self) -> ClientClosed:
        return ClientClosed(
            f"this {type(self).__name__} was made before the process forked; make one in the child process"
        )

    @property
    def _failure(self) -> BaseException | None:
        """What ended this client in the loop, or the loop itself."""
        return self._own_failure or self._portal.failure

    def _ended_error(self) -> ClientClosed:
        """To be raised from `_failure`."""
        name = type(self).__name__
        if (failure := self._failure) is None:
            return ClientClosed(f"the event loop of this {name.lower()} has ended")
        return ClientClosed(f"this {name.lower()} was ended by {failure!r} in its event loop; make another {name}")

    async def _serve(self, run: Callable[[], Awaitable[object]]) -> None:
        """The client's tasks; a failure ends this client, not the loop of the others."""
        try:
            await run()
        except* Exception as failures:
            self._own_failure = first_cause(failures)
            for scope in self._under_way:
                scope.cancel()


class Front(SyncClient, Generic[C]):
    """A front whose trio client is made and served in the loop."""

    def __init__(self, make: Callable[[], C]) -> None:
        super().__init__()

        async def make_and_serve() -> C:
            client = make()
            self._portal.spawn(lambda: self._serve(client.run))
            return client

        self._client: C = self._open(make_and_serve)
        self._api_timeout_ms = self._client.settings.default_api_timeout_ms
        close_at_exit(self)  # last: it is closed with all that was set before

    def close(self) -> None:
        """Stop; idempotent."""
        if not self._closed and not self._portal.is_foreign:
            try:
                self._portal.post(self._client.close)
            except PortalClosed:
                pass
        super().close()

    def _ask(self, function: Callable[..., Awaitable[T]], *args: Any, timeout_ms: float | None, **options: Any) -> T:
        """Await `function(*args, timeout_ms=…, **options)`, which ends by itself in that time."""
        call = partial(function, *args, timeout_ms=timeout_ms, **options)
        return self._within(call, timeout_ms)

    def _within(self, call: Callable[[], Awaitable[T]], timeout_ms: float | None) -> T:
        """Await what ends by itself within that time; None: `default_api_timeout_ms`."""
        limit_ms = self._api_timeout_ms if timeout_ms is None else timeout_ms
        return self._call(call, timeout_s=limit_ms / 1000 + GRACE_S)
