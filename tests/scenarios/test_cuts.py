"""Brokers that cannot reach each other for a while: when the network is whole again, acks=all flows at once.

TCP waits ever longer between its attempts, up to half a minute; nobody here waits for it."""

from __future__ import annotations

import pytest
import trio

from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

AFTER_THE_HEAL_S = 2.0


TWO_OF_TWO = [(1, 2)]
CONTROLLER_APART = [(1, 2), (1, 3)]
ALL_APART = [(1, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize("cut_s", [1.7, 4.5, 29.0, 47.0])
@pytest.mark.parametrize(
    ("pairs", "replicas", "lag_time_max_s"),
    [
        (TWO_OF_TWO, [1, 2], 30),
        (CONTROLLER_APART, [2, 1, 3], 4),
        (ALL_APART, [1, 2, 3], 4),
        (ALL_APART, [1, 2, 3], 30),
    ],
    ids=["two of two", "controller apart", "all apart", "all apart, but in the ISR"],
)
async def test_acks_flow_at_once_when_a_cut_between_brokers_is_healed(
    pairs: list[tuple[int, int]], replicas: list[int], lag_time_max_s: int, cut_s: float, autojump_clock
) -> None:
    lag = {"replica.lag.time.max.ms": str(lag_time_max_s * 1000)}
    async with (
        cluster_with_topic(replicas, properties=lag, min_insync_replicas=len(replicas)) as (cluster, _, ledger),
        cluster.producer(linger_ms=0) as producer,
        trio.open_nursery() as nursery,
    ):
        await ledger.produce(producer, T0, numbered("before", 3))
        for one, other in pairs:
            cluster.cut_both(one, other)
        nursery.start_soon(ledger.produce, producer, T0, numbered("during", 3))
        await trio.sleep(cut_s)
        cluster.network.heal()
        with trio.move_on_after(AFTER_THE_HEAL_S) as in_time:
            await ledger.produce(producer, T0, numbered("after", 3))
        assert not in_time.cancelled_caught, "acks stay away"
        await check_at_the_end(cluster, ledger, replicas)
        assert not ledger.unknown
