"""Whole brokers: create, produce, crash, fail over, heal, and read everything back."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.controller.orders import broker_orders
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.testkit.cluster import SESSION_TIMEOUT_MS
from strandline.testkit.inspection import read_all
from support.scenario import BOTH_WAYS, SESSIONS_ALONE, T0, check_at_the_end, cluster_with_topic, numbered

ALL = [1, 2, 3]


@pytest.mark.parametrize("preferred", [1, 2], ids=["who is controller", "who is not controller"])
async def test_a_leader_dies_and_comes_back(preferred: int, autojump_clock) -> None:
    async with cluster_with_topic([preferred, 3, 3 - preferred]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 20), one_by_one=True)
        cluster.crash(preferred)
        await ledger.produce(producer, T0, numbered("without", 20))
        assert cluster.leader(T0) not in (preferred, -1)
        assert preferred not in cluster.isr(T0)
        await cluster.start_broker(preferred)
        await ledger.produce(producer, T0, numbered("after", 20))
        assert not ledger.unknown
        await check_at_the_end(cluster, ledger)


async def test_who_dies_before_the_controller_hears_that_it_joined_leaves_at_once(autojump_clock) -> None:
    """Nothing is written meanwhile, so to its leader it does not lag; the next write would wait for it."""
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        cluster.crash(3)
        cluster.expire_session(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "it is missed")
        await cluster.start_broker(3)
        await cluster.until(lambda: cluster.isr(T0) == ALL, "it joins")
        cluster.crash(3)
        cluster.expire_session(3)
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "it is missed again")


async def test_nobody_waits_for_a_disk_before_it_leads(autojump_clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the first of the controller's requests, and not the last, which is sent when the others were answered."""
    monkeypatch.setattr(broker_orders, "MAX_PARTITIONS_PER_REQUEST", 2)
    many = [TopicPartition("many", index) for index in range(12)]
    async with cluster_with_topic() as (cluster, producer, ledger):
        async with cluster.admin() as admin:
            await admin.create_topic("many", assignments={tp.partition: [2, 1, 3] for tp in many})
        for tp in many:
            await ledger.produce(producer, tp, numbered(f"before-{tp.partition}", 2))
        for node in cluster.nodes.values():
            node.disk_delay_s = 60.0
        cluster.crash(2)
        await cluster.until(
            lambda: all(cluster.leads(1, tp) or cluster.leads(3, tp) for tp in many),
            "somebody leads everything",
            within_s=SESSION_TIMEOUT_MS / 1000 + 0.5,
        )
        for tp in many:
            await ledger.produce(producer, tp, numbered(f"after-{tp.partition}", 2))
        for broker in (1, 3):  # before any file knows of the new epoch
            cluster.crash(broker)
        for node in cluster.nodes.values():
            node.disk_delay_s = 0.0
        for broker in ALL:
            await cluster.start_broker(broker)
        await cluster.until(lambda: all(cluster.isr(tp) == ALL for tp in many), "all are in sync")
        async with cluster.consumer() as consumer:
            for tp in many:
                ledger.assert_kept(tp, await read_all(consumer, tp))
                cluster.assert_replicas_equal(tp)
        assert not ledger.unknown


