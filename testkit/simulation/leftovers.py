"""L7: once all clients are closed nothing of them is left: a broker is as one that no client has ever come to.

| what | what a cluster without clients has |
|---|---|
| connections | those among brokers, and each has two ends |
| waiters | fetches of followers; none waits for longer than it was to |
| groups | no member, and nobody who was promised a place |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import trio

from strandline.broker.metrics.of_replication import OfPurgatories
from strandline.testkit.clock import common_time
from strandline.testkit.cluster import BrokerNode, MemoryCluster

GONE_WITHIN_S = 30.0
"""Members that vanished are members until their session is over, and the others wait for them."""
LATE_S = 1.0
LOOK_INTERVAL_S = 0.5


async def leftovers(cluster: MemoryCluster) -> list[str]:
    """What is still there so long after the last client was closed."""
    deadline_s = common_time() + GONE_WITHIN_S
    while True:
        found = list(_leftovers(cluster))
        if not found or common_time() > deadline_s:
            return [f"{each}, {GONE_WITHIN_S:g} s after the last client was closed" for each in found]
        await trio.sleep(LOOK_INTERVAL_S)


def _leftovers(cluster: MemoryCluster) -> Iterator[str]:
    ends = Counter(cluster.network.ends())
    brokers = {node.name for node in cluster.nodes.values()}
    for (node, peer), count in ends.items():
        if not {node, peer} <= brokers:
            yield f"{count} connections of {node} with {peer}"
    for each in cluster.nodes.values():
        if each.is_up:
            yield from _of_broker(each, sum(count for (node, _), count in ends.items() if node == each.name))


def _of_broker(node: BrokerNode, ends: int) -> Iterator[str]:
    broker = node.broker
    assert broker is not None
    if sum(broker.listeners.connections().values()) > ends:
        yield f"{node.name} serves connections that are closed"
    data = broker.data
    led = [each.leadership for each in data.replicas.partitions.values() if each.leadership is not None]
    # Members are told with their group.
    allowed = {"Fetch": sum(len(each.isr) - 1 for each in led), "Heartbeat": math.inf, "Rebalance": math.inf}
    for family in OfPurgatories(data.deadlines, data.replicas)():
        for sample in family.samples:
            kind = sample.labels["delayedOperation"]
            if sample.value > allowed.get(kind, 0):
                yield f"{sample.value:g} waiters ({kind}) in {node.name}"
    now_s = node.tasks.offset_s + node.tasks.rate * common_time()
    late = [each for each in data.deadlines.waiting() if each.due_at + LATE_S < now_s]
    if late:
        yield f"{len(late)} waiters in {node.name} whose time is over"
    for group in broker.groups.groups():
        if not group.is_over:
            yield f"group {group.group_id} is {group.state.value} in {node.name}, with {len(group.members)} members"
