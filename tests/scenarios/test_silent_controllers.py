"""A controller that does not answer clients hides nothing of what the other brokers know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from strandline.cli.cluster_facts import cluster_facts
from strandline.cli.cluster_picture import look
from strandline.cli.doctor_cluster import verdicts_on
from strandline.cli.options import LOOK_TIMEOUT_MS
from strandline.client import TrioAdmin
from strandline.testkit.cluster import MemoryCluster, node_name
from support.lock_step import Front, LockStep, VirtualSession
from support.scenario import T0, cluster_with_topic

CONTROLLER = 1


def stopped(cluster: MemoryCluster) -> None:
    """For as long as its session lasts it counts among the living."""
    cluster.pause(CONTROLLER)


def out_of_reach(cluster: MemoryCluster) -> None:
    """It goes on acting; who connects to where it is advertised hears nothing."""
    cluster.network.fill_queue(node_name(CONTROLLER))


SILENCES = pytest.mark.parametrize("fall_silent", [stopped, out_of_reach])


@asynccontextmanager
async def silent_controller(
    fall_silent: Callable[[MemoryCluster], None],
) -> AsyncIterator[tuple[MemoryCluster, TrioAdmin]]:
    async with cluster_with_topic(properties={"admin.listener": ""}) as (cluster, *_):
        assert cluster.controller_id == CONTROLLER
        fall_silent(cluster)
        async with cluster.admin() as admin:
            yield cluster, admin


@SILENCES
async def test_another_broker_answers_what_any_can(
    fall_silent: Callable[[MemoryCluster], None], autojump_clock: object
) -> None:
    async with silent_controller(fall_silent) as (_, admin):
        view = await admin.describe_cluster(timeout_ms=LOOK_TIMEOUT_MS)
        assert (view.controller_id, sorted(view.brokers)) == (CONTROLLER, [1, 2, 3])
        with trio.fail_after(1):  # who was silent is not waited for again
            assert await admin.list_topics() == [T0.topic]
            assert (await admin.describe_topic_configs([T0.topic])).keys() == {T0.topic}


@SILENCES
async def test_it_is_asked_first_again_when_it_has_answered(
    fall_silent: Callable[[MemoryCluster], None], autojump_clock: object
) -> None:
    async with silent_controller(fall_silent) as (cluster, admin):
        await admin.describe_cluster()
        cluster.resume(CONTROLLER)
        cluster.network.empty_queue(node_name(CONTROLLER))
        await admin.create_topic("u", 1, 1)
        cluster.pause(2)
        cluster.pause(3)
        with trio.fail_after(1):
            assert await admin.list_topics() == [T0.topic, "u"]


@SILENCES
async def test_doctor_names_it_and_tells_the_rest(
    fall_silent: Callable[[MemoryCluster], None], autojump_clock: object
) -> None:
    async with silent_controller(fall_silent) as (cluster, admin), cluster.consumer() as consumer:
        steps = LockStep()
        session = VirtualSession(steps)
        facts = await steps.run(partial(cluster_facts, session, Front(steps, admin), Front(steps, consumer), {}))
    verdicts = {each.check: each for each in verdicts_on(facts)}
    answering = verdicts["brokers answer"]
    assert answering.level == "FAIL"
    assert answering.text.startswith("broker 1"), "it does not answer, or does not count among the living any more"
    assert "broker 2" not in answering.text
    assert verdicts["offline partitions"].level == "ok"
    assert facts.topics.keys() == {T0.topic} == facts.topic_configs.keys()


@SILENCES
async def test_load_sees_the_cluster_as_the_others_know_it(
    fall_silent: Callable[[MemoryCluster], None], autojump_clock: object
) -> None:
    async with silent_controller(fall_silent) as (_, admin):
        steps = LockStep()
        picture = await steps.run(partial(look, Front(steps, admin), needs_controller=False))
    assert (sorted(picture.racks), picture.partitions.keys()) == ([1, 2, 3], {T0})
    assert sorted(picture.sizes) == [2, 3]
