"""Partitions that move, as changes for the scenario of stopped controllers: what is asked for, by whom, what comes in
between, and where they are in the end. The topic that is written to moves with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import DeleteTopicZnode, ReassignPartitionsZnode, TopicZnode
from strandline.runtime.coordination import NoNode
from strandline.testkit.cluster import MemoryCluster
from support.cluster_audit import Layout, partitions_of
from support.controller_changes import T0, Change, Stage
from support.scenario import die

BEFORE: Layout = {T0.topic: [[1, 2, 3]], "a": [[2, 3, 1], [3, 1, 2], [1, 2, 3]]}
LEADERS_GO: Layout = {T0.topic: [[4, 2, 3]], "a": [[4, 3, 1], [1, 2, 4], [3, 2, 4]]}
LEADERS_STAY: Layout = {T0.topic: [[1, 2, 4]], "a": [[2, 4, 1], [3, 1, 4], [1, 4, 2]]}
AWAY_S = 3.0

Targets = Mapping[TopicPartition, Sequence[int] | None]


# --- What is asked for ---------------------------------------------------------------------------------------------


async def ask(stage: Stage, targets: Targets) -> None:
    """By request, until everything is written down. What is to be cancelled may be over already."""

    async def heard(admin: object) -> bool:
        results = await stage.admin.alter_partition_reassignments(targets, timeout_ms=5_000)
        codes = {tp: ErrorCode.NONE if error is None else getattr(error, "code", None) for tp, error in results.items()}
        over = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        return all(code == ErrorCode.NONE or (targets[tp] is None and code == over) for tp, code in codes.items())

    await stage.insist(heard)


async def arrive(stage: Stage, layout: Layout) -> None:
    await stage.until(lambda: all(is_there(stage.cluster, tp, to) for tp, to in partitions_of(layout).items()))


def is_there(cluster: MemoryCluster, tp: TopicPartition, target: Sequence[int]) -> bool:
    path = TopicZnode.path(tp.topic)
    try:
        znode = TopicZnode.decode(tp.topic, cluster.zookeeper.tree.get(path).data)
    except NoNode:
        return False
    moving = {**znode.adding_replicas, **znode.removing_replicas}
    return tp.partition not in moving and znode.partitions[tp.partition] == list(target)


def cut_off(cluster: MemoryCluster, broker_id: int) -> None:
    """Nothing is copied to this broker; ZooKeeper and clients reach it."""
    for other in cluster.nodes:
        if other != broker_id:
            cluster.cut_both(broker_id, other)


# --- One after the other -------------------------------------------------------------------------------------------


async def move_leaders(stage: Stage) -> None:
    await ask(stage, partitions_of(LEADERS_GO))


async def move_followers(stage: Stage) -> None:
    await ask(stage, partitions_of(LEADERS_STAY))


async def move_by_znode(stage: Stage) -> None:
    client = stage.cluster.zookeeper.client()
    await client.start()
    path = ReassignPartitionsZnode.PATH
    targets = {tp: list(to) for tp, to in partitions_of(LEADERS_GO).items()}
    await client.create(path, ReassignPartitionsZnode(targets).encode())
    await stage.until(lambda: stage.cluster.zookeeper.tree.exists(path) is None)


HALF_WAY: Layout = {T0.topic: [[5, 2, 3]], "a": [[4, 3, 1], [3, 1, 4], [1, 5, 2]]}
"""To broker 4 at once, to broker 5 once that can copy."""
CANCELLED: Layout = {T0.topic: [[2, 3, 1]], "a": [[4, 3, 1], [3, 1, 4], [1, 2, 3]]}
"""Who held it, in the order in which they stand in the topic's znode once the target is named first (KIP-455)."""
OVERRIDDEN: Layout = {T0.topic: [[4, 3, 2]], "a": [[2, 3, 1], [3, 1, 4], [4, 1, 2]]}


async def half_way(stage: Stage) -> None:
    """Some partitions have arrived, others wait."""
    cut_off(stage.cluster, 5)
    targets = partitions_of(HALF_WAY)
    await ask(stage, targets)
    arrived = [tp for tp, to in targets.items() if 5 not in to]
    await stage.until(lambda: all(is_there(stage.cluster, tp, targets[tp]) for tp in arrived))
    waiting = [tp for tp in targets if tp not in arrived]
    before = partitions_of(BEFORE)
    assert not any(is_there(stage.cluster, tp, to) for tp in waiting for to in (targets[tp], before[tp]))


