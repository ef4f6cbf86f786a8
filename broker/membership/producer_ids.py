"""Producer ids, unique in the cluster: each broker takes blocks of 1000 from ZooKeeper, and gives out what is in them.

`/latest_producer_id_block` holds the block that was taken last, Kafka's among them. The next one follows it and is
written on the condition that nobody else wrote meanwhile, so no id is given out twice. A block whose write has no
answer, or that a broker did not use up, is lost: there are 2^63 ids.

Source of the rules: Kafka's ProducerIdManager (KIP-98), of its ZooKeeper mode.
"""

from __future__ import annotations

from strandline.protocol.znodes import MAX_PRODUCER_ID, ProducerIdBlockZnode
from strandline.runtime.coordination import BadVersion, Coordination, NodeExists, NoNode

BLOCK_SIZE = 1000


class ProducerIdsUsedUp(Exception):
    """The znode's block reaches up to the last ids that there are."""


def block_after(latest: ProducerIdBlockZnode | None, broker_id: int) -> ProducerIdBlockZnode:
    """The block that this broker takes; None: nobody has taken any. ProducerIdsUsedUp."""
    first_id = 0 if latest is None else latest.last_id + 1
    if first_id > MAX_PRODUCER_ID - BLOCK_SIZE + 1:
        raise ProducerIdsUsedUp(f"{ProducerIdBlockZnode.PATH} ends with {first_id - 1}: no producer ids are left")
    return ProducerIdBlockZnode(broker_id, first_id, first_id + BLOCK_SIZE - 1)


async def take_block(coordination: Coordination, broker_id: int) -> range:
    """Take the next block: its ids are this broker's alone. To be called anew after a ConnectionLost, which may have
    cost a block. InvalidZnode, ProducerIdsUsedUp, CoordinationError."""
    path = ProducerIdBlockZnode.PATH
    while True:
        try:
            znode = await coordination.get(path)
        except NoNode:
            await _ensure(coordination, path)
            continue
        block = block_after(None if znode.is_null else ProducerIdBlockZnode.decode(path, znode.data), broker_id)
        try:
            await coordination.set(path, block.encode(), znode.stat.version)
        except (BadVersion, NoNode):
            await coordination.sync(path)  # another broker was faster: see what it wrote
            continue
        return range(block.first_id, block.last_id + 1)


async def _ensure(coordination: Coordination, path: str) -> None:
    try:
        await coordination.create(path)
    except NodeExists:
        return
