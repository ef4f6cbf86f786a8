"""A bit of a replica's topic id flips while its broker is down. Its log is kept, and nothing acked is lost. What is
left of an earlier topic of that name goes, though, where somebody has said that it is to go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from strandline.client.errors import AnsweredError
from strandline.protocol.types import NO_BROKER
from strandline.storage.disk.checkpoints import decode_topic_id, encode_topic_id
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

VICTIM = 1
ORDER_OF_STOPS = {"first": (1, 2, 3), "last": (2, 3, 1)}


def flip_a_bit_of_the_topic_id(cluster: MemoryCluster) -> None:
    disk, path = cluster.nodes[VICTIM].disk, f"/data/{T0}/partition.metadata"
    head, _, text = disk.read(path).decode().partition("topic_id: ")
    topic_id = bytearray(decode_topic_id(text.strip()))
    topic_id[3] ^= 0x10
    disk.write(path, f"{head}topic_id: {encode_topic_id(bytes(topic_id))}\n".encode())


def stray_records(cluster: MemoryCluster) -> int:
    """Bytes of the log that was put aside."""
    disk = cluster.nodes[VICTIM].disk
    (stray,) = [name for name in disk.listdir("/data") if name.endswith("-stray")]
    return len(disk.read(f"/data/{stray}/{0:020d}.log"))


async def test_a_replica_that_was_away_begins_anew_and_fetches(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        for record in numbered("before", 20):
            await ledger.produce(producer, T0, [record])
        cluster.crash(VICTIM)
        cluster.expire_session(VICTIM)
        await cluster.until(lambda: VICTIM not in cluster.isr(T0), "it has left the ISR")
        flip_a_bit_of_the_topic_id(cluster)
        await cluster.start_broker(VICTIM)
        for record in numbered("after", 20):
            await ledger.produce(producer, T0, [record])
        await check_at_the_end(cluster, ledger)
        assert stray_records(cluster) > 0


async def test_a_replica_that_was_moved_away_goes_though_its_topic_was_made_anew_on_its_broker(autojump_clock) -> None:
    """The controller does not reach that broker before."""
    async with cluster_with_topic(replicas=(2, 3)) as (cluster, producer, ledger), cluster.admin() as admin:
        await ledger.produce(producer, T0, numbered("earlier", 3))
        cluster.cut_both(cluster.controller_id, 3)
        await admin.alter_partition_reassignments({T0: [2, 1]})
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "it is moved away")
        await admin.delete_topics([T0.topic])
        await admin.create_topic(T0.topic, assignments={0: [2, 3]})
        cluster.network.heal()
        await cluster.until(lambda: cluster.hosts(3, T0) and cluster.isr(T0) == [2, 3], "it is a replica again")
        assert not [name for name in cluster.nodes[3].disk.listdir("/data") if name.endswith("-stray")]
        assert [log.log_end_offset for log in cluster.logs(T0).values()] == [0, 0]


@pytest.mark.parametrize("stopped", ["first", "last"])
async def test_after_a_stop_of_the_whole_cluster_it_does_not_lead_the_others_into_emptiness(
    autojump_clock, stopped: str
) -> None:
    """Stopped last it is the only one in the ISR."""
    async with cluster_with_topic() as (cluster, producer, ledger):
        for record in numbered("before", 20):
            await ledger.produce(producer, T0, [record])
        for broker_id in ORDER_OF_STOPS[stopped]:
            await cluster.stop(broker_id)
        flip_a_bit_of_the_topic_id(cluster)
        for broker_id in (1, 2, 3):
            await cluster.start_broker(broker_id)
        if stopped == "last":
            await cluster.until(lambda: T0 in cluster.broker(VICTIM).log_manager.refused, "it is refused")
            assert cluster.isr(T0) == [VICTIM] and not cluster.leads(VICTIM, T0)
            assert all(log.log_end_offset == 20 for number, log in cluster.logs(T0).items() if number != VICTIM)
            await cluster.stop(VICTIM)
            await cluster.start_broker(VICTIM)
        await cluster.until(lambda: any(cluster.leads(number, T0) for number in (2, 3)), "one of the others leads")
        for record in numbered("after", 20):
            await ledger.produce(producer, T0, [record])
        await check_at_the_end(cluster, ledger)
        assert stray_records(cluster) > 0


@asynccontextmanager
async def refused_as_the_last_in_sync() -> AsyncIterator[tuple[MemoryCluster, Ledger]]:
    """It runs alone."""
    async with cluster_with_topic() as (cluster, producer, ledger):
        for record in numbered("before", 20):
            await ledger.produce(producer, T0, [record])
        for broker_id in ORDER_OF_STOPS["last"]:
            await cluster.stop(broker_id)
        flip_a_bit_of_the_topic_id(cluster)
        await cluster.start_broker(VICTIM)
        await cluster.until(lambda: T0 in cluster.broker(VICTIM).log_manager.refused, "it is refused")
        yield cluster, ledger


async def test_it_does_not_begin_anew_while_it_is_eligible(autojump_clock) -> None:
    """It would lead an empty log if the leader failed before it has fetched."""
    async with refused_as_the_last_in_sync() as (cluster, ledger):
        await cluster.start_broker(3)
        await cluster.until(lambda: cluster.leads(3, T0), "an eligible replica leads")
        assert cluster.state(T0).elr == [VICTIM]
        cluster.crash(3)
        cluster.expire_session(3)
        await cluster.until(lambda: cluster.leader(T0) != 3, "it is missed")
        for broker_id in (2, 3):
            await cluster.start_broker(broker_id)
        await cluster.until(lambda: cluster.leader(T0) in (2, 3), "one that has everything leads")
        await cluster.stop(VICTIM)
        await cluster.start_broker(VICTIM)
        await check_at_the_end(cluster, ledger)
        assert stray_records(cluster) > 0


async def test_it_begins_anew_once_nobody_rests_on_it(autojump_clock) -> None:
    """It is the leader that lets the list of those who are eligible go, without a new epoch."""
    async with refused_as_the_last_in_sync() as (cluster, ledger):
        for broker_id in (3, 2):
            await cluster.start_broker(broker_id)
        await check_at_the_end(cluster, ledger)
        assert stray_records(cluster) > 0


@pytest.mark.parametrize("is_lossy", [False, True])
@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)])
async def test_it_begins_anew_where_an_operator_accepts_the_loss(
    autojump_clock, replicas: tuple[int, ...], is_lossy: bool
) -> None:
    """All others that have the records are away, or there are none. Until then it says why nobody leads."""
    async with cluster_with_topic(replicas, min_insync_replicas=1) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 20))
        for broker_id in (2, 3):
            await cluster.stop(broker_id)
        if is_lossy:
            cluster.nodes[VICTIM].disk.sync_everything()
            cluster.lose_power(VICTIM)
            cluster.expire_session(VICTIM)
        else:
            await cluster.stop(VICTIM)
        flip_a_bit_of_the_topic_id(cluster)
        await cluster.start_broker(VICTIM)
        await cluster.until(lambda: T0 in cluster.broker(VICTIM).log_manager.refused, "it is refused")
        await trio.sleep(60)
        assert cluster.leader(T0) == NO_BROKER
        async with cluster.admin() as admin:
            with pytest.raises(AnsweredError, match=r"is served; .* empty log; broker 1: .* was put aside as .*-stray"):
                await admin.recover(T0)
            found = await admin.recover(T0, accept_loss=True)
        assert found.leader == VICTIM and cluster.leads(VICTIM, T0)
        assert cluster.partition(VICTIM, T0).log.log_end_offset == 0
        assert any("unclean election" in line for line in cluster.history)
        assert stray_records(cluster) > 0
