"""Consumers of a group where something around them has failed: a coordinator that has stopped, topics that are gone,
members that say what cannot be."""

from __future__ import annotations

import pytest
import trio

from scenarios.test_subscriptions import ALL, PARTITIONS, Worker, a_cluster, running, shared
from strandline.client.errors import UnknownTopic
from strandline.client.groups.offsets import OffsetAndMetadata
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
