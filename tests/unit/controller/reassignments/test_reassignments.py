"""Reassignments on scripted brokers with real controllers: what stands in ZooKeeper after each step, who is told what,
and that another controller goes on from wherever the first one ended."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.reassignments import reassignment_requests, reassignment_store, reassignments
from strandline.controller.reassignments.reassignment_lines import DETAILED_MOVES
from strandline.controller.topics.creation_checks import MAX_TOPICS_PER_REQUEST
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    DeleteTopicsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignableTopic,
    StopReplicaRequest,
)
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import (
    PartitionStateZnode,
    TopicZnode,
)
from strandline.runtime.coordination import ConnectionLost
from support.scripted_moves import (
    ADMIN,
    TP,
    Recorded,
    alter,
    ask_as_tools_do,
    catching_up,
    check_moved,
    is_gone,
    is_moved,
    topic_znode,
)

# --- the steps -------------------------------------------------------------------------------------------------------


async def test_what_stands_in_zookeeper_is_the_table_of_the_reference_text(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3, 4, 5, 6, 9)
    session = Recorded(cluster.brokers[9].coordination)
    controller = await cluster.controller_on(9, via=lambda _: session)
    await cluster.create(controller, "t", [[1, 2, 3]])
    session.writes.clear()
    async with catching_up(cluster):
        assert await alter(controller, {TP: [4, 5, 6]}) == {TP: 0}
        await check_moved(cluster, [4, 5, 6])
    table = []
    for path, data in session.writes:
        if path == TopicZnode.path("t"):
            znode = TopicZnode.decode(path, data)
            table.append((znode.partitions[0], znode.adding_replicas, znode.removing_replicas))
        else:
            state = PartitionStateZnode.decode(path, data)
            table.append((state.leader, sorted(state.isr), state.leader_epoch))
    assert table == [
        ([4, 5, 6, 1, 2, 3], {0: [4, 5, 6]}, {0: [1, 2, 3]}),  # 1
        (1, [1, 2, 3], 1),  # 2
        (4, [1, 2, 3, 4, 5, 6], 2),  # 7
        (4, [4, 5, 6], 3),  # 8
        ([4, 5, 6], {}, {}),  # 10
    ]
    told = {n: cluster.brokers[n].told(StopReplicaRequest) for n in range(1, 7)}
    assert [len(told[n]) for n in range(1, 7)] == [1, 1, 1, 0, 0, 0]
    [stopped] = told[1][0].partition_states
    assert (stopped.delete_partition, stopped.leader_epoch) == (True, 3)
    assert [entry["target"] for entry in cluster.logged("reassignment begun")] == [[4, 5, 6]]
    assert [entry["previous"] for entry in cluster.logged("reassignment done")] == [[4, 5, 6, 1, 2, 3]]
    why = [entry["why"] for entry in cluster.state_changes.entries if entry["event"] == "partition state changed"]
    assert why[1:] == ["reassignment step 2", "reassignment step 7", "reassignment step 8"]


async def test_a_leader_that_stays_is_told_of_its_replicas_by_new_epochs(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3, 4)
    controller = await cluster.controller_on(2)
    await cluster.create(controller, "t", [[1, 2]])
    async with catching_up(cluster, 3) as slow:
        await alter(controller, {TP: [3, 1]})
        await cluster.come_to_rest()
        role = cluster.brokers[1].roles[TP]
        assert (role.replicas, role.adding_replicas, role.removing_replicas) == ([3, 1, 2], [3], [2])
        assert role.replication_factor == 2
        assert sorted((await cluster.state("t")).isr) == [1, 2], "nobody is in sync by being asked for"
        assert TP in cluster.brokers[3].logs
        slow.clear()
        await check_moved(cluster, [3, 1])
        assert (await cluster.state("t")).leader == 1


async def test_what_is_under_way_can_be_listed(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1], [2]])
    await cluster.create(controller, "u", [[1]])
    empty = await controller.ask(ListPartitionReassignmentsRequest())
    assert empty.topics == []
    other = TopicPartition("u", 0)
    await alter(controller, {TP: [3], other: [2]})
    first = OngoingTopicReassignment("t", [OngoingPartitionReassignment(0, [3, 1], [3], [1])])
    second = OngoingTopicReassignment("u", [OngoingPartitionReassignment(0, [2, 1], [2], [1])])
    assert (await controller.ask(ListPartitionReassignmentsRequest())).topics == [first, second]
    some = [ListPartitionReassignmentsTopics("t", [0, 1, 7]), ListPartitionReassignmentsTopics("nowhere", [0])]
    assert (await controller.ask(ListPartitionReassignmentsRequest(topics=some))).topics == [first]


async def test_each_partition_of_a_request_has_an_answer_of_its_own(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1], [1], [1], [1]])
    codes = await alter(
        controller,
        {
            TP: [2],
            TopicPartition("t", 1): [7],
            TopicPartition("t", 2): None,
            TopicPartition("t", 3): [1],
            TopicPartition("t", 4): [1],
            TopicPartition("u", 0): [1],
        },
    )
    assert list(codes.values()) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    twice = ReassignableTopic("t", [ReassignablePartition(1, [2]), ReassignablePartition(1, [1])])
    response = await controller.ask(AlterPartitionReassignmentsRequest([twice]))
    assert [each.error_code for each in response.responses[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2
    assert (await topic_znode(cluster)).partitions == {0: [2, 1], 1: [1], 2: [1], 3: [1]}


async def test_one_request_may_be_about_any_number_of_topics(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    absent = {TopicPartition(f"absent{number}", 0): [2] for number in range(MAX_TOPICS_PER_REQUEST + 1)}
    assert set((await alter(controller, absent)).values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    monkeypatch.setattr(reassignment_requests, "TOPICS_AT_ONCE", 2)
    targets = {TopicPartition(name, 0): [1, 2] for name in "abcde"}
    for name, _ in targets:
        await cluster.create(controller, name, [[1]])
    assert await alter(controller, targets) == dict.fromkeys(targets, ErrorCode.NONE)
    listed = (await controller.ask(ListPartitionReassignmentsRequest())).topics
    assert [topic.name for topic in listed] == list("abcde")
    again = [ReassignableTopic(name, [ReassignablePartition(0, None)]) for name in "abca"]
    response = await controller.ask(AlterPartitionReassignmentsRequest(again))
    codes = [each.error_code for topic in response.responses for each in topic.partitions]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    listed = (await controller.ask(ListPartitionReassignmentsRequest())).topics
    assert [topic.name for topic in listed] == list("ade"), "a partition that is named twice is left alone"


async def test_another_order_is_written_at_once(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1, 2]])
    await alter(controller, {TP: [2, 1]})
    await cluster.come_to_rest()
    assert await is_moved(cluster, [2, 1])
    assert cluster.brokers[2].metadata[TP].replicas == [2, 1]
    assert (await cluster.state("t")).leader_epoch == 0, "nobody has anything to do"


# --- changes of mind -------------------------------------------------------------------------------------------------


async def test_a_reassignment_is_cancelled_and_those_it_added_go(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3, 4, 5)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1, 2]])
    async with catching_up(cluster, 5):
        await alter(controller, {TP: [4, 5]})
        await cluster.come_to_rest()
        assert sorted((await cluster.state("t")).isr) == [1, 2, 4]
        assert await alter(controller, {TP: None}) == {TP: 0}
        await check_moved(cluster, [1, 2])
        assert len(cluster.logged("reassignment cancelled")) == 1
        assert await alter(controller, {TP: None}) == {TP: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


async def test_another_target_replaces_the_first_one_and_the_originals_stay_until_it_is_there(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3, 4, 5)
    controller = await cluster.controller_on(3)
    await cluster.create(controller, "t", [[1, 2]])
    async with catching_up(cluster, 5) as slow:
        await alter(controller, {TP: [4, 5]})
        await cluster.come_to_rest()
        slow.add(3)
        await alter(controller, {TP: [3, 2]})
        await cluster.come_to_rest()
        role = cluster.brokers[1].roles[TP]
        assert (sorted(role.replicas), role.replication_factor) == ([1, 2, 3, 4, 5], 2)
        assert {1, 2} <= set((await cluster.state("t")).isr)
        slow.clear()
        await check_moved(cluster, [3, 2])


async def test_who_is_away_at_the_end_holds_nothing_up(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3, 4)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1, 2, 3]])
    cluster.kill(3)
    async with catching_up(cluster):
        await cluster.come_to_rest()
        await alter(controller, {TP: [1, 4]})
        await check_moved_without(cluster, 3, [1, 4])


async def check_moved_without(cluster: Any, dead: int, target: Sequence[int]) -> None:
    await cluster.until_async(partial(is_moved, cluster, target))
    assert TP in cluster.brokers[dead].logs, "nobody could tell it"
    assert sorted((await cluster.state("t")).isr) == sorted(target)


async def test_the_minimum_in_sync_decides_whether_it_may_be_cancelled_while_a_replica_is_away(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3, 4, 5)
    controller = await cluster.controller_on(1)
    for name, minimum in (("two", "2"), ("three", "3")):
        await cluster.create(controller, name, [[1, 2, 3]], min_insync_replicas=minimum)
    cluster.kill(3)
    two, three = TopicPartition("two", 0), TopicPartition("three", 0)
    async with catching_up(cluster, 5):
        await cluster.come_to_rest()
        await alter(controller, {tp: [2, 4, 5] for tp in (two, three)})
        await cluster.until_async(lambda: in_sync(cluster, two, [1, 2, 4]))
        await cluster.until_async(lambda: in_sync(cluster, three, [1, 2, 4]))
        await alter(controller, dict.fromkeys((two, three), None))
        await cluster.until_async(partial(is_moved, cluster, [2, 1, 3], two))
        await cluster.come_to_rest()
        assert not await is_moved(cluster, [2, 1, 3], three), "without 4 two would be in sync, of three that it takes"
        await cluster.brokers[3].start()
        await check_moved(cluster, [2, 1, 3], three)


async def in_sync(cluster: Any, tp: TopicPartition, members: Sequence[int]) -> bool:
    return sorted((await cluster.state(*tp)).isr) == sorted(members)


# --- brokers that are away -------------------------------------------------------------------------------------------


async def test_the_leader_dies_meanwhile(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3, 4, 9)
    controller = await cluster.controller_on(9)
    await cluster.create(controller, "t", [[1, 2]])
    async with catching_up(cluster, 4) as slow:
        await alter(controller, {TP: [3, 4]})
        await cluster.until_async(lambda: in_sync(cluster, TP, [1, 2, 3]))
        cluster.kill(1)
        await cluster.come_to_rest()
        assert (await cluster.state("t")).leader == 3, "the first of the target that is in sync"
        slow.clear()
        await check_moved_without(cluster, 1, [3, 4])


async def test_a_leader_that_was_only_suspected_goes_on_as_soon_as_it_is_back(
    autojump_clock: MockClock, cluster: Any
) -> None:
    """Nobody else could lead, so no state was written meanwhile."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(3)
    await cluster.create(controller, "t", [[1]])
    async with catching_up(cluster):
        cluster.brokers[1].refuses = True
        cluster.brokers[1].hang_up()
        await trio.sleep(1)
        assert await alter(controller, {TP: [2]}) == {TP: 0}
        await cluster.come_to_rest()
        cluster.brokers[1].refuses = False
        await trio.sleep(5)
        assert await is_moved(cluster, [2])


