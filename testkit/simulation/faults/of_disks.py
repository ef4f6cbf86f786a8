"""Disks that are slow, full, broken, or take a part of what is written."""

from __future__ import annotations

import errno

import trio

from strandline.testkit.cluster import LOG_DIR
from strandline.testkit.simulation.faults.striking import FaultKind, Strikes
from strandline.testkit.simulation.script import Fault

SLOW_S = 0.3
ROOM_LEFT_BYTES_MAX = 3_000
FAILING = ("pwritev", "fsync", "rename", "pread", "truncate", "fsync_dir", "open")


async def slow(strikes: Strikes, fault: Fault) -> None:
    (node,) = strikes.nodes(fault)
    before, node.disk_delay_s = node.disk_delay_s, SLOW_S
    await trio.sleep(fault.seconds)
    node.disk_delay_s = before


async def stuck(strikes: Strikes, fault: Fault) -> None:
    """What waits for the folder in threads of its own never ends; the broker is killed in the end."""
    (node,) = strikes.nodes(fault)
    assert node.blocking is not None
    node.blocking.stuck_lanes.add(LOG_DIR)
    await trio.sleep(fault.seconds)
    await _restart(strikes, fault)


async def full(strikes: Strikes, fault: Fault) -> None:
    """Until somebody makes room; whoever ended meanwhile is started by then."""
    (node,) = strikes.nodes(fault)
    disk = node.disk
    before = disk.capacity_bytes
    used_bytes = before - disk.free_bytes
    disk.capacity_bytes = used_bytes + strikes.chance(fault).randint(0, ROOM_LEFT_BYTES_MAX)
    await trio.sleep(fault.seconds)
    disk.capacity_bytes = before
    if not node.is_up:
        await strikes.start(node.broker_id)


async def failing(strikes: Strikes, fault: Fault) -> None:
    """One operation fails with EIO. A log that failed stays offline, so an operator restarts the broker."""
    (node,) = strikes.nodes(fault)
    operation = strikes.chance(fault).choice(FAILING)
    broken = node.disk.fail(operation, f"{LOG_DIR}/*", errno.EIO, after=strikes.chance(fault).randint(0, 20), times=1)
    await trio.sleep(fault.seconds)
    strikes.world.sometimes["an operation of the disk failed"] += broken.hits
    broken.cancel()
    await _restart(strikes, fault)


async def short_write(strikes: Strikes, fault: Fault) -> None:
    (node,) = strikes.nodes(fault)
    node.disk.shorten_next_write(f"{LOG_DIR}/*.log", strikes.chance(fault).randint(0, 100))
    await trio.lowlevel.checkpoint()


async def _restart(strikes: Strikes, fault: Fault) -> None:
    (node,) = strikes.nodes(fault)
    if node.is_up:
        strikes.cluster.crash(node.broker_id)
    await trio.sleep(1)
    await strikes.start(node.broker_id)


KINDS = {
    "slow disk": FaultKind(slow, ("1",), "whatever waits for the disk takes 0.3 s longer"),
    "stuck disk": FaultKind(stuck, ("1",), "the disk does not answer; the broker is killed in the end"),
    "full disk": FaultKind(full, ("1",), "there is hardly any room left, until there is"),
    "disk error": FaultKind(failing, ("1",), "one operation fails (EIO); the broker is restarted in the end"),
    "short write": FaultKind(short_write, ("1",), "the next write takes a part of what it is given"),
}
