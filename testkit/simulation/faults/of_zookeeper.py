"""ZooKeeper: out of reach, silent, down, behind, or without an answer; sessions that end."""

from __future__ import annotations

import trio

from strandline.testkit.simulation.faults.striking import FaultKind, Strikes
from strandline.testkit.simulation.script import Fault

SLOW_S = 5.0


async def expire(strikes: Strikes, fault: Fault) -> None:
    (broker,) = strikes.brokers(fault)
    if broker in strikes.cluster.registered():
        strikes.cluster.expire_session(broker)
    await trio.lowlevel.checkpoint()


async def expire_twice(strikes: Strikes, fault: Fault) -> None:
    await expire(strikes, fault)
    await trio.sleep(strikes.chance(fault).uniform(0.05, 1.0))
    await expire(strikes, fault)


async def cut(strikes: Strikes, fault: Fault) -> None:
    (broker,) = strikes.brokers(fault)
    strikes.cluster.cut_from_zookeeper(broker)
    await trio.sleep(fault.seconds)
    strikes.cluster.heal_zookeeper(broker)


async def silent(strikes: Strikes, fault: Fault) -> None:
    (broker,) = strikes.brokers(fault)
    strikes.cluster.cut_from_zookeeper(broker, noticed=False)
    await trio.sleep(fault.seconds)
    strikes.cluster.heal_zookeeper(broker)


async def reply(strikes: Strikes, fault: Fault) -> None:
    strikes.cluster.zookeeper.drop_next_reply("/")
    await trio.lowlevel.checkpoint()


async def request(strikes: Strikes, fault: Fault) -> None:
    strikes.cluster.zookeeper.drop_next_request("/")
    await trio.lowlevel.checkpoint()


async def lag(strikes: Strikes, fault: Fault) -> None:
    (broker,) = strikes.brokers(fault)
    client = strikes.cluster.coordination(broker).client
    strikes.cluster.zookeeper.lag(client)
    await trio.sleep(fault.seconds)
    if strikes.cluster.coordination(broker).client is client:
        strikes.cluster.zookeeper.catch_up(client)


async def slow(strikes: Strikes, fault: Fault) -> None:
    """Any session may end meanwhile, and the next one begins late."""
    zookeeper = strikes.cluster.zookeeper
    for broker in strikes.cluster.nodes:
        strikes.losses.strike(broker, fault.seconds + 2 * SLOW_S)
    before, zookeeper.latency_s = zookeeper.latency_s, SLOW_S
    await trio.sleep(fault.seconds)
    zookeeper.latency_s = before


async def down(strikes: Strikes, fault: Fault) -> None:
    zookeeper = strikes.cluster.zookeeper
    zookeeper.stop()
    await trio.sleep(fault.seconds)
    zookeeper.start()


KINDS = {
    "expire": FaultKind(expire, ("1",), "ZooKeeper ends the session of a broker that runs"),
    "expire twice": FaultKind(expire_twice, ("1",), "and again while it registers anew"),
    "zookeeper cut": FaultKind(cut, ("1",), "a broker does not reach ZooKeeper, and knows it"),
    "zookeeper silent": FaultKind(silent, ("1",), "a broker does not reach ZooKeeper, and does not know it"),
    "zookeeper reply": FaultKind(reply, ("",), "the next write is applied, and its answer lost"),
    "zookeeper request": FaultKind(request, ("",), "the next write is lost"),
    "zookeeper lag": FaultKind(lag, ("1",), "its server shows what was, until it writes"),
    "zookeeper slow": FaultKind(slow, ("",), "each of its answers takes 5 s"),
    "zookeeper down": FaultKind(down, ("",), "for everybody"),
}