async def test_a_target_that_dies_is_waited_for(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3, 4, 9)
    controller = await cluster.controller_on(9)
    await cluster.create(controller, "t", [[1, 2]])
    async with catching_up(cluster, 4) as slow:
        await alter(controller, {TP: [3, 4]})
        cluster.kill(4)
        slow.clear()
        await cluster.come_to_rest()
        assert sorted((await cluster.state("t")).isr) == [1, 2, 3]
        await cluster.brokers[4].start()
        await check_moved(cluster, [3, 4])


async def test_a_leadership_goes_to_one_of_the_target_that_answers(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3, 4, 5, 9)
    controller = await cluster.controller_on(9, failure_detection_refused_ms=0)
    await cluster.create(controller, "t", [[1, 2]])
    async with catching_up(cluster, 4) as slow:
        await alter(controller, {TP: [3, 4, 5]})
        await cluster.until_async(lambda: in_sync(cluster, TP, [1, 2, 3, 5]))
        cluster.brokers[3].gate = trio.Event()  # it is registered, in sync, and silent
        slow.clear()
        await cluster.until_async(partial(is_moved, cluster, [3, 4, 5]))
        assert (await cluster.state("t")).leader == 4
        cluster.brokers[3].gate.set()
        await check_moved(cluster, [3, 4, 5])


