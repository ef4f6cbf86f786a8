"""Disks that are slow, full, broken, or take a part of what is written."""

from __future__ import annotations

import errno

import trio

from strandline.testkit.cluster import LOG_DIR
from strandline.testkit.disk.model import disk_error, nothing_happens
from strandline.testkit.simulation.faults.places import DISK_PLACES
from strandline.testkit.simulation.faults.striking import FaultKind, Strikes
from strandline.testkit.simulation.script import Fault

SLOW_S = {"0.3 s": 0.3, "3 s": 3.0, "30 s": 30.0}
ROOM_LEFT_BYTES_MAX = 3_000
FAILING = ("pwritev", "fsync", "rename", "pread", "truncate", "fsync_dir", "open")
FILLED = ("append", "roll", "index", "snapshot", "epochs", "checkpoint", "cleaning", "folder")


async def slow(strikes: Strikes, fault: Fault) -> None:
    (node,) = strikes.nodes(fault)
    before, node.disk_delay_s = node.disk_delay_s, SLOW_S[strikes.how(fault)]
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
    await _see_to_logs(strikes, fault)


async def no_room(strikes: Strikes, fault: Fault) -> None:
    """As with a quota of one place: the rest of the disk has room. Until there is some there, too. Nothing is written
    there, not even where there was something before."""
    (node,) = strikes.nodes(fault)
    disk, place = node.disk, DISK_PLACES[how := strikes.how(fault)]

    def on_growth(operation: str, path: str) -> None:
        if place.has(operation, path):
            strikes.world.sometimes[f"no room: {how}"] += 1
            raise disk_error(errno.ENOSPC, path)

    disk.on_growth = on_growth
    await trio.sleep(fault.seconds)
    disk.on_growth = nothing_happens
    await _see_to_logs(strikes, fault)


async def no_descriptors(strikes: Strikes, fault: Fault) -> None:
    """Files cannot be opened, connections neither accepted nor made, until there are some again."""
    (node,) = strikes.nodes(fault)
    network = strikes.cluster.network.node(node.name)
    lacking = node.disk.fail("open", "*", errno.EMFILE)
    network.lacks_descriptors = True
    await trio.sleep(fault.seconds)
    network.lacks_descriptors = False
    strikes.world.sometimes["a file was not opened for want of descriptors"] += lacking.hits
    lacking.cancel()
    await _see_to_logs(strikes, fault)


async def failing(strikes: Strikes, fault: Fault) -> None:
    """One operation fails with EIO. A log that failed stays offline, so an operator restarts the broker."""
    (node,) = strikes.nodes(fault)
    operation = strikes.how(fault)
    broken = node.disk.fail(operation, f"{LOG_DIR}/*", errno.EIO, after=strikes.chance(fault).randint(0, 20), times=1)
    await trio.sleep(fault.seconds)
    strikes.world.sometimes["an operation of the disk failed"] += broken.hits
    broken.cancel()
    await _restart(strikes, fault)


async def short_write(strikes: Strikes, fault: Fault) -> None:
    (node,) = strikes.nodes(fault)
    node.disk.shorten_next_write(f"{LOG_DIR}/*.log", strikes.chance(fault).randint(0, 100))
    await trio.lowlevel.checkpoint()


async def _see_to_logs(strikes: Strikes, fault: Fault) -> None:
    """A broker that ended, or whose log is offline, is started again, as its operator was told."""
    (node,) = strikes.nodes(fault)
    if node.is_up and strikes.cluster.offline_logs(node.broker_id):
        strikes.world.sometimes["restarted for a log that was offline"] += 1
        await _restart(strikes, fault)
    elif not node.is_up:
        await strikes.start(node.broker_id)


async def _restart(strikes: Strikes, fault: Fault) -> None:
    (node,) = strikes.nodes(fault)
    if node.is_up:
        strikes.cluster.crash(node.broker_id)
    await trio.sleep(1)
    await strikes.start(node.broker_id)


KINDS = {
    "slow disk": FaultKind(slow, ("1",), "whatever waits for the disk takes so much longer", tuple(SLOW_S)),
    "stuck disk": FaultKind(stuck, ("1",), "the disk does not answer; the broker is killed in the end"),
    "full disk": FaultKind(full, ("1",), "there is hardly any room left, until there is"),
    "no room": FaultKind(no_room, ("1",), "the files of one kind cannot grow, until they can", FILLED),
    "no descriptors": FaultKind(no_descriptors, ("1",), "no file is opened, no connection accepted or made"),
    "disk error": FaultKind(failing, ("1",), "one operation fails (EIO); restarted in the end", FAILING),
    "short write": FaultKind(short_write, ("1",), "the next write takes a part of what it is given"),
}