async def test_a_follower_dies_and_comes_back(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        cluster.crash(3)
        await ledger.produce(producer, T0, numbered("without", 50))
        assert cluster.isr(T0) == [1, 2]
        await cluster.start_broker(3)
        await check_at_the_end(cluster, ledger)
        assert not ledger.unknown


async def test_a_broker_that_restarts_within_its_session_is_neither_refused_nor_waits(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        before = trio.current_time()
        cluster.crash(2)
        await cluster.start_broker(2)
        await cluster.until(lambda: cluster.isr(T0) == ALL, "back in the ISR", within_s=3)
        await ledger.produce(producer, T0, numbered("after", 5))
        assert trio.current_time() - before < 5, "that was not within the session"
        await check_at_the_end(cluster, ledger)


async def test_all_brokers_are_killed_at_once_under_load_and_come_back(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger), trio.open_nursery() as nursery:
        nursery.start_soon(ledger.produce, producer, T0, numbered("load", 200))
        await cluster.until(lambda: cluster.partition(1, T0).log.log_end_offset > 0, "load")
        for broker in ALL:
            cluster.crash(broker)
        await trio.sleep(10)
        for broker in ALL:
            await cluster.start_broker(broker)
        await cluster.until(lambda: bool(ledger.acked.get(T0)) and len(ledger.acked[T0]) == 200, "all acked")
        await check_at_the_end(cluster, ledger)


async def test_a_rolling_restart_shows_no_error_to_a_producer(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        for broker in ALL:
            await ledger.produce(producer, T0, numbered(f"before-{broker}", 10), one_by_one=True)
            await cluster.stop(broker)
            assert cluster.leader(T0) not in (broker, -1), "leadership moved first"
            await ledger.produce(producer, T0, numbered(f"without-{broker}", 10), one_by_one=True)
            await cluster.start_broker(broker)
            await cluster.until(lambda: cluster.isr(T0) == ALL, "the ISR is whole again")
        assert not ledger.unknown
        await check_at_the_end(cluster, ledger)


async def test_a_controller_that_leads_and_stops_under_load_keeps_nobody_waiting(autojump_clock) -> None:
    """What it tells itself as controller does not reach it any more: it gives its leaderships up by itself."""
    async with cluster_with_topic([1, 2, 3]) as (cluster, _, ledger), trio.open_nursery() as nursery:

        async def load(name: str) -> None:
            async with cluster.producer(linger_ms=0) as producer:
                await ledger.produce(producer, T0, numbered(name, 500), one_by_one=True)

        for name in ("a", "b", "c", "d", "e"):
            nursery.start_soon(load, name)
        await trio.sleep(1)
        started = trio.current_time()
        await cluster.stop(1)
        assert trio.current_time() - started < 1
        await cluster.start_broker(1)
        await check_at_the_end(cluster, ledger)
        assert not ledger.unknown


async def test_the_last_of_brokers_that_stop_together_waits_for_nobody(autojump_clock) -> None:
    # By refusals the others succeed the first of them, the controller, which answers them still while it stops and
    # takes no connections any more: then they ask its successor, who may lead what nobody else can.
    async with cluster_with_topic([1, 2, 3], properties=SESSIONS_ALONE) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("kept", 3))
        async with trio.open_nursery() as nursery:
            for broker in ALL:
                nursery.start_soon(cluster.stop, broker)
        in_vain = [line for line in cluster.history if '"remaining":"leads' in line]
        assert not in_vain, "the last one has nobody to hand its partitions to: that is no reason to ask again"
        for broker in ALL:
            await cluster.start_broker(broker)
        await check_at_the_end(cluster, ledger)


@BOTH_WAYS
async def test_brokers_that_stop_together_come_back_with_everything(properties, autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3], properties=properties) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("kept", 3))
        async with trio.open_nursery() as nursery:
            for broker in ALL:
                nursery.start_soon(cluster.stop, broker)
        for broker in ALL:
            await cluster.start_broker(broker)
        await ledger.produce(producer, T0, numbered("again", 3))
        await check_at_the_end(cluster, ledger)


async def test_a_leader_that_is_cut_off_commits_nothing_and_truncates_what_it_wrote(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        cluster.network.cut_both("broker-2", "broker-1")
        cluster.network.cut_both("broker-2", "broker-3")
        cluster.cut_from_zookeeper(2)
        zombie = cluster.partition(2, T0)
        high_watermark = zombie.high_watermark
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ledger.produce, producer, T0, numbered("during", 5))  # the client still reaches it
            await cluster.until(lambda: cluster.leader(T0) in (1, 3), "a new leader")
            await cluster.until(lambda: zombie.log.log_end_offset > 3, "the old leader still appends")
            await trio.sleep(8)
            assert zombie.leadership is not None, "it does not know"
            assert zombie.high_watermark == high_watermark
            cluster.network.heal()
            cluster.heal_zookeeper(2)
        await cluster.until(lambda: not cluster.leads(2, T0), "it learns of its successor")
        await check_at_the_end(cluster, ledger)


async def test_a_leader_that_was_paused_beyond_its_session_steps_down(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        cluster.pause(2)
        await ledger.produce(producer, T0, numbered("during", 5))
        assert cluster.leader(T0) in (1, 3)
        cluster.resume(2)
        await cluster.until(lambda: not cluster.leads(2, T0), "it steps down")
        await check_at_the_end(cluster, ledger)


async def test_leaders_go_on_while_zookeeper_is_away(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 3))
        cluster.zookeeper.stop()
        await trio.sleep(10)
        await ledger.produce(producer, T0, numbered("without", 10), one_by_one=True)
        assert cluster.controller_id == -1, "nobody vouches for it"
        cluster.zookeeper.start()
        await cluster.until(lambda: cluster.controller_id > 0, "a controller")
        assert (cluster.leader(T0), cluster.isr(T0)) == (2, ALL)
        assert not ledger.unknown
        await check_at_the_end(cluster, ledger)


async def test_power_loss_of_everybody_loses_nothing_that_was_flushed(autojump_clock) -> None:
    async with cluster_with_topic(configs={"flush.messages": "1"}) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("flushed", 10), one_by_one=True)
        await trio.sleep(5)  # flushing is in the background: not part of the acknowledgement
        for broker in ALL:
            cluster.lose_power(broker)
        for broker in ALL:
            await cluster.start_broker(broker)
        await check_at_the_end(cluster, ledger)