@pytest.mark.parametrize("target", [[3, 4], [1, 3]])
async def test_nobody_goes_while_who_would_lead_is_silent(
    target: list[int], autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3, 4, 9)
    controller = await cluster.controller_on(9, failure_detection_refused_ms=0)
    other = TopicPartition("u", 0)
    await cluster.create(controller, "t", [[1, 2]])
    await cluster.create(controller, "u", [[2]])
    async with catching_up(cluster):
        for broker_id in target:
            cluster.brokers[broker_id].gate = trio.Event()
        await alter(controller, {TP: target})
        await cluster.leader_writes_isr("t", 0, sorted({1, 2, *target}))
        await cluster.come_to_rest()
        state = await cluster.state("t")
        assert (state.leader, sorted(state.isr)) == (1, sorted({1, 2, *target}))
        assert await alter(controller, {other: [2, 3]}) == {other: 0}, "other events are not held up"
        for broker_id in target:
            cluster.brokers[broker_id].gate.set()
        await check_moved(cluster, target)
        await check_moved(cluster, [2, 3], other)


async def test_what_was_cancelled_ends_though_nobody_leads_and_no_log_goes_before_somebody_does(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 9)
    controller = await cluster.controller_on(9)
    await cluster.create(controller, "t", [[1]])
    async with catching_up(cluster, 2):
        await alter(controller, {TP: [2]})
        await cluster.come_to_rest()
        cluster.kill(1)
        await cluster.come_to_rest()
        assert (await cluster.state("t")).leader == -1
        assert await alter(controller, {TP: None}) == {TP: 0}
        assert await is_moved(cluster, [1])
        await cluster.come_to_rest()
        assert cluster.brokers[2].metadata[TP].replicas == [1]
        [stopped] = cluster.brokers[2].told(StopReplicaRequest)
        assert [each.delete_partition for each in stopped.partition_states] == [False]
        assert TP not in cluster.brokers[2].roles
        await cluster.brokers[1].start()
        await cluster.come_to_rest()
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (1, [1])
        assert cluster.brokers[1].roles[TP].replicas == [1]


