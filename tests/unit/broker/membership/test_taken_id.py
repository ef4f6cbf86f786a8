"""A broker whose id is taken is refused before it touches anything of that id."""

from __future__ import annotations

import pytest
import structlog
import trio
from trio.testing import MockClock

from strandline.broker.membership.registration import BrokerIdTaken, Registration
from strandline.protocol.znodes import (
    PERSISTENT_PATHS,
    BrokerEndpoint,
    BrokerIdZnode,
    BrokerIncarnationZnode,
    PartitionStateZnode,
)
from strandline.testkit.zookeeper.server import MemoryZooKeeper


async def begin_life(_: int, __: bool) -> bool:
    raise AssertionError("nothing begins for a broker that is refused")


async def test_a_taken_id_is_refused_before_isrs_and_incarnation_are_touched(autojump_clock: MockClock) -> None:
    zookeeper = MemoryZooKeeper()
    rightful, intruder = zookeeper.client(), zookeeper.client()
    await rightful.start()
    await intruder.start()
    for path in PERSISTENT_PATHS:
        await rightful.create(path, parents=True)
    mine = BrokerIdZnode(endpoints=(BrokerEndpoint("PLAINTEXT", "b1", 9092),), lock_id="the rightful one's")
    await rightful.create(BrokerIdZnode.path(1), mine.encode(), ephemeral=True)
    await rightful.create(BrokerIncarnationZnode.path(1))
    state = PartitionStateZnode(controller_epoch=1, leader=1, leader_epoch=0, isr=[1, 2])
    await rightful.create(PartitionStateZnode.path("t", 0), state.encode(), parents=True)

    registration = Registration(1, "another folder", intruder, structlog.get_logger())
    with pytest.raises(BrokerIdTaken, match=r"broker\.id=1"), trio.fail_after(60):
        await registration.prepare(begin_life)

    assert (await rightful.get(BrokerIncarnationZnode.path(1))).stat.version == 0
    assert (await rightful.get(PartitionStateZnode.path("t", 0))).stat.version == 0
