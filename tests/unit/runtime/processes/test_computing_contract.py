"""One contract for the computing seam, over worker processes and over the inline one of the test kit."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from strandline.runtime.disk import Disk
from strandline.runtime.disk_posix import PosixDisk
from strandline.runtime.environment import NO_WORKER, WORKER_DIED, Computing, ComputingFailed
from strandline.runtime.processes import workers
from strandline.runtime.processes.workers import WorkerPool
from strandline.testkit.computing_jobs import (
    count,
    echo,
    fail,
    print_and_echo,
    read,
    return_a_set,
    spin_until,
    spin_with_memory,
)
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import InlineComputing

PATIENCE_S = 60


class Place:
    """A way to compute, and a folder on the disk that its jobs see."""

    def __init__(self, computing: Computing, disk: Disk, root: str) -> None:
        self.computing = computing
        self.disk = disk
        self.root = root


@pytest.fixture(params=["processes", "inline"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "inline":
        disk = MemoryDisk()
        disk.makedirs("/root")
        yield Place(InlineComputing(disk), disk, "/root")
        return
    pool = WorkerPool(2)
    yield Place(pool, PosixDisk(), str(tmp_path))
    await pool.close()


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(2)
    yield pool
    await pool.close()


async def until_exists(path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        while not path.exists():
            await trio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def opened_by(pid: int) -> list[str]:
    """What the descriptors of a process that goes on lead to."""
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            targets.append(os.readlink(link))
    return targets


def children_of(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = status.read_text().splitlines()
        except OSError:
            continue
        if f"PPid:\t{pid}" in lines:
            found.append(int(status.parent.name))
    return found


# --- both -------------------------------------------------------------------------------------------------------------


async def test_a_job_gets_its_arguments_and_its_result_comes_back(place: Place) -> None:
    values = [-(2**63), 2**63, "ä", b"\x00\xff", None, True, 1.5, [1, [2]], {"k": [b"v"], 3: 4}]
    assert await place.computing.run(echo, *values) == values
    assert await place.computing.run(echo, (1, 2)) == [[1, 2]]
    assert await place.computing.run(echo) == []
    large = bytes(3 * 2**20)
    assert await place.computing.run(echo, large) == [large]


async def test_a_job_sees_the_disk(place: Place) -> None:
    file = place.disk.open(f"{place.root}/f", create=True)
    file.pwritev([b"content"], 0)
    file.close()
    assert await place.computing.run(read, f"{place.root}/f") == b"content"


async def test_whatever_a_job_raises_is_one_error_that_says_which_job_and_what(place: Place) -> None:
    with pytest.raises(ComputingFailed, match="computing_jobs:fail failed: ZeroDivisionError: oh") as info:
        await place.computing.run(fail, "oh")
    assert info.value.kind == "ZeroDivisionError" and info.value.errno is None
    with pytest.raises(ComputingFailed) as info:
        await place.computing.run(read, f"{place.root}/nothing")
    assert info.value.kind == "OSError" and info.value.errno == errno.ENOENT
    assert await place.computing.run(echo, 1) == [1]


async def test_a_result_that_cannot_travel_fails_its_job_only(place: Place) -> None:
    with pytest.raises(ComputingFailed):
        await place.computing.run(return_a_set)
    assert await place.computing.run(echo, 1) == [1]


async def test_only_module_level_functions_of_the_package_are_jobs(place: Place) -> None:
    with pytest.raises(ValueError, match="no module-level function"):
        await place.computing.run(lambda disk: 1)
    with pytest.raises(ValueError, match="no module-level function"):
        await place.computing.run(os.unlink, "/nowhere")


async def test_an_argument_that_cannot_travel_is_refused_before_anything_runs(place: Place) -> None:
    with pytest.raises(TypeError):
        await place.computing.run(echo, {1})


async def test_the_jobs_of_a_session_share_a_memory_that_nobody_else_sees(place: Place) -> None:
    async with place.computing.session() as first, place.computing.session() as second:
        assert await first.run(count, 3) == 3
        assert await second.run(count, 10) == 10
        with pytest.raises(ComputingFailed, match="ZeroDivisionError"):
            await first.run(count, 0)
        assert await first.run(count, 4) == 7
    async with place.computing.session() as third:
        assert await third.run(count, 1) == 1


# --- processes --------------------------------------------------------------------------------------------------------


async def test_a_worker_is_used_again(pool: WorkerPool) -> None:
    assert pool.pids == []
    await pool.run(echo)
    first = pool.pids
    await pool.run(echo)
    assert pool.pids == first and len(first) == 1 and first != [os.getpid()]


async def test_what_a_job_prints_is_no_reply(pool: WorkerPool) -> None:
    assert await pool.run(print_and_echo, "\x00\x00\x00\x05hello") == "\x00\x00\x00\x05hello"
    assert await pool.run(echo, 1) == [1]


async def test_a_worker_that_cannot_be_started_is_no_error_of_a_disk(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "COMMAND", ("/nowhere/python",))
    with pytest.raises(ComputingFailed) as info:
        await pool.run(echo, 1)
    assert (info.value.kind, info.value.errno, info.value.may_succeed_later) == (NO_WORKER, None, True)
    monkeypatch.undo()
    assert await pool.run(echo, 1) == [1]


async def test_a_worker_that_dies_fails_its_job_and_the_next_one_gets_a_new_worker(
    pool: WorkerPool, tmp_path: Path
) -> None:
    async def lose() -> None:
        with pytest.raises(ComputingFailed) as info:
            await pool.run(spin_until, str(tmp_path / "started"), str(tmp_path / "never"))
        assert info.value.kind == WORKER_DIED

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lose)
        await until_exists(tmp_path / "started")
        (victim,) = pool.pids
        os.kill(victim, signal.SIGKILL)
    assert await pool.run(echo, 1) == [1]
    assert victim not in pool.pids


async def test_a_worker_that_died_idle_is_replaced(pool: WorkerPool) -> None:
    await pool.run(echo)
    (victim,) = pool.pids
    os.kill(victim, signal.SIGKILL)
    with trio.fail_after(PATIENCE_S):  # until the last of its threads is gone
        while os.waitid(os.P_PID, victim, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            await trio.sleep(0.01)
    assert await pool.run(echo, 1) == [1]
    assert victim not in pool.pids


async def test_a_cancelled_job_ends_with_its_worker(pool: WorkerPool, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, spin_until, str(tmp_path / "started"), str(tmp_path / "never"))
        await until_exists(tmp_path / "started")
        (victim,) = pool.pids
        nursery.cancel_scope.cancel()
    assert not is_alive(victim) and pool.pids == []
    assert await pool.run(echo, 1) == [1]


async def test_a_session_has_its_own_worker_ends_with_it_and_forgets_what_a_lost_one_knew(
    pool: WorkerPool, tmp_path: Path
) -> None:
    async with pool.session() as session:
        assert await session.run(count, 5) == 5
        with trio.move_on_after(PATIENCE_S) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.run, spin_with_memory, str(tmp_path / "started"), str(tmp_path / "never"))
                await until_exists(tmp_path / "started")
                (own,) = pool.pids
                await pool.run(echo)
                assert len(pool.pids) == 2
                scope.cancel()
        assert not is_alive(own)
        assert await session.run(count, 2) == 2
    assert len(pool.pids) == 1


async def test_jobs_run_side_by_side_up_to_the_size_of_the_pool_while_the_loop_goes_on(
    pool: WorkerPool, tmp_path: Path
) -> None:
    results: list[str] = []

    async def spin(number: int) -> None:
        results.append(await pool.run(spin_until, str(tmp_path / f"started-{number}"), str(tmp_path / "finish")))

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(spin, number)
        with trio.fail_after(PATIENCE_S):
            while len(list(tmp_path.glob("started-*"))) < 2:
                await trio.sleep(0.01)
        assert len(pool.pids) == 2 and len(list(tmp_path.glob("started-*"))) == 2
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0  # nothing waits in threads
        (tmp_path / "finish").touch()
    assert results == ["finished"] * 3


async def test_a_worker_inherits_no_descriptors_and_ignores_ctrl_c(pool: WorkerPool, tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(lock, True)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run, spin_until, str(tmp_path / "started"), str(tmp_path / "finish"))
            await until_exists(tmp_path / "started")
            (pid,) = pool.pids
            opened = opened_by(pid)
            assert len(opened) >= 3  # its standard streams
            assert not any(str(tmp_path / "lock") in target or target.startswith("socket:") for target in opened)
            assert os.getsid(pid) == pid
            os.kill(pid, signal.SIGINT)
            (tmp_path / "finish").touch()
        assert pool.pids == [pid]
    finally:
        os.close(lock)


async def test_what_shares_the_pool_is_waited_for_and_keeps_its_priority_a_session_gives_way(
    pool: WorkerPool, tmp_path: Path
) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    async with trio.open_nursery() as nursery, pool.session() as session:
        nursery.start_soon(pool.run, spin_until, str(tmp_path / "shared"), str(tmp_path / "finish"))
        await until_exists(tmp_path / "shared")
        (shared,) = pool.pids
        nursery.start_soon(session.run, spin_with_memory, str(tmp_path / "own"), str(tmp_path / "finish"))
        await until_exists(tmp_path / "own")
        (polite,) = set(pool.pids) - {shared}
        assert os.getpriority(os.PRIO_PROCESS, shared) == own
        assert os.getpriority(os.PRIO_PROCESS, polite) >= 10
        if os.access("/proc/self/autogroup", os.W_OK):  # Linux: how sessions are weighed against each other
            with trio.fail_after(PATIENCE_S):
                while not Path(f"/proc/{polite}/autogroup").read_text().endswith(" nice 10\n"):
                    await trio.sleep(0.01)
        (tmp_path / "finish").touch()
        with trio.fail_after(PATIENCE_S):
            while len(pool.pids) != 1:
                await trio.sleep(0.01)


PARENT = """
import sys, trio
from strandline.runtime.processes.workers import WorkerPool
from strandline.testkit.computing_jobs import spin_until
trio.run(WorkerPool().run, spin_until, sys.argv[1], sys.argv[2])
"""


async def test_a_computing_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, tmp_path / "started", tmp_path / "never"]) as parent:
        await until_exists(tmp_path / "started")
        children = children_of(parent.pid)
        parent.kill()
    assert len(children) == 1
    with trio.fail_after(PATIENCE_S):
        while is_alive(children[0]):
            await trio.sleep(0.01)