@pytest.mark.parametrize("lost_write", [1, 2])
async def test_a_lost_answer_of_zookeeper_changes_neither_the_answer_nor_what_brokers_are_told(
    lost_write: int, autojump_clock: MockClock, cluster: Any
) -> None:
    """The event is repeated: after the second write the reassignment, a cancelled one, has ended already."""
    await cluster.start(1, 2, 9)
    session = Recorded(cluster.brokers[9].coordination)
    controller = await cluster.controller_on(9, via=lambda _: session)
    await cluster.create(controller, "t", [[1]])
    async with catching_up(cluster, 2):
        await alter(controller, {TP: [2]})
        cluster.kill(1)
        await cluster.come_to_rest()

        def lose_answer() -> None:
            session.ends_after = None
            raise ConnectionLost("cut")

        session.writes.clear()
        session.ends_after, session.end = lost_write, lose_answer
        assert await alter(controller, {TP: None}) == {TP: 0}
        assert session.ends_after is None
        assert await is_moved(cluster, [1])
        await cluster.come_to_rest()
        assert len(cluster.brokers[2].told(StopReplicaRequest)) == 1
        assert cluster.brokers[2].metadata[TP].replicas == [1]
        assert len(cluster.logged("reassignment done")) == 1
        (repeated,) = cluster.logged("connection to ZooKeeper lost, event is repeated")
        assert repeated["event_kind"].startswith("Reassignment")


