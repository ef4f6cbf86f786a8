"""Consumers of a group where something around them has failed: a coordinator that has stopped, topics that are gone,
members that say what cannot be."""

from __future__ import annotations

import msgspec
import pytest
import trio

from scenarios.test_subscriptions import ALL, PARTITIONS, Worker, a_cluster, running, shared
from strandline.client.errors import InvalidTopic, UnknownTopic
from strandline.client.groups.offsets import OffsetAndMetadata
from strandline.protocol.consumer_protocol import Subscription, encode_subscription
from strandline.protocol.messages import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.protocol.types import TopicPartition
from support.group_client import GroupClient


async def test_members_stay_while_a_commit_waits_for_a_coordinator_that_has_stopped(autojump_clock) -> None:
    async with a_cluster() as cluster:
        worker, coordinator = Worker(cluster, enable_auto_commit=False), GroupClient(cluster)
        await coordinator.find()
        async with running(worker):
            await shared(cluster, worker)
            generation = worker.consumer.group_metadata.generation_id
            cluster.pause(coordinator.coordinator_id)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.consumer.commit, {ALL[0]: 1})
                await trio.sleep(1)
                cluster.expire_session(coordinator.coordinator_id)
                await trio.sleep(30)
            assert worker.told == [("assigned", list(range(PARTITIONS)))]
            assert worker.consumer.group_metadata.generation_id == generation
        cluster.resume(coordinator.coordinator_id)


async def test_a_topic_that_is_gone_hinders_no_other_commit(autojump_clock) -> None:
    async with a_cluster() as cluster:
        worker = Worker(cluster, enable_auto_commit=False)
        async with running(worker):
            await shared(cluster, worker)
            with pytest.raises(UnknownTopic), trio.fail_after(10):
                await worker.consumer.commit({TopicPartition("gone", 0): 1, ALL[0]: 1})
            assert await worker.consumer.committed(ALL[:1]) == {ALL[0]: OffsetAndMetadata(1)}


async def test_a_leader_that_found_its_place_again_assigns_new_partitions(autojump_clock) -> None:
    async with a_cluster() as cluster:
        settings = {"group_instance_id": "1", "metadata_max_age_ms": 2_000}
        one, again = Worker(cluster, "one", **settings), Worker(cluster, "again", **settings)
        async with running(one):
            await shared(cluster, one)
            generation = one.consumer.group_metadata.generation_id
        async with running(again):
            await shared(cluster, again)
            assert again.consumer.group_metadata.generation_id == generation
            async with cluster.admin() as admin:
                await admin.create_partitions("orders", PARTITIONS + 2)
            await cluster.until(lambda: len(again.owns) == PARTITIONS + 2, "the new ones have an owner")


class Liar(GroupClient):
    """A member that subscribes to what cannot be."""

    def join_request(self, session_timeout_ms: int = 10_000) -> JoinGroupRequest:
        topics = [f"{number}" + "x" * 30_000 for number in range(10)]
        protocol = JoinGroupRequestProtocol("range", encode_subscription(Subscription(topics)))
        return msgspec.structs.replace(super().join_request(session_timeout_ms), protocols=[protocol])


async def test_names_that_no_topic_can_have_spoil_nothing(autojump_clock) -> None:
    async with a_cluster() as cluster:
        worker, liar = Worker(cluster), Liar(cluster)
        async with running(worker):
            await shared(cluster, worker)
            for name in ("bad name", "x" * 40_000):
                with pytest.raises(InvalidTopic):
                    worker.consumer.subscribe(["orders", name])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(liar.join)
                await cluster.until(lambda: len(worker.told) > 2, "they have rebalanced")
                nursery.cancel_scope.cancel()
            group = worker.consumer._group
            assert group is not None
            assert group._member.group_topics == ("orders",)
            assert worker.consumer._metadata.last_error is None
