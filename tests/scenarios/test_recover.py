"""An operator ends the wait for a replica that does not come back: what is lost is said before, and done on request."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.client.errors import AnsweredError
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.testkit.cluster import MemoryCluster
from support.scenario import T0, cluster_with_topic, numbered


async def leave_only_broker_3(cluster: MemoryCluster) -> None:
    """Brokers 1 and 2 have everything and are gone; broker 3 is behind."""
    cluster.crash(1)
    await cluster.until(lambda: cluster.isr(T0) == [2], "broker 2 is alone in sync")
    cluster.crash(2)
    await cluster.start_broker(3)
    await cluster.until(lambda: cluster.controller_id == 3, "a controller")
    await cluster.until(lambda: cluster.leader(T0) == NO_BROKER, "nobody leads")


async def test_what_each_replica_has_is_shown_and_nothing_is_changed(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        cluster.crash(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "broker 3 is out")
        await ledger.produce(producer, T0, numbered("broker 3 lacks it", 3))
        await leave_only_broker_3(cluster)
        async with cluster.admin() as admin:
            found = await admin.recover(T0)
        assert found.leader == 3
        assert [(r.broker_id, r.is_alive, r.has_everything, r.end_offset) for r in found.replicas] == [
            (1, False, True, -1),
            (2, False, True, -1),
            (3, True, False, 4),
        ]
        assert cluster.leader(T0) == NO_BROKER
        await cluster.start_broker(1)
        await cluster.until(lambda: cluster.leader(T0) == 1, "it waited for nothing else")


async def test_with_the_loss_accepted_the_longest_log_that_is_left_leads(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        cluster.crash(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "broker 3 is out")
        await leave_only_broker_3(cluster)
        async with cluster.admin() as admin:
            found = await admin.recover(T0, accept_loss=True)
            assert (found.leader, cluster.leader(T0), cluster.isr(T0)) == (3, 3, [3])
            with pytest.raises(AnsweredError, match="nothing to recover") as refused:
                await admin.recover(T0, accept_loss=True)
            assert refused.value.code == ErrorCode.ELECTION_NOT_NEEDED
            with pytest.raises(AnsweredError, match="there is no partition"):
                await admin.recover(TopicPartition("t", 7))
        # Who was believed to have everything is not any more: broker 3 goes on without them.
        await cluster.start_broker(1)
        await cluster.until(lambda: cluster.isr(T0) == [1, 3], "broker 1 follows")
        assert cluster.leader(T0) == 3


async def test_a_topic_that_allows_an_unclean_election_from_now_on_waits_no_more(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        cluster.crash(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "broker 3 is out")
        await leave_only_broker_3(cluster)
        operator = cluster.zookeeper.client()
        await operator.start()
        config = b'{"version":1,"config":{"min.insync.replicas":"2","unclean.leader.election.enable":"true"}}'
        await operator.set("/config/topics/t", config, -1)
        await cluster.until(lambda: cluster.leader(T0) == 3, "broker 3 leads", within_s=60)


async def test_what_was_accepted_does_not_outlive_the_return_of_the_one_that_was_missed(
    autojump_clock: MockClock,
) -> None:
    """It comes back while the replicas are still asked: nothing is lost, and its next death is another matter."""
    async with cluster_with_topic([1, 2, 3], brokers=4, min_insync_replicas=1) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        for broker in (2, 3):
            cluster.crash(broker)
            cluster.expire_session(broker)
        await cluster.until(lambda: cluster.isr(T0) == [1], "broker 1 is alone")
        await ledger.produce(producer, T0, numbered("only 1 has it", 4))
        cluster.crash(1)
        await cluster.until(lambda: cluster.controller_id == 4, "4 is controller")
        await cluster.start_broker(2)
        await cluster.start_broker(3)
        await cluster.until(lambda: cluster.leader(T0) == NO_BROKER, "nobody leads")
        await trio.sleep(2)
        cluster.cut_both(4, 2)  # broker 2 does not answer, and lives
        cluster.cut_both(1, 2)
        cluster.cut_both(1, 3)  # who follows catches up late
        async with cluster.admin() as admin, trio.open_nursery() as nursery:

            async def recover() -> None:
                with pytest.raises(AnsweredError, match="broker 1 leads t:0: there is nothing to recover"):
                    await admin.recover(T0, accept_loss=True)

            nursery.start_soon(recover)
            await trio.sleep(2)
            await cluster.start_broker(1)
        await ledger.produce(producer, T0, numbered("after", 4))
        cluster.crash(1)
        cluster.expire_session(1)
        cluster.heal(4, 2)
        await trio.sleep(10)
        assert cluster.leader(T0) == NO_BROKER
