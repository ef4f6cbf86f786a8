"""What a node is given from outside: randomness, disk, network, waiting, computing, wall clock. Never global.

`broker/process.py` builds the production environment, the test kit the simulated one. Monotonic time is
`trio.current_time()` everywhere (virtual in tests); the wall clock stamps records and drives retention only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from strandline.runtime.disk import Disk
from strandline.runtime.network import Network

T = TypeVar("T")


class Blocking(Protocol):
    """Runs what waits for the disk (fsync, deletion, cold reads) off the event loop: a thread in production, inline
    with virtual delay in tests. Not for computing: a computing thread takes the event loop from 37 K to 0.7 K round
    trips a second."""

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call `function(*args)` elsewhere and return its result or raise its exception."""

    async def run_in(self, lane: str, function: Callable[..., T], *args: object, abandon: bool = False) -> T:
        """The same with threads that only this lane uses: of each disk its own, so that one which does not answer takes
        no thread from the others. abandon: when the task is cancelled, go on without waiting for the call to end."""

    def set_threads(self, count: int) -> None:
        """At most so many calls of `run` at once from now on, and of each lane; what has begun goes on."""


class ComputingFailed(Exception):
    """A job raised, or the process that ran it ended. Its effects on the disk are whatever it had done by then.

    `kind` is the name of the exception's class (`OSError` for all of its family), `WORKER_DIED` where the process
    ended, `NO_WORKER` where none could be started; `errno` that of an OSError that the job met, else None."""

    def __init__(self, job: str, kind: str, text: str, errno: int | None = None) -> None:
        super().__init__(f"{job} failed: {kind}: {text}" if text else f"{job} failed: {kind}")
        self.job = job
        self.kind = kind
        self.errno = errno

    @property
    def may_succeed_later(self) -> bool:
        """It was not the job's doing, as far as one can see (no memory, too many processes)."""
        return self.kind in (WORKER_DIED, NO_WORKER)


WORKER_DIED = "worker process ended"
NO_WORKER = "no worker process can be started"


class ComputingSession(Protocol):
    """A worker of one's own, for jobs that build upon one another."""

    async def run(self, job: Callable[..., T], *args: object) -> T:
        """As `Computing.run`, but calls `job(disk, memory, *args)`: `memory` is a dict of the worker's that lives from
        one job to the next. It is empty again after a job that was cancelled or whose worker died."""


class Computing(Protocol):
    """Runs what computes (cleaning, recompression, recovery scans) off the event loop: a worker process in production,
    inline in tests. A job is a module-level function of this package whose first parameter is the disk; the other
    arguments and the result are values that msgpack knows (int, float, str, bytes, bool, None, lists and dicts of them;
    a tuple arrives as a list). It gets paths and ranges of immutable files, never an object that the loop changes."""

    async def run(self, job: Callable[..., T], *args: object) -> T:
        """Call `job(disk, *args)` elsewhere and return its result. ComputingFailed for whatever it raised. Cancelled,
        it stops at any point or goes on for a moment: what it writes must not matter then."""

    def session(self) -> AbstractAsyncContextManager[ComputingSession]:
        """Not counted among the workers that `run` shares; it begins with its first job, and what it remembers is gone
        at the end."""


class WallClock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The seams of one node, but for coordination, which is connected later (`Coordination`)."""

    disk: Disk
    network: Network
    blocking: Blocking
    computing: Computing
    wall_clock: WallClock
    random: Callable[[str], random.Random]
    """purpose → an independent stream, so that a new draw in one place does not shift the others."""
    max_descriptors: int = 2**20
    """How many files and connections the process may have open."""
