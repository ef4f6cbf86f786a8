"""The coordinator on one broker's replicas: what it lets go of, in steps, while others go on."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.groups.coordinator import SEEN_PER_STEP, GroupCoordinator
from strandline.broker.groups.group import Group
from strandline.broker.groups.members import Client
from strandline.broker.groups.shards import OFFSETS_TOPIC, Coordinated
from strandline.broker.groups.states import GroupState
from strandline.broker.handlers.groups import GroupHandlers
from strandline.broker.replication.burst import Burst
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import CommittedOffset, offset_key
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    DeleteGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    MemberIdentity,
    SyncGroupRequest,
    UpdateMetadataPartitionState,
)
from strandline.protocol.types import TopicPartition
from support.coordinator_site import CoordinatorSite
from support.replica_site import BROKER, Hand, ReplicaSite, in_hand

SHARD = TopicPartition(OFFSETS_TOPIC, 0)
CONFIG = {
    "offsets.retention.check.interval.ms": "60000",
    "offsets.retention.minutes": "5",
    "group.initial.rebalance.delay.ms": "0",
}
CLIENT = Client("c", "/h")


def known_partition(index: int = 0, leader: int = BROKER) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(index, 1, leader, 0, [BROKER], 0, [BROKER])


class Bench:
    """A broker that coordinates all groups. `between`: called at the end of each burst, where others may come in."""

    def __init__(self) -> None:
        self.site = ReplicaSite(config=CONFIG, topic={"min.insync.replicas": "1"})
        self.between: Callable[[], None] = lambda: None
        self.while_loading: Callable[[], None] = lambda: None
        data = self.site.data
        self.burst = Burst(
            self.site.environment.wall_clock, data.burst.changes, data.burst.write_appends, lambda: self.between()
        )
        self.coordinator = GroupCoordinator(
            self.site.replicas,
            data.group_log,
            data.group_loader.load,
            self.burst,
            data.deadlines,
            random.Random(1),
            self.site.log,
        )
        self.site.update_metadata(known_partition(), topic=OFFSETS_TOPIC)

    async def lead(self, epoch: int = 0) -> None:
        """And wait until the groups are loaded."""
        alone = self.site.state(SHARD, isr=(BROKER,), replicas=(BROKER,), epoch=epoch)
        response = await self.site.order(alone, topic=OFFSETS_TOPIC)
        assert [error.error_code for error in response.partition_errors] == [0]
        assert self.coordinator.is_loading
        self.while_loading()
        with trio.fail_after(60):
            while self.coordinator.is_loading:
                await trio.sleep(1)

    async def lead_again(self) -> None:
        """Everything is loaded from the log once more."""
        self.site.replicas.resign(self.site.partition(SHARD))
        await self.lead(epoch=self.site.partition(SHARD).leader_epoch + 1)

    def group(self, name: str = "g") -> Coordinated:
        found = self.coordinator.find_or_make(name)
        assert isinstance(found, Coordinated)
        return found

    def commit(self, topics: dict[str, dict[int, int]], group: str = "g") -> list[ErrorCode]:
        codes: list[ErrorCode] = []
        now_ms = self.burst.wall_ms()
        offsets = {
            topic: {index: CommittedOffset(offset, -1, "", now_ms) for index, offset in partitions.items()}
            for topic, partitions in topics.items()
        }
        self.coordinator.commit(self.group(group), offsets, codes.append)
        return codes

    def committed(self, group: str = "g") -> dict[str, dict[int, int]]:
        found = self.coordinator.find(group)
        if not isinstance(found, Coordinated):
            return {}
        return {
            topic: {index: committed.offset for index, committed in partitions.items()}
            for topic, partitions in found.offsets.committed.items()
        }

    def join(self, name: str = "g") -> Coordinated:
        """A member joins, alone, and is given its assignment once this is committed."""
        found = self.group(name)
        asked = JoinGroupRequest(name, 60_000, "", "consumer", [JoinGroupRequestProtocol("range", b"")], -1, "i")
        found.group.join(asked, CLIENT, Hand(asked), "m", self.burst.now())
        self.coordinator.carry_out(found)
        found.group.expire(self.burst.now() + 0.001)
        self.coordinator.carry_out(found)
        sync = SyncGroupRequest(name, found.group.generation, "m", [], "i")
        found.group.sync(sync, Hand(sync), self.burst.now())
        self.coordinator.carry_out(found)
        return found


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    nursery.start_soon(bench.coordinator.run)
    await bench.lead()
    return bench


# --- what is too old -------------------------------------------------------------------------------------------------


async def test_a_check_ends_where_the_group_is_no_longer_what_it_was(bench: Bench, autojump_clock: MockClock) -> None:
    many = dict.fromkeys(range(SEEN_PER_STEP), 1)
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


def make_topic(bench: Bench, *indexes: int, topic_id: bytes = OLD_ID, leader: int = BROKER) -> None:
    bench.site.update_metadata(*(known_partition(each, leader) for each in indexes), topic_id=topic_id)


def delete_topic(bench: Bench, *indexes: int) -> None:
    make_topic(bench, *indexes, leader=LEADER_DURING_DELETE)


async def test_offsets_of_a_deleted_topic_are_of_none_that_is_made_anew(
    bench: Bench, autojump_clock: MockClock
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


async def test_groups_that_nobody_asks_for_let_go_as_well(bench: Bench, autojump_clock: MockClock) -> None:
    make_topic(bench, 0)
    for number in range(SEEN_PER_STEP * 2):
        bench.commit({"t": {0: 500}}, f"g{number}")
    bench.burst.end()
    make_topic(bench, 0, topic_id=NEW_ID)
    await trio.sleep(1)
    await bench.lead_again()
    assert bench.coordinator.count == 0


async def test_what_is_deleted_while_groups_are_loaded_is_gone_too(bench: Bench, autojump_clock: MockClock) -> None:
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

TOPICS = {f"t{number}": dict.fromkeys(range(SEEN_PER_STEP // 2), 1) for number in range(6)}


async def test_a_large_group_is_deleted_in_steps_and_nobody_comes_in_between(
    bench: Bench, autojump_clock: MockClock
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
    assert max(before - after for before, after in pairwise(left)) <= SEEN_PER_STEP
    assert refusals == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    await bench.lead_again()
    assert bench.coordinator.count == 0


async def test_groups_are_left_and_loaded_in_steps(bench: Bench, autojump_clock: MockClock) -> None:
    count = SEEN_PER_STEP * 3
    for number in range(count):
        bench.commit({"t": {0: 1}}, f"g{number}")
    joined = bench.join(f"g{count - 1}")
    bench.burst.end()
    groups = [bench.group(f"g{number}") for number in range(count)]
    dead: list[int] = [0]

    def look() -> None:
        dead.append(sum(each.group.state is GroupState.DEAD for each in groups))

    bench.between = look
    bench.site.replicas.resign(bench.site.partition(SHARD))
    assert bench.coordinator.count == 0
    await trio.sleep(1)
    bench.between = lambda: None
    assert dead[-1] == count and max(after - before for before, after in pairwise(dead)) <= SEEN_PER_STEP
    assert joined.group.state is GroupState.DEAD
    await bench.lead(epoch=1)
    assert bench.coordinator.count == count, "no tombstones"


# --- tombstones that are refused -------------------------------------------------------------------------------------


async def test_what_could_not_be_buried_is_tried_again_unless_it_was_written_anew(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.commit({"t": {0: 1, 1: 1, 2: 1}})
    bench.join("left")
    bench.burst.end()
    found, leadership = bench.group(), bench.site.partition(SHARD).leadership
    assert leadership is not None
    codes: list[ErrorCode] = []
    leadership.min_insync_replicas, leadership.replicas = 2, (BROKER, 2)
    bench.coordinator.bury(found.shard, found.offsets.remove("t"), codes.append)
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


async def test_a_commit_under_way_is_awaited_before_what_it_replaces_is_buried(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.commit({"t": {0: 1}})
    bench.burst.end()
    found = bench.group()
    (tombstone,) = found.offsets.remove("t")
    found.shard.unburied[tombstone[0]] = None
    pending, _ = found.offsets.begin({"t": {0: CommittedOffset(2)}})
    await trio.sleep(70)
    assert list(found.shard.unburied) == [tombstone[0]]
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
