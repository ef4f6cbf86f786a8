"""Requests about many topics: linear work in bounded steps, a bound on what one request may ask for, whose topics."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.controller_context import ControllerContext, Topic
from strandline.controller.topics import creation
from strandline.controller.topics.creation_checks import (
    MAX_PARTITIONS_PER_REQUEST,
    MAX_TOPICS_PER_REQUEST,
    WORK_PER_STEP,
    CreationPlanner,
    PlannedTopic,
)
from strandline.controller.topics.internal_topics import MADE_BY_BROKERS, InternalTopic
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from strandline.protocol.topic_name import INTERNAL_TOPICS
from strandline.protocol.znodes import ConfigZnode
from strandline.runtime.config.reading import load_broker_config

CONFIG = load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:0"})


class CountedName(str):
    """Counts how often names are folded."""

    folded = 0

    def replace(self, *args: Any) -> str:
        CountedName.folded += 1
        return super().replace(*args)


class CountedAssignment(dict[int, tuple[int, ...]]):
    """Counts how often assignments are gone through."""

    seen = 0

    def values(self) -> Any:
        CountedAssignment.seen += 1
        return super().values()


class Broker:
    rack = None


def planner(topics: list[CreatableTopic], existing: int = 0) -> CreationPlanner:
    context = ControllerContext()
    context.brokers = dict.fromkeys((1, 2, 3), Broker())
    names = [CountedName(f"existing-{number}") for number in range(existing)]
    context.topics = {name: Topic(name, bytes(16), CountedAssignment({0: (1,)})) for name in names}
    return CreationPlanner(context, topics, CONFIG, {topic.name: bytes(16) for topic in topics})


@pytest.mark.parametrize("existing", [0, 300])
@pytest.mark.parametrize("count", [1, 100, 400])
def test_each_name_and_each_assignment_is_looked_at_a_fixed_number_of_times(count: int, existing: int) -> None:
    CountedName.folded = CountedAssignment.seen = 0
    planned = planner([CreatableTopic(CountedName(f"n.{number}"), 1, 1) for number in range(count)], existing)
    list(planned.steps())
    assert len(planned.plans) == count
    assert CountedName.folded == existing + 2 * count, "once for each that exists; asked about, then taken"
    assert CountedAssignment.seen == existing


def test_topics_of_one_request_are_spread_and_told_apart_as_if_they_came_one_by_one() -> None:
    planned = planner([CreatableTopic(name, 1, 1) for name in ("a.b", "a_b", "c", "d", "e")])
    list(planned.steps())
    refused = planned.plans.pop("a_b")
    assert isinstance(refused, BrokerError) and refused.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    topics = [plan.topic for plan in planned.plans.values() if isinstance(plan, PlannedTopic)]
    assert [topic.assignment[0] for topic in topics] == [(1,), (2,), (3,), (1,)]


def test_planning_pauses_within_a_large_topic_and_between_many_small_ones() -> None:
    steps = list(planner([CreatableTopic("t", 10 * WORK_PER_STEP, 3)]).steps())
    assert len(steps) == 10
    refused = [CreatableTopic(f"n{number}", 0, 1) for number in range(3 * WORK_PER_STEP)]
    assert len(list(planner(refused).steps())) == 3


@pytest.mark.parametrize("validate_only", [False, True])
async def test_others_get_their_turn_while_a_large_request_is_planned(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch, validate_only: bool
) -> None:
    seen: list[int] = []
    planners: list[CreationPlanner] = []

    class Watched(CreationPlanner):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            planners.append(self)

    async def others() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            seen.extend(len(planner.plans) for planner in planners)

    monkeypatch.setattr(creation, "CreationPlanner", Watched)
    monkeypatch.setattr("strandline.controller.topics.creation_checks.WORK_PER_STEP", 5)
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    topics = [CreatableTopic(f"n{number}", 1, 1) for number in range(20)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        response = await controller.ask(CreateTopicsRequest(topics, validate_only=validate_only))
        nursery.cancel_scope.cancel()
    assert {result.error_code for result in response.topics} == {0}
    assert set(seen) & set(range(1, 20)), "the loop went on before the plan was whole"


async def test_one_request_is_about_a_thousand_topics_at_most(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    names = [f"n{number}" for number in range(MAX_TOPICS_PER_REQUEST + 1)]
    for ask in (
        lambda: controller.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names])),
        lambda: controller.ask(DeleteTopicsRequest(names)),
    ):
        with pytest.raises(BrokerError, match=r"at most 1000 topics, not 1001") as refusal:
            await ask()
        assert refusal.value.code == ErrorCode.POLICY_VIOLATION
    assert await cluster.admin.children("/brokers/topics") == []
    answer = await controller.ask(DeleteTopicsRequest(names[1:]))
    assert {result.error_code for result in answer.responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_topics_beyond_the_partitions_of_one_request_are_refused_and_the_others_planned() -> None:
    half = MAX_PARTITIONS_PER_REQUEST // 2
    topics = [CreatableTopic("a", half, 1), CreatableTopic("b", half + 1, 1), CreatableTopic("c", half, 1)]
    topics += [CreatableTopic("d", 1, 1), CreatableTopic("e", assignments={0: [1]})]
    planned = planner(topics)
    list(planned.steps())
    codes = {name: plan.code for name, plan in planned.plans.items() if isinstance(plan, BrokerError)}
    assert codes == dict.fromkeys("bde", ErrorCode.POLICY_VIOLATION)
    assert "one request creates at most 10000 partitions" in str(planned.plans["b"].args[0])  # type: ignore[union-attr]


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
async def test_the_brokers_own_topics_are_neither_created_nor_deleted_for_clients(
    autojump_clock: MockClock, cluster: Any, name: str
) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    for validate_only in (True, False):
        asked = CreatableTopic(name) if name not in MADE_BY_BROKERS else CreatableTopic(name, 1, 1)
        request = CreateTopicsRequest([asked], validate_only=validate_only)
        [created] = (await controller.ask(request)).topics
        assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert created.error_message == (
            f"topic {name} is the brokers' own: clients may read it, and not create, delete or write to it"
        )
    await cluster.admin.create(f"/brokers/topics/{name}", b'{"version":1,"partitions":{"0":[1]}}')
    await cluster.come_to_rest()
    [deleted] = (await controller.ask(DeleteTopicsRequest([name]))).responses
    assert deleted.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await cluster.admin.children("/admin/delete_topics") == []
    assert await cluster.admin.children("/brokers/topics") == [name]


OFFSETS = "__consumer_offsets"


@pytest.mark.parametrize(
    "wish",
    [
        CreatableTopic(OFFSETS, 1),
        CreatableTopic(OFFSETS, replication_factor=1),
        CreatableTopic(OFFSETS, assignments={0: [1]}),
        CreatableTopic(OFFSETS, configs={"cleanup.policy": "delete"}),
    ],
)
async def test_a_topic_of_the_brokers_with_a_row_is_made_by_it_whoever_names_it_and_as_nobody_wishes(
    wish: CreatableTopic, autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = InternalTopic(
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        lambda config: {"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)},
    )
    monkeypatch.setitem(MADE_BY_BROKERS, OFFSETS, row)
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1, offsets_topic_num_partitions=7, offsets_topic_segment_bytes=9999)
    [refused] = (await controller.ask(CreateTopicsRequest([wish]))).topics
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    [made] = (await controller.ask(CreateTopicsRequest([CreatableTopic(OFFSETS)]))).topics
    assert (made.error_code, made.num_partitions) == (0, 7)
    assert made.replication_factor == 2, "its default is 3, and as many live"
    path = ConfigZnode.path(OFFSETS)
    config = ConfigZnode.decode(path, (await cluster.admin.get(path)).data).config
    assert config == {"cleanup.policy": "compact", "segment.bytes": "9999"}
    assert not cluster.logged("fewer replicas than the default, for want of live brokers")
