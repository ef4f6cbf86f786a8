"""What one life of a simulated node gets as its seams: they die with it.

A crash first poisons these handles, then cancels the tasks: `finally` blocks and shielded shutdown code still run then,
and must not write, send or say good-bye. The machine (`MemoryDisk`, `MemoryNetwork`, `MemoryZooKeeper`) outlives it.

`NodeCoordination` can also hold a write back at the moment when it would leave: the process is paused between having
decided and having written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trio

from strandline.runtime.coordination import (
    CoordinationError,
    Operation,
    OperationResult,
    SessionState,
)
from strandline.runtime.environment import Blocking, Computing, ComputingFailed, ComputingSession
from strandline.runtime.recent_times import RecentTimes
from strandline.testkit.zookeeper.client import MemoryCoordination

T = TypeVar("T")


class NodeDied(Exception):
    """This life of the node is over: whoever still runs in it reaches nothing any more."""


class Life:
    """One start of a node, until it crashes or has stopped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False

    def check(self) -> None:
        """NodeDied once it is over."""
        if self.is_over:
            raise NodeDied(f"{self.name} is dead")


class LifeBound:
    """Has all methods of `inner`; each raises NodeDied once the life is over. (Files that were open die by themselves:
    `MemoryDisk.kill`.)"""

    def __init__(self, life: Life, inner: object) -> None:
        self._life = life
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # one that is just being copied has no `_inner` yet
            raise AttributeError(name)
        method = getattr(self._inner, name)

        def call(*args: Any, **options: Any) -> Any:
            self._life.check()
            return method(*args, **options)

        return call


class NodeBlocking:
    """`Blocking` of one life: what had not begun when it ended never does."""

    def __init__(self, life: Life, inner: Blocking) -> None:
        self._life = life
        self._inner = inner

    async def run(self, function: Callable[..., T], *args: object) -> T:
        self._life.check()
        return await self._inner.run(self._call, function, *args)

    async def run_in(self, lane: str, function: Callable[..., T], *args: object, abandon: bool = False) -> T:
        self._life.check()
        return await self._inner.run_in(lane, self._call, function, *args, abandon=abandon)

    def set_threads(self, count: int) -> None:
        self._inner.set_threads(count)

    def _call(self, function: Callable[..., T], *args: object) -> T:
        self._life.check()
        return function(*args)


class NodeSession:
    """`ComputingSession` of one life: what had not begun when it ended never does."""

    def __init__(self, life: Life, inner: Computing | ComputingSession) -> None:
        self._life = life
        self._inner = inner

    async def run(self, job: Callable[..., T], *args: object) -> T:
        self._life.check()
        try:
            return await self._inner.run(job, *args)
        except ComputingFailed:
            self._life.check()
            raise


class NodeComputing(NodeSession):
    """`Computing` of one life, with its disk."""

    def __init__(self, life: Life, inner: Computing) -> None:
        super().__init__(life, inner)
        self._computing = inner

    @asynccontextmanager
    async def session(self) -> AsyncIterator[NodeSession]:
        self._life.check()
        async with self._computing.session() as session:
            yield NodeSession(self._life, session)


@dataclass(eq=False)
class HeldWrite:
    """A write that waits at the door of ZooKeeper's client. `reached`: somebody wants to write it now."""

    matches: Callable[[Sequence[Operation]], bool]
    reached: trio.Event = field(default_factory=trio.Event)
    _released: trio.Event = field(default_factory=trio.Event)

    def release(self) -> None:
        """Let it, and all later ones like it, go."""
        self._released.set()

    async def pass_through(self, operations: Sequence[Operation]) -> None:
        if self.matches(operations) and not self._released.is_set():
            self.reached.set()
            await self._released.wait()


class NodeCoordination(LifeBound):
    """`Coordination` of one life. `client` is what `MemoryZooKeeper` takes for its faults."""

    def __init__(self, life: Life, client: MemoryCoordination) -> None:
        super().__init__(life, client)
        self.client = client
        self._held: list[HeldWrite] = []

    def hold_writes(self, matches: Callable[[Sequence[Operation]], bool]) -> HeldWrite:
        """Hold transactions back, from now on, that `matches` says yes to (those sent together with them, too)."""
        held = HeldWrite(matches)
        self._held.append(held)
        return held

    @property
    def session_id(self) -> int:
        return self.client.session_id

    @property
    def session_timeout_ms(self) -> int:
        return self.client.session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self.client.state

    @property
    def request_times(self) -> RecentTimes:
        return self.client.request_times

    def seconds_since_contact(self) -> float:
        return self.client.seconds_since_contact()

    async def close(self) -> None:
        if not self._life.is_over:
            await self.client.close()

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        await self._pass_holds([operations])
        self._life.check()
        return await self.client.multi(operations)

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | CoordinationError]:
        await self._pass_holds(transactions)
        self._life.check()
        return await self.client.multi_many(transactions)

    async def _pass_holds(self, transactions: Sequence[Sequence[Operation]]) -> None:
        for held in self._held:
            for operations in transactions:
                await held.pass_through(operations)
