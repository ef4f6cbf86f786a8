"""CreatePartitions, and topics that another tool enlarges: planned, written on a condition, led, known everywhere."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from strandline.controller.controller_context import ControllerContext, LiveBroker, Topic
from strandline.controller.topics.creation_checks import MAX_PARTITIONS_PER_REQUEST, MAX_PARTITIONS_PER_TOPIC
from strandline.controller.topics.growth import TOPICS_AT_ONCE
from strandline.controller.topics.growth_checks import GrowthPlanner, PlannedGrowth
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
)
from strandline.protocol.topic_name import INTERNAL_TOPICS
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import PartitionStateZnode, TopicZnode
from strandline.runtime.network import Address

ID = b"i" * 16


# --- the plan --------------------------------------------------------------------------------------------------------


def context_of(brokers: Mapping[int, str | None], *topics: Topic) -> ControllerContext:
    context = ControllerContext()
    context.brokers = {id_: LiveBroker(id_, 1, (), Address("b", 1), rack) for id_, rack in brokers.items()}
    context.topics = {topic.name: topic for topic in topics}
    return context


def plan(
    context: ControllerContext, *asked: CreatePartitionsTopic, begun: Mapping[str, PlannedGrowth] | None = None
) -> dict[str, PlannedGrowth | BrokerError]:
    planner = GrowthPlanner(context, asked, context.topics, begun or {})
    for _ in planner.steps():
        pass
    return planner.plans


def added(context: ControllerContext, asked: CreatePartitionsTopic) -> dict[int, tuple[int, ...]]:
    planned = plan(context, asked)[asked.name]
    assert isinstance(planned, PlannedGrowth), planned
    return planned.added


def by_hand(*assignments: Sequence[int]) -> list[CreatePartitionsAssignment]:
    return [CreatePartitionsAssignment(list(each)) for each in assignments]


THREE: dict[int, str | None] = {1: None, 2: None, 3: None}
TWO_PARTITIONS = Topic("t", ID, {0: (2, 3), 1: (3, 1)})


def test_new_partitions_go_on_where_the_present_ones_end() -> None:
    context = context_of(THREE, TWO_PARTITIONS)
    assert added(context, CreatePartitionsTopic("t", 5)) == {2: (1, 2), 3: (2, 1), 4: (3, 2)}
    without_its_broker = context_of({1: None, 3: None, 4: None}, TWO_PARTITIONS)
    assert added(without_its_broker, CreatePartitionsTopic("t", 3)) == {2: (1, 3)}, "as if 3, the next one, were first"


def test_replicas_of_a_new_partition_lie_on_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    found = added(context_of(racks, Topic("t", ID, {0: (1, 3)})), CreatePartitionsTopic("t", 9))
    assert all(racks[one] != racks[other] for one, other in found.values())
    assert sorted(first for first, _ in found.values()) == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (
            CreatePartitionsTopic("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            "Topic currently has 2 partitions, which is higher than the requested 1.",
        ),
        (CreatePartitionsTopic("t", -1), ErrorCode.INVALID_PARTITIONS, "higher than the requested -1"),
        (CreatePartitionsTopic("t", 2), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
        (CreatePartitionsTopic("t", MAX_PARTITIONS_PER_TOPIC + 1), ErrorCode.INVALID_PARTITIONS, "1 to 10000"),
        (CreatePartitionsTopic("absent", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic absent"),
        (CreatePartitionsTopic("gone", 3), ErrorCode.INVALID_TOPIC_EXCEPTION, "being deleted"),
        (CreatePartitionsTopic("moving", 3), ErrorCode.REASSIGNMENT_IN_PROGRESS, "reassignment"),
        (CreatePartitionsTopic("wide", 3), ErrorCode.INVALID_REPLICATION_FACTOR, "3 brokers are registered"),
        (CreatePartitionsTopic(min(INTERNAL_TOPICS), 60), ErrorCode.INVALID_TOPIC_EXCEPTION, "brokers' own"),
        (
            CreatePartitionsTopic("t", 4, by_hand([1, 2])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Increasing the number of partitions by 2 but 1 assignments provided.",
        ),
        (CreatePartitionsTopic("t", 3, by_hand([1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "have 2 replicas"),
        (CreatePartitionsTopic("t", 3, by_hand([])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica"),
        (CreatePartitionsTopic("t", 3, by_hand([1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 2 names"),
        (CreatePartitionsTopic("t", 3, by_hand([1, 9])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not registered: [9]"),
    ],
)
def test_what_is_not_possible_is_refused(asked: CreatePartitionsTopic, code: ErrorCode, text: str) -> None:
    context = context_of(
        THREE,
        TWO_PARTITIONS,
        Topic("gone", ID, {0: (1,)}),
        Topic("moving", ID, {0: (1, 2)}, adding_replicas={0: (2,)}),
        Topic("wide", ID, {0: (1, 2, 3, 4)}),
        *(Topic(name, ID, {0: (1,)}) for name in INTERNAL_TOPICS),
    )
    context.deleting["gone"] = None
    refusal = plan(context, asked)[asked.name]
    assert isinstance(refusal, BrokerError)
    assert refusal.code is code
    assert text in str(refusal)


def test_one_request_is_bounded_and_names_a_topic_once() -> None:
    context = context_of(THREE, *(Topic(name, ID, {0: (1,)}) for name in "abc"))
    half = MAX_PARTITIONS_PER_REQUEST // 2 + 1
    plans = plan(context, *(CreatePartitionsTopic(name, half + 1) for name in "ab"), CreatePartitionsTopic("c", 2))
    assert [type(plans[name]) for name in "abc"] == [PlannedGrowth, BrokerError, PlannedGrowth]
    assert isinstance(plans["b"], BrokerError)
    assert plans["b"].code is ErrorCode.POLICY_VIOLATION
    twice = plan(context, CreatePartitionsTopic("a", 2), CreatePartitionsTopic("a", 3))["a"]
    assert isinstance(twice, BrokerError)
    assert twice.code is ErrorCode.INVALID_REQUEST


def test_what_this_request_has_written_already_is_no_refusal() -> None:
    begun = PlannedGrowth(Topic("t", ID, {0: (1,)}), {1: (2,)})
    context = context_of(THREE, Topic("t", ID, {0: (1,), 1: (2,)}))
    assert plan(context, CreatePartitionsTopic("t", 2), begun={"t": begun}) == {"t": begun}
    context = context_of(THREE, Topic("t", ID, {0: (1,), 1: (3,)}))
    assert isinstance(plan(context, CreatePartitionsTopic("t", 2), begun={"t": begun})["t"], BrokerError)


@given(
    st.dictionaries(st.integers(0, 9), st.sampled_from([None, "a", "b", "c"]), min_size=1),
    st.integers(1, 6),
    st.integers(1, 30),
    st.data(),
)
def test_any_growth_spreads_its_replicas_evenly(
    brokers: dict[int, str | None], present: int, more: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    first = data.draw(st.permutations(sorted(brokers)))[:factor]
    topic = Topic("t", ID, dict.fromkeys(range(present), tuple(first)))
    found = added(context_of(brokers, topic), CreatePartitionsTopic("t", present + more))
    assert list(found) == list(range(present, present + more))
    preferred = [sum(replicas[0] == broker for replicas in found.values()) for broker in brokers]
    assert max(preferred) - min(preferred) <= 1
    assert all(len(set(replicas)) == factor and set(replicas) <= set(brokers) for replicas in found.values())


# --- the controller --------------------------------------------------------------------------------------------------


async def grow(controller: Any, *topics: CreatePartitionsTopic, **options: Any) -> list[tuple[int, str | None]]:
    response = await controller.ask(CreatePartitionsRequest(list(topics), **options))
    assert [each.name for each in response.results] == [topic.name for topic in topics]
    return [(each.error_code, each.error_message) for each in response.results]


async def topic_znode(cluster: Any, name: str = "t") -> TopicZnode:
    return TopicZnode.decode(name, (await cluster.admin.get(TopicZnode.path(name))).data)


async def other_tool_adds(cluster: Any, name: str, partitions: dict[int, list[int]]) -> None:
    znode = await topic_znode(cluster, name)
    data = msgspec.structs.replace(znode, partitions={**znode.partitions, **partitions}).encode()
    await cluster.admin.set(TopicZnode.path(name), data, -1)


async def test_a_topic_gets_partitions_that_are_led_and_known_everywhere(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1, 2], [2, 3]])
    before = await topic_znode(cluster)
    assert await grow(controller, CreatePartitionsTopic("t", 4)) == [(0, None)]
    after = await topic_znode(cluster)
    assert after == msgspec.structs.replace(before, partitions={**before.partitions, 2: [3, 1], 3: [1, 3]})
    for partition, leader in ((2, 3), (3, 1)):
        tp = TopicPartition("t", partition)
        state = await cluster.state("t", partition)
        assert (state.leader, state.leader_epoch, state.isr) == (leader, 0, after.partitions[partition])
        for broker in cluster.brokers.values():  # at once: the answer waited for it
            assert broker.metadata[tp].leader == leader
            assert (tp in broker.roles) == (broker.broker_id in state.isr)
    await cluster.come_to_rest()
    assert not cluster.logged("partitions found")[1:], "what was written here is found once"


async def test_what_another_tool_adds_is_taken_in_and_what_it_takes_away_is_not(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1], [2]])
    for number in (2, 3):  # again and again
        await cluster.come_to_rest()
        await other_tool_adds(cluster, "t", {number: [2]})
        tp = TopicPartition("t", number)
        await cluster.until(partial(operator.contains, cluster.brokers[1].metadata, tp))
        assert (await cluster.state("t", number)).leader == 2
    znode = await topic_znode(cluster)
    fewer = msgspec.structs.replace(znode, partitions={0: [1], 1: [1]})
    await cluster.admin.set(TopicZnode.path("t"), fewer.encode(), -1)
    await cluster.come_to_rest()
    assert controller.term.context.topics["t"].assignment == {0: (1,), 1: (2,), 2: (2,), 3: (2,)}


async def test_what_was_added_while_nobody_looked_is_found_by_the_next_controller(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2]])
    cluster.kill(1)
    await other_tool_adds(cluster, "t", {1: [2]})
    await cluster.controller_on(2)
    await cluster.until(lambda: TopicPartition("t", 1) in cluster.brokers[2].roles)
    await other_tool_adds(cluster, "t", {2: [2]})
    await cluster.until(lambda: TopicPartition("t", 2) in cluster.brokers[2].roles)


async def test_many_topics_are_watched_in_several_turns(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    names = [f"t{number}" for number in range(2 * TOPICS_AT_ONCE + 1)]
    for name in names:
        await cluster.admin.create(TopicZnode.path(name), TopicZnode(None, {0: [1]}).encode())
    await cluster.controller_on(1)
    await cluster.come_to_rest()
    for name in names:
        await other_tool_adds(cluster, name, {1: [1]})
    await cluster.until(lambda: all(TopicPartition(name, 1) in cluster.brokers[1].roles for name in names))


async def test_a_topic_made_anew_is_watched_as_the_former_one_was(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    for _ in range(2):
        await cluster.create(controller, "t", [[1]])
        await other_tool_adds(cluster, "t", {1: [1]})
        await cluster.until(lambda: TopicPartition("t", 1) in cluster.brokers[1].roles)
        await controller.ask(DeleteTopicsRequest(["t"]))
    assert not cluster.brokers[1].logs


async def test_a_watch_of_a_topic_that_nobody_knows_any_more_does_no_harm(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    await cluster.come_to_rest()
    await remove_by_hand(cluster, TopicZnode.path("t"))
    await cluster.come_to_rest()
    await cluster.create(controller, "u", [[1]])  # whoever looks at that finds that t is gone
    await cluster.come_to_rest()
    await cluster.admin.create(TopicZnode.path("t"), TopicZnode(None, {0: [1]}).encode())
    await cluster.until(lambda: controller.term.context.topics.keys() == {"t", "u"})
    await other_tool_adds(cluster, "t", {1: [1]})
    await cluster.until(lambda: TopicPartition("t", 1) in cluster.brokers[1].roles)
    assert not cluster.logged("event failed")


async def remove_by_hand(cluster: Any, path: str) -> None:
    for child in await cluster.admin.children(path):
        await remove_by_hand(cluster, f"{path}/{child}")
    await cluster.admin.delete(path)


async def test_watches_are_set_again_after_a_cut(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    await cluster.come_to_rest()
    client = cluster.brokers[1].coordination
    cluster.zookeeper.cut(client)
    await other_tool_adds(cluster, "t", {1: [1]})
    await trio.sleep(1)
    cluster.zookeeper.heal(client)
    await cluster.until(lambda: TopicPartition("t", 1) in cluster.brokers[1].roles)
    assert controller.is_active, "the same term"


@pytest.mark.parametrize("lose", ["drop_next_reply", "drop_next_request"])
async def test_a_growth_whose_answer_zookeeper_lost_is_no_refusal(
    autojump_clock: MockClock, cluster: Any, lose: str
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2]])
    await cluster.come_to_rest()
    getattr(cluster.zookeeper, lose)("/controller_epoch")
    assert await grow(controller, CreatePartitionsTopic("t", 2)) == [(0, None)]
    assert (await topic_znode(cluster)).partitions.keys() == {0, 1}


async def test_a_dry_run_and_a_refusal_write_nothing(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1], [2]])
    before = await cluster.admin.get(TopicZnode.path("t"))
    assert await grow(controller, CreatePartitionsTopic("t", 3), validate_only=True) == [(0, None)]
    [(code, _)] = await grow(controller, CreatePartitionsTopic("t", 2))
    assert code == ErrorCode.INVALID_PARTITIONS
    assert await cluster.admin.get(TopicZnode.path("t")) == before


async def test_a_request_sees_what_another_tool_wrote_a_moment_ago(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    await other_tool_adds(cluster, "t", {1: [1]})
    assert (await grow(controller, CreatePartitionsTopic("t", 2)))[0][0] == ErrorCode.INVALID_PARTITIONS
    assert await grow(controller, CreatePartitionsTopic("t", 3)) == [(0, None)]


async def test_an_answer_waits_for_the_brokers_at_most_as_long_as_it_may(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    await cluster.come_to_rest()
    cluster.brokers[2].gate = trio.Event()
    [(code, text)] = await grow(controller, CreatePartitionsTopic("t", 2), timeout_ms=500)
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert text is not None and "gets its partitions, but not every broker knows it yet" in text
    assert (await cluster.state("t", 1)).leader in (1, 2)


async def test_a_topic_that_goes_gets_no_partitions(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2]])
    cluster.kill(2)
    await cluster.come_to_rest()
    await controller.ask(DeleteTopicsRequest(["t"], timeout_ms=100))
    assert (await grow(controller, CreatePartitionsTopic("t", 2)))[0][0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    await other_tool_adds(cluster, "t", {1: [1]})
    await cluster.come_to_rest()
    assert await cluster.admin.exists(PartitionStateZnode.path("t", 1)) is None
