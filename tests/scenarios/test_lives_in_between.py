"""A life of a broker or a term of a controller begins or ends between two steps of somebody else."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.membership import loss_reports, registration
from strandline.controller.controller_context import PartitionChange
from strandline.controller.store import WriteResult
from strandline.protocol.types import NO_BROKER
from strandline.protocol.znodes import CONTROLLER_EPOCH_PATH, IsrChangeNotificationZnode
from strandline.runtime.coordination import Coordination
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger, read_all
from support.scenario import BOTH_WAYS, T0, cluster_with_topic, crash_after_a_loss, die, numbered


@BOTH_WAYS
async def test_a_leader_hears_of_the_epoch_that_a_lossy_broker_wrote_before_it_registered(
    properties: Mapping[str, str], autojump_clock: MockClock
) -> None:
    """In between the controller reads the state for another reason, and finds the new epoch in it already; unless it
    was missed before that, and has left the in-sync set for that reason."""
    async with cluster_with_topic([1, 2, 3], properties=properties) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        operator = cluster.zookeeper.client()
        await operator.start()
        cluster.nodes[2].disk_delay_s = 0.5  # it takes long between the two
        crash_after_a_loss(cluster, 2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start_broker, 2)
            await cluster.until(lambda: cluster.isr(T0) == [1, 3], "broker 2 has renounced")
            changed = IsrChangeNotificationZnode((T0,)).encode()
            await operator.create(IsrChangeNotificationZnode.SEQUENCE_PATH, changed, sequence=True)
        cluster.nodes[2].disk_delay_s = 0.0
        with trio.move_on_after(120):
            await ledger.produce(producer, T0, numbered("after", 4))
        assert len(ledger.acked[T0]) == 8, f"{cluster.state(T0)} {cluster.partition(1, T0).leadership}"
        await operator.close()


@pytest.mark.parametrize("end", ["the new controller dies", "the answer to its election is lost"])
async def test_eligible_replicas_are_known_after_a_fail_over_that_was_cut_short(
    end: str, autojump_clock: MockClock
) -> None:
    async with cluster_with_topic([3, 1, 2], brokers=4) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 4))
        die(cluster, 1, 2)
        await cluster.until(lambda: sorted(cluster.state(T0).elr) == [1, 2], "eligible")
        await cluster.until(lambda: cluster.controller_id in (3, 4), "a controller")
        await trio.sleep(1)
        die(cluster, 3)  # for good
        await cluster.until(lambda: cluster.controller_id == 4 and cluster.leader(T0) == NO_BROKER, "4 is controller")
        await trio.sleep(1)
        die(cluster, 4)

        def elections() -> int:
            return cluster.zookeeper.tree.get(CONTROLLER_EPOCH_PATH).stat.version

        before = elections()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.start_broker, 4)
            while elections() == before:
                await trio.sleep(0.0005)
            if end == "the new controller dies":
                await cluster.until(lambda: cluster.nodes[4].is_up, "it runs")
                die(cluster, 4)
                await cluster.start_broker(4)
            else:
                cluster.cut_from_zookeeper(4)
                await trio.sleep(0.2)
                cluster.heal_zookeeper(4)
        await cluster.until(lambda: cluster.controller_id == 4, "4 is controller")
        await cluster.start_broker(1)
        await cluster.start_broker(2)
        await cluster.until(lambda: cluster.leader(T0) in (1, 2), "a whole copy leads", within_s=60)


@contextlib.asynccontextmanager
async def all_lost_power(*whole: int) -> AsyncIterator[tuple[MemoryCluster, Ledger]]:
    """A partition of brokers 1, 2 and 3, of which some kept all of it; broker 4 is controller, nobody else runs."""
    async with cluster_with_topic([1, 2, 3], brokers=4) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("m", 20))
        for broker in whole:
            cluster.nodes[broker].disk.sync_everything()
        for broker in (1, 2, 3):
            cluster.lose_power(broker)
        for broker in (1, 2, 3):
            cluster.expire_session(broker)
        await cluster.until(lambda: cluster.controller_id == 4 and cluster.leader(T0) == NO_BROKER, "4 is controller")
        yield cluster, ledger
        await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "all are back", within_s=60)
        async with cluster.consumer() as consumer:
            ledger.assert_kept(T0, await read_all(consumer, T0))


async def test_a_recovery_does_not_believe_what_an_earlier_life_said(autojump_clock: MockClock) -> None:
    """Brokers 1 and 2 are whole. While broker 3 is waited for, the disk of broker 1, which has answered, is
    replaced."""
    async with all_lost_power(1, 2) as (cluster, _):
        cluster.cut_both(4, 3)
        for broker in (2, 3, 1):
            await cluster.start_broker(broker)
        await trio.sleep(3)
        assert cluster.leader(T0) == NO_BROKER, "broker 3 has not answered"
        die(cluster, 1)
        cluster.replace_disk(1)
        await cluster.start_broker(1)
        await trio.sleep(1)
        cluster.heal(4, 3)


@pytest.mark.parametrize("is_noticed", [False, True], ids=["the old session lingers", "the old session is over"])
@pytest.mark.parametrize("until", ["its claims are read", "it is registered"])
async def test_a_recovery_is_not_written_for_a_life_that_ended_since_it_was_asked_for(
    until: str, is_noticed: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the controller's last look and its write who is about to lead comes back with an empty disk. It is
    credited with nothing, so it writes nothing into the state."""
    async with all_lost_power(1, 2) as (cluster, _), trio.open_nursery() as nursery:
        term = cluster.broker(4).controller.term
        assert term is not None
        write, elected, started = term.store.write_states, list[int](), trio.Event()
        renounce = loss_reports.renounce_claims

        async def and_hold(
            coordination: Coordination, broker_id: int, paths: Sequence[str], log: Any
        ) -> dict[str, str]:
            unreadable = await renounce(coordination, broker_id, paths, log)
            if elected and until == "its claims are read":
                started.set()
                await trio.sleep(0.5)
            return unreadable

        async def start_again(broker: int) -> None:
            await cluster.start_broker(broker)
            started.set()

        async def after_another_life(changes: Sequence[PartitionChange]) -> WriteResult:
            unclean = [change.after.leader for change in changes if change.unclean]
            if unclean and not elected:
                elected.extend(unclean)
                cluster.crash(*unclean)
                if is_noticed:
                    cluster.expire_session(*unclean)
                cluster.replace_disk(*unclean)
                nursery.start_soon(start_again, *unclean)
                await started.wait()
            return await write(changes)

        monkeypatch.setattr(registration, "renounce_claims", and_hold)
        monkeypatch.setattr(term.store, "write_states", after_another_life)
        for broker in (3, 2, 1):
            await cluster.start_broker(broker)
        await cluster.until(lambda: bool(elected) and cluster.leader(T0) != NO_BROKER, "somebody leads", within_s=60)
        assert {cluster.leader(T0), *elected} == {1, 2}, "the other whole one leads"