# --- /admin/reassign_partitions --------------------------------------------------------------------------------------


async def test_what_tools_ask_for_is_done_and_taken_out(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1], [1], [1]])
    targets: dict[TopicPartition, list[int]] = {
        TopicPartition("t", 0): [2],
        TopicPartition("t", 1): [1],
        TopicPartition("t", 2): [3],
        TopicPartition("t", 7): [2],
        TopicPartition("nowhere", 0): [2],
        TopicPartition("", -1): [],
    }
    async with catching_up(cluster, 3) as slow:
        await ask_as_tools_do(cluster, targets)
        await cluster.until_async(partial(is_moved_alone, cluster, TopicPartition("t", 0), [2]))
        await cluster.come_to_rest()
        left = ADMIN.decode(ADMIN.PATH, (await cluster.admin.get(ADMIN.PATH)).data)
        assert left.reassignments == {TopicPartition("t", 2): [3]}
        assert {entry["topic"] for entry in cluster.logged("reassignment refused")} == {"t", "nowhere", ""}
        slow.clear()
        await cluster.until_async(partial(is_gone, cluster, ADMIN.PATH))
    assert (await topic_znode(cluster)).partitions == {0: [2], 1: [1], 2: [3]}


async def is_moved_alone(cluster: Any, tp: TopicPartition, target: Sequence[int]) -> bool:
    return (await topic_znode(cluster, tp.topic)).partitions[tp.partition] == list(target)


