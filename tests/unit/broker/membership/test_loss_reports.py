"""What a broker that may have lost data takes back in ZooKeeper, state by state."""

from __future__ import annotations

import pytest

from strandline.broker.membership.loss_reports import renounced_state
from strandline.protocol.znodes import InvalidZnode, PartitionStateZnode
from strandline.runtime.coordination import Znode, ZnodeStat

PATH = PartitionStateZnode.path("t", 0)
STAT = ZnodeStat(version=4, cversion=0, czxid=1, mzxid=9, ephemeral_owner=0, num_children=0)


def state(leader: int, isr: list[int], epoch: int = 3, **fields: object) -> PartitionStateZnode:
    return PartitionStateZnode(controller_epoch=1, leader=leader, leader_epoch=epoch, isr=isr, **fields)


def znode(data: bytes) -> Znode:
    return Znode(data, STAT)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (state(1, [1, 2]), state(-1, [2], 4, last_known_leader=1)),
        (state(2, [1, 2, 3]), state(2, [2, 3], 4)),
        (state(1, [1]), state(-1, [1], 4, lossy=[1], last_known_leader=1)),
        (state(-1, [1], elr=[2], last_known_leader=2), state(-1, [1], 4, elr=[2], lossy=[1], last_known_leader=2)),
        (state(2, [2], elr=[1, 3]), state(2, [2], 3, elr=[3])),
        (state(2, [2, 3]), None),
        (state(-1, [1], 4, lossy=[1]), None),
        (state(-1, [1, 2], lossy=[1]), state(-1, [2], 4)),
    ],
    ids=[
        "it led",
        "it followed",
        "it is the last one",
        "the last one, and somebody else is eligible",
        "it was eligible: its leader needs no new epoch",
        "nothing to take back",
        "said already",
        "with a member that lost nothing",
    ],
)
def test_what_broker_1_takes_back(before: PartitionStateZnode, after: PartitionStateZnode | None) -> None:
    assert renounced_state(PATH, znode(before.encode()), 1) == after


@pytest.mark.parametrize(("epoch", "is_room"), [(0, True), (-1, True), (1, False)])
def test_no_epoch_is_written_that_leaves_room_for_no_other(epoch: int, is_room: bool) -> None:
    last = PartitionStateZnode.LAST_EPOCH
    before = znode(state(1, [1, 2], last - 1 + epoch).encode())
    if is_room:
        after = renounced_state(PATH, before, 1)
        assert after is not None and after.leader_epoch <= last
        PartitionStateZnode.decode(PATH, after.encode())
    else:
        with pytest.raises(InvalidZnode, match="no leader epoch is left"):
            renounced_state(PATH, before, 1)


def test_a_state_that_cannot_be_understood_is_an_error_and_not_nothing() -> None:
    with pytest.raises(InvalidZnode):
        renounced_state(PATH, znode(b"{"), 1)
