"""Computing in production: a few worker processes, started when first needed, one job each at a time.

A computing *thread* would take the event loop from 37 K to 0.7 K round trips a second. A worker inherits nothing but
its three standard streams (no socket, no lock of a log directory), and what is said on them is in `worker`. One that
dies or talks nonsense fails its job and is replaced; a cancelled job's worker is killed, since nobody can stop a
computation otherwise. Idle workers end with this process, however it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import trio

from strandline.runtime.environment import NO_WORKER, WORKER_DIED, ComputingFailed
from strandline.runtime.processes.worker import GIVES_WAY, LENGTH, MAX_FRAME_BYTES, frame, job_name, unpack

T = TypeVar("T")

COMMAND = (sys.executable, "-P", "-m", "strandline.runtime.processes.worker")
REAP_TIMEOUT_S = 5.0
_CHUNK_BYTES = 2**20


def default_size() -> int:
    """One per core, two at least, so that a long job does not keep short ones waiting; four at most."""
    return min(4, max(2, os.cpu_count() or 1))


class WorkerPool:
    """`Computing` by up to `size` processes."""

    def __init__(self, size: int | None = None) -> None:
        self._limiter = trio.CapacityLimiter(size or default_size())
        self._idle: list[trio.Process] = []
        self._busy: dict[int, trio.Process] = {}

    @property
    def pids(self) -> list[int]:
        """Of all workers, busy ones first."""
        return [*self._busy, *(worker.pid for worker in self._idle)]

    async def run(self, job: Callable[..., T], *args: object) -> T:
        """As `Computing` says. A job waits for its turn where all workers are busy."""
        name = job_name(job)
        request = frame([name, args, False])
        async with self._limiter:
            worker = await self._worker(name)
            reply = await self._give(worker, request, name)
            self._idle.append(worker)
        result: T = _result(name, reply)
        return result

    @asynccontextmanager
    async def session(self) -> AsyncIterator[WorkerSession]:
        session = WorkerSession(self)
        try:
            yield session
        finally:
            await session.close()

    async def _give(self, worker: trio.Process, request: bytes, job: str) -> Any:
        """The worker's reply; it is ended where there is none."""
        self._busy[worker.pid] = worker
        try:
            return unpack(await _ask(worker, request, job))
        except BaseException:
            await _end(worker)
            raise
        finally:
            del self._busy[worker.pid]

    async def _worker(self, job: str) -> trio.Process:
        """An idle one that still lives, or a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.poll() is None:
                return worker
            await _end(worker)
        return await _start(job)

    async def close(self) -> None:
        """End the idle workers; what is under way goes on."""
        while self._idle:
            await _end(self._idle.pop())


class WorkerSession:
    """`ComputingSession` in a worker of its own, at low priority: nobody waits for it. One job at a time."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._own: trio.Process | None = None

    async def run(self, job: Callable[..., T], *args: object) -> T:
        name = job_name(job)
        request = frame([name, args, True])
        worker, self._own = self._own, None
        if worker is None or worker.poll() is not None:
            worker = await _start(name, GIVES_WAY)
        reply = await self._pool._give(worker, request, name)
        self._own = worker
        result: T = _result(name, reply)
        return result

    async def close(self) -> None:
        if self._own is not None:
            await _end(self._own)


def _result(job: str, reply: Any) -> Any:
    if not reply[0]:
        raise ComputingFailed(job, *reply[1:])
    return reply[1]


async def _start(job: str, *arguments: str) -> trio.Process:
    try:
        return await trio.lowlevel.open_process(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            # In a session of its own Ctrl-C does not even reach it while Python starts; see `worker._lower_session`.
            start_new_session=True,
        )
    except OSError as error:
        raise ComputingFailed(job, NO_WORKER, str(error)) from error


async def _ask(worker: trio.Process, request: bytes, job: str) -> bytes:
    assert worker.stdin is not None and worker.stdout is not None
    try:
        await worker.stdin.send_all(request)
        received = bytearray()
        wanted = LENGTH.size
        while len(received) < wanted:
            piece = await worker.stdout.receive_some(min(_CHUNK_BYTES, wanted - len(received)))
            if not piece:
                raise ComputingFailed(job, WORKER_DIED, "")
            received += piece
            if wanted == LENGTH.size == len(received):
                wanted += LENGTH.unpack(received)[0]
                if wanted > MAX_FRAME_BYTES + LENGTH.size:
                    raise ComputingFailed(job, WORKER_DIED, f"it announced a reply of {wanted} bytes")
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        raise ComputingFailed(job, WORKER_DIED, str(error)) from error
    return bytes(memoryview(received)[LENGTH.size :])


async def _end(worker: trio.Process) -> None:
    """Kill it and take note of its end. A process that hangs in the disk ends when the disk lets it go."""
    with suppress(ProcessLookupError):
        worker.kill()
    with trio.move_on_after(REAP_TIMEOUT_S, shield=True):
        for stream in (worker.stdin, worker.stdout):
            if stream is not None:
                await trio.aclose_forcefully(stream)
        await worker.wait()
