"""Which cluster a ZooKeeper holds. A start asks for it before anything else: a broker whose folders are of another one
is refused by them (`storage/manager/identity`) before it has touched a log, its marker, or what stands under its id
there."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from strandline.broker.patience import until_answered
from strandline.protocol.znodes import LATEST_PRODUCER_ID_BLOCK_PATH, PERSISTENT_PATHS, ClusterIdZnode, InvalidZnode
from strandline.runtime.coordination import BadVersion, Coordination, NodeExists
from strandline.runtime.logging import RateLimited


class UnreadableCluster(Exception):
    """`/cluster/id` cannot be understood."""

    def __init__(self, error: InvalidZnode) -> None:
        super().__init__(f"{error}; write the id back that meta.properties of the cluster's brokers has as cluster.id")


async def find_cluster(coordination: Coordination, new_id: UUID, log: RateLimited) -> str:
    """The cluster's id, which is `new_id` for whoever comes first; the persistent paths exist then. Waits until
    ZooKeeper answers. UnreadableCluster."""
    for path in PERSISTENT_PATHS:
        await until_answered(partial(_ensure, coordination, path), log)
    await until_answered(partial(_empty_producer_id_block, coordination), log)
    return await until_answered(partial(_ensure_id, coordination, new_id), log)


async def _ensure(coordination: Coordination, path: str, data: bytes | None = None) -> None:
    try:
        await coordination.create(path, data, parents=True)
    except NodeExists:
        return


async def _empty_producer_id_block(coordination: Coordination) -> None:
    """Null is to Kafka, which may take over, the start of all producer ids. The empty string, which stood here once, is
    a block that it cannot read: its idempotent producers hang."""
    znode = await coordination.get(LATEST_PRODUCER_ID_BLOCK_PATH)
    if not znode.data and not znode.is_null:
        try:
            await coordination.set(LATEST_PRODUCER_ID_BLOCK_PATH, None, znode.stat.version)
        except BadVersion:
            return  # another broker was faster


async def _ensure_id(coordination: Coordination, new_id: UUID) -> str:
    await _ensure(coordination, ClusterIdZnode.PATH, ClusterIdZnode.new(new_id).encode())
    stored = await coordination.get(ClusterIdZnode.PATH)
    try:
        return ClusterIdZnode.decode(ClusterIdZnode.PATH, stored.data).id
    except InvalidZnode as error:
        raise UnreadableCluster(error) from error