async def test_after_a_power_loss_of_everybody_who_left_the_isr_because_of_it_is_waited_for(autojump_clock) -> None:
    """Only broker 2's disk kept what was acknowledged. It comes back first, leaves the ISR, dies again; the others come
    back with empty logs: one of them, the last of the ISR, would lead if nobody knew of broker 2."""
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("acked", 10), one_by_one=True)
        cluster.broker(2).log_manager.flush_all()
        for broker in ALL:
            cluster.lose_power(broker)
        await cluster.start_broker(2)
        assert cluster.isr(T0) == [1, 3]
        await trio.sleep(10)
        cluster.crash(2)
        for broker in (1, 3):
            await cluster.start_broker(broker)
        await trio.sleep(30)
        assert cluster.leader(T0) == NO_BROKER
        await cluster.start_broker(2)
        await check_at_the_end(cluster, ledger)


async def history(seed: int) -> list[str]:
    """What all brokers logged in one run with a crash."""
    trio._core._run._r.seed(seed)
    async with cluster_with_topic([2, 1, 3], seed=seed) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        cluster.crash(2)
        await ledger.produce(producer, T0, numbered("after", 5))
        await cluster.start_broker(2)
        await check_at_the_end(cluster, ledger)
        return cluster.history


def test_a_seed_replays_its_history() -> None:
    first, again = (trio.run(history, 7, clock=MockClock(autojump_threshold=0)) for _ in range(2))
    assert first == again


async def test_an_expired_session_of_the_last_in_sync_replica_is_no_loss_of_its_data(autojump_clock) -> None:
    """Its first start found an empty folder, as every first start does; its registration after the expiry is none."""
    async with cluster_with_topic([2, 1, 3], min_insync_replicas=1) as (cluster, producer, ledger):
        cluster.crash(1)
        cluster.crash(3)
        await ledger.produce(producer, T0, numbered("alone", 5))
        assert cluster.isr(T0) == [2]
        registration = cluster.broker(2).registration
        first = registration.broker_epoch
        cluster.expire_session(2)
        await cluster.until(lambda: registration.broker_epoch not in (-1, first), "it is registered again")
        await ledger.produce(producer, T0, numbered("again", 5))
        for broker in (1, 3):
            await cluster.start_broker(broker)
        await check_at_the_end(cluster, ledger)
        assert not [line for line in cluster.history if "unclean election" in line]


async def test_a_follower_that_lost_power_and_is_back_within_its_session_joins_the_isr_again(autojump_clock) -> None:
    """It takes itself out of the ISR; the leader has to be told, or it would take it for a member for ever."""
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5), one_by_one=True)
        cluster.lose_power(3)
        await cluster.start_broker(3)
        assert cluster.isr(T0) == [1, 2]
        await cluster.until(lambda: cluster.isr(T0) == ALL, "back in the ISR", within_s=3)
        await ledger.produce(producer, T0, numbered("after", 5))
        assert not ledger.unknown
        await check_at_the_end(cluster, ledger)


async def test_who_is_left_right_after_a_write_shows_its_last_record_once_a_second_replica_is_back(
    autojump_clock,
) -> None:
    """It has it, but does not know that it was committed, and commits nothing alone."""
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("m", 50), one_by_one=True)
        for broker in (1, 2):
            cluster.crash(broker)
        await cluster.until(lambda: cluster.leads(3, T0), "3 leads")
        left = cluster.partition(3, T0)
        assert (left.high_watermark, left.log.log_end_offset) == (49, 50)
        async with cluster.consumer() as consumer:
            await consumer.assign([T0])
            consumer.seek(T0, 0)
            shown = (await consumer.poll(timeout_ms=10_000))[T0]
        assert [record.offset for record in shown] == list(range(49))
        for broker in (1, 2):
            await cluster.start_broker(broker)
        await check_at_the_end(cluster, ledger)


@pytest.mark.parametrize("who", ["the same controller", "the next controller"])
async def test_a_broker_that_was_away_when_a_topic_went_does_not_show_it_any_more(
    who: str, autojump_clock: MockClock
) -> None:
    """It runs on, without a session meanwhile, and has no replica that would have held the deletion up."""
    async with cluster_with_topic(replicas=(1, 2)) as (cluster, _, _), cluster.admin() as admin:
        cluster.cut_from_zookeeper(3)
        cluster.expire_session(3)
        await cluster.until(lambda: cluster.registered() == [1, 2], "broker 3 is away")
        await admin.delete_topics([T0.topic])
        assert T0.topic in cluster.broker(3).data.metadata.topics
        if who == "the next controller":
            cluster.expire_session(1)
            await cluster.until(lambda: cluster.registered() == [1, 2] and cluster.controller_id > 0, "another term")
        cluster.heal_zookeeper(3)
        await cluster.until(lambda: cluster.registered() == [1, 2, 3], "broker 3 is back")
        await cluster.until(lambda: not cluster.broker(3).data.metadata.topics, "it has heard")
