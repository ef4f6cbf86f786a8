"""A partition's state between ZooKeeper and the controller's picture: `PartitionStateZnode` ↔ `LeaderAndIsr`."""

from __future__ import annotations

from strandline.controller.controller_context import LeaderAndIsr
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import PartitionStateZnode
from strandline.runtime.coordination import Znode


def decode(topic_partition: TopicPartition, znode: Znode) -> LeaderAndIsr:
    """InvalidZnode when it cannot be understood."""
    state = PartitionStateZnode.decode(PartitionStateZnode.path(*topic_partition), znode.data)
    return from_znode(state, znode.stat.version, znode.stat.mzxid)


def encode(state: LeaderAndIsr) -> bytes:
    return to_znode(state).encode()


def from_znode(state: PartitionStateZnode, zk_version: int, mzxid: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        state.controller_epoch,
        zk_version,
        mzxid,
        tuple(state.elr),
        tuple(state.lossy),
        state.last_known_leader,
    )


def to_znode(state: LeaderAndIsr) -> PartitionStateZnode:
    return PartitionStateZnode(
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        elr=list(state.elr),
        lossy=list(state.lossy),
        last_known_leader=state.last_known_leader,
    )
