"""What is between brokers, and between clients and them: cuts in one direction or both, slow links, broken ones."""

from __future__ import annotations

import trio

from strandline.testkit.cluster import CLIENT
from strandline.testkit.simulation.faults.striking import FaultKind, Strikes
from strandline.testkit.simulation.script import Fault

SLOW_LATENCY_S, SLOW_JITTER_S, SLOW_BYTES_PER_S = 0.2, 0.3, 20_000
DROP_AFTER_BYTES_MAX = 2_000


async def cut(strikes: Strikes, fault: Fault) -> None:
    source, destination = (node.name for node in strikes.nodes(fault))
    strikes.cluster.network.cut(source, destination)
    await trio.sleep(fault.seconds)
    strikes.cluster.network.heal(source, destination)


async def cut_both(strikes: Strikes, fault: Fault) -> None:
    one, other = (node.name for node in strikes.nodes(fault))
    strikes.cluster.network.cut_both(one, other)
    await trio.sleep(fault.seconds)
    strikes.cluster.network.heal(one, other)


async def isolate(strikes: Strikes, fault: Fault) -> None:
    """From everybody, ZooKeeper included."""
    (node,) = strikes.nodes(fault)
    strikes.cluster.network.isolate(node.name)
    strikes.cluster.cut_from_zookeeper(node.broker_id, noticed=False)
    await trio.sleep(fault.seconds)
    strikes.cluster.network.heal(node.name)
    strikes.cluster.heal_zookeeper(node.broker_id)


async def cut_from_clients(strikes: Strikes, fault: Fault) -> None:
    (node,) = strikes.nodes(fault)
    sides = [(node.name, CLIENT), (CLIENT, node.name)]
    for source, destination in strikes.chance(fault).choice((sides, sides[:1], sides[1:])):
        strikes.cluster.network.cut(source, destination)
    await trio.sleep(fault.seconds)
    strikes.cluster.network.heal(node.name, CLIENT)


async def refuse(strikes: Strikes, fault: Fault) -> None:
    """Its connections break, and its address refuses new ones."""
    (node,) = strikes.nodes(fault)
    strikes.cluster.refuse(node.broker_id)
    await trio.sleep(fault.seconds)
    strikes.cluster.take_connections(node.broker_id)


async def half_open(strikes: Strikes, fault: Fault) -> None:
    """Nobody accepts: who connects hears nothing."""
    (node,) = strikes.nodes(fault)
    strikes.cluster.network.fill_queue(node.name)
    strikes.cluster.network.drop_connections(node.name)
    await trio.sleep(fault.seconds)
    strikes.cluster.network.empty_queue(node.name)


async def swizzle(strikes: Strikes, fault: Fault) -> None:
    """All links fail one by one, and come back in another order."""
    names, chance = list(strikes.cluster.nodes.values()), strikes.chance(fault)
    links = [(one.name, other.name) for one in names for other in names if one is not other]
    pause_s = fault.seconds / (2 * len(links))
    for source, destination in chance.sample(links, len(links)):
        strikes.cluster.network.cut(source, destination)
        await trio.sleep(pause_s)
    for source, destination in chance.sample(links, len(links)):
        strikes.cluster.network.heal(source, destination)
        await trio.sleep(pause_s)


async def slow_link(strikes: Strikes, fault: Fault) -> None:
    source, destination = (node.name for node in strikes.nodes(fault))
    link = strikes.cluster.network.link(source, destination)
    before = link.latency_s, link.jitter_s, link.bytes_per_s
    link.latency_s, link.jitter_s, link.bytes_per_s = SLOW_LATENCY_S, SLOW_JITTER_S, SLOW_BYTES_PER_S
    await trio.sleep(fault.seconds)
    link.latency_s, link.jitter_s, link.bytes_per_s = before


async def drop(strikes: Strikes, fault: Fault) -> None:
    source, destination = (node.name for node in strikes.nodes(fault))
    link = strikes.cluster.network.link(source, destination)
    link.drop_after_bytes = strikes.chance(fault).randint(1, DROP_AFTER_BYTES_MAX)
    await trio.lowlevel.checkpoint()


async def reset(strikes: Strikes, fault: Fault) -> None:
    (node,) = strikes.nodes(fault)
    strikes.cluster.network.drop_connections(node.name)
    await trio.lowlevel.checkpoint()


KINDS = {
    "cut": FaultKind(cut, ("1>2",), "nothing passes from one broker to another"),
    "cut both": FaultKind(cut_both, ("1-2",), "nothing passes between two brokers"),
    "isolate": FaultKind(isolate, ("1",), "a broker is cut off from all others and from ZooKeeper"),
    "cut from clients": FaultKind(cut_from_clients, ("1",), "clients do not reach it, or are not answered, or both"),
    "refuse": FaultKind(refuse, ("1",), "its connections break, and new ones are refused"),
    "half open": FaultKind(half_open, ("1",), "its connections break, and who connects anew hears nothing"),
    "swizzle": FaultKind(swizzle, ("all",), "all links fail one by one, and come back in another order"),
    "slow link": FaultKind(slow_link, ("1>2",), "what passes is late, and little of it"),
    "drop": FaultKind(drop, ("1>2",), "the connection breaks in the middle of a frame"),
    "reset": FaultKind(reset, ("1",), "all of its connections break"),
}
