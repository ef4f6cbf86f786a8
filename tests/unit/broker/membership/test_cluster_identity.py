"""What a start finds, or leaves, in ZooKeeper before it touches anything of its own."""

from __future__ import annotations

from uuid import UUID

import pytest
import structlog
import trio
from structlog.testing import LogCapture
from trio.testing import MockClock

from strandline.broker.membership.cluster_identity import UnreadableCluster, find_cluster
from strandline.broker.patience import DELAY_TOLD_INTERVAL_S
from strandline.protocol.znodes import LATEST_PRODUCER_ID_BLOCK_PATH, ClusterIdZnode
from strandline.runtime.coordination import ConnectionLost, Znode, ZnodeStat
from strandline.runtime.logging import RateLimited
from strandline.testkit.zookeeper.client import MemoryCoordination
from strandline.testkit.zookeeper.server import MemoryZooKeeper

ANY_STAT = ZnodeStat(0, 0, 0, 0, 0, 0)


async def find(zookeeper: MemoryZooKeeper, new_id: int = 7) -> str:
    client = zookeeper.client()
    await client.start()
    return await find_cluster(client, UUID(int=new_id), RateLimited(structlog.get_logger()))


async def test_whoever_comes_first_names_the_cluster(autojump_clock: MockClock) -> None:
    zookeeper = MemoryZooKeeper()
    assert await find(zookeeper, 7) == await find(zookeeper, 8)


@pytest.mark.parametrize(
    ("found", "left"),
    [(None, Znode(b"", ANY_STAT, True)), (b"", Znode(b"", ANY_STAT, True)), (b"{}", Znode(b"{}", ANY_STAT))],
    ids=["not there", "the empty string", "a block of Kafka's"],
)
async def test_no_producer_ids_were_given_out_is_said_as_kafka_says_it(
    found: bytes | None, left: Znode, autojump_clock: MockClock
) -> None:
    zookeeper = MemoryZooKeeper()
    if found is not None:
        client = zookeeper.client()
        await client.start()
        await client.create(LATEST_PRODUCER_ID_BLOCK_PATH, found)
    await find(zookeeper)
    assert zookeeper.tree.get(LATEST_PRODUCER_ID_BLOCK_PATH)._replace(stat=ANY_STAT) == left


async def test_a_zookeeper_that_hangs_up_on_every_request_is_told_of_once_in_a_while(
    autojump_clock: MockClock,
) -> None:
    class HangsUp(MemoryCoordination):
        async def create(self, path: str, *_: object, **__: object) -> str:
            await trio.lowlevel.checkpoint()
            raise ConnectionLost(f"create {path}: it hung up")

    client = HangsUp(MemoryZooKeeper(), chroot="", session_timeout_ms=6000, connection_timeout_ms=6000)
    logs = LogCapture()
    log = RateLimited(structlog.wrap_logger(None, processors=[logs]), interval_s=DELAY_TOLD_INTERVAL_S)
    with trio.move_on_after(3 * DELAY_TOLD_INTERVAL_S - 1):
        await find_cluster(client, UUID(int=7), log)
    assert [entry["event"] for entry in logs.entries] == ["registration delayed"] * 3


@pytest.mark.parametrize("content", [None, b"", b"Ijy9bqy6SBKAZJRg3YyQqw", b'{"version":"1","id":null}'])
async def test_an_id_that_cannot_be_read_ends_the_start_in_one_line(
    content: bytes | None, autojump_clock: MockClock
) -> None:
    zookeeper = MemoryZooKeeper()
    client = zookeeper.client()
    await client.start()
    await client.create(ClusterIdZnode.PATH, content, parents=True)
    with pytest.raises(UnreadableCluster, match=r"^znode /cluster/id cannot be read: .*; write the id back"):
        await find(zookeeper)