async def cancel(stage: Stage) -> None:
    await ask(stage, dict.fromkeys(partitions_of(BEFORE)))
    stage.cluster.network.heal()


async def override(stage: Stage) -> None:
    await ask(stage, partitions_of(OVERRIDDEN))
    stage.cluster.network.heal()


FEWER: Layout = {T0.topic: [[2, 3]], "a": [[2, 1], [3, 1], [2, 3]]}


async def fewer_and_more(stage: Stage) -> None:
    await ask(stage, partitions_of(FEWER))
    await arrive(stage, FEWER)
    await ask(stage, partitions_of(LEADERS_GO))


async def more(stage: Stage) -> None:
    await ask(stage, partitions_of(BEFORE))


async def target_dies(stage: Stage) -> None:
    """Before anything is copied to it."""
    cut_off(stage.cluster, 4)
    await ask(stage, partitions_of(LEADERS_GO))
    die(stage.cluster, 4)
    stage.cluster.network.heal()
    await trio.sleep(AWAY_S)
    await stage.cluster.start_broker(4)


async def move_and_delete(stage: Stage) -> None:
    """While it waits."""
    cut_off(stage.cluster, 4)
    await ask(stage, partitions_of(LEADERS_GO))
    tree = stage.cluster.zookeeper.tree

    async def heard(admin: object) -> bool:
        await stage.admin.delete_topics(["a"], timeout_ms=3_000)
        return tree.exists(TopicZnode.path("a")) is None or tree.exists(DeleteTopicZnode.path("a")) is not None

    await stage.insist(heard)
    stage.cluster.network.heal()


WITHOUT_3: Layout = {T0.topic: [[1, 2, 4]], "a": [[2, 4, 1], [4, 1, 2], [1, 2, 4]]}


async def who_goes_is_away(stage: Stage) -> None:
    die(stage.cluster, 3)
    await ask(stage, partitions_of(WITHOUT_3))
    await arrive(stage, WITHOUT_3)
    await trio.sleep(AWAY_S)
    await stage.cluster.start_broker(3)


LONE: Layout = {T0.topic: [[1, 2, 3]], "a": [[3], [3], [3]]}
ALONE = [tp for tp in partitions_of(LONE) if tp.topic == "a"]


async def lose_the_only_replica(stage: Stage) -> None:
    """Before anything of it is copied."""
    cut_off(stage.cluster, 4)
    await ask(stage, {tp: [4] for tp in ALONE})
    die(stage.cluster, 3)
    await stage.until(lambda: all(stage.cluster.leader(tp) == NO_BROKER for tp in ALONE))


async def cancel_without_a_leader(stage: Stage) -> None:
    await ask(stage, dict.fromkeys(ALONE))
    await arrive(stage, LONE)
    stage.cluster.network.heal()
    await stage.cluster.start_broker(3)


MOVES = [
    Change("move, leaders go", move_leaders, before=BEFORE, after=LEADERS_GO, brokers=4),
    Change("move, leaders stay", move_followers, before=BEFORE, after=LEADERS_STAY, brokers=4),
    Change("move by znode", move_by_znode, before=BEFORE, after=LEADERS_GO, brokers=4),
    Change("cancel half way", cancel, before=BEFORE, after=CANCELLED, prepare=half_way, brokers=5),
    Change("override half way", override, before=BEFORE, after=OVERRIDDEN, prepare=half_way, brokers=5),
    Change("fewer replicas, then more", fewer_and_more, before=BEFORE, after=LEADERS_GO, brokers=4),
    Change("one replica, then three", more, before={T0.topic: [[1]], "a": [[2], [3], [1]]}, after=BEFORE),
    Change(
        "cancel without a leader",
        cancel_without_a_leader,
        before=LONE,
        after=LONE,
        prepare=lose_the_only_replica,
        brokers=4,
    ),
    Change("move, the target dies", target_dies, before=BEFORE, after=LEADERS_GO, brokers=4),
    Change("move and delete", move_and_delete, before=BEFORE, after={T0.topic: [[4, 2, 3]]}, brokers=4),
    Change("move, who goes is away", who_goes_is_away, before=BEFORE, after=WITHOUT_3, brokers=4),
]
