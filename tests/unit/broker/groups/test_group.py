"""The state machine of a group: who is answered what, and when."""

from __future__ import annotations

import struct

import pytest

from strandline.broker.groups.effects import GroupSettings
from strandline.broker.groups.group import Group
from strandline.broker.groups.states import COMES_FROM, GroupState, check_move
from strandline.broker.groups.views import described, subscriptions
from strandline.protocol.errors import ErrorCode
from support.group_site import DELAY_S, REBALANCE_S, SESSION_S, GroupSite


@pytest.fixture
def site() -> GroupSite:
    return GroupSite()


# --- joining -------------------------------------------------------------------------------------------------------


def test_who_joins_without_an_id_is_given_one_and_joins_with_it(site: GroupSite) -> None:
    first = site.join()
    assert first.answer().error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.answer().member_id == "m1"
    second = site.join("m1")
    assert second.answer() is None
    site.pass_time(DELAY_S)
    assert (second.answer().error_code, second.answer().member_id, second.answer().generation_id) == (0, "m1", 1)


@pytest.mark.parametrize("instance", [None, "i"])
def test_who_does_not_know_that_answer_or_is_static_joins_at_once(instance: str | None, site: GroupSite) -> None:
    join = site.join(given_id=instance is None, instance=instance)
    site.pass_time(DELAY_S)
    assert join.answer().error_code == 0


def test_an_id_that_nobody_was_given_is_unknown(site: GroupSite) -> None:
    assert site.join("who").answer().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_not_used_within_the_session_timeout_is_forgotten(site: GroupSite) -> None:
    site.join()
    site.pass_time(SESSION_S)
    assert site.join("m1").answer().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.group.is_over


def test_an_empty_group_waits_on_while_members_come(site: GroupSite) -> None:
    first = site.join(given_id=True)
    site.pass_time(DELAY_S - 1)
    site.join(given_id=True)
    site.pass_time(DELAY_S)
    assert first.answer() is None, "one came meanwhile"
    site.pass_time(DELAY_S - 1)
    assert first.answer() is not None and len(first.answer().members) == 2


def test_the_wait_of_an_empty_group_ends_with_the_rebalance_timeout(site: GroupSite) -> None:
    first = site.join(given_id=True, rebalance_s=10)
    for _ in range(9):
        assert first.answer() is None
        site.pass_time(1)
        site.join(given_id=True, rebalance_s=10)
    site.pass_time(1)
    assert first.answer() is not None


def test_the_leader_alone_is_told_what_everybody_said(site: GroupSite) -> None:
    first = site.join(given_id=True, protocols={"range": b"one"})
    second = site.join(given_id=True, protocols={"range": b"two"}, instance="i")
    site.wait_for(first, second)
    told = [(each.member_id, each.group_instance_id, each.metadata) for each in first.answer().members]
    assert told == [("m1", None, b"one"), ("m2", "i", b"two")]
    assert second.answer().members == []
    assert first.answer().leader == second.answer().leader == "m1"
    assert second.answer().protocol_type == "consumer"


def test_the_protocol_is_one_that_all_know_and_most_like_best(site: GroupSite) -> None:
    joins = [
        site.join(given_id=True, protocols=dict.fromkeys(names, b""))
        for names in (["rare", "a", "b"], ["b", "a"], ["b", "a"])
    ]
    site.wait_for(*joins)
    assert [join.answer().protocol_name for join in joins] == ["b"] * 3


@pytest.mark.parametrize("asked", [{"protocols": {"other": b""}}, {"protocol_type": "connect"}, {"protocols": {}}])
def test_who_shares_no_protocol_with_the_group_is_refused(asked: dict, site: GroupSite) -> None:
    site.stable(2)
    assert site.join(given_id=True, **asked).answer().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert site.group.state is GroupState.STABLE


@pytest.mark.parametrize("asked", [{"protocols": {}}, {"protocol_type": ""}])
def test_an_empty_group_wants_some_protocol(asked: dict, site: GroupSite) -> None:
    assert site.join(given_id=True, **asked).answer().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_nobody_more() -> None:
    site = GroupSite(max_size=2)
    site.stable(2)
    assert site.join(given_id=True).answer().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert site.group.state is GroupState.STABLE


