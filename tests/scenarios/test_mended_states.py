"""A partition state that nobody could understand while a broker with a loss started, and that is mended then."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.membership import reported_losses
from strandline.protocol.types import NO_BROKER
from strandline.protocol.znodes import CONTROLLER_PATH, PartitionStateZnode
from support.scenario import T0, check_at_the_end, cluster_with_topic, die, numbered


@pytest.mark.parametrize("first", ["the broker", "the controller"])
async def test_a_loss_is_said_once_the_state_can_be_understood(
    first: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two looks first."""
    monkeypatch.setattr(reported_losses, "UNSAID_INTERVAL_S", 1.0 if first == "the broker" else 1000.0)
    path = PartitionStateZnode.path(*T0)
    async with cluster_with_topic([1, 2, 3], brokers=4) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("m", 8))
        for broker_id, isr in ((3, [1, 2]), (2, [1])):
            die(cluster, broker_id)
            await cluster.until(lambda isr=isr: cluster.isr(T0) == isr, "it is out")
        cluster.lose_power(1)
        cluster.expire_session(1)
        await cluster.until(lambda: cluster.leader(T0) == NO_BROKER, "nobody leads")
        operator = cluster.zookeeper.client()
        await operator.start()
        good = (await operator.get(path)).data
        await operator.set(path, good[:-5], -1)
        await cluster.start_broker(1)
        await trio.sleep(3)
        await operator.set(path, good, -1)
        await trio.sleep(70)
        assert (cluster.leader(T0), cluster.state(T0).lossy) == (NO_BROKER, [1]), "broker 2 has everything"
        for broker_id in (2, 3):
            await cluster.start_broker(broker_id)
        await check_at_the_end(cluster, ledger)
        await operator.close()


@pytest.mark.parametrize("is_new", [False, True], ids=["", "another controller"])
async def test_a_loss_that_was_made_up_is_not_said_again(is_new: bool, autojump_clock: MockClock) -> None:
    """Each broker has had a loss since it was started last, and caught up, before the state cannot be understood."""
    path, none = PartitionStateZnode.path(*T0), {"unclean.recovery.strategy": "none"}
    async with cluster_with_topic([1, 2, 3], properties=none) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("m", 8))
        for broker_id in (1, 2, 3):
            cluster.lose_power(broker_id)
            cluster.expire_session(broker_id)
            await cluster.start_broker(broker_id)
            await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "it is back in sync")
        operator = cluster.zookeeper.client()
        await operator.start()
        good = (await operator.get(path)).data
        await operator.set(path, good[:-5], -1)
        if is_new:
            await operator.delete(CONTROLLER_PATH)
        await trio.sleep(3)
        await operator.set(path, good, -1)
        await trio.sleep(70)
        assert cluster.leader(T0) != NO_BROKER
        await check_at_the_end(cluster, ledger)
        await operator.close()
