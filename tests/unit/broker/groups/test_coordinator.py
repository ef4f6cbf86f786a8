"""The coordinator and its handlers, without a broker: what is kept for whom, and what requests may cost."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.broker.groups.coordinator import MAX_OVERDUE
from strandline.broker.groups.group import Group
from strandline.broker.groups.members import PROTOCOLS_KEPT
from strandline.broker.groups.offsets import GroupOffsets
from strandline.broker.groups.shards import MAX_ID_BYTES
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.protocol.consumer_protocol import Subscription, encode_subscription
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.group_records import GroupMetadata, group_key, read_offset_value
from strandline.protocol.messages import (
    OPERATIONS_NOT_ASKED_FOR,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from strandline.protocol.messages.base import MAX_NAMED
from support.coordinator_site import MAX_RECORD_BYTES, CoordinatorSite
from support.replica_site import Hand, in_hand


@pytest.fixture
def site() -> CoordinatorSite:
    return CoordinatorSite()


def commit(topic: str = "t", *, retention_ms: int = -1) -> OffsetCommitRequest:
    topics = [OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(0, 5)])]
    return OffsetCommitRequest("g", topics, retention_time_ms=retention_ms)


def join(
    member_id: str = "", *, protocol_type: str = "consumer", instance: str | None = None, **said: bytes
) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(*each) for each in (said or {"range": b""}).items()]
    return JoinGroupRequest("g", 10_000, member_id, protocol_type, protocols, group_instance_id=instance)


def test_an_offset_that_is_to_stay_for_ever_can_be_written(site: CoordinatorSite) -> None:
    answer = site.ask(site.offsets.commit, commit(retention_ms=2**63 - 1))
    assert answer.topics[0].partitions[0].error_code == 0
    ((_, value),) = site.appends.records
    assert read_offset_value(value).expire_timestamp_ms == 2**63 - 1


def test_a_member_id_can_be_written_however_long_the_client_s_name_is(site: CoordinatorSite) -> None:
    assert len(site.coordinator.fresh_id("c" * 32_767)) < 300
    assert site.coordinator.fresh_id("client").startswith("client-")


def test_a_group_of_a_log_gets_a_tombstone_also_in_generation_0(site: CoordinatorSite) -> None:
    group = Group.loaded(GroupMetadata("g", "", 0, None, None, -1, []), site.settings, site.now)
    site.add(group)
    assert site.ask(site.groups.delete_groups, DeleteGroupsRequest(["g"])).results[0].error_code == 0
    assert site.appends.records == [(group_key("g"), None)]


def test_a_group_that_no_log_has_gets_none(site: CoordinatorSite) -> None:
    site.ask(site.offsets.commit, commit())
    site.appends.records.clear()
    assert site.ask(site.groups.delete_groups, DeleteGroupsRequest(["g"])).results[0].error_code == 0
    assert (group_key("g"), None) not in site.appends.records and len(site.appends.records) == 1


def test_a_commit_that_timed_out_is_read_once_the_log_has_it_for_good(site: CoordinatorSite) -> None:
    site.appends.code = ErrorCode.REQUEST_TIMED_OUT
    refused = site.ask(site.offsets.commit, commit())
    assert refused.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    asked = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])

    def read() -> int:
        return site.ask(site.offsets.fetch, asked).topics[0].partitions[0].committed_offset

    assert read() == -1 and site.coordinator.count == 1
    (late,) = site.appends.late
    late(ErrorCode.NONE)
    assert read() == 5


def test_a_group_whose_only_commit_timed_out_goes_when_the_log_has_lost_it(site: CoordinatorSite) -> None:
    site.appends.code = ErrorCode.REQUEST_TIMED_OUT
    site.ask(site.offsets.commit, commit())
    (late,) = site.appends.late
    late(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert site.coordinator.count == 0


def test_a_commit_that_times_out_again_and_again_is_kept_so_often_and_then_refused_at_once(
    site: CoordinatorSite,
) -> None:
    site.appends.code = ErrorCode.REQUEST_TIMED_OUT
    for _ in range(MAX_OVERDUE + 5):
        refused = site.ask(site.offsets.commit, commit())
        assert refused.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(site.appends.sizes) == len(site.appends.late) == MAX_OVERDUE
    other = OffsetCommitRequest("other", commit().topics)
    assert site.ask(site.offsets.commit, other).topics[0].partitions[0].error_code and site.coordinator.count == 1
    for late in site.appends.late:
        late(ErrorCode.NONE)
    site.appends.code = ErrorCode.NONE
    for asked in (commit(), other):
        assert site.ask(site.offsets.commit, asked).topics[0].partitions[0].error_code == 0


# --- what a request may cost ---------------------------------------------------------------------------------------


def test_who_coordinates_a_name_that_no_group_can_have_is_not_looked_for(site: CoordinatorSite) -> None:
    long = "g" * (MAX_ID_BYTES + 1)
    assert site.ask(site.groups.find_coordinator, FindCoordinatorRequest(long)).error_code == (
        ErrorCode.INVALID_GROUP_ID
    )
    answer = site.ask(site.groups.find_coordinator, FindCoordinatorRequest(coordinator_keys=["g"]))
    assert [found.error_code for found in answer.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("what", ["find", "describe", "fetch"])
def test_many_long_names_are_seen_to_in_steps(what: str, site: CoordinatorSite) -> None:
    names = [f"{number}".zfill(MAX_ID_BYTES) for number in range(50)]
    groups = [OffsetFetchRequestGroup(name) for name in names]
    handler, message = {
        "find": (site.groups.find_coordinator, FindCoordinatorRequest(coordinator_keys=names)),
        "describe": (site.groups.describe_groups, DescribeGroupsRequest(names)),
        "fetch": (site.offsets.fetch, OffsetFetchRequest(groups=groups)),
    }[what]
    counts, answer = site.ask_in_steps(handler, message)
    assert len([count for count in counts if count >= PARTITIONS_PER_STEP]) == len(names)
    assert len(getattr(answer, "coordinators" if what == "find" else "groups")) == len(names)


def test_a_group_that_is_named_again_and_again_is_described_once(site: CoordinatorSite) -> None:
    site.ask(site.offsets.commit, commit())
    answer = site.ask(site.groups.describe_groups, DescribeGroupsRequest(["g", "h"] * 5_000))
    assert [group.group_id for group in answer.groups] == ["g", "h"]
    assert {group.authorized_operations for group in answer.groups} == {OPERATIONS_NOT_ASKED_FOR}


def test_operations_are_told_to_who_asks_for_them(site: CoordinatorSite) -> None:
    site.ask(site.offsets.commit, commit())
    answer = site.ask(site.groups.describe_groups, DescribeGroupsRequest(["g", "h"], True))
    assert [group.authorized_operations for group in answer.groups] == [0b1_0100_1000] * 2


@pytest.mark.parametrize("asks_for_all", [True, False])
def test_an_offset_that_is_named_again_and_again_is_answered_once(asks_for_all: bool, site: CoordinatorSite) -> None:
    site.ask(site.offsets.commit, commit())
    some = OffsetFetchRequestGroup("g", [OffsetFetchRequestTopic("t", [0, 0]), OffsetFetchRequestTopic("t", [0, 1])])
    groups = [some] * 100 + [OffsetFetchRequestGroup("g")] * asks_for_all + [some] * 100
    answer = site.ask(site.offsets.fetch, OffsetFetchRequest(groups=groups))
    offsets = [(part.partition_index, part.committed_offset) for part in answer.groups[0].topics[0].partitions]
    assert len(answer.groups) == len(answer.groups[0].topics) == 1
    assert offsets == ([(0, 5)] if asks_for_all else [(0, 5), (1, -1)])


def test_a_group_with_many_offsets_is_answered_in_steps(site: CoordinatorSite) -> None:
    topics = [OffsetFetchRequestTopic(f"t{number}", list(range(100))) for number in range(10)]
    counts, answer = site.ask_in_steps(site.offsets.fetch, OffsetFetchRequest("g", topics))
    assert max(counts) < PARTITIONS_PER_STEP
    assert sum(len(topic.partitions) for topic in answer.topics) == 1000


MANY = range(PARTITIONS_PER_STEP * 5 + 1)


def commit_many(site: CoordinatorSite) -> Any:
    """Of two topics, the second of which does not exist."""
    parts = [OffsetCommitRequestPartition(number, number) for number in MANY]
    topics = [OffsetCommitRequestTopic(name, parts) for name in ("t", "no such topic")]
    counts, answer = site.ask_in_steps(site.offsets.commit, OffsetCommitRequest("g", topics))
    assert max(counts) <= PARTITIONS_PER_STEP
    return answer


def test_many_offsets_are_committed_in_steps(site: CoordinatorSite) -> None:
    answer = commit_many(site)
    codes = [{part.error_code for part in topic.partitions} for topic in answer.topics]
    assert codes == [{0}, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]
    assert max(site.appends.sizes) <= PARTITIONS_PER_STEP and sum(site.appends.sizes) == len(MANY)


def test_who_is_no_member_any_more_between_two_steps_commits_no_more(site: CoordinatorSite) -> None:
    """What came before is committed, and said to be."""
    parts = [OffsetCommitRequestPartition(number, number) for number in MANY]
    hand = Hand(OffsetCommitRequest("g", [OffsetCommitRequestTopic("t", parts)]))
    remainder: Any = site.offsets.commit(in_hand(hand))
    next(remainder._work)
    site.send(site.groups.join_group, join(instance="i"))
    assert list(remainder._work)
    site.appends.write()
    codes = [part.error_code for part in hand.answer.topics[0].partitions]
    assert codes == [0] * PARTITIONS_PER_STEP + [ErrorCode.UNKNOWN_MEMBER_ID] * (len(MANY) - PARTITIONS_PER_STEP)


@pytest.mark.parametrize("asks_for_all", [True, False])
def test_many_offsets_of_one_topic_are_read_in_steps(asks_for_all: bool, site: CoordinatorSite) -> None:
    commit_many(site)
    topics = None if asks_for_all else [OffsetFetchRequestTopic("t", list(MANY))]
    counts, answer = site.ask_in_steps(site.offsets.fetch, OffsetFetchRequest("g", topics))
    assert max(counts) <= PARTITIONS_PER_STEP + 1
    (topic,) = answer.topics
    assert [part.committed_offset for part in topic.partitions] == list(MANY)


def test_many_offsets_are_deleted_in_steps(site: CoordinatorSite) -> None:
    commit_many(site)
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(number) for number in MANY])]
    counts, answer = site.ask_in_steps(site.offsets.delete, OffsetDeleteRequest("g", topics))
    assert max(counts) <= PARTITIONS_PER_STEP and answer.error_code == 0
    assert {part.error_code for part in answer.topics[0].partitions} == {0}
    assert site.ask(site.offsets.fetch, OffsetFetchRequest("g")).topics == []


def delete_many(site: CoordinatorSite) -> tuple[Hand, Any]:
    """The first step of it is done; what is left of it."""
    commit_many(site)
    topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(number) for number in MANY])]
    hand = Hand(OffsetDeleteRequest("g", topics))
    remainder: Any = site.offsets.delete(in_hand(hand))
    next(remainder._work)
    return hand, remainder


async def test_what_a_member_subscribes_to_between_two_steps_is_deleted_no_more(site: CoordinatorSite) -> None:
    hand, remainder = delete_many(site)
    joined = site.send(site.groups.join_group, join(instance="i", range=encode_subscription(Subscription(["t"]))))
    site.pass_time(10)
    made = SyncGroupRequestAssignment(joined.answer.member_id, b"")
    site.ask(site.groups.sync_group, SyncGroupRequest("g", 1, made.member_id, assignments=[made]))
    assert list(remainder._work)
    site.appends.write()
    codes = [part.error_code for part in hand.answer.topics[0].partitions]
    kept = len(MANY) - PARTITIONS_PER_STEP
    assert codes == [0] * PARTITIONS_PER_STEP + [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * kept
    _, answer = site.ask_in_steps(site.offsets.fetch, OffsetFetchRequest("g"))
    assert [len(topic.partitions) for topic in answer.topics] == [kept]


def test_a_group_that_has_become_anothers_is_deleted_from_no_more(site: CoordinatorSite) -> None:
    hand, remainder = delete_many(site)
    del site.coordinator.shards[0]
    assert not list(remainder._work)
    site.appends.write()
    assert hand.answer.error_code == ErrorCode.NOT_COORDINATOR


def test_a_group_that_ended_with_its_last_offsets_has_none_to_delete(site: CoordinatorSite) -> None:
    hand, remainder = delete_many(site)
    assert site.shard.groups is not None
    del site.shard.groups["g"]
    assert not list(remainder._work)
    site.appends.write()
    assert hand.answer.error_code == 0 and {part.error_code for part in hand.answer.topics[0].partitions} == {0}


def test_many_members_leave_in_steps(site: CoordinatorSite) -> None:
    names = [f"i{number}" for number in range(PARTITIONS_PER_STEP + 1)]
    for name in names:
        site.send(site.groups.join_group, join(instance=name))
    leaving = [MemberIdentity("", name) for name in (*names, "nobody")]
    counts, answer = site.ask_in_steps(site.groups.leave_group, LeaveGroupRequest("g", members=leaving))
    assert max(counts) <= PARTITIONS_PER_STEP
    codes = [member.error_code for member in answer.members]
    assert codes == [0] * len(names) + [ErrorCode.UNKNOWN_MEMBER_ID]


# --- groups that nothing is in -------------------------------------------------------------------------------------


def test_a_call_that_is_refused_leaves_no_group_behind(site: CoordinatorSite) -> None:
    assert site.ask(site.groups.join_group, join(protocol_type="")).error_code == (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert site.coordinator.count == 0
    site.ask(site.offsets.commit, commit("no such topic"))
    assert site.coordinator.count == 0
    site.appends.code = ErrorCode.NOT_ENOUGH_REPLICAS
    site.ask(site.offsets.commit, commit())
    assert site.coordinator.count == 0


def test_a_group_lasts_as_long_as_the_ids_that_it_gave_out(site: CoordinatorSite) -> None:
    assert site.ask(site.groups.join_group, join()).error_code == ErrorCode.MEMBER_ID_REQUIRED
    site.deadlines.expire(site.now + 9)
    assert site.coordinator.count == 1
    site.deadlines.expire(site.now + 10)
    assert site.coordinator.count == len(site.deadlines) == 0


def test_a_group_with_offsets_stays_when_a_call_is_refused(site: CoordinatorSite) -> None:
    site.ask(site.offsets.commit, commit())
    site.ask(site.groups.join_group, join(protocol_type=""))
    site.ask(site.offsets.commit, commit("no such topic"))
    site.appends.code = ErrorCode.NOT_ENOUGH_REPLICAS
    site.ask(site.offsets.commit, commit())
    assert site.coordinator.count == 1


def test_a_group_that_a_log_knows_stays_until_its_tombstone_is_written(site: CoordinatorSite) -> None:
    site.add(Group.loaded(GroupMetadata("g", "", 0, None, None, -1, []), site.settings, site.now))
    site.ask(site.groups.join_group, join(protocol_type=""))
    assert site.coordinator.count == 1


def test_a_group_that_is_being_loaded_is_not_forgotten_before_it_can_be_found(site: CoordinatorSite) -> None:
    """Its offsets may have been those of deleted topics alone."""
    groups, site.shard.groups = site.shard.groups, None
    loaded = site.coordinator.coordinated(site.shard, Group("g", site.settings), GroupOffsets("g"))
    site.coordinator.carry_out(loaded)
    assert groups is not None
    groups["g"], site.shard.groups = loaded, groups
    assert site.ask(site.groups.join_group, join()).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_one_request_fetches_offsets_of_as_many_partitions_as_a_request_may_name(site: CoordinatorSite) -> None:
    """However they are spread over groups and topics; those of another group, or of no topic, count as any."""
    for count, is_allowed in ((MAX_NAMED, True), (MAX_NAMED + 4, False)):
        topics = [OffsetFetchRequestTopic(name, list(range(count // 4))) for name in ("t", "u")]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics) for name in ("g", "h")])
        if is_allowed:
            site.ask_in_steps(site.offsets.fetch, asked)
        else:
            with pytest.raises(BrokerError) as caught:
                site.send(site.offsets.fetch, asked)
            assert caught.value.code is ErrorCode.INVALID_REQUEST


# --- what members may have kept ------------------------------------------------------------------------------------


def members(site: CoordinatorSite, count: int, **said: bytes) -> list[Hand]:
    """Static ones, of the next generation."""
    hands = [site.send(site.groups.join_group, join(instance=f"i{number}", **said)) for number in range(count)]
    while not all(hand.answers for hand in hands):
        site.pass_time(1)
    return hands


def test_what_no_record_can_hold_is_refused_when_it_is_said(site: CoordinatorSite) -> None:
    large = bytes(MAX_RECORD_BYTES + 1)
    for said in ({"range": large}, {"range": b"", "large": large}):
        assert site.ask(site.groups.join_group, join(**said)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert site.coordinator.count == 0


@pytest.mark.parametrize("text", ["x" * 32_768, "\u20ac" * 10_923])
def test_names_that_no_record_can_hold_are_kept_for_nobody_to_stumble_over(site: CoordinatorSite, text: str) -> None:
    """Whoever lists or describes groups in an older version could be told nothing: its strings are as short."""
    protocol = [JoinGroupRequestProtocol("range", b"")]
    for asked in (
        JoinGroupRequest("g", 10_000, "", text, protocol),
        JoinGroupRequest("g", 10_000, "", "consumer", [JoinGroupRequestProtocol(text, b"")]),
        JoinGroupRequest("g", 10_000, "", "consumer", protocol, group_instance_id=text),
    ):
        assert site.ask(site.groups.join_group, asked).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert site.coordinator.count == 0


def test_what_members_say_is_bounded_together(site: CoordinatorSite) -> None:
    said = {"range": b"", "other": bytes(MAX_RECORD_BYTES)}
    for _ in range(2):  # the second time each in place of what it said before
        joined = members(site, PROTOCOLS_KEPT - 1, **said)
        assert [hand.answer.error_code for hand in joined] == [0] * (PROTOCOLS_KEPT - 1)
    refused = site.ask(site.groups.join_group, join(instance="new", **said))
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_assignments_that_no_record_can_hold_fail_for_all(site: CoordinatorSite) -> None:
    ids = [hand.answer.member_id for hand in members(site, 2)]
    half = bytes(MAX_RECORD_BYTES // 2 + 1)
    assignments = [SyncGroupRequestAssignment(each, half) for each in ids]
    waits = site.send(site.groups.sync_group, SyncGroupRequest("g", 1, ids[1], []))
    leads = site.send(site.groups.sync_group, SyncGroupRequest("g", 1, ids[0], assignments))
    assert [hand.answer.error_code for hand in (leads, waits)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert not site.appends.records
