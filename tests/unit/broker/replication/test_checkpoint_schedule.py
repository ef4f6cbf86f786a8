"""High watermarks reach their checkpoint in time, and nothing is done where none moved."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from support.replica_site import T0, T1, ReplicaSite, batch

CHECKPOINT = "/logs/replication-offset-checkpoint"
INTERVAL_S = 5
IDLE_S = 3600.0


@asynccontextmanager
async def idle(site: ReplicaSite) -> AsyncIterator[None]:
    """T0 and T1 are led here, and followed by nobody; each has a record, and nothing happened for long."""
    await site.order(*(site.state(tp, replicas=(1,), isr=(1,)) for tp in (T0, T1)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.checkpoints.run_high_watermarks)
        site.produce((T0, batch()), (T1, batch()), acks=1)
        await trio.sleep(IDLE_S)
        assert stored(site) == {b"t 0 1", b"t 1 1"}
        yield
        nursery.cancel_scope.cancel()


def stored(site: ReplicaSite) -> set[bytes]:
    return set(site.disk.read(CHECKPOINT).splitlines()[2:])


async def test_where_none_moved_no_disk_is_touched(site: ReplicaSite, autojump_clock: MockClock) -> None:
    async with idle(site):
        touched: list[str] = []
        site.disk.on_operation = lambda operation, path: touched.append(path)
        site.environment.blocking.run_in = lambda lane, *_: touched.append(lane)
        await trio.sleep(IDLE_S)
        assert touched == []


async def test_one_that_moves_after_long_is_written_in_time(site: ReplicaSite, autojump_clock: MockClock) -> None:
    async with idle(site):
        site.produce((T1, batch()), acks=1)
        await trio.sleep(INTERVAL_S + 0.1)
        assert stored(site) == {b"t 0 1", b"t 1 2"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
async def test_what_could_not_be_written_is_written_later_although_none_moved_since(
    site: ReplicaSite, autojump_clock: MockClock, number: int
) -> None:
    async with idle(site):
        fault = site.disk.fail("open", f"{CHECKPOINT}*", number, times=2)
        site.produce((T0, batch()), acks=1)
        await trio.sleep(INTERVAL_S * 3 + 0.1)
        assert fault.hits == 2 and stored(site) == {b"t 0 2", b"t 1 1"}


async def test_a_log_that_is_gone_is_soon_named_no_more(site: ReplicaSite, autojump_clock: MockClock) -> None:
    """It would be missed at the next start. Nobody says that it was set aside."""
    async with idle(site):
        site.logs.set_aside(T1, b"z" * 16, is_credited=False)
        site.replicas.partitions.pop(T1)
        await trio.sleep(INTERVAL_S + 0.1)
        assert stored(site) == {b"t 0 1"}


async def test_one_that_is_hosted_no_more_keeps_its_mark(site: ReplicaSite, autojump_clock: MockClock) -> None:
    async with idle(site):
        site.produce((T1, batch()), acks=1)
        site.stop(T1)
        await trio.sleep(INTERVAL_S + 0.1)
        assert stored(site) == {b"t 0 1", b"t 1 2"}
