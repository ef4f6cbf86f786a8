"""A partition's state between ZooKeeper and the controller's picture: `PartitionStateZnode` ↔ `LeaderAndIsr`."""

from __future__ import annotations

import msgspec

from strandline.controller.context import LeaderAndIsr
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import PartitionStateZnode
from strandline.runtime.coordination import Znode


def decode(topic_partition: TopicPartition, znode: Znode) -> LeaderAndIsr:
    """InvalidZnode when it cannot be understood."""
    state = PartitionStateZnode.decode(PartitionStateZnode.path(*topic_partition), znode.data)
    return LeaderAndIsr(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        state.controller_epoch,
        znode.stat.version,
        znode.stat.mzxid,
        tuple(state.left_isr or ()),
    )


def encode(state: LeaderAndIsr) -> bytes:
    return PartitionStateZnode(
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        left_isr=list(state.left_isr) or msgspec.UNSET,
    ).encode()
