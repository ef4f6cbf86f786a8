"""What ZooKeeper knows of the brokers, for `strandline doctor`: read only, not even a chroot is created."""

from __future__ import annotations

import io

import trio

from strandline.protocol.znodes import BrokerIdZnode
from strandline.runtime.coordination import NoNode
from strandline.runtime.logging import open_logs
from strandline.runtime.zookeeper.client import KazooCoordination
from strandline.runtime.zookeeper.paths import split_servers, with_chroot


def registered_brokers(servers: str, timeout_ms: int) -> dict[int, int]:
    """Broker id → when it registered (milliseconds since 1970 by that broker's clock). `servers`: as zookeeper.connect.
    CoordinationError where no server answers or the value names none."""
    return trio.run(_ask, servers, timeout_ms)


async def _ask(servers: str, timeout_ms: int) -> dict[int, int]:
    hosts, chroot = split_servers(servers)
    quiet = open_logs(stream=io.StringIO()).main
    coordination = KazooCoordination(hosts, session_timeout_ms=timeout_ms, connection_timeout_ms=timeout_ms, log=quiet)
    await coordination.start()
    try:
        folder = with_chroot(chroot, "/brokers/ids")
        try:
            ids = await coordination.children(folder)
        except NoNode:
            return {}
        znodes = await coordination.get_many([f"{folder}/{broker_id}" for broker_id in ids])
    finally:
        await coordination.close()
    return {
        int(broker_id): BrokerIdZnode.decode(f"{folder}/{broker_id}", znode.data).timestamp_ms
        for broker_id, znode in zip(ids, znodes, strict=True)
        if znode is not None
    }
