"""The leader's rules, one by one: what commits, who may join, who must leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.replication.leadership import IsrProposal, Leadership, Proposal

LAG_S = 30.0


def leading(
    *,
    leo: int = 0,
    hw: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    min_isr: int = 2,
    eligible: tuple[int, ...] = (),
    adding: int = 0,
) -> Leadership:
    return Leadership.begin(
        broker_id=1,
        leader_epoch=5,
        controller_epoch=1,
        log_end_offset=leo,
        high_watermark=hw,
        replicas=replicas,
        replication_factor=len(replicas) - adding,
        isr=isr,
        eligible=eligible,
        zk_version=7,
        min_insync_replicas=min_isr,
        lag_time_max_s=LAG_S,
        now=100.0,
    )


def fetch(leadership: Leadership, broker_id: int, offset: int, leo: int, now: float = 101.0) -> bool:
    return leadership.record_fetch(leadership.followers[broker_id], offset, leo, incarnation=1, now=now)


def test_the_high_watermark_is_the_smallest_end_offset_of_the_in_sync_replicas() -> None:
    leadership = leading()
    assert not fetch(leadership, 2, 10, leo=10)
    assert fetch(leadership, 3, 7, leo=10)
    assert leadership.high_watermark == 7


def test_the_high_watermark_stays_until_every_member_has_fetched_in_this_epoch() -> None:
    leadership = leading(leo=10, hw=4)
    fetch(leadership, 2, 10, leo=10)
    assert leadership.high_watermark == 4


def test_the_high_watermark_never_goes_back() -> None:
    leadership = leading(isr=(1, 2))
    fetch(leadership, 2, 10, leo=10)
    fetch(leadership, 2, 3, leo=10)
    assert leadership.high_watermark == 10


def test_a_proposed_member_counts_for_the_high_watermark_before_zookeeper_has_it() -> None:
    leadership = leading(isr=(1, 2))
    fetch(leadership, 3, 0, leo=0)
    leadership.propose_expand(leadership.followers[3])
    fetch(leadership, 2, 10, leo=10)
    assert leadership.high_watermark == 0


def test_a_shrink_frees_the_high_watermark_only_once_zookeeper_has_it() -> None:
    leadership = leading()
    fetch(leadership, 2, 10, leo=10, now=131.0)
    proposal = leadership.propose_shrink(10, now=140.0)
    assert proposal == IsrProposal(Proposal.SHRINK, (1, 2), 7)
    assert not leadership.advance_high_watermark(10)
    leadership.commit((1, 2), (), 8)
    leadership.rebuild_quorum(10, 140.0)
    assert leadership.advance_high_watermark(10)


def test_nothing_commits_while_the_committed_isr_is_smaller_than_the_minimum() -> None:
    leadership = leading(isr=(1,), min_isr=2)
    assert not leadership.advance_high_watermark(10)
    fetch(leadership, 2, 10, leo=10)
    leadership.propose_expand(leadership.followers[2])
    assert not leadership.advance_high_watermark(10), "a proposal is not a member yet"
    leadership.commit((1, 2), (), 8)
    assert leadership.advance_high_watermark(10)


def test_who_leaves_an_isr_that_falls_below_the_minimum_is_eligible() -> None:
    leadership = leading()
    fetch(leadership, 2, 10, leo=10, now=131.0)
    above = leadership.propose_shrink(10, now=140.0)
    assert above is not None and (above.isr, above.eligible) == ((1, 2), ())
    leadership.commit(above.isr, above.eligible, 8)
    below = leadership.propose_shrink(20, now=170.0)
    assert below is not None and (below.isr, below.eligible) == ((1,), (2,))
    leadership.commit(below.isr, below.eligible, 9)
    fetch(leadership, 3, 20, leo=20, now=171.0)
    back = leadership.propose_expand(leadership.followers[3])
    assert (back.isr, back.eligible) == ((1, 3), ())


def test_an_isr_that_grows_and_stays_below_the_minimum_keeps_who_is_eligible() -> None:
    leadership = leading(replicas=(1, 2, 3, 4), isr=(1,), eligible=(3, 4), min_isr=3)
    fetch(leadership, 3, 10, leo=10)
    proposal = leadership.propose_expand(leadership.followers[3])
    assert (proposal.isr, proposal.eligible) == ((1, 3), (4,))


def test_nothing_commits_while_somebody_outside_the_isr_is_eligible() -> None:
    leadership = leading(isr=(1, 2), eligible=(3,), min_isr=3)
    fetch(leadership, 2, 10, leo=10)
    assert leadership.propose_release() is None, "two are fewer than three"
    leadership.min_insync_replicas = 2
    assert not leadership.advance_high_watermark(10)
    release = leadership.propose_release()
    assert release is not None and (release.isr, release.eligible) == ((1, 2), ())
    assert not leadership.advance_high_watermark(10), "ZooKeeper may still name broker 3"
    leadership.commit(release.isr, release.eligible, 8)
    assert leadership.advance_high_watermark(10)


def test_the_minimum_is_never_more_than_the_number_of_replicas() -> None:
    leadership = leading(replicas=(1,), isr=(1,), min_isr=2)
    assert leadership.advance_high_watermark(10)


@pytest.mark.parametrize(
    ("offset", "may_join"),
    [(5, False), (8, False), (10, True)],
    ids=["below the HW", "between HW and the epoch's start (KAFKA-7128)", "at the epoch's start"],
)
def test_a_follower_joins_only_from_the_high_watermark_and_the_epochs_start_on(offset: int, may_join: bool) -> None:
    leadership = leading(leo=10, hw=6, isr=(1, 2))
    fetch(leadership, 3, offset, leo=12)
    assert leadership.wants_to_expand(leadership.followers[3]) is may_join


@pytest.mark.parametrize(
    ("isr", "min_isr", "offset", "may_join"),
    [
        ((1,), 2, 3, False),
        ((1,), 2, 2999, False),
        ((1,), 2, 3000, True),
        ((1, 2), 3, 1999, False),
        ((1, 2), 3, 2000, True),
        ((1,), 1, 2999, False),
    ],
    ids=[
        "leader alone, far behind",
        "leader alone, one behind",
        "leader alone, at its end",
        "another in sync, behind it",
        "another in sync, level with it",
        "nothing holds the HW",
    ],
)
def test_below_the_minimum_a_newcomer_has_to_reach_what_all_in_sync_replicas_have(
    isr: tuple[int, ...], min_isr: int, offset: int, may_join: bool
) -> None:
    leadership = leading(isr=isr, min_isr=min_isr)
    fetch(leadership, 2, 2000, leo=3000)
    fetch(leadership, 3, offset, leo=3000)
    assert leadership.wants_to_expand(leadership.followers[3]) is may_join


def test_a_newcomer_reaches_a_busy_leader_below_the_minimum() -> None:
    leadership = leading(isr=(1,), min_isr=2)
    joined_at_step = None
    for step in range(10):
        leo = (step + 1) * 1000  # every fetch brings all that was there, and finds a thousand more
        leadership.advance_high_watermark(leo)
        fetch(leadership, 2, step * 1000, leo, now=100.0 + step)
        if leadership.wants_to_expand(leadership.followers[2]):
            joined_at_step = step
            break
    assert joined_at_step == 2


def test_a_newcomer_that_takes_longer_than_the_lag_time_for_one_fetch_does_not_keep_up() -> None:
    leadership = leading(isr=(1,), min_isr=2)
    for step in range(10):
        leo = (step + 1) * 1000
        leadership.advance_high_watermark(leo)
        fetch(leadership, 2, step * 1000, leo, now=100.0 + step * (LAG_S + 1))
        assert not leadership.wants_to_expand(leadership.followers[2])


def test_a_follower_that_has_not_fetched_in_this_epoch_does_not_join() -> None:
    leadership = leading(isr=(1, 2))
    assert not leadership.wants_to_expand(leadership.followers[3])


def test_one_change_is_in_flight_at_a_time() -> None:
    leadership = leading(isr=(1,), min_isr=1)
    fetch(leadership, 2, 0, leo=0)
    fetch(leadership, 3, 0, leo=0)
    leadership.propose_expand(leadership.followers[2])
    assert not leadership.wants_to_expand(leadership.followers[3])
    assert leadership.propose_shrink(0, now=1000.0) is None


def test_a_frozen_leader_proposes_nothing_and_keeps_the_union_as_quorum() -> None:
    leadership = leading(isr=(1, 2))
    fetch(leadership, 3, 0, leo=0)
    leadership.propose_expand(leadership.followers[3])
    leadership.freeze()
    fetch(leadership, 2, 10, leo=10)
    assert leadership.maximal_isr == {1, 2, 3}
    assert leadership.high_watermark == 0
    assert leadership.propose_shrink(10, now=1000.0) is None


def test_a_rejected_joiner_no_longer_holds_the_high_watermark_back() -> None:
    leadership = leading(isr=(1, 2))
    fetch(leadership, 3, 0, leo=0)
    leadership.propose_expand(leadership.followers[3])
    fetch(leadership, 2, 10, leo=10)
    leadership.reject()
    leadership.rebuild_quorum(10, 102.0)
    assert leadership.advance_high_watermark(10)


def test_a_rejected_joiner_is_not_waited_for_because_its_past_life_had_reached_the_end() -> None:
    leadership = leading(isr=(1, 2))
    for follower in (3, 2):
        fetch(leadership, follower, 10, leo=10)
    leadership.propose_expand(leadership.followers[3])
    leadership.reject()
    leadership.rebuild_quorum(10, 102.0)
    assert not leadership.wants_to_expand(leadership.followers[3])
    assert fetch(leadership, 2, 11, leo=11) and leadership.high_watermark == 11


def test_the_high_watermark_waits_for_an_outsider_that_has_just_caught_up() -> None:
    leadership = leading(isr=(1, 2))
    fetch(leadership, 3, 0, leo=0)
    fetch(leadership, 2, 10, leo=10)
    assert leadership.high_watermark == 0
    leadership.rebuild_quorum(10, 102.0 + LAG_S)
    assert leadership.advance_high_watermark(10), "it has stopped fetching since"


def test_a_restarted_outsider_is_not_waited_for_because_of_its_past_life() -> None:
    leadership = leading(isr=(1, 2))
    fetch(leadership, 3, 0, leo=0)
    fetch(leadership, 2, 10, leo=10)
    leadership.record_fetch(leadership.followers[3], 0, 10, incarnation=2, now=102.0)
    leadership.rebuild_quorum(10, 102.0)
    assert leadership.advance_high_watermark(10)


def test_an_idle_follower_at_the_end_of_the_log_is_never_removed() -> None:
    leadership = leading()
    fetch(leadership, 2, 10, leo=10)
    fetch(leadership, 3, 10, leo=10)
    assert leadership.propose_shrink(10, now=10_000.0) is None


def test_a_follower_always_one_batch_behind_on_a_busy_partition_stays() -> None:
    leadership = leading(isr=(1, 2), replicas=(1, 2))
    for step in range(100):
        fetch(leadership, 2, step * 10, leo=step * 10 + 10, now=100.0 + step)
    assert leadership.propose_shrink(1000, now=201.0) is None


def test_members_get_a_full_lag_time_after_an_election_before_they_are_removed() -> None:
    leadership = leading(leo=10)
    assert leadership.propose_shrink(10, now=129.0) is None
    proposal = leadership.propose_shrink(10, now=131.0)
    assert proposal is not None
    assert proposal.isr == (1,)


steps = st.lists(st.tuples(st.sampled_from([2, 3]), st.integers(0, 50)), max_size=60)


@given(steps=steps, isr=st.sampled_from([(1,), (1, 2), (1, 2, 3)]), min_isr=st.integers(1, 3))
def test_the_high_watermark_is_below_every_member_of_the_maximal_isr_and_monotone(
    steps: list[tuple[int, int]], isr: tuple[int, ...], min_isr: int
) -> None:
    leadership = leading(isr=isr, min_isr=min_isr)
    leo, before, shared = 50, 0, 0
    for now, (broker_id, offset) in enumerate(steps):
        advanced = fetch(leadership, broker_id, offset, leo, now=float(now + 200))
        progress = leadership.followers[broker_id]
        in_sync = [leadership.followers[m].log_end_offset for m in leadership.maximal_isr if m != 1]
        shared = max(shared, min(in_sync, default=leo))
        if leadership.high_watermark > before:
            members = [leadership.followers[m].log_end_offset for m in leadership.maximal_isr if m != 1]
            assert all(leadership.high_watermark <= end for end in members)
        assert advanced == (leadership.high_watermark > before)
        assert leadership.high_watermark >= before
        before = leadership.high_watermark
        if progress.broker_id not in leadership.isr and leadership.wants_to_expand(progress):
            assert progress.log_end_offset >= shared, "whoever joins has what all in sync had"
            proposal = leadership.propose_expand(progress)
            leadership.commit(proposal.isr, proposal.eligible, leadership.zk_version + 1)


def test_who_is_only_being_added_does_not_lack() -> None:
    assert not leading(replicas=(4, 5, 1, 2), isr=(1, 2), adding=2).is_under_replicated
    assert leading(replicas=(4, 5, 1, 2), isr=(1,), adding=2).is_under_replicated
    assert leading(isr=(1, 2)).is_under_replicated and not leading().is_under_replicated


def test_replicas_that_are_being_added_do_not_raise_the_minimum_until_they_have_come() -> None:
    """From one replica to three, with a minimum of two: one of one is enough while the others are copied."""
    alone = leading(replicas=(2, 3, 1), isr=(1,), adding=2)
    assert alone.has_enough_replicas
    assert alone.required_isr_size == 1
    assert alone.advance_high_watermark(10)
    arrived = leading(replicas=(2, 3, 1), isr=(1,))
    assert not arrived.has_enough_replicas
    assert not arrived.advance_high_watermark(10)


def test_replicas_that_are_being_added_count_as_in_sync_once_they_are() -> None:
    moving = leading(replicas=(4, 5, 1, 2), isr=(1, 4), adding=2)
    assert moving.has_enough_replicas
    assert not moving.advance_high_watermark(10), "4 is waited for, too"
    assert fetch(moving, 4, 10, leo=10)