def test_a_full_group_takes_its_static_member_back() -> None:
    site = GroupSite(max_size=2)
    site.stable(2, instances=True)
    assert site.join(instance="i1").answer().error_code == 0
    assert site.join(instance="i2").answer().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_of_a_loaded_group_that_is_too_large_the_last_ones_find_no_place() -> None:
    large = GroupSite()
    ids = large.stable(3)
    site = GroupSite(group=Group.loaded(large.log[-1], GroupSettings(2, DELAY_S), 1000.0))
    assert site.heartbeat(ids[0], 1) == ErrorCode.REBALANCE_IN_PROGRESS
    joins = [site.join(each) for each in ids]
    assert joins[2].answer().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [join.answer().error_code for join in joins[:2]] == [0, 0]
    assert joins[0].answer().generation_id == 2


def test_a_new_member_makes_the_others_join_again(site: GroupSite) -> None:
    ids = site.stable(2)
    new = site.join(given_id=True)
    assert [site.heartbeat(each, 1) for each in ids] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    again = [site.join(each) for each in ids]
    assert [join.answer().generation_id for join in (new, *again)] == [2, 2, 2]


def test_who_does_not_join_again_in_time_is_let_go(site: GroupSite) -> None:
    ids = site.stable(2)
    new = site.join(given_id=True)
    site.join(ids[0])
    while new.answer() is None:
        site.heartbeat(ids[1], 1)
        site.pass_time(1)
    assert site.heartbeat(ids[1], 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(site.group.members) == 2


def test_a_rebalance_waits_for_who_was_given_an_id(site: GroupSite) -> None:
    (only,) = site.stable(1)
    pending = site.join().answer().member_id
    join = site.join(only, protocols={"range": b"changed"})
    assert join.answer() is None
    site.join(pending)
    assert join.answer().generation_id == 2


def test_a_follower_that_says_the_same_is_told_of_this_generation_again(site: GroupSite) -> None:
    ids = site.stable(2)
    join = site.join(ids[1])
    assert (join.answer().generation_id, join.answer().members) == (1, [])
    assert site.group.state is GroupState.STABLE


def test_a_leader_that_joins_again_has_the_group_rebalanced(site: GroupSite) -> None:
    ids = site.stable(2)
    assert site.join(ids[0]).answer() is None
    assert site.group.state is GroupState.PREPARING


def test_while_assignments_are_awaited_a_repeated_join_is_answered_with_this_generation(site: GroupSite) -> None:
    join = site.join(given_id=True)
    site.pass_time(DELAY_S)
    assert site.join("m1").answer() == join.answer()


def test_a_member_that_joins_twice_is_answered_twice(site: GroupSite) -> None:
    ids = site.stable(2)
    first = site.join(ids[0])
    second = site.join(ids[0])
    assert first.answer().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    site.join(ids[1])
    assert second.answer().generation_id == 2


def test_a_new_member_that_waits_too_long_is_let_go(site: GroupSite) -> None:
    site.stable(1)
    site.group.members.by_id["m1"].rebalance_timeout_ms = 10**9
    join = site.join(given_id=True, session_s=1)
    for _ in range(299):
        site.heartbeat("m1", 1)
        site.pass_time(1)
    assert join.answer() is None
    site.pass_time(1)
    assert join.answer().error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- assignments ---------------------------------------------------------------------------------------------------


def in_completion(site: GroupSite, count: int = 3) -> list[str]:
    joins = [site.join(given_id=True) for _ in range(count)]
    site.wait_for(*joins)
    return [join.answer().member_id for join in joins]


def test_who_asks_before_the_leader_waits_for_it_and_who_asks_later_does_not(site: GroupSite) -> None:
    leader, early, late = in_completion(site)
    sync = site.sync(early, 1)
    assert sync.answer() is None
    assert site.sync(leader, 1, {leader: b"l", early: b"e", late: b"t"}).answer().assignment == b"l"
    assert sync.answer().assignment == b"e"
    assert site.sync(late, 1).answer().assignment == b"t"


def test_nobody_is_told_before_the_assignments_are_kept(site: GroupSite) -> None:
    leader, follower, _ = in_completion(site)
    site.holds_writes = True
    syncs = [site.sync(follower, 1), site.sync(leader, 1, {follower: b"f"})]
    assert [sync.answer() for sync in syncs] == [None, None]
    assert site.group.state is GroupState.COMPLETING
    site.written()
    assert syncs[0].answer().assignment == b"f"


def test_whom_the_leader_forgot_has_nothing_and_strangers_count_for_nothing(site: GroupSite) -> None:
    leader, forgotten, _ = in_completion(site)
    site.sync(leader, 1, {leader: b"l", "stranger": b"s"})
    assert site.sync(forgotten, 1).answer().assignment == b""
    assert {each.member_id: each.assignment for each in site.log[-1].members} == {"m1": b"l", "m2": b"", "m3": b""}


def test_a_failed_write_is_told_to_who_waits_and_the_group_rebalances(site: GroupSite) -> None:
    leader, follower, _ = in_completion(site)
    site.holds_writes = True
    syncs = [site.sync(follower, 1), site.sync(leader, 1)]
    site.written(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [sync.answer().error_code for sync in syncs] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert site.group.state is GroupState.PREPARING


def test_a_write_that_comes_back_in_a_later_generation_changes_nothing(site: GroupSite) -> None:
    leader, *others = in_completion(site)
    site.holds_writes = True
    sync = site.sync(leader, 1, {leader: b"old"})
    site.join(others[0], protocols={"range": b"new"})
    assert sync.answer().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for each in (leader, others[1]):
        site.join(each)
    assert site.group.generation == 2
    site.written()
    assert site.group.state is GroupState.COMPLETING
    sync = site.sync(leader, 2, {leader: b"new"})
    site.written()
    assert sync.answer().assignment == b"new"


def test_a_leader_that_repeats_its_assignments_has_them_written_once(site: GroupSite) -> None:
    leader, *_ = in_completion(site)
    site.holds_writes = True
    first = site.sync(leader, 1, {leader: b"first"})
    second = site.sync(leader, 1, {leader: b"second"})
    site.written()
    assert not site.writes
    assert first.answer().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer().assignment == site.log[-1].members[0].assignment == b"first"


def test_who_never_asks_for_its_assignment_is_let_go(site: GroupSite) -> None:
    leader, follower, _ = in_completion(site)
    site.sync(leader, 1)
    site.sync(follower, 1)
    for _ in range(int(REBALANCE_S)):
        assert site.group.state is GroupState.STABLE
        for each in ("m1", "m2", "m3"):
            site.heartbeat(each, 1)
        site.pass_time(1)
    assert site.heartbeat("m3", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.heartbeat("m1", 1) == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("names", [{"protocol_type": "connect"}, {"protocol": "other"}])
def test_a_sync_of_another_protocol_is_refused(names: dict, site: GroupSite) -> None:
    leader, *_ = in_completion(site)
    assert site.sync(leader, 1, **names).answer().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_what_a_sync_is_refused_for(site: GroupSite) -> None:
    ids = site.stable(2)
    assert site.sync("who", 1).answer().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.sync(ids[0], 2).answer().error_code == ErrorCode.ILLEGAL_GENERATION
    assert site.sync("who", 2).answer().error_code == ErrorCode.UNKNOWN_MEMBER_ID, "the member before the generation"
    site.join(given_id=True)
    assert site.sync(ids[0], 1).answer().error_code == ErrorCode.REBALANCE_IN_PROGRESS


# --- members that stay and go --------------------------------------------------------------------------------------


def test_a_member_lives_by_its_heartbeats(site: GroupSite) -> None:
    ids = site.stable(2)
    for _ in range(5):
        site.pass_time(SESSION_S - 1)
        assert site.heartbeat(ids[0], 1) == site.heartbeat(ids[1], 1) == ErrorCode.NONE
    site.pass_time(SESSION_S - 1)
    site.heartbeat(ids[0], 1)
    site.pass_time(1)
    assert site.heartbeat(ids[1], 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.heartbeat(ids[0], 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_counts_as_a_heartbeat(site: GroupSite) -> None:
    (only,) = site.stable(1)
    for _ in range(3):
        site.pass_time(SESSION_S - 1)
        assert site.commit(only, 1) == ErrorCode.NONE


def test_who_waits_for_an_answer_needs_no_heartbeats(site: GroupSite) -> None:
    ids = site.stable(2)
    join = site.join(ids[0])
    for _ in range(3):
        site.pass_time(SESSION_S - 1)
        site.heartbeat(ids[1], 1)
    site.join(ids[1])
    assert join.answer().error_code == 0
    site.pass_time(SESSION_S - 1)
    assert site.heartbeat(ids[0], 2) == ErrorCode.NONE, "its session began with the answer"


def test_the_group_of_a_last_member_that_dies_is_empty_and_that_is_written_down(site: GroupSite) -> None:
    site.stable(1)
    site.pass_time(SESSION_S + REBALANCE_S)
    assert site.group.state is GroupState.EMPTY
    assert site.log[-1].members == []
    assert (site.log[-1].generation, site.log[-1].protocol, site.log[-1].protocol_type) == (2, None, "consumer")


def test_the_group_of_a_last_member_that_leaves_is_empty_at_once(site: GroupSite) -> None:
    (only,) = site.stable(1)
    assert site.leave(only) == ErrorCode.NONE
    assert site.group.state is GroupState.EMPTY
    assert site.log[-1].members == []


def test_another_member_leads_when_the_leader_leaves(site: GroupSite) -> None:
    ids = site.stable(3)
    site.leave(ids[0])
    joins = [site.join(each) for each in ids[1:]]
    assert {join.answer().leader for join in joins} == {ids[1]}


def test_who_joined_leads_when_a_static_leader_did_not(site: GroupSite) -> None:
    ids = site.stable(2, instances=True)
    new = site.join(given_id=True)
    site.join(ids[1], instance="i1")
    while new.answer() is None:
        site.heartbeat(ids[0], 1, "i0")
        site.pass_time(1)
    assert new.answer().leader == ids[1]
    assert len(site.group.members) == 3, "the static one is not let go for that"


def test_a_generation_waits_for_static_members_alone_until_their_sessions_end(site: GroupSite) -> None:
    ids = site.stable(1, instances=True)
    site.join(given_id=True)
    site.leave("m2")
    for _ in range(int(REBALANCE_S) + 5):
        assert site.heartbeat(ids[0], 1, "i0") == ErrorCode.REBALANCE_IN_PROGRESS
        site.pass_time(1)
    join = site.join(ids[0], instance="i0")
    assert join.answer().generation_id == 2


def test_who_leaves_is_checked_as_any_member(site: GroupSite) -> None:
    ids = site.stable(1, instances=True)
    assert site.leave("who") == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.leave("who", "i0") == ErrorCode.FENCED_INSTANCE_ID
    assert site.leave("", "other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.leave("") == ErrorCode.UNKNOWN_MEMBER_ID
    assert site.leave("", "i0") == ErrorCode.NONE, "an operator names the instance alone"
    assert site.leave(ids[0]) == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_was_given_an_id_may_leave_without_having_joined(site: GroupSite) -> None:
    pending = site.join().answer().member_id
    assert site.leave(pending) == ErrorCode.NONE
    assert site.group.is_over


def test_a_member_that_leaves_while_it_waits_is_told(site: GroupSite) -> None:
    ids = site.stable(2)
    join = site.join(ids[0])
    site.leave(ids[0])
    assert join.answer().error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- static members ------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_keeps_its_assignment_and_the_group_its_generation(site: GroupSite) -> None:
    ids = site.stable(2, instances=True)
    join = site.join(instance="i1")
    assert (join.answer().error_code, join.answer().generation_id, join.answer().skip_assignment) == (0, 1, False)
    new = join.answer().member_id
    assert new not in ids
    assert site.group.state is GroupState.STABLE
    assert site.sync(new, 1, instance="i1").answer().assignment == ids[1].encode()
    assert [each.member_id for each in site.log[-1].members] == [ids[0], new], "written down"
    assert [each.assignment for each in site.log[-1].members] == [each.encode() for each in ids]


def test_a_leader_that_comes_back_is_told_to_assign_nothing(site: GroupSite) -> None:
    site.stable(2, instances=True)
    answer = site.join(instance="i0").answer()
    assert answer.skip_assignment and answer.leader == answer.member_id and len(answer.members) == 2


def test_a_leader_that_comes_back_and_cannot_be_told_that_is_told_of_the_old_leader(site: GroupSite) -> None:
    ids = site.stable(2, instances=True)
    answer = site.join(instance="i0", skips=False).answer()
    assert (answer.skip_assignment, answer.leader, answer.members) == (False, ids[0], [])


def test_the_old_id_of_a_static_member_is_fenced(site: GroupSite) -> None:
    ids = site.stable(2, instances=True)
    site.join(instance="i1")
    assert site.heartbeat(ids[1], 1, "i1") == ErrorCode.FENCED_INSTANCE_ID
    assert site.commit(ids[1], 1, "i1") == ErrorCode.FENCED_INSTANCE_ID
    assert site.commit(ids[1], 9, "i1") == ErrorCode.FENCED_INSTANCE_ID, "the instance before the generation"
    assert site.sync(ids[1], 1, instance="i1").answer().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert site.join(ids[1], instance="i1").answer().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert site.heartbeat(ids[1], 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_of_two_that_use_one_instance_the_earlier_is_fenced_while_it_waits(site: GroupSite) -> None:
    first = site.join(instance="i")
    second = site.join(instance="i")
    assert first.answer().error_code == ErrorCode.FENCED_INSTANCE_ID
    site.wait_for(second)
    assert second.answer().error_code == 0


def test_a_static_member_that_changes_the_protocol_has_the_group_rebalanced(site: GroupSite) -> None:
    protocols = {"range": b"", "sticky": b""}
    join = site.join(instance="i", protocols=protocols)
    site.pass_time(DELAY_S)
    site.sync(join.answer().member_id, 1)
    again = site.join(instance="i", protocols={"sticky": b"", "range": b""})
    assert again.answer().generation_id == 2
    assert again.answer().protocol_name == "sticky"


def test_a_static_member_that_comes_back_while_assignments_are_awaited_has_the_group_rebalanced(
    site: GroupSite,
) -> None:
    first = site.join(instance="i")
    site.pass_time(DELAY_S)
    second = site.join(instance="i")
    assert (first.answer().generation_id, second.answer().generation_id) == (1, 2)


def test_a_new_id_that_cannot_be_written_down_is_not_given(site: GroupSite) -> None:
    ids = site.stable(1, instances=True)
    site.holds_writes = True
    join = site.join(instance="i0")
    assert join.answer() is None
    site.written(ErrorCode.NOT_COORDINATOR)
    assert join.answer().error_code == ErrorCode.NOT_COORDINATOR
    assert site.heartbeat(ids[0], 1, "i0") == ErrorCode.FENCED_INSTANCE_ID


def test_who_waits_for_its_new_id_takes_part_in_a_rebalance_that_begins_meanwhile(site: GroupSite) -> None:
    ids = site.stable(2, instances=True)
    site.holds_writes = True
    join = site.join(instance="i1")
    site.join(ids[0], instance="i0")
    site.written()
    assert join.answer().generation_id == 2


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_who_waits_when_the_coordinator_moves_is_told(phase: str, site: GroupSite) -> None:
    if phase == "join":
        asked = site.join(given_id=True)
    else:
        in_completion(site)
        asked = site.sync("m2", 1)
    site.end(ErrorCode.NOT_COORDINATOR)
    assert asked.answer().error_code == ErrorCode.NOT_COORDINATOR
    for code in (
        site.join("m1").answer().error_code,
        site.sync("m1", 1).answer().error_code,
        site.heartbeat("m1", 1),
        site.commit("m1", 1),
        site.commit("", -1),
        site.leave("m1"),
    ):
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_loaded_group_goes_on_where_it_was() -> None:
    before = GroupSite()
    ids = before.stable(2, instances=True)
    site = GroupSite(group=Group.loaded(before.log[-1], GroupSettings(10, DELAY_S), 1000.0))
    assert described(site.group) == described(before.group)
    assert site.commit(ids[0], 1) == ErrorCode.NONE
    assert site.sync(ids[1], 1).answer().assignment == ids[1].encode()
    assert site.join(ids[0], instance="i0").answer() is None, "it still leads"
    site.pass_time(REBALANCE_S + SESSION_S)
    assert site.group.members.id_of("i1") is None, "whose session began with the load"


def test_a_loaded_empty_group_has_no_members_and_its_generation() -> None:
    before = GroupSite()
    before.leave(*before.stable(1))
    group = Group.loaded(before.log[-1], GroupSettings(10, DELAY_S), 1000.0)
    assert (group.state, group.generation, group.written_at_ms) == (
        GroupState.EMPTY,
        2,
        before.log[-1].current_state_timestamp_ms,
    )


def test_a_group_is_described_in_full_while_it_is_stable(site: GroupSite) -> None:
    ids = site.stable(1)
    found = described(site.group)
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    (member,) = found.members
    assert (member.client_id, member.client_host, member.member_metadata) == ("client", "/host", b"all")
    assert member.member_assignment == ids[0].encode()
    site.join(given_id=True)
    found = described(site.group)
    assert (found.group_state, found.protocol_data) == ("PreparingRebalance", "")
    assert {each.member_assignment for each in found.members} == {b""}


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 3, len(topics)) + names + b"user data"


@pytest.mark.parametrize(
    ("said", "topics"),
    [
        ([subscription("a", "b"), subscription("b", "c")], {"a", "b", "c"}),
        ([subscription()], set()),
        ([subscription("a"), b""], None),
        ([subscription("a")[:8]], None),
        ([struct.pack(">hi", 3, 2**31 - 1)], None),
        ([struct.pack(">hih", 3, 1, 1) + b"\xff"], None),
    ],
)
def test_what_a_group_is_subscribed_to_is_what_its_members_say(
    said: list[bytes], topics: set[str] | None, site: GroupSite
) -> None:
    site.wait_for(*[site.join(given_id=True, protocols={"range": each}) for each in said])
    assert subscriptions(site.group) == topics


def test_no_move_is_made_that_the_table_does_not_have() -> None:
    assert set(COMES_FROM) == set(GroupState)
    with pytest.raises(AssertionError, match="does not go from Stable to CompletingRebalance"):
        check_move(GroupState.STABLE, GroupState.COMPLETING)
