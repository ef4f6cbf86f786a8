"""L7: once all clients are closed nothing of them is left: a broker is as one that no client has ever come to.

| what | what a cluster without clients has |
|---|---|
| connections | those among brokers, and each has two ends |
| waiters | fetches of followers; none waits for longer than it was to |
| groups | no member, and nobody who was promised a place |
| tasks | of clients none; of a broker one of each kind, and so many as `_tasks_of` says of a few |
| descriptors | of each file that is there one at most |
| watches in ZooKeeper | of topics that are there; two at most of each znode, of a broker that is the controller, too |
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator

import trio
from trio.lowlevel import Task

from strandline.broker.metrics.of_replication import OfPurgatories
from strandline.protocol.znodes import TOPICS_PATH
from strandline.testkit.clock import common_time
from strandline.testkit.cluster import BrokerNode, MemoryCluster
from strandline.testkit.node_tasks import NODE

GONE_WITHIN_S = 30.0
"""Members that vanished are members until their session is over, and the others wait for them."""
CONNECTION = "connection "
"""The name of a task that serves one begins so; it says which."""
WRITER = "strandline.broker.network.connection.Connection.write_unsent"
"""Each of these has one."""
FETCHER = "strandline.broker.replication.follower.Followers._run_fetcher"
"""As many as are configured for each other broker."""
SENDER = "strandline.controller.orders.sender.BrokerSender.run"
"""Of the controller, for each broker; also for itself."""
PROCESS_WATCH = "strandline.controller.liveness.process_watch.ProcessWatch.run"
"""Of the controller, for each other broker."""
LATER = "strandline.controller.agenda.Agenda.later.<locals>.put"
"""Of the controller, which looks again and again at what waits for an operator: who is to lead, and what is to move."""
REASONS_TO_LOOK_AGAIN = 3
CHECKPOINTS = "strandline.broker.upkeep.housekeeping.Housekeeping._run_checkpoints"
KINDS_OF_CHECKPOINTS = 2
WATCHES_OF_A_ZNODE = 2
"""As a broker like all others, and as the controller."""
CLIENTS = ("strandline.client.", "strandline.testkit.simulation.workloads.")
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
    ends, tasks = Counter(cluster.network.ends()), _tasks()
    brokers = {node.name for node in cluster.nodes.values()}
    for (node, peer), count in ends.items():
        if not {node, peer} <= brokers:
            yield f"{count} connections of {node} with {peer}"
    for each in cluster.nodes.values():
        if each.is_up:
            own_ends = sum(count for (node, _), count in ends.items() if node == each.name)
            yield from _of_broker(each, own_ends)
            yield from _tasks_of(each, tasks, len(brokers))
            yield from _descriptors_of(each)
            yield from _watches_of(each, cluster.zookeeper.tree.children(TOPICS_PATH))
    yield from (f"a task of a client: {task.name}" for task in tasks if _is_clients(task))


def _tasks() -> list[Task]:
    """All that there are in this run of trio."""
    found = [root] if (root := trio.lowlevel.current_root_task()) is not None else []
    for task in found:  # which grows meanwhile
        found += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def _is_clients(task: Task) -> bool:
    return task.context.get(NODE) is None and task.name.startswith(CLIENTS)


def _tasks_of(node: BrokerNode, tasks: Iterable[Task], brokers: int) -> Iterator[str]:
    """More than there may be of one name. A connection has a task of its own name, and one that writes for it."""
    names = Counter(task.name for task in tasks if task.context.get(NODE) is node.tasks)
    broker, others = node.broker, brokers - 1
    assert broker is not None
    served = sum(broker.listeners.connections().values())
    serving = sum(name.startswith(CONNECTION) for name in names)
    if serving > served:
        yield f"{serving} tasks serve {served} connections in {node.name}"
    fetchers = others * broker.data.replicas.config.num_replica_fetchers
    several = {WRITER: served, FETCHER: fetchers, SENDER: brokers, PROCESS_WATCH: others}
    several |= {CHECKPOINTS: KINDS_OF_CHECKPOINTS, LATER: REASONS_TO_LOOK_AGAIN}
    for name, count in names.items():
        if count > several.get(name, 1):
            yield f"{count} tasks {name} in {node.name}"


def _descriptors_of(node: BrokerNode) -> Iterator[str]:
    for path, count in Counter(node.disk.open_files()).items():
        is_there = node.disk.exists(path)
        if count > is_there:
            yield f"{count} descriptors in {node.name} of {path}, which is {'there' if is_there else 'gone'}"


def _watches_of(node: BrokerNode, topics: Container[str]) -> Iterator[str]:
    link = node.coordination.client.link if node.coordination is not None else None
    for (_, path), watches in (link.watches if link is not None else {}).items():
        if len(watches) > WATCHES_OF_A_ZNODE:
            yield f"{len(watches)} watches of {path} by {node.name}"
        elif path.startswith(f"{TOPICS_PATH}/") and path.split("/")[3] not in topics:
            yield f"a watch of {path}, which is gone, by {node.name}"


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
