"""A partition's state was deleted, or ZooKeeper is an old copy: its leader epochs begin anew below those of the logs.

Which of a log's records a leader has, epochs do not tell then. Who has later ones than the state takes no role, and
loses nothing of its log, until an operator has decided.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.znodes import PartitionStateZnode
from strandline.runtime.coordination import Delete, SetData
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger
from support.scenario import T0, check_at_the_end, cluster_with_topic, die, numbered

FOLDER = f"/data/{T0}"
BEHIND, AHEAD = 1, (2, 3)
LATE = 2
"""Late enough that a start of an old copy stays below; some more writes of a controller would come up to it."""
PATH = PartitionStateZnode.path(T0.topic, T0.partition)


def delete_state(cluster: MemoryCluster) -> None:
    cluster.zookeeper.tree.apply_one(Delete(PATH, -1), 0)


def set_state(cluster: MemoryCluster, **fields: object) -> None:
    """What an operator or a restored backup has there; all brokers are down."""
    state = msgspec.structs.replace(cluster.state(T0), **fields)
    cluster.zookeeper.tree.apply_one(SetData(PATH, state.encode(), -1), 0)


def lose_log(cluster: MemoryCluster) -> None:
    cluster.replace_disk(BEHIND)


def old_copy(leader: int) -> Callable[[MemoryCluster], None]:
    return lambda cluster: set_state(cluster, leader=leader, isr=[1, 2, 3], leader_epoch=0, elr=[], lossy=[])


def both(*acts: Callable[[MemoryCluster], None]) -> Callable[[MemoryCluster], None]:
    return lambda cluster: [act(cluster) for act in acts] and None


def records(cluster: MemoryCluster) -> dict[tuple[int, str], bytes]:
    """What the logs of those who are ahead consist of."""
    disks = {number: cluster.nodes[number].disk for number in AHEAD}
    return {
        (number, name): disk.read(f"{FOLDER}/{name}")
        for number, disk in disks.items()
        for name in disk.listdir(FOLDER)
        if name.endswith(".log")
    }


def refuses(cluster: MemoryCluster, broker_id: int, told_brokers: Sequence[int] = (1, 2, 3)) -> bool:
    """All these know why it takes no role, as far as they run."""
    words = f"{T0} has records of leader epoch "
    told = [cluster.broker(n).data.metadata.partition(*T0) for n in told_brokers if cluster.nodes[n].is_up]
    return all(
        state is not None and any(r.broker_id == broker_id and words in r.why for r in state.refused_replicas)
        for state in told
    )


async def stop_all(cluster: MemoryCluster) -> None:
    for number, node in cluster.nodes.items():
        if node.is_up:
            await cluster.stop(number)


async def start(cluster: MemoryCluster, brokers: Sequence[int]) -> None:
    for number in brokers:
        await cluster.start_broker(number)
        await trio.sleep(1)


@asynccontextmanager
async def two_ahead(late: int = LATE) -> AsyncIterator[tuple[MemoryCluster, Ledger]]:
    """All brokers are down. Brokers 2 and 3 have 20 acknowledged records, the last 10 of a later epoch; broker 1
    has the first 10."""
    async with cluster_with_topic() as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("all have it", 10))
        die(cluster, BEHIND)
        await cluster.until(lambda: cluster.isr(T0) == list(AHEAD), "it has left")
        await stop_all(cluster)
        set_state(cluster, leader_epoch=late)
        await start(cluster, AHEAD)
        await cluster.until(lambda: cluster.isr(T0) == list(AHEAD), "both are in sync")
        await ledger.produce(producer, T0, numbered("two have it", 10))
        await stop_all(cluster)
        assert len(ledger.acked[T0]) == 20
        yield cluster, ledger


def latest_epoch_of(cluster: MemoryCluster, broker_id: int) -> int:
    return cluster.broker(broker_id).log_manager.logs[T0].last_epoch


def latest_epoch(cluster: MemoryCluster) -> int:
    return max(latest_epoch_of(cluster, number) for number in AHEAD)


@pytest.mark.parametrize(
    ("what_happens", "order", "leader"),
    [
        pytest.param(both(delete_state, lose_log), (1, 2, 3), 1, id="made anew, the leader has nothing"),
        pytest.param(delete_state, (1, 2, 3), 1, id="made anew, the leader has less"),
        pytest.param(delete_state, (2, 1, 3), None, id="made anew, who is to lead is ahead"),
        pytest.param(old_copy(leader=1), (1, 2, 3), 1, id="an old copy, the leader has less"),
        pytest.param(old_copy(leader=2), (2, 3, 1), None, id="an old copy, who is to lead is ahead"),
        pytest.param(old_copy(leader=1), (3, 2, 1), None, id="an old copy, who led comes last"),
    ],
)
async def test_who_has_later_epochs_keeps_its_log_and_takes_no_role_until_an_epoch_is_late_enough(
    what_happens: Callable[[MemoryCluster], None],
    order: Sequence[int],
    leader: int | None,
    autojump_clock: MockClock,
) -> None:
    async with two_ahead() as (cluster, ledger):
        before = records(cluster)
        what_happens(cluster)
        await start(cluster, order)
        epoch = latest_epoch(cluster)
        for number in AHEAD:
            await cluster.until(lambda number=number: refuses(cluster, number), f"broker {number} says why")
        for again in (None, "stops", "is killed"):
            if again == "stops":
                await cluster.stop(2)
                await cluster.start_broker(2)
            elif again == "is killed":
                die(cluster, 3)
                await cluster.start_broker(3)
            await trio.sleep(60)
            assert cluster.state(T0).leader_epoch < epoch
            assert records(cluster) == before
            assert not any(cluster.hosts(number, T0) for number in AHEAD)
            assert all(refuses(cluster, number) for number in AHEAD)
            if leader is not None:
                assert cluster.leads(leader, T0) and cluster.isr(T0) == [leader]
        await stop_all(cluster)
        set_state(cluster, leader=2, isr=[2], leader_epoch=epoch, elr=[], lossy=[])
        await start(cluster, (1, 2, 3))
        await check_at_the_end(cluster, ledger)
        assert not any(refuses(cluster, number) for number in AHEAD)


async def test_an_operator_who_accepts_the_loss_has_decided(autojump_clock: MockClock) -> None:
    """Broker 2 is ahead of the old copy, broker 1 leads by it and dies, broker 3 has all that broker 1 had, and is
    controller."""
    async with two_ahead(LATE + 10) as (cluster, _):
        cluster.replace_disk(3)
        old_copy(leader=BEHIND)(cluster)
        await start(cluster, (3, 1, 2))
        await cluster.until(lambda: refuses(cluster, 2) and cluster.isr(T0) == [1, 3], "two of them are in sync")
        before = latest_epoch_of(cluster, 2)
        die(cluster, 1)
        await trio.sleep(30)
        assert not cluster.leads(3, T0)
        async with cluster.admin() as admin, trio.open_nursery() as nursery:
            nursery.start_soon(lambda: admin.recover(T0, accept_loss=True))
            await cluster.until(lambda: cluster.leads(3, T0), "the operator's word counts")
        assert refuses(cluster, 2)
        assert latest_epoch_of(cluster, 2) == before


async def test_who_runs_on_while_zookeeper_becomes_an_old_copy_keeps_its_log_and_says_why(
    autojump_clock: MockClock,
) -> None:
    """Brokers 2 and 3 have roles of later epochs than the state that is back, which says that broker 1 leads. What they
    know of it themselves stays as late as their roles are."""
    async with two_ahead(LATE + 6) as (cluster, _):
        await start(cluster, AHEAD)
        await cluster.until(lambda: cluster.isr(T0) == list(AHEAD), "both are in sync")
        before = records(cluster)
        old_copy(leader=BEHIND)(cluster)
        for number in AHEAD:
            cluster.expire_session(number)
        await start(cluster, [BEHIND])
        for number in (*AHEAD, *AHEAD, BEHIND):
            assert cluster.leads(BEHIND, T0)
            await cluster.until(lambda: all(refuses(cluster, ahead, [BEHIND]) for ahead in AHEAD), "they say why")
            await trio.sleep(30)
            cluster.expire_session(number)
            await trio.sleep(10)
            assert records(cluster) == before
        assert cluster.state(T0).leader_epoch < LATE + 6
