"""A node's seams for tests: waiting and computing inline, a wall clock that follows trio's, streams from one seed.

With trio's `MockClock` the whole node is deterministic: the same seed gives the same history.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from strandline.runtime.disk import Disk
from strandline.runtime.environment import ComputingFailed, Environment
from strandline.runtime.network import Network
from strandline.runtime.processes.worker import describe, job_name, pack, unpack
from strandline.testkit.clock import common_time

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000
"""What the simulated wall clock shows when trio's clock starts: a time that no code takes for 1970."""


class InlineBlocking:
    """`Blocking` without threads: waits (virtual time), then calls. Cancelled while it waits, the call never happens,
    as if no thread had been free; once it happens nothing can come between."""

    def __init__(self, delay_s: float | Callable[[], float] = 0.0) -> None:
        """delay_s: of each call; a function is asked each time (draw it from a seeded stream)."""
        self.delay_s = delay_s
        self.calls = 0
        self.threads = 0
        """What `set_threads` asked for; nothing waits for one here."""
        self.stuck_lanes: set[str] = set()
        """Calls in these never begin: a disk that does not answer."""

    async def run(self, function: Callable[..., T], *args: object) -> T:
        await trio.sleep(self.delay_s if isinstance(self.delay_s, int | float) else self.delay_s())
        self.calls += 1
        return function(*args)

    async def run_in(self, lane: str, function: Callable[..., T], *args: object, abandon: bool = False) -> T:
        if lane in self.stuck_lanes:
            await trio.sleep_forever()
        return await self.run(function, *args)

    def set_threads(self, count: int) -> None:
        self.threads = count


class InlineComputing:
    """`Computing` without processes: waits (virtual time), then calls with the node's own disk. What travels is packed
    and unpacked as for a worker, so that a value which could not travel fails here, too."""

    def __init__(self, disk: Disk, delay_s: float | Callable[[], float] = 0.0) -> None:
        self._disk = disk
        self.delay_s = delay_s
        self.calls = 0

    async def run(self, job: Callable[..., T], *args: object) -> T:
        return await self._run(job, (), args)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[InlineSession]:
        yield InlineSession(self)

    async def _run(self, job: Callable[..., T], before: tuple[object, ...], args: tuple[object, ...]) -> T:
        name = job_name(job)
        arguments = unpack(pack(args))
        await trio.sleep(self.delay_s if isinstance(self.delay_s, int | float) else self.delay_s())
        self.calls += 1
        try:
            result: T = unpack(pack(job(self._disk, *before, *arguments)))
        except Exception as error:
            raise ComputingFailed(name, *describe(error)) from error
        return result


class InlineSession:
    """`ComputingSession` of the same."""

    def __init__(self, computing: InlineComputing) -> None:
        self._computing = computing
        self._memory: dict[str, object] = {}

    async def run(self, job: Callable[..., T], *args: object) -> T:
        memory, self._memory = self._memory, {}
        try:
            result = await self._computing._run(job, (memory,), args)
        except ComputingFailed:
            self._memory = memory
            raise
        self._memory = memory
        return result


class VirtualWallClock:
    """`WallClock` that moves with the common time. `skew_ms` may be changed at any time: the operator sets it.
    stands_at_ms: what it shows as long as it stands still. rate: how fast it goes where nobody sets it."""

    def __init__(self, *, skew_ms: int = 0, start_ms: int = EPOCH_MS, rate: float = 1.0) -> None:
        self.skew_ms = skew_ms
        self.stands_at_ms: int | None = None
        self._start_ms = start_ms
        self._rate = rate

    def now_ms(self) -> int:
        if self.stands_at_ms is not None:
            return self.stands_at_ms
        return self._start_ms + round(common_time() * self._rate * 1000) + self.skew_ms


class SeededRandom:
    """purpose → its stream. One stream per (seed, node, purpose), always the same, whatever else is drawn."""

    def __init__(self, seed: int, node: str = "") -> None:
        self._seed = seed
        self._node = node
        self._streams: dict[str, random.Random] = {}

    def __call__(self, purpose: str) -> random.Random:
        if purpose not in self._streams:
            self._streams[purpose] = random.Random(f"{self._seed}/{self._node}/{purpose}")
        return self._streams[purpose]


def simulated_environment(
    *,
    disk: Disk,
    network: Network,
    seed: int = 0,
    node: str = "",
    blocking_delay_s: float | Callable[[], float] = 0.0,
    wall_skew_ms: int = 0,
) -> Environment:
    """The environment of one simulated node over the given disk and network. Call it within trio."""
    return Environment(
        disk=disk,
        network=network,
        blocking=InlineBlocking(blocking_delay_s),
        computing=InlineComputing(disk, blocking_delay_s),
        wall_clock=VirtualWallClock(skew_ms=wall_skew_ms),
        random=SeededRandom(seed, node),
    )
