"""Who was in sync while the ISR fell below the minimum is not forgotten, nor is it that a replica lost something.

Two tables of trials (`tests/support/trial.py`) on whole brokers. After each move everything is looked at: whoever leads
has every acknowledged record that some disk still has, and no broker cuts the last copy of one. In the end all are
back: the partition is led and its replicas are whole, under `unclean.recovery.strategy=none`, too, where an in-sync or
eligible replica is.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import trio

from strandline.testkit.cluster import MemoryCluster
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered
from support.trial import parse_moves, trial

LOSSES = {
    "nothing that was not synced": "power 3",
    "torn tail": "tear 3",
    "empty folder": "kill 3, wipe 3",
    "old backup": "kill 3, restore 3",
}
BACKUP = "stop 3, save 3, return 3, stop 1, return 1,"
"""A backup of an earlier life of broker 3, which leads again after that."""
REMOVALS = {
    "by the controller": ("kill 1, kill 2", True),
    "by the leader": ("kill 1, kill 2", False),
    "by controlled shutdowns": ("stop 1, stop 2", True),
    "by a shutdown, then by the leader": ("stop 2, kill 1", False),
}
RETURNS = {
    "the lossy one first": "return 3, return 1, return 2",
    "the lossy one second": "return 2, return 3, return 1",
    "the lossy one last": "return 1, return 2, return 3",
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("removal", REMOVALS)
async def test_who_left_below_the_minimum_is_waited_for(removal: str, loss: str, autojump_clock) -> None:
    """One of the two that left is eligible: it leads whatever the strategy, and nothing is lost."""
    moves, is_patient = REMOVALS[removal]
    returns = RETURNS.values() if removal == "by the controller" else [RETURNS["the lossy one first"]]
    for order, strategy in zip(returns, ("none", "balanced", "none"), strict=False):
        async with trial([3, 1, 2], minimum=2, strategy=strategy, is_patient=is_patient) as played:
            for move in parse_moves(f"{BACKUP if 'restore' in LOSSES[loss] else ''} {moves}, {LOSSES[loss]}, {order}"):
                await played.play(move)
            await played.end()
            assert not played.gone


class Case(NamedTuple):
    """`minimum`: min.insync.replicas of three replicas. `is_patient`: sessions of who died end at once. `may_wait`:
    where the strategy is `none`, the partition may stay offline in the end."""

    name: str
    moves: str
    minimum: int = 2
    is_patient: bool = True
    may_wait: bool = False


CASES = [
    Case(
        "a shutdown leaves no ISR of a dead broker",
        "stop 3, kill 1, return 3, stop 2, return 2, power 3, stop 2, return 1, return 3, return 2",
        is_patient=False,
    ),
    Case(
        "the leader lost power, its session lives, and the last whole one is stopped",
        "kill 1, expire 1, power 3, stop 2, return 1, return 3, return 2",
        is_patient=False,
    ),
    Case(
        "the same, and the lossy one is back first",
        "kill 1, expire 1, power 3, stop 2, return 3, return 1, return 2",
        is_patient=False,
    ),
    Case("held back, stopped in order, started again", "kill 1, kill 2, power 3, return 3, stop 3, return 3"),
    Case("the same with an empty folder", "kill 1, kill 2, kill 3, wipe 3, return 3, stop 3, return 3"),
    Case("held back, killed, started again", "kill 1, kill 2, power 3, return 3, kill 3, return 3"),
    Case("held back, powerless again", "kill 1, kill 2, tear 3, return 3, power 3, return 3"),
    Case("held back, its session ends", "kill 1, kill 2, power 3, return 3, expire 3"),
    Case("the same with an empty folder, twice", "kill 1, kill 2, kill 3, wipe 3, return 3, expire 3, expire 3"),
    Case("held back, another controller", "kill 1, kill 2, power 3, return 3, depose 3, expire 3, depose 3"),
    Case(
        "held back with another one that lost nothing", "kill 1, kill 2, power 3, return 3, return 1, stop 3, return 3"
    ),
    Case(
        "two losses, the third is whole",
        "kill 1, kill 2, power 3, power 2, return 3, return 2, stop 3, return 3",
        may_wait=True,
    ),
    Case(
        "two losses, returning in order",
        "stop 1, kill 2, power 3, wipe 2, return 2, return 3, stop 2, stop 3",
        may_wait=True,
    ),
    Case(
        "an old backup of the last one", "stop 3, save 3, return 3, kill 1, kill 2, kill 3, restore 3, return 3, stop 3"
    ),
    Case(
        "an old backup of a member among others",
        "stop 3, save 3, return 3, stop 3, restore 3, stop 1, return 3, stop 2",
    ),
    Case(
        "znodes as Kafka writes them",
        "kill 1, kill 2, power 3, forget 3, return 3, stop 3, return 3",
        may_wait=True,
    ),
    Case(
        "the minimum is one: nobody is eligible",
        "kill 1, kill 2, power 3, return 3, stop 3, return 3",
        1,
        may_wait=True,
    ),
    Case("the minimum is one, its session ends", "kill 1, kill 2, power 3, return 3, expire 3", 1, may_wait=True),
    Case(
        "the minimum is one, a shutdown and a dead leader",
        "kill 1, expire 1, power 3, stop 2, return 3, return 1, return 2",
        1,
        is_patient=False,
        may_wait=True,
    ),
]


@pytest.mark.parametrize("is_anew", [False, True], ids=["", "topic made anew"])
@pytest.mark.parametrize("age_s", [0, 70])
async def test_a_log_whose_folder_is_gone_after_a_kill_is_a_loss(age_s: int, is_anew: bool, autojump_clock) -> None:
    """A young one, too, whatever the interval of the checkpoints that name it; and one beside which the folder of a
    deleted one waits for its removal."""
    properties = {"replica.high.watermark.checkpoint.interval.ms": "60000", "log.segment.delete.delay.ms": "600000"}
    async with cluster_with_topic([3, 1, 2], properties=properties) as (cluster, producer, ledger):
        if is_anew:
            async with cluster.admin() as admin:
                await admin.delete_topic(T0.topic)
                await admin.create_topic(T0.topic, assignments={0: [3, 1, 2]})
            await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3] and cluster.leads(3, T0), "it is made anew")
            await trio.sleep(1)  # where logs come and go, the next checkpoint takes half a second
        await ledger.produce(producer, T0, numbered("m", 10))
        assert len(ledger.acked[T0]) == 10
        await trio.sleep(age_s)
        await leave_alone(cluster, 3)
        cluster.crash(3)
        cluster.expire_session(3)
        disk = cluster.nodes[3].disk
        for path in [path for path in disk.content() if path.startswith("/data/t-0/")]:
            disk.unlink(path)
        disk.rmdir("/data/t-0")
        for broker_id in (3, 1, 2):
            await cluster.start_broker(broker_id)
            await trio.sleep(3)
        await check_at_the_end(cluster, ledger)


@pytest.mark.parametrize("is_orderly", [True, False])
async def test_a_directory_that_left_the_list_is_a_loss(is_orderly: bool, autojump_clock) -> None:
    async with cluster_with_topic([3, 1, 2], properties={"log.dirs": "/data,/more"}) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("m", 10))
        await leave_alone(cluster, 3)
        holds = cluster.partition(3, T0).log.segments.folder.rpartition("/")[0]
        if is_orderly:
            await cluster.stop(3)
        else:
            cluster.crash(3)
            cluster.expire_session(3)
        cluster._config["log.dirs"] = "/more" if holds == "/data" else "/data"
        await cluster.start_broker(3)
        await trio.sleep(5)
        cluster._config["log.dirs"] = "/data,/more"
        for broker_id in (1, 2):
            await cluster.start_broker(broker_id)
        await check_at_the_end(cluster, ledger)


async def leave_alone(cluster: MemoryCluster, leader: int) -> None:
    """The others die, so that this one is alone in the ISR."""
    others = [broker_id for broker_id in cluster.nodes if broker_id != leader]
    for broker_id in others:
        cluster.crash(broker_id)
    for broker_id in others:
        cluster.expire_session(broker_id)
    await cluster.until(lambda: cluster.isr(T0) == [leader], "it is alone")


@pytest.mark.parametrize("strategy", ["balanced", "none"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_a_loss_is_remembered_until_it_is_made_up(case: Case, strategy: str, autojump_clock) -> None:
    async with trial([3, 1, 2], minimum=case.minimum, strategy=strategy, is_patient=case.is_patient) as played:
        for move in parse_moves(case.moves):
            await played.play(move)
        await played.end(may_stay_offline=case.may_wait and strategy == "none")
        assert played.cluster.leader(T0) > 0 or case.may_wait
