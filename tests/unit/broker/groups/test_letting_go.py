"""The coordinator on one broker's replicas: what it lets go of, in steps, while others go on."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.groups.group import Group
from strandline.broker.groups.shards import Coordinated
from strandline.broker.groups.states import GroupState
from strandline.broker.handlers.group_offsets import OffsetHandlers
from strandline.broker.handlers.groups import GroupHandlers
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import CommittedOffset, offset_key
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    DeleteGroupsRequest,
    MemberIdentity,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from support.coordinator_site import CoordinatorSite
from support.group_bench import SHARD, GroupBench, known_partition
from support.replica_site import BROKER, Hand, in_hand

# --- what is too old -------------------------------------------------------------------------------------------------


async def test_a_check_ends_where_the_group_is_no_longer_what_it_was(
    bench: GroupBench, autojump_clock: MockClock
) -> None:
    many = dict.fromkeys(range(PARTITIONS_PER_STEP), 1)
    bench.commit({"a": many, "b": {0: 1}})
    was = bench.join()
    bench.burst.end()
    was.group.leave(MemberIdentity("", "i"), bench.burst.now())
    bench.coordinator.carry_out(was)
    bench.burst.end()
    assert was.group.state is GroupState.EMPTY

    def come_in() -> None:
        if "a" in bench.committed():
            return
        bench.between = lambda: None
        found = bench.join()
        bench.burst.end()
        assert found.group.state is GroupState.STABLE
        bench.commit({"b": {0: 2}})
        bench.burst.end()

    bench.between = come_in
    await trio.sleep(7 * 60)
    assert bench.committed() == {"b": {0: 2}}


# --- topics that are deleted -----------------------------------------------------------------------------------------

OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


def make_topic(bench: GroupBench, *indexes: int, topic_id: bytes = OLD_ID, leader: int = BROKER) -> None:
    bench.site.update_metadata(*(known_partition(each, leader) for each in indexes), topic_id=topic_id)


def delete_topic(bench: GroupBench, *indexes: int) -> None:
    make_topic(bench, *indexes, leader=LEADER_DURING_DELETE)


async def test_offsets_of_a_deleted_topic_are_of_none_that_is_made_anew(
    bench: GroupBench, autojump_clock: MockClock
) -> None:
    make_topic(bench, 0, 1)
    bench.commit({"t": {0: 500, 1: 500}, "u": {0: 1}})
    bench.commit({"t": {0: 500}}, "h")
    bench.burst.end()
    bench.commit({"t": {1: 501}})
    delete_topic(bench, 0, 1)
    make_topic(bench, 0, 1, topic_id=NEW_ID)
    bench.commit({"t": {1: 3}})
    bench.burst.end()
    assert bench.committed() == {"t": {1: 3}, "u": {0: 1}}
    await trio.sleep(1)
    bench.commit({"t": {0: 2}})
    bench.burst.end()
    for _ in range(2):
        assert bench.committed() == {"t": {0: 2, 1: 3}, "u": {0: 1}}
        assert bench.committed("h") == {}
        await bench.lead_again()


async def test_groups_that_nobody_asks_for_let_go_as_well(bench: GroupBench, autojump_clock: MockClock) -> None:
    make_topic(bench, 0)
    for number in range(PARTITIONS_PER_STEP * 2):
        bench.commit({"t": {0: 500}}, f"g{number}")
    bench.burst.end()
    make_topic(bench, 0, topic_id=NEW_ID)
    await trio.sleep(1)
    await bench.lead_again()
    assert bench.coordinator.count == 0


async def test_what_is_deleted_while_groups_are_loaded_is_gone_too(
    bench: GroupBench, autojump_clock: MockClock
) -> None:
    make_topic(bench, 0, 1, 2)
    bench.commit({"t": {0: 500, 1: 500, 2: 500}})
    bench.burst.end()
    loading = bench.lead_again()
    bench.while_loading = lambda: delete_topic(bench, 0)
    await loading
    assert bench.committed() == {"t": {1: 500, 2: 500}}
    await bench.lead_again()
    assert bench.committed() == {"t": {1: 500, 2: 500}}, "nor in the log"
    bench.while_loading = lambda: make_topic(bench, 1, topic_id=NEW_ID)
    await bench.lead_again()
    assert bench.committed() == {"t": {1: 500}}, "this may be of the new one"


# --- many groups, large groups ---------------------------------------------------------------------------------------

TOPICS = {"large": dict.fromkeys(range(PARTITIONS_PER_STEP * 3), 1)}
TOPICS |= {f"t{number}": dict.fromkeys(range(PARTITIONS_PER_STEP // 2), 1) for number in range(4)}


async def test_a_large_group_is_deleted_in_steps_and_nobody_comes_in_between(
    bench: GroupBench, autojump_clock: MockClock
) -> None:
    bench.commit(TOPICS)
    bench.burst.end()
    found = bench.group()
    left = [found.offsets.count]
    refusals: set[object] = set()

    def look() -> None:
        left.append(found.offsets.count)
        for find in (bench.coordinator.find, bench.coordinator.find_or_make):
            answer = find("g")
            refusals.add("found" if isinstance(answer, Coordinated) else answer)

    hand = Hand(DeleteGroupsRequest(["g", "g2"]))
    handlers = GroupHandlers(bench.coordinator, bench.site.replicas, lambda *_: None)
    remainder = handlers.delete_groups(in_hand(hand))
    assert remainder is not None, "not at once"
    bench.between = lambda: look() if found.offsets else None
    await remainder()
    assert found.offsets.count == 0
    assert [result.error_code for result in hand.answer.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert max(before - after for before, after in pairwise(left)) <= PARTITIONS_PER_STEP
    assert refusals == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    await bench.lead_again()
    assert bench.coordinator.count == 0


# --- tombstones that are refused -------------------------------------------------------------------------------------


async def test_what_could_not_be_buried_is_tried_again_unless_it_was_written_anew(
    bench: GroupBench, autojump_clock: MockClock
) -> None:
    bench.commit({"t": {0: 1, 1: 1, 2: 1}})
    bench.join("left")
    bench.burst.end()
    found, leadership = bench.group(), bench.site.partition(SHARD).leadership
    assert leadership is not None
    codes: list[ErrorCode] = []
    leadership.min_insync_replicas = leadership.replication_factor = 2
    bench.coordinator.bury(found.shard, "g", found.offsets.remove("t", [0, 1, 2]), codes.append)
    bench.burst.end()
    left = bench.group("left")
    left.group.leave(MemberIdentity("", "i"), bench.burst.now())
    bench.coordinator.carry_out(left)
    bench.burst.end()
    for _ in bench.coordinator.delete(left, codes.append):
        pass
    bench.burst.end()
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    leadership.min_insync_replicas = 1
    bench.commit({"t": {1: 2}})
    bench.burst.end()
    await trio.sleep(2 * 60)
    assert not found.shard.unburied
    await bench.lead_again()
    assert bench.committed() == {"t": {1: 2}}
    assert [group.group_id for group in bench.coordinator.groups()] == ["g"]


@pytest.mark.parametrize("how", ["refused", "under way"])
async def test_a_deletion_that_is_repeated_is_done_when_the_log_has_it(
    how: str, bench: GroupBench, autojump_clock: MockClock
) -> None:
    """Also where nothing is left in memory since the first time: else the next coordinator would find it again."""
    for group in ("g", "whole"):
        bench.commit({"t": {0: 1, 1: 1}}, group)
    bench.burst.end()
    leadership = bench.site.partition(SHARD).leadership
    assert leadership is not None
    parts = [OffsetDeleteRequestPartition(0)]
    offsets, whole = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", parts)]), DeleteGroupsRequest(["whole"])

    def delete() -> tuple[Hand, Hand]:
        hands = Hand(offsets), Hand(whole)
        assert OffsetHandlers(bench.coordinator, bench.site.replicas).delete(in_hand(hands[0])) is None
        handlers = GroupHandlers(bench.coordinator, bench.site.replicas, lambda *_: None)
        assert handlers.delete_groups(in_hand(hands[1])) is None
        return hands

    leadership.min_insync_replicas = leadership.replication_factor = 2
    first = delete()
    if how == "refused":
        bench.burst.end()
        assert first[0].answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert first[1].answer.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = delete()
    assert not any(hand.is_answered for hand in again)
    leadership.min_insync_replicas = 1
    bench.burst.end()
    assert (again[0].answer.error_code, again[1].answer.results[0].error_code) == (0, 0)
    await bench.lead_again()
    assert (bench.committed(), bench.committed("whole")) == ({"t": {1: 1}}, {})
    assert delete()[1].answer.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_what_is_left_of_a_deletion_stays_where_the_name_is_used_again(
    bench: GroupBench, autojump_clock: MockClock
) -> None:
    many = dict.fromkeys(range(PARTITIONS_PER_STEP + 1), 1)
    bench.commit({"t": many})
    bench.burst.end()
    leadership = bench.site.partition(SHARD).leadership
    assert leadership is not None
    leadership.min_insync_replicas = leadership.replication_factor = 2
    for _ in bench.coordinator.delete(bench.group(), lambda code: None):
        pass
    bench.burst.end()
    leadership.min_insync_replicas = 1
    codes: list[ErrorCode] = []
    rest = bench.coordinator.delete_the_rest("g", codes.append)
    next(rest)
    bench.commit({"t": many})
    assert not list(rest)
    bench.burst.end()
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    await bench.lead_again()
    assert bench.committed() == {"t": many}


async def test_a_commit_under_way_is_awaited_before_what_it_replaces_is_buried(
    bench: GroupBench, autojump_clock: MockClock
) -> None:
    bench.commit({"t": {0: 1}})
    bench.burst.end()
    found = bench.group()
    (tombstone,) = found.offsets.remove("t", [0])
    found.shard.unburied["g"] = {tombstone[0]: None}
    pending, _ = found.offsets.begin({"t": {0: CommittedOffset(2)}})
    await trio.sleep(70)
    assert list(found.shard.unburied["g"]) == [tombstone[0]]
    found.offsets.settle(pending, is_committed=False)
    await trio.sleep(70)
    assert not found.shard.unburied
    await bench.lead_again()
    assert bench.committed() == {}


def test_a_commit_that_timed_out_goes_with_its_group() -> None:
    site = CoordinatorSite()
    site.add(Group("g", site.settings))
    found = site.coordinator.find("g")
    assert isinstance(found, Coordinated)
    for code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS):
        site.appends.code = code
        site.coordinator.commit(found, {code.name: {0: CommittedOffset(1)}}, lambda code: None)
        site.appends.write()
    site.appends.code = ErrorCode.NONE
    site.appends.records.clear()
    assert site.ask(site.groups.delete_groups, DeleteGroupsRequest(["g"])).results[0].error_code == 0
    assert site.appends.records == [(offset_key("g", topic, 0), None) for topic in ("NONE", "REQUEST_TIMED_OUT")]
