"""Processes and machines: killed, stopped, paused, without power, with another disk, with a wrong clock."""

from __future__ import annotations

import re

import trio

from strandline.storage.manager.identity import META_PROPERTIES
from strandline.testkit.cluster import LOG_DIR, StartFailed
from strandline.testkit.disk.model import lose_everything
from strandline.testkit.node import NodeDied
from strandline.testkit.simulation.faults.places import (
    ANYWHERE,
    DISK_PLACES,
    OF_SESSIONS,
    OPERATIONS_PASSED_MAX,
    PASSED_MAX,
    WAITED_S,
    WRITES,
    WRITES_PASSED_MAX,
    is_write,
)
from strandline.testkit.simulation.faults.striking import FaultKind, Strikes
from strandline.testkit.simulation.script import Fault
from strandline.testkit.zookeeper.client import Request

HOUR_MS, TEN_YEARS_MS = 3_600_000, 315_360_000_000
JUMPS_MS = {"+1 h": HOUR_MS, "-1 h": -HOUR_MS, "+10 y": TEN_YEARS_MS, "-10 y": -TEN_YEARS_MS}
STANDS_STILL = "stands still"
IDENTITIES = ("broker.id", "cluster.id")
FOREIGN_ID = "77"


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


async def wrong_identity(strikes: Strikes, fault: Fault) -> None:
    """Until an operator puts the right disk in, no start may succeed, or change the one that is there."""
    (broker,) = strikes.brokers(fault)
    node, key = strikes.cluster.nodes[broker], strikes.how(fault)
    strikes.cluster.crash(broker)
    path = f"{LOG_DIR}/{META_PROPERTIES}"
    right = node.disk.read(path) if node.disk.exists(path) else b""
    if key.encode() not in right:  # it was killed before it was anybody's
        return await _return(strikes, fault)
    other = f"{key}={FOREIGN_ID}"
    node.disk.write(path, re.sub(rf"^{re.escape(key)}=.*$".encode(), other.encode(), right, flags=re.MULTILINE))
    foreign = node.disk.content()
    try:
        await strikes.cluster.start_broker(broker)
        strikes.world.violated(f"foreign-disk: broker {broker}: starts, though {key} is another one")
    except StartFailed as failed:
        strikes.world.sometimes[f"a foreign disk was refused: {key}"] += other in str(failed)
    if changed := sorted({each for each, _ in foreign.items() ^ node.disk.content().items()}):
        strikes.world.violated(f"foreign-disk: broker {broker}: its start changed {changed}")
    node.disk.write(path, right)
    await _return(strikes, fault)


async def pause(strikes: Strikes, fault: Fault) -> None:
    for broker in (brokers := strikes.brokers(fault)):
        strikes.cluster.pause(broker)
    await trio.sleep(fault.seconds)
    for broker in brokers:
        strikes.cluster.resume(broker)


async def clock(strikes: Strikes, fault: Fault) -> None:
    jump_ms = JUMPS_MS.get(how := strikes.how(fault), 0)
    clocks = [node.wall_clock for node in strikes.nodes(fault)]
    for each in clocks:
        each.skew_ms += jump_ms
        each.stands_at_ms = each.now_ms() if how == STANDS_STILL else None
    await trio.sleep(fault.seconds)
    for each in clocks:
        each.skew_ms -= jump_ms
        each.stands_at_ms = None


async def kill_at_zookeeper(strikes: Strikes, fault: Fault) -> None:
    """Before or after ZooKeeper has applied what it writes next."""
    (broker,) = strikes.brokers(fault)
    strikes.losses.strike(broker, fault.seconds + WAITED_S)
    client, chance = strikes.cluster.coordination(broker).client, strikes.chance(fault)
    write, when_done, met = strikes.how(fault), chance.random() < 0.5, trio.Event()
    left = chance.randint(0, WRITES_PASSED_MAX if write == ANYWHERE else PASSED_MAX)

    def on_write(request: Request, is_done: bool) -> bool:
        nonlocal left
        if is_done != when_done or met.is_set() or not is_write(request, write):
            return True
        left -= 1
        if left >= 0:
            return True
        met.set()
        strikes.world.sometimes[f"killed at a write to ZooKeeper: {write}"] += 1
        strikes.cluster.crash(broker)
        return False

    strikes.at_writes[client] = on_write
    if write in OF_SESSIONS and broker in strikes.cluster.registered():
        strikes.cluster.expire_session(broker)  # it writes such things when it begins one
    with trio.move_on_after(fault.seconds + WAITED_S):
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
    node, how = strikes.cluster.nodes[broker], strikes.how(fault)
    strikes.losses.strike(broker, fault.seconds + WAITED_S)
    place, disk, met = DISK_PLACES[how], node.disk, trio.Event()
    left = strikes.chance(fault, "left").randint(0, OPERATIONS_PASSED_MAX if how == ANYWHERE else PASSED_MAX)

    def on_operation(operation: str, path: str) -> None:
        nonlocal left
        if not place.has(operation, path) or met.is_set() or not node.is_up:
            return
        left -= 1
        if left < 0:
            met.set()
            strikes.world.sometimes[f"ended at an operation of the disk: {how}"] += 1
            if loses_power:
                _lose_power(strikes, fault)
            else:
                strikes.cluster.crash(broker)
            raise NodeDied(f"{node.name} ended at {operation} {path}")

    disk.on_operation = on_operation
    with trio.move_on_after(fault.seconds + WAITED_S):
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
CLOCKS, PLACES = (*JUMPS_MS, STANDS_STILL), tuple(DISK_PLACES)
KINDS = {
    "kill": FaultKind(kill, ("1", "1", "controller", "all"), "SIGKILL; the broker returns after the fault's time"),
    "stop": FaultKind(stop, ("1", "1", "controller"), "SIGTERM: an orderly stop"),
    "power": FaultKind(power, ("1", "1", "all"), "machines lose power: of what was not synced anything may survive"),
    "wipe": FaultKind(wipe, ONE, "killed, and back with an empty disk"),
    "old backup": FaultKind(old_backup, ONE, "killed, and back with its disk of a while ago"),
    "wrong identity": FaultKind(wrong_identity, ONE, "killed; its disk is another broker's or cluster's", IDENTITIES),
    "pause": FaultKind(pause, ("1", "1", "controller"), "SIGSTOP, and SIGCONT after the fault's time"),
    "clock": FaultKind(clock, ("1", "1", "all"), "the wall clock jumps, or stands still, and is right again", CLOCKS),
    "kill at zookeeper": FaultKind(kill_at_zookeeper, ("1", "controller"), "killed before or after a write", WRITES),
    "kill at disk": FaultKind(kill_at_disk, ONE, "killed between two operations of its disk", PLACES),
    "power at disk": FaultKind(power_at_disk, ONE, "loses power between two of them", PLACES),
}
