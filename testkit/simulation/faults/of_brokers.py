"""Processes and machines: killed, stopped, paused, without power, with another disk, with a wrong clock."""

from __future__ import annotations

import trio

from strandline.testkit.disk.model import lose_everything
from strandline.testkit.node import NodeDied
from strandline.testkit.simulation.faults.striking import FaultKind, Strikes
from strandline.testkit.simulation.script import Fault
from strandline.testkit.zookeeper.client import Request

JUMPS_MS = (3_600_000, -3_600_000, 315_360_000_000)
OPERATIONS_BEFORE_MAX = 40
CHANGES = frozenset(["pwritev", "truncate", "fsync", "rename", "unlink", "makedirs", "fsync_dir", "open", "reserve"])
"""Between two others of a disk's operations a crash finds what the first one left."""


async def kill(strikes: Strikes, fault: Fault) -> None:
    for broker in strikes.brokers(fault):
        strikes.cluster.crash(broker)
    await _return(strikes, fault)


async def stop(strikes: Strikes, fault: Fault) -> None:
    for broker in strikes.brokers(fault):
        await strikes.cluster.stop(broker)
    await _return(strikes, fault)


async def power(strikes: Strikes, fault: Fault) -> None:
    _lose_power(strikes, fault)
    await _return(strikes, fault)


async def wipe(strikes: Strikes, fault: Fault) -> None:
    """It comes back once its session is over, or within it."""
    (broker,) = brokers = strikes.brokers(fault)
    with strikes.losses.by_disaster(brokers):
        strikes.cluster.crash(broker)
        strikes.cluster.replace_disk(broker)
    if strikes.chance(fault).random() < 0.5 and broker in strikes.cluster.registered():
        strikes.cluster.expire_session(broker)
    await _return(strikes, fault)


async def old_backup(strikes: Strikes, fault: Fault) -> None:
    """Its disk is what it was when the fault began."""
    (broker,) = brokers = strikes.brokers(fault)
    copy = strikes.cluster.nodes[broker].disk.copy()
    await trio.sleep(fault.seconds / 2)
    if strikes.cluster.nodes[broker].is_up:
        with strikes.losses.by_disaster(brokers):
            strikes.cluster.crash(broker)
            strikes.cluster.replace_disk(broker, copy)
            strikes.cluster.nodes[broker].disk.boot += 1
    await _return(strikes, fault)


async def pause(strikes: Strikes, fault: Fault) -> None:
    for broker in (brokers := strikes.brokers(fault)):
        strikes.cluster.pause(broker)
    await trio.sleep(fault.seconds)
    for broker in brokers:
        strikes.cluster.resume(broker)


async def clock(strikes: Strikes, fault: Fault) -> None:
    jump_ms = strikes.chance(fault).choice(JUMPS_MS)
    for node in strikes.nodes(fault):
        node.wall_clock.skew_ms += jump_ms
    await trio.sleep(fault.seconds)
    for node in strikes.nodes(fault):
        node.wall_clock.skew_ms -= jump_ms


async def kill_at_zookeeper(strikes: Strikes, fault: Fault) -> None:
    """Before or after ZooKeeper has applied what it writes next."""
    (broker,) = strikes.brokers(fault)
    client, chance = strikes.cluster.coordination(broker).client, strikes.chance(fault)
    writes, when_done, met = chance.randint(1, 4), chance.random() < 0.5, trio.Event()

    def on_write(request: Request, is_done: bool) -> bool:
        nonlocal writes
        writes -= is_done == when_done
        if writes or met.is_set():
            return True
        met.set()
        strikes.world.sometimes["killed at a write to ZooKeeper"] += 1
        strikes.cluster.crash(broker)
        return False

    strikes.at_writes[client] = on_write
    with trio.move_on_after(fault.seconds):
        await met.wait()
    del strikes.at_writes[client]
    await _return(strikes, fault)


async def kill_at_disk(strikes: Strikes, fault: Fault) -> None:
    await _end_at_disk(strikes, fault, loses_power=False)


async def power_at_disk(strikes: Strikes, fault: Fault) -> None:
    await _end_at_disk(strikes, fault, loses_power=True)


async def _end_at_disk(strikes: Strikes, fault: Fault, *, loses_power: bool) -> None:
    """Between two operations on its disk."""
    (broker,) = strikes.brokers(fault)
    node = strikes.cluster.nodes[broker]
    disk, left, met = node.disk, strikes.chance(fault).randint(1, OPERATIONS_BEFORE_MAX), trio.Event()

    def on_operation(operation: str, path: str) -> None:
        nonlocal left
        if operation not in CHANGES or met.is_set() or not node.is_up:
            return
        left -= 1
        if left == 0:
            met.set()
            strikes.world.sometimes["ended between two operations of the disk"] += 1
            if loses_power:
                _lose_power(strikes, fault)
            else:
                strikes.cluster.crash(broker)
            raise NodeDied(f"{node.name} ended at {operation} {path}")

    disk.on_operation = on_operation
    with trio.move_on_after(fault.seconds):
        await met.wait()
    disk.on_operation = None
    await _return(strikes, fault)


def _lose_power(strikes: Strikes, fault: Fault) -> None:
    brokers, chance = strikes.brokers(fault), strikes.chance(fault)
    choose = lose_everything if chance.random() < 0.3 else chance.randrange
    with strikes.losses.by_disaster(brokers):
        for broker in brokers:
            strikes.cluster.lose_power(broker, choose)


async def _return(strikes: Strikes, fault: Fault) -> None:
    await trio.sleep(fault.seconds)
    for broker in strikes.brokers(fault):
        if not strikes.cluster.nodes[broker].is_up:
            await strikes.start(broker)


ONE = ("1",)
KINDS = {
    "kill": FaultKind(kill, ("1", "1", "controller", "all"), "SIGKILL; the broker returns after the fault's time"),
    "stop": FaultKind(stop, ("1", "1", "controller"), "SIGTERM: an orderly stop"),
    "power": FaultKind(power, ("1", "1", "all"), "machines lose power: of what was not synced anything may survive"),
    "wipe": FaultKind(wipe, ONE, "killed, and back with an empty disk"),
    "old backup": FaultKind(old_backup, ONE, "killed, and back with its disk of a while ago"),
    "pause": FaultKind(pause, ("1", "1", "controller"), "SIGSTOP, and SIGCONT after the fault's time"),
    "clock": FaultKind(clock, ("1", "1", "all"), "the wall clock jumps by an hour or ten years, and back"),
    "kill at zookeeper": FaultKind(kill_at_zookeeper, ("1", "controller"), "killed before or after a write to it"),
    "kill at disk": FaultKind(kill_at_disk, ONE, "killed between two operations of its disk"),
    "power at disk": FaultKind(power_at_disk, ONE, "loses power between two operations of its disk"),
}
