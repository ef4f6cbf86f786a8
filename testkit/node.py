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
from typing import TypeVar

import trio

from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    CoordinationError,
    Operation,
    OperationResult,
    SessionState,
    Watch,
    Znode,
    ZnodeStat,
)
from strandline.runtime.disk import DiskSpace, File, FileLock, FolderEntry
from strandline.runtime.environment import Blocking, Computing, ComputingFailed, ComputingSession
from strandline.testkit.disk import MemoryDisk
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


class NodeBlocking:
    """`Blocking` of one life: what had not begun when it ended never does."""

    def __init__(self, life: Life, inner: Blocking) -> None:
        self._life = life
        self._inner = inner

    async def run(self, function: Callable[..., T], *args: object) -> T:
        self._life.check()

        def call() -> T:
            self._life.check()
            return function(*args)

        return await self._inner.run(call)

    async def run_in(self, lane: str, function: Callable[..., T], *args: object, abandon: bool = False) -> T:
        self._life.check()

        def call() -> T:
            self._life.check()
            return function(*args)

        return await self._inner.run_in(lane, call, abandon=abandon)


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


class NodeDisk:
    """`Disk` of one life. Files that it had open die by themselves (`MemoryDisk.kill`)."""

    def __init__(self, life: Life, disk: MemoryDisk) -> None:
        self._life = life
        self._inner = disk

    @property
    def _disk(self) -> MemoryDisk:
        self._life.check()
        return self._inner

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> File:
        return self._disk.open(path, create=create, exclusive=exclusive, read_only=read_only)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._disk.is_dir(path)

    def listdir(self, path: str) -> list[str]:
        return self._disk.listdir(path)

    def scandir(self, path: str) -> list[FolderEntry]:
        return self._disk.scandir(path)

    def makedirs(self, path: str) -> None:
        self._disk.makedirs(path)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)

    def unlink(self, path: str) -> None:
        self._disk.unlink(path)

    def rmdir(self, path: str) -> None:
        self._disk.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        self._disk.fsync_dir(path)

    def stat_mtime_ms(self, path: str) -> int:
        return self._disk.stat_mtime_ms(path)

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        self._disk.set_mtime_ms(path, mtime_ms)

    def space(self, path: str) -> DiskSpace:
        return self._disk.space(path)

    def lock(self, path: str) -> FileLock:
        return self._disk.lock(path)

    def boot_id(self) -> str:
        return self._disk.boot_id()


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


class NodeCoordination:
    """`Coordination` of one life. `client` is what `MemoryZooKeeper` takes for its faults."""

    def __init__(self, life: Life, client: MemoryCoordination) -> None:
        self.client = client
        self._life = life
        self._held: list[HeldWrite] = []

    def hold_writes(self, matches: Callable[[Sequence[Operation]], bool]) -> HeldWrite:
        """Hold transactions back, from now on, that `matches` says yes to (those sent together with them, too)."""
        held = HeldWrite(matches)
        self._held.append(held)
        return held

    @property
    def _alive(self) -> MemoryCoordination:
        self._life.check()
        return self.client

    @property
    def session_id(self) -> int:
        return self.client.session_id

    @property
    def session_timeout_ms(self) -> int:
        return self.client.session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self.client.state

    def seconds_since_contact(self) -> float:
        return self.client.seconds_since_contact()

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._alive.add_session_listener(listener)

    async def start(self) -> None:
        await self._alive.start()

    async def close(self) -> None:
        if not self._life.is_over:
            await self.client.close()

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        return await self._alive.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        return await self._alive.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._alive.children(path, watch)

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        return await self._alive.get_many(paths)

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return await self._alive.children_many(paths)

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        return await self._alive.create(path, data, ephemeral=ephemeral, sequence=sequence, parents=parents)

    async def set(self, path: str, data: bytes | None, version: int) -> ZnodeStat:
        return await self._alive.set(path, data, version)

    async def delete(self, path: str, version: int = MATCH_ANY_VERSION) -> None:
        await self._alive.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        await self._pass_holds([operations])
        return await self._alive.multi(operations)

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | CoordinationError]:
        await self._pass_holds(transactions)
        return await self._alive.multi_many(transactions)

    async def sync(self, path: str = "/") -> None:
        await self._alive.sync(path)

    async def _pass_holds(self, transactions: Sequence[Sequence[Operation]]) -> None:
        for held in self._held:
            for operations in transactions:
                await held.pass_through(operations)
