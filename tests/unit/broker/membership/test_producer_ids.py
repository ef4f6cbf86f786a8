"""Producer ids are the cluster's: a block of them is one broker's, whatever happens to the write that takes it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.membership.producer_ids import BLOCK_SIZE, ProducerIdsUsedUp, block_after, take_block
from strandline.protocol.znodes import MAX_PRODUCER_ID, InvalidZnode, ProducerIdBlockZnode
from strandline.runtime.coordination import ConnectionLost
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper

PATH = ProducerIdBlockZnode.PATH


@pytest.fixture
async def zookeeper(autojump_clock: MockClock, nursery: trio.Nursery) -> AsyncIterator[MemoryZooKeeper]:
    server = MemoryZooKeeper(latency_s=0.01)
    yield server


async def session(zookeeper: MemoryZooKeeper) -> MemoryCoordination:
    client = zookeeper.client()
    await client.start()
    return client


def stored(zookeeper: MemoryZooKeeper) -> ProducerIdBlockZnode:
    return ProducerIdBlockZnode.decode(PATH, zookeeper.tree.get(PATH).data)


@pytest.mark.parametrize("is_there", [True, False], ids=["null", "missing"])
async def test_the_first_block_begins_with_0(
    zookeeper: MemoryZooKeeper, is_there: bool, autojump_clock: MockClock
) -> None:
    client = await session(zookeeper)
    if is_there:
        await client.create(PATH)
    assert await take_block(client, 3) == range(1000)
    assert stored(zookeeper) == ProducerIdBlockZnode(3, 0, 999)


async def test_a_block_follows_the_one_of_another_broker_whatever_its_size(
    zookeeper: MemoryZooKeeper, autojump_clock: MockClock
) -> None:
    client = await session(zookeeper)
    await client.create(PATH, ProducerIdBlockZnode(9, 500, 4_711).encode())
    assert await take_block(client, 1) == range(4_712, 5_712)


async def test_brokers_that_ask_at_once_get_different_blocks(
    zookeeper: MemoryZooKeeper, autojump_clock: MockClock
) -> None:
    taken: list[range] = []

    async def take(broker_id: int) -> None:
        taken.append(await take_block(await session(zookeeper), broker_id))

    async with trio.open_nursery() as nursery:
        for broker_id in range(5):
            nursery.start_soon(take, broker_id)
    assert sorted(ids.start for ids in taken) == [n * BLOCK_SIZE for n in range(5)]


async def test_a_stale_read_gives_no_block_away_again(zookeeper: MemoryZooKeeper, autojump_clock: MockClock) -> None:
    one, other = await session(zookeeper), await session(zookeeper)
    await take_block(one, 1)
    zookeeper.lag(other)
    first = await take_block(one, 1)
    with trio.fail_after(10):
        assert (await take_block(other, 2)).start == first.stop


@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_a_block_whose_write_has_no_answer_is_left_alone(
    zookeeper: MemoryZooKeeper, lost: str, autojump_clock: MockClock
) -> None:
    client = await session(zookeeper)
    await take_block(client, 1)

    class LosesWrites:
        async def get(self, path: str):
            znode = await client.get(path)
            if lost == "reply":
                zookeeper.drop_next_reply(PATH)
            else:
                zookeeper.drop_next_request(PATH)
            return znode

        set = client.set

    with pytest.raises(ConnectionLost):
        await take_block(LosesWrites(), 1)
    again = await session(zookeeper)
    assert await take_block(again, 1) == (range(2000, 3000) if lost == "reply" else range(1000, 2000))


async def test_a_znode_that_cannot_be_read_is_left_as_it_is(
    zookeeper: MemoryZooKeeper, autojump_clock: MockClock
) -> None:
    client = await session(zookeeper)
    await client.create(PATH, b'{"version":1,"broker":1}')
    with pytest.raises(InvalidZnode, match=PATH):
        await take_block(client, 1)
    assert zookeeper.tree.get(PATH).data == b'{"version":1,"broker":1}'


def test_the_last_whole_block_is_given_out_and_nothing_behind_it() -> None:
    last = ProducerIdBlockZnode(1, MAX_PRODUCER_ID - BLOCK_SIZE + 1, MAX_PRODUCER_ID)
    assert block_after(ProducerIdBlockZnode(1, 0, last.first_id - 1), 1) == last
    with pytest.raises(ProducerIdsUsedUp, match=str(last.first_id)):
        block_after(ProducerIdBlockZnode(1, 0, last.first_id), 1)
    with pytest.raises(ProducerIdsUsedUp):
        block_after(last, 1)
