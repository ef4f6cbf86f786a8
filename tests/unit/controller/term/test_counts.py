"""What a controller counts agrees with what was done to it."""

from __future__ import annotations

from typing import Any

import msgspec
import trio
from trio.testing import MockClock

from strandline.broker.metrics.bounds import MAX_SERIES
from strandline.broker.metrics.families import SLICE_SAMPLES, LeftOut
from strandline.broker.metrics.of_controller import OfController
from strandline.controller.controller_context import Topic
from strandline.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ControlledShutdownRequest,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

GAUGES = "kafka_controller_kafkacontroller_"
HEALTH = "redpanda_cluster_health_"
STATS = "kafka_controller_controllerstats_"


def figures(controller: Any) -> dict[str, float]:
    """Sample's name, and the values of its labels → figure."""
    samples = [sample for family in OfController(controller)() for sample in family.samples]
    return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


async def test_the_figures_tell_what_a_controller_did(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3], [3, 1], [1, 2]])
    await cluster.create(controller, "loose", [[3]], unclean_leader_election_enable="true")
    await cluster.come_to_rest()
    found = figures(controller)
    assert {name: found[GAUGES + name] for name in ("activecontrollercount", "activebrokercount")} == {
        "activecontrollercount": 1,
        "activebrokercount": 3,
    }
    assert (found[f"{GAUGES}globaltopiccount"], found[f"{GAUGES}globalpartitioncount"]) == (2, 4)
    assert found[f"{GAUGES}offlinepartitionscount"] == found[f"{GAUGES}preferredreplicaimbalancecount"] == 0
    assert found[f"{STATS}controllerchangerateandtimems_count"] >= 1
    topics, elections = (found[f"{STATS}{name}rateandtimems_count"] for name in ("topicchange", "leaderelection"))
    assert topics >= 2
    figures_of_health = ("leaderless_partitions", "under_replicated_partitions", "nodes_down", "unhealthy_reasons")
    health = [f"{HEALTH}{name}" for name in figures_of_health]
    assert [found[name] for name in health] == [0, 0, 0, 0]

    cluster.kill(3)
    await cluster.come_to_rest()
    found = figures(controller)
    assert found["kafka_brokers"] == 2 and "kafka_broker_info 3 broker:9003" not in found
    assert found[f"{GAUGES}offlinepartitionscount"] == 1, "the only replica of loose-0 is gone"
    assert [found[name] for name in health] == [1, 3, 1, 3], "all but t-2 had a replica there"
    assert found[f"{GAUGES}preferredreplicaimbalancecount"] == 2
    assert found[f"{STATS}leaderelectionrateandtimems_count"] > elections
    assert found[f"{STATS}topicchangerateandtimems_count"] == topics, "no topic has changed"


async def test_a_loss_that_is_allowed_is_counted_once(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "loose", [[2, 3]], unclean_leader_election_enable="true")
    before = figures(controller)
    await cluster.leader_writes_isr("loose", 0, [2])
    await cluster.come_to_rest()
    cluster.kill(2)
    await cluster.come_to_rest()
    found = figures(controller)
    assert (before[f"{STATS}uncleanleaderelections_total"], found[f"{STATS}uncleanleaderelections_total"]) == (0, 1)
    assert found[f"{STATS}isrchangerateandtimems_count"] > before[f"{STATS}isrchangerateandtimems_count"]


async def test_each_kind_of_work_is_timed_as_what_it_is(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    await cluster.come_to_rest()
    move = ReassignableTopic("t", [ReassignablePartition(0, [3, 1])])
    for name, request in (
        ("controlledshutdown", ControlledShutdownRequest(3, -1)),
        ("listpartitionreassignment", ListPartitionReassignmentsRequest()),
        ("partitionreassignment", AlterPartitionReassignmentsRequest([move])),
        ("topicdeletion", DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)),
    ):
        key = f"{STATS}{name}rateandtimems_count"
        moves = f"{STATS}partitionreassignmentrateandtimems_count"
        before = figures(controller)
        await controller.ask(request)
        assert figures(controller)[key] > before[key], name
        if name == "listpartitionreassignment":
            assert figures(controller)[moves] == before[moves], "a question moves nothing"
    await cluster.come_to_rest()
    assert figures(controller)[f"{GAUGES}controllerstate"] == 0


async def test_each_look_for_leaders_to_move_is_timed_though_none_moves(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1, leader_imbalance_check_interval_seconds=100)
    for looks in range(3):
        await cluster.come_to_rest()
        assert figures(controller)[f"{STATS}autoleaderbalancerateandtimems_count"] == looks
        await trio.sleep(100)


async def test_another_configuration_is_timed_by_whose_it_is(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    await cluster.come_to_rest()
    config = controller.term.tools.config
    of_broker, of_topic = (
        f"{STATS}{name}rateandtimems_count"
        for name in ("uncleanleaderelectionenable", "topicuncleanleaderelectionenable")
    )
    counts = []
    for each in (config, msgspec.structs.replace(config, unclean_leader_election_enable=True)):
        controller.configurations_changed(each)
        await trio.sleep(1)
        found = figures(controller)
        counts.append((found[of_topic], found[of_broker]))
    assert counts == [(1, 0), (1, 1)]


async def test_orders_that_nobody_answers_are_in_the_queue(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.come_to_rest()
    found = figures(controller)
    manager = "kafka_controller_controllerchannelmanager_"
    families = [family for family in OfController(controller)() if family.name == f"{manager}queuesize"]
    assert [sample.labels for sample in families[0].samples] == [{"broker_id": each} for each in "123"]
    assert found[f"{manager}totalqueuesize"] == 0
    assert found[f"{manager}requestrateandqueuetimems_count 2"] >= 1
    cluster.brokers[3].gate = trio.Event()
    await controller.ask(CreateTopicsRequest([CreatableTopic("t", assignments={0: [2, 1]})], timeout_ms=1000))
    found = figures(controller)
    assert found[f"{manager}queuesize 2"] == 0
    assert found[f"{manager}totalqueuesize"] == found[f"{manager}queuesize 3"] >= 1
    cluster.brokers[3].gate.set()
    await cluster.come_to_rest()
    assert figures(controller)[f"{manager}totalqueuesize"] == 0


async def test_who_is_not_controller_tells_zero_and_nothing_of_the_cluster(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    await cluster.create(await cluster.controller_on(1), "t", [[1, 2]])
    other = cluster.start_controller(2)
    await cluster.come_to_rest()
    found = figures(other)
    assert {value for name, value in found.items() if name.startswith(GAUGES)} == {0}
    assert not any(name.startswith(("kafka_brokers", "kafka_broker_info", "kafka_topic", HEALTH)) for name in found)


async def test_many_topics_are_bounded_and_looked_at_in_slices(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    for number in range(MAX_SERIES + 7):
        name = f"t{number}"
        controller.term.context.topics[name] = Topic(name, bytes(16), dict.fromkeys(range(10), (1,)))
    families = list(OfController(controller)())
    assert sum(len(f.samples) for f in families if f.name == "kafka_topic_partitions") == MAX_SERIES
    assert max(len(family.samples) for family in families) == SLICE_SAMPLES
    assert [family.rows for family in families if isinstance(family, LeftOut)] == [7]
    looks = [family for family in families if family.name == f"{GAUGES}offlinepartitionscount"]
    assert len(looks) == (MAX_SERIES + 7) * 10 // SLICE_SAMPLES + 1
    assert looks[-1].samples[0].value == (MAX_SERIES + 7) * 10
