"""Whatever a state in ZooKeeper says of a partition, its leader goes on; who is no replica counts for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from strandline.broker.replication.leadership import IsrProposal, Leadership
from strandline.protocol.znodes import InvalidZnode, PartitionStateZnode

LAG_S = 30.0
PATH = PartitionStateZnode.path("t", 0)
REPLICAS = (1, 2, 3)
some_brokers = st.lists(st.sampled_from([*REPLICAS, 4, 5, -1]), max_size=5)


@st.composite
def states_led_by_1(draw: st.DrawFn) -> PartitionStateZnode | None:
    """What a leader may find and adopt: of its own epoch, as far as it can be understood."""
    isr = draw(st.permutations([1, *draw(some_brokers)]))
    fields = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 5, "isr": isr}
    fields |= {name: draw(some_brokers) for name in ("elr", "lossy") if draw(st.booleans())}
    try:
        return PartitionStateZnode.decode(PATH, msgspec.json.encode(fields))
    except InvalidZnode:
        return None


def led_by_1(
    isr: Sequence[int], eligible: Sequence[int], min_isr: int, *, log_end_offset: int, high_watermark: int
) -> Leadership:
    return Leadership.begin(
        broker_id=1,
        leader_epoch=5,
        controller_epoch=1,
        log_end_offset=log_end_offset,
        high_watermark=high_watermark,
        replicas=REPLICAS,
        replication_factor=len(REPLICAS),
        isr=isr,
        eligible=eligible,
        zk_version=7,
        min_insync_replicas=min_isr,
        lag_time_max_s=LAG_S,
        now=0.0,
    )


def check(leadership: Leadership, proposal: IsrProposal) -> None:
    assert {1} <= set(proposal.isr) <= set(REPLICAS)
    assert set(proposal.eligible) <= set(REPLICAS) - set(proposal.isr)
    written = PartitionStateZnode(
        controller_epoch=1, leader=1, leader_epoch=5, isr=list(proposal.isr), elr=list(proposal.eligible)
    )
    assert PartitionStateZnode.decode(PATH, written.encode()) == written
    assert leadership.proposal is proposal


def write(leadership: Leadership, proposal: IsrProposal | None) -> None:
    """ZooKeeper takes it, if there is one."""
    if proposal is not None:
        check(leadership, proposal)
        leadership.commit(proposal.isr, proposal.eligible, leadership.zk_version + 1)


@given(
    states=st.lists(states_led_by_1().filter(lambda state: state is not None), min_size=1, max_size=4),
    fetches=st.lists(st.tuples(st.sampled_from([2, 3]), st.integers(0, 20)), max_size=12),
    min_isr=st.integers(1, 3),
)
def test_a_leader_goes_on_with_any_state_and_what_is_proposed_can_be_read(
    states: list[PartitionStateZnode], fetches: list[tuple[int, int]], min_isr: int
) -> None:
    first, *adopted = states
    leadership = led_by_1(first.isr, first.elr, min_isr, log_end_offset=10, high_watermark=4)
    event(f"{leadership.has_strangers=}")
    for now, (broker_id, offset) in enumerate(fetches):
        before, in_sync = leadership.high_watermark, set(leadership.isr)
        progress = leadership.followers[broker_id]
        leadership.record_fetch(progress, offset, 20, incarnation=1, now=now * LAG_S / 3)
        if leadership.high_watermark > before:
            assert in_sync <= set(REPLICAS) and len(in_sync) >= min_isr
            ends = [leadership.followers[member].log_end_offset for member in in_sync - {1}]
            assert leadership.high_watermark <= min(ends, default=20)
        if leadership.wants_to_expand(progress):
            write(leadership, leadership.propose_expand(progress))
        write(leadership, leadership.propose_release())
        if adopted:
            found = adopted.pop()
            leadership.commit(found.isr, found.elr, leadership.zk_version + 1)
        leadership.rebuild_quorum(20, now * LAG_S / 3)
    write(leadership, leadership.propose_shrink(20, now=1e6))
    assert not leadership.has_strangers, "they leave with the next change"


def test_a_member_that_is_no_replica_does_not_count_for_the_minimum() -> None:
    leadership = led_by_1(isr=(1, 4), eligible=(), min_isr=2, log_end_offset=0, high_watermark=0)
    assert not leadership.has_enough_replicas
    assert not leadership.advance_high_watermark(10)
