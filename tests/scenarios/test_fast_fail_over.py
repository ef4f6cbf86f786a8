"""Whole brokers of which one dies, or only seems to: others lead long before its session ends, and an alarm that was
false loses nothing, doubles nothing, and costs one election at most."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from strandline.controller.liveness.refusals import MAX_FALSE_ALARMS
from strandline.testkit.cluster import SESSION_TIMEOUT_MS, MemoryCluster
from strandline.testkit.inspection import Ledger, epochs, values
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

SOON_S = 1.0
"""Long before a session of 6 s ends."""
ALL = [1, 2, 3]


@asynccontextmanager
async def under_load(cluster: MemoryCluster, ledger: Ledger) -> AsyncIterator[None]:
    """A producer sends one record after the other meanwhile, all of which have to be acknowledged."""
    count = 0
    is_over = False

    async def produce() -> None:
        nonlocal count
        async with cluster.producer(linger_ms=0, request_timeout_ms=2_000) as producer:
            while not is_over:
                await ledger.produce(producer, T0, [f"load-{count}".encode()], one_by_one=True)
                count += 1
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        await cluster.until(lambda: count > 10, "load")
        yield
        before = count
        await cluster.until(lambda: count > before + 10, "it is acknowledged again")
        is_over = True


async def check_all(cluster: MemoryCluster, ledger: Ledger) -> None:
    """Nothing lost, nothing doubled, no error, epochs in order."""
    await check_at_the_end(cluster, ledger)
    log = cluster.partition(cluster.leader(T0), T0).log
    found = [value for value in values(log) if value is not None]
    assert len(found) == len(set(found)), "a record stands there twice"
    assert epochs(log) == sorted(epochs(log))
    assert not ledger.unknown


def suspicions(cluster: MemoryCluster) -> int:
    return sum("broker suspected" in line for line in cluster.history)


# --- They are dead -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ALL, ids=["the controller", "the leader", "a follower"])
async def test_whoever_is_killed_is_replaced_long_before_its_session_ends(victim: int, autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            cluster.crash(victim)
            acked = len(ledger.acked[T0])
            await cluster.until(
                lambda: len(ledger.acked[T0]) > acked + 10 and victim not in cluster.isr(T0),
                "records are acknowledged without it",
                within_s=SOON_S,
            )
            assert victim in cluster.registered()
            assert cluster.leader(T0) == (2 if victim != 2 else 1)
            assert cluster.controller_id not in (victim, -1)
            await trio.sleep(SESSION_TIMEOUT_MS / 1000 * 2)
            assert cluster.state(T0).leader_epoch == 1, "the end of its session is no news"
        await cluster.start_broker(victim)
        await check_all(cluster, ledger)


async def test_a_machine_that_vanishes_is_missed_when_its_session_ends(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        cluster.vanish(2)
        await trio.sleep(SESSION_TIMEOUT_MS / 1000 - 2)
        assert (cluster.leader(T0), suspicions(cluster)) == (2, 0)
        await ledger.produce(producer, T0, numbered("without", 5))
        assert cluster.leader(T0) == 1
        await cluster.start_broker(2)
        await check_at_the_end(cluster, ledger)


async def test_a_broker_that_is_back_before_it_is_missed_costs_nothing_more_than_its_restart(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            cluster.crash(2)
            await trio.sleep(0.1)
            await cluster.start_broker(2)
            await cluster.until(lambda: cluster.isr(T0) == ALL, "back in the ISR")
        assert (suspicions(cluster), cluster.state(T0).leader_epoch) == (0, 1)
        await check_all(cluster, ledger)


async def test_two_brokers_that_die_at_once_leave_it_to_their_sessions(autojump_clock) -> None:
    """Who is left cannot tell their deaths from a filter of its own machine; it could commit nothing, either."""
    async with cluster_with_topic([2, 3, 1]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        cluster.crash(2)
        cluster.crash(3)
        await trio.sleep(3)
        assert (cluster.leader(T0), suspicions(cluster)) == (2, 0)
        await cluster.until(lambda: cluster.leader(T0) == 1, "their sessions end")
        await cluster.start_broker(2)
        await ledger.produce(producer, T0, numbered("with two", 5))
        await cluster.start_broker(3)
        await check_all(cluster, ledger)


async def test_of_five_two_may_die_at_once_and_one_of_them_be_the_controller(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3], brokers=5) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            cluster.crash(4)
            cluster.crash(1)
            await cluster.until(lambda: cluster.leader(T0) == 2, "a new controller elects", within_s=SOON_S)
            await cluster.until(lambda: suspicions(cluster) > 0, "it misses the other one, too", within_s=SOON_S)
            assert {1, 4}.issubset(cluster.registered())
        for broker_id in (1, 4):
            await cluster.start_broker(broker_id)
        await check_all(cluster, ledger)


async def test_the_controller_and_another_of_three_die_at_once(autojump_clock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        cluster.crash(1)
        cluster.crash(2)
        await cluster.until(lambda: cluster.leader(T0) == 3, "their sessions end")
        await cluster.start_broker(2)
        await ledger.produce(producer, T0, numbered("with two", 5))
        await cluster.start_broker(1)
        await check_all(cluster, ledger)


# --- They only seem to be dead -------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ALL, ids=["the controller", "the leader", "a follower"])
async def test_who_refuses_connections_for_a_second_costs_one_election_at_most(victim: int, autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            cluster.refuse(victim)
            await trio.sleep(1)
            cluster.take_connections(victim)
            await cluster.until(lambda: cluster.isr(T0) == ALL, "it is taken back")
            await trio.sleep(SESSION_TIMEOUT_MS / 1000 * 2)
            assert cluster.state(T0).leader_epoch == 1
            assert sorted(cluster.registered()) == ALL, "its session has not ended"
            assert cluster.controller_id == (1 if victim != 1 else cluster.controller_id) != -1
        await check_all(cluster, ledger)


async def test_a_controller_that_was_succeeded_acts_no_more(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            cluster.refuse(1)
            await cluster.until(lambda: cluster.controller_id in (2, 3), "a successor", within_s=SOON_S)
            await trio.sleep(0.1)
            acting = [broker_id for broker_id in ALL if cluster.broker(broker_id).controller.is_active]
            assert acting == [cluster.controller_id]
            cluster.take_connections(1)
        await check_all(cluster, ledger)


@pytest.mark.parametrize("victim", [1, 2], ids=["the controller", "the leader"])
async def test_a_full_queue_is_no_alarm(victim: int, autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        cluster.network.fill_queue(f"broker-{victim}")
        cluster.network.drop_connections(f"broker-{victim}")
        await trio.sleep(3)
        cluster.network.empty_queue(f"broker-{victim}")
        await ledger.produce(producer, T0, numbered("after", 5))
        assert (suspicions(cluster), cluster.leader(T0), cluster.controller_id) == (0, 2, 1)
        await check_all(cluster, ledger)


@pytest.mark.parametrize("victim", [1, 2], ids=["the controller", "the leader"])
async def test_a_pause_is_no_alarm(victim: int, autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        cluster.pause(victim)
        await trio.sleep(3)
        cluster.resume(victim)
        await ledger.produce(producer, T0, numbered("after", 5))
        assert (suspicions(cluster), cluster.leader(T0), cluster.controller_id) == (0, 2, 1)
        await check_all(cluster, ledger)


async def test_connections_that_break_without_a_refusal_are_no_alarm(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            for _ in range(10):
                for broker_id in ALL:
                    cluster.network.drop_connections(f"broker-{broker_id}")
                await trio.sleep(0.2)
        assert (suspicions(cluster), cluster.state(T0).leader_epoch, cluster.controller_id) == (0, 0, 1)
        await check_all(cluster, ledger)


async def test_idle_connections_that_are_closed_are_no_alarm(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3], properties={"connections.max.idle.ms": "5000"}) as (cluster, _, ledger):
        await trio.sleep(60)
        async with under_load(cluster, ledger):
            pass
        assert (suspicions(cluster), cluster.state(T0).leader_epoch, cluster.controller_id) == (0, 0, 1)
        await check_all(cluster, ledger)


async def test_a_broker_that_flaps_is_soon_left_to_its_session(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            for _ in range(10):
                cluster.refuse(2)
                await trio.sleep(2)
                cluster.take_connections(2)
                await trio.sleep(2)
            assert suspicions(cluster) == 3
            assert cluster.state(T0).leader_epoch <= 3
        await check_all(cluster, ledger)


async def test_a_controller_that_is_cut_off_from_zookeeper_changes_nothing_by_an_alarm(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            cluster.cut_from_zookeeper(1)
            await trio.sleep(0.5)
            cluster.refuse(2)
            await trio.sleep(1)
            cluster.take_connections(2)
            await trio.sleep(1)
            assert (cluster.leader(T0), cluster.state(T0).leader_epoch) == (2, 0)
            cluster.heal_zookeeper(1)
        await check_all(cluster, ledger)


@pytest.mark.parametrize("is_alive", [True, False], ids=["it lives", "it is dead"])
async def test_the_last_of_an_isr_loses_nothing_by_an_alarm(is_alive: bool, autojump_clock) -> None:
    """Unclean elections are allowed: while it is only suspected none takes place."""
    unclean = {"unclean.leader.election.enable": "true"}
    async with cluster_with_topic([2, 3], min_insync_replicas=1, configs=unclean) as (cluster, producer, ledger):
        cluster.vanish(3)
        await cluster.until(lambda: cluster.isr(T0) == [2], "the last of its ISR")
        await ledger.produce(producer, T0, numbered("alone", 10))
        cluster.network.cut("broker-3", "broker-2")  # it comes back, and cannot follow yet
        cluster.nodes[3].has_vanished = False
        cluster.network.stop("broker-3")
        cluster.network.heal("broker-3", "broker-1")
        cluster.network.heal("broker-3", "client")
        await cluster.start_broker(3)
        cluster.refuse(2) if is_alive else cluster.crash(2)
        await trio.sleep(3)
        assert (cluster.leader(T0), suspicions(cluster)) == (2, 1)
        if is_alive:
            cluster.take_connections(2)
        else:
            await cluster.start_broker(2)
        cluster.network.heal()
        await ledger.produce(producer, T0, numbered("after", 5))
        await check_at_the_end(cluster, ledger, [2, 3])


async def test_who_starts_during_an_alarm_follows_the_suspected_leader_once_it_answers(autojump_clock) -> None:
    async with cluster_with_topic([2, 3], min_insync_replicas=1) as (cluster, producer, ledger):
        cluster.crash(3)
        await cluster.until(lambda: cluster.isr(T0) == [2], "the last of its ISR")
        await ledger.produce(producer, T0, numbered("alone", 10))
        cluster.refuse(2)
        before = suspicions(cluster)
        await cluster.until(lambda: suspicions(cluster) > before, "it is suspected")
        await cluster.start_broker(3)
        await trio.sleep(1)
        assert cluster.leader(T0) == 2
        cluster.take_connections(2)
        await ledger.produce(producer, T0, numbered("after", 5))
        await check_at_the_end(cluster, ledger, [2, 3])


async def test_where_all_others_refuse_the_controller_misses_nobody(autojump_clock) -> None:
    async with cluster_with_topic([2, 1, 3]) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            cluster.refuse(2)
            cluster.refuse(3)
            await trio.sleep(2)
            cluster.take_connections(2)
            cluster.take_connections(3)
        assert (suspicions(cluster), cluster.state(T0).leader_epoch) == (0, 0)
        await check_all(cluster, ledger)


@pytest.mark.parametrize("others", [[3], []], ids=["with a third broker", "alone"])
async def test_two_brokers_that_refuse_each_other_do_not_succeed_each_other_for_ever(
    others: list[int], autojump_clock
) -> None:
    """Each takes the other for dead, and is proven wrong when that one succeeds it."""
    brokers, seconds = 2 + len(others), 60
    async with cluster_with_topic([*others, 1, 2], brokers=brokers, min_insync_replicas=1) as (cluster, _, ledger):
        async with under_load(cluster, ledger):
            cluster.network.refuse_each_other("broker-1", "broker-2")
            await trio.sleep(seconds)
            terms = sum("elected controller" in line and "controller_epoch" in line for line in cluster.history)
            assert terms <= 2 + 2 * MAX_FALSE_ALARMS
            assert sum(cluster.broker(each).controller.is_active for each in cluster.registered()) == 1
            epoch = cluster.state(T0).leader_epoch
            await trio.sleep(seconds)
            assert cluster.state(T0).leader_epoch == epoch
            cluster.network.heal()
        await check_at_the_end(cluster, ledger, sorted([*others, 1, 2]))