@pytest.mark.parametrize(("limit", "together"), [(10**6, True), (250, False)])
async def test_a_request_counts_before_what_tools_asked_for(
    limit: int, together: bool, autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where ZooKeeper would not take both znodes in one transaction."""
    monkeypatch.setattr(reassignment_store, "MAX_DATA_BYTES", limit)
    await cluster.start(1, 2, 3, 4)
    transactions: list[list[str]] = []
    controller = await cluster.controller_on(1, via=partial(Overheard, paths=transactions))
    await cluster.create(controller, "t", [[1], [1]])
    await cluster.create(controller, "u", [[1]])
    second, other = TopicPartition("t", 1), TopicPartition("u", 0)
    async with catching_up(cluster, 2, 3) as slow:
        await ask_as_tools_do(cluster, {TP: [2], second: [2], other: [2]})
        await cluster.until_async(partial(is_listed, controller, 3))
        assert await alter(controller, {TP: [3], other: None}) == {TP: 0, other: 0}
        left = ADMIN.decode(ADMIN.PATH, (await cluster.admin.get(ADMIN.PATH)).data)
        assert left.reassignments == {second: [2]}
        assert any({ADMIN.PATH, TopicZnode.path("t")}.issubset(paths) for paths in transactions) == together
        slow.clear()
        await check_moved(cluster, [1], other)
        await cluster.until_async(partial(is_gone, cluster, ADMIN.PATH))
        await cluster.until_async(partial(is_moved_alone, cluster, TP, [3]))


class Overheard:
    """A session that notes which znodes each transaction is about."""

    def __init__(self, inner: Any, paths: list[list[str]]) -> None:
        self._inner = inner
        self._paths = paths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def multi_many(self, transactions: Any) -> Any:
        self._paths += [[operation.path for operation in operations] for operations in transactions]
        return await self._inner.multi_many(transactions)


async def is_listed(controller: Any, count: int) -> bool:
    topics = (await controller.ask(ListPartitionReassignmentsRequest())).topics
    return sum(len(topic.partitions) for topic in topics) == count


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff",
        b"{}",
        b'{"version":9,"partitions":[]}',
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":["2"]}]}',
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]},'
        b'{"topic":"t","partition":0,"replicas":[1]}]}',
    ],
)
async def test_what_nobody_understands_is_named_and_left_alone(
    garbage: bytes, autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    await cluster.admin.create(ADMIN.PATH, garbage)
    await cluster.come_to_rest()
    assert len(cluster.logged("what is asked for cannot be read")) == 1
    async with catching_up(cluster):
        await alter(controller, {TP: [2]})
        await check_moved(cluster, [2])
        assert (await cluster.admin.get(ADMIN.PATH)).data == garbage
        await cluster.admin.set(ADMIN.PATH, ADMIN({TP: [1]}).encode(), 0)
        await check_moved(cluster, [1])
        assert await is_gone(cluster, ADMIN.PATH)


async def test_an_empty_request_of_tools_is_over_at_once(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    await cluster.controller_on(1)
    await ask_as_tools_do(cluster, {})
    await cluster.until_async(partial(is_gone, cluster, ADMIN.PATH))


async def test_thousands_that_cannot_be_done_get_few_lines(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    await cluster.controller_on(1)
    await ask_as_tools_do(cluster, {TopicPartition("nowhere", number): [1] for number in range(2000)})
    await cluster.until_async(partial(is_gone, cluster, ADMIN.PATH))
    assert len(cluster.logged("reassignment refused")) == DETAILED_MOVES
    assert [entry["count"] for entry in cluster.logged("reassignments refused")] == [2000]


async def test_a_deletion_counts_before_a_reassignment(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1, 2]])
    async with catching_up(cluster, 3):
        await ask_as_tools_do(cluster, {TP: [3]})
        await cluster.until_async(partial(is_listed, controller, 1))
        await cluster.until(lambda: TP in cluster.brokers[3].logs)
        await controller.ask(DeleteTopicsRequest(["t"]))
        await cluster.until_async(partial(is_gone, cluster, TopicZnode.path("t")))
        assert all(TP not in broker.logs for broker in cluster.brokers.values()), "also of those that were added"
        await cluster.until_async(partial(is_gone, cluster, ADMIN.PATH))
        assert await is_listed(controller, 0)


async def test_a_znode_that_nobody_understands_any_more_costs_few_epochs_and_goes_on_once_it_is_mended(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    path = TopicZnode.path("t")
    async with catching_up(cluster, 2) as slow:
        await alter(controller, {TP: [2]})
        znode = await cluster.admin.get(path)
        await cluster.admin.set(path, b"{", znode.stat.version)
        slow.clear()
        await trio.sleep(60)
        assert (await cluster.state("t")).leader_epoch < 10
        assert cluster.logged("topic cannot be reassigned: its znode cannot be read")
        await cluster.admin.set(path, znode.data, znode.stat.version + 1)
        await check_moved(cluster, [2])


# --- many ------------------------------------------------------------------------------------------------------------


async def test_many_partitions_move_in_waves(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, cluster: Any
) -> None:
    monkeypatch.setattr(reassignments, "PARTITIONS_PER_WAVE", 7)
    await cluster.start(1, 2, 3)
    session = Recorded(cluster.brokers[1].coordination)
    controller = await cluster.controller_on(1, via=lambda _: session)
    partitions = [TopicPartition("t", number) for number in range(40)]
    await cluster.create(controller, "t", [[1]] * 40)
    async with catching_up(cluster):
        codes = await alter(controller, {tp: [2, 3] for tp in partitions})
        assert set(codes.values()) == {0}
        for tp in partitions:
            await cluster.until_async(partial(is_moved_alone, cluster, tp, [2, 3]))
        await cluster.come_to_rest()
    assert await is_listed(controller, 0)
    assert all(tp not in cluster.brokers[1].logs for tp in partitions)
    assert cluster.logged("event failed") == []
