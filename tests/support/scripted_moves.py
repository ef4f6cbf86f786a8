"""Scripted brokers whose partitions move: followers that catch up, what is asked of the controller, what it writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import trio

from strandline.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import (
    IsrChangeNotificationZnode,
    PartitionStateZnode,
    ReassignPartitionsZnode,
    TopicZnode,
)
from strandline.runtime.coordination import SetData, TransactionFailed

TP = TopicPartition("t", 0)
ADMIN = ReassignPartitionsZnode


async def catch_up(cluster: Any, barred: set[int]) -> None:
    """What leaders do: whoever was told to follow and answers is in sync soon. `barred` are slow."""
    while True:
        await trio.sleep(0.05)
        for broker in list(cluster.brokers.values()):
            for tp, role in list(broker.roles.items()):
                if role.leader == broker.broker_id and broker.reachable:
                    await write_isr(cluster, tp, role, barred)


async def write_isr(cluster: Any, tp: TopicPartition, role: Any, barred: set[int]) -> None:
    path = PartitionStateZnode.path(*tp)
    [znode] = await cluster.admin.get_many([path])
    if znode is None:
        return
    state = PartitionStateZnode.decode(path, znode.data)
    if (state.leader, state.leader_epoch) != (role.leader, role.leader_epoch):
        return
    others = {n: broker for n, broker in cluster.brokers.items() if broker.reachable and n not in barred}
    roles = {n: broker.roles.get(tp) for n, broker in others.items()}
    caught_up = [n for n, their in roles.items() if their is not None and their.leader_epoch == role.leader_epoch]
    if (isr := [n for n in role.replicas if n in state.isr or n in caught_up]) == state.isr:
        return
    try:
        changed = msgspec.structs.replace(state, isr=isr, elr=[])
        await cluster.admin.multi([SetData(path, changed.encode(), znode.stat.version)])
    except TransactionFailed:
        return
    note = IsrChangeNotificationZnode([tp])
    await cluster.admin.create(note.SEQUENCE_PATH, note.encode(), sequence=True)


@asynccontextmanager
async def catching_up(cluster: Any, *barred: int) -> AsyncIterator[set[int]]:
    slow = set(barred)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(catch_up, cluster, slow)
        yield slow
        nursery.cancel_scope.cancel()


class Recorded:
    """A session that notes what the controller writes of topics and states, and may end after the n-th of these."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.writes: list[tuple[str, bytes]] = []
        self.ends_after: int | None = None
        self.end: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def multi_many(self, transactions: Any) -> Any:
        outcomes = await self._inner.multi_many(transactions)
        for operations, outcome in zip(transactions, outcomes, strict=True):
            if isinstance(outcome, list):
                paths = [op for op in operations if hasattr(op, "path") and "/admin/" not in op.path]
                ours = [op for op in paths if isinstance(op, SetData) and op.path.startswith("/brokers/topics/")]
                self.writes += [(op.path, op.data or b"") for op in ours]
                asked = [op for op in operations if getattr(op, "path", "") == ADMIN.PATH]
                self.writes += [(ADMIN.PATH, b"")] * len(asked)
        if self.ends_after is not None and len(self.writes) >= self.ends_after:
            self.end()
            await trio.lowlevel.checkpoint()
        return outcomes


async def alter(controller: Any, targets: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, int]:
    topics: dict[str, list[ReassignablePartition]] = {}
    for tp, target in targets.items():
        partition = ReassignablePartition(tp.partition, None if target is None else list(target))
        topics.setdefault(tp.topic, []).append(partition)
    request = AlterPartitionReassignmentsRequest([ReassignableTopic(name, some) for name, some in topics.items()])
    response = await controller.ask(request)
    assert response.error_code == 0
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in response.responses
        for each in topic.partitions
    }


async def topic_znode(cluster: Any, name: str = "t") -> TopicZnode:
    path = TopicZnode.path(name)
    return TopicZnode.decode(path, (await cluster.admin.get(path)).data)


async def is_moved(cluster: Any, target: Sequence[int], tp: TopicPartition = TP) -> bool:
    znode = await topic_znode(cluster, tp.topic)
    return znode.partitions[tp.partition] == list(target) and not (znode.adding_replicas or znode.removing_replicas)


async def check_moved(cluster: Any, target: Sequence[int], tp: TopicPartition = TP) -> None:
    """Exactly the target holds the partition, in ZooKeeper and on the brokers' disks, and everybody knows."""
    await cluster.until_async(partial(is_moved, cluster, target, tp))
    await cluster.come_to_rest()
    state = await cluster.state(*tp)
    assert sorted(state.isr) == sorted(target)
    assert state.leader in target
    assert sorted(n for n, broker in cluster.brokers.items() if tp in broker.logs) == sorted(target)
    for n, broker in cluster.brokers.items():
        if broker.reachable:
            assert broker.metadata[tp].replicas == list(target), f"broker {n}"
            assert broker.metadata[tp].leader == state.leader
    leader = cluster.brokers[state.leader].roles[tp]
    assert (leader.leader_epoch, sorted(leader.replicas)) == (state.leader_epoch, sorted(target))
    assert not leader.adding_replicas
    assert not leader.removing_replicas


async def ask_as_tools_do(cluster: Any, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    data = ADMIN({tp: list(target) for tp, target in targets.items()}).encode()
    await cluster.admin.create(ADMIN.PATH, data)


async def is_gone(cluster: Any, path: str) -> bool:
    return await cluster.admin.exists(path) is None
