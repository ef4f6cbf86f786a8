"""Plain code, written for the clients of threads, over clients in a virtual-clock loop.

The code runs in a thread of its own. While it computes, the loop stands still; while the loop answers one of its
questions, the code waits. So virtual time passes in questions only, and a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import trio

from strandline.cli.session import Session

T = TypeVar("T")


class LockStep:
    """The two sides of one run."""

    def __init__(self) -> None:
        self._questions: SimpleQueue[tuple[Callable[[], Awaitable[Any]], Future[Any]] | None] = SimpleQueue()

    async def run(self, code: Callable[[], T]) -> T:
        """What the code returns or raises."""
        with ThreadPoolExecutor(1) as thread:
            result = thread.submit(code)
            result.add_done_callback(lambda _: self._questions.put(None))
            while (question := self._questions.get()) is not None:
                call, answer = question
                try:
                    answer.set_result(await call())
                except BaseException as error:
                    answer.set_exception(error)
                    if not isinstance(error, Exception):
                        raise
            return result.result()

    def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """For the code: await that in the loop."""
        answer: Future[T] = Future()
        self._questions.put((call, answer))
        return answer.result()


class Front:
    """The methods of a trio client, each of which is awaited in the loop."""

    def __init__(self, steps: LockStep, client: object) -> None:
        self._steps = steps
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **options: self._steps.ask(partial(method, *args, **options))


class VirtualSession(Session):
    """The loop's time."""

    def __init__(self, steps: LockStep) -> None:
        super().__init__()
        self._steps = steps

    def monotonic(self) -> float:
        async def now() -> float:
            return trio.current_time()

        return self._steps.ask(now)

    def now_ms(self) -> int:
        return int(self.monotonic() * 1000)

    def sleep(self, seconds: float) -> None:
        self._steps.ask(partial(trio.sleep, seconds))
