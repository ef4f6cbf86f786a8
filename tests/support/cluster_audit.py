"""Whether an in-memory cluster is as it should be once everything has come to rest: ZooKeeper, disks, roles and what
every broker believes agree, and nothing is left over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from strandline.protocol import znodes
from strandline.protocol.types import TopicPartition
from strandline.runtime.coordination import NoNode
from strandline.testkit.agreement import disagreements
from strandline.testkit.cluster import LOG_DIR, MemoryCluster

TOPIC_CONFIGS_PATH = f"{znodes.CONFIG_PATH}/topics"

Layout = Mapping[str, Sequence[Sequence[int]]]
"""Topic → the replicas of each of its partitions, preferred first."""


def partitions_of(layout: Layout) -> dict[TopicPartition, Sequence[int]]:
    return {TopicPartition(name, p): replicas for name, all_ in layout.items() for p, replicas in enumerate(all_)}


def problems(cluster: MemoryCluster, layout: Layout) -> list[str]:
    """What is wrong; nothing when all brokers live, every replica of exactly this layout is in sync, and everybody
    knows so."""
    if any(not node.is_up for node in cluster.nodes.values()) or cluster.registered() != list(cluster.nodes):
        return ["a broker is away"]
    try:
        return [*_in_zookeeper(cluster, layout), *_on_brokers(cluster, layout)]
    except (NoNode, KeyError) as error:
        return [f"{type(error).__name__}: {error}"]


def _in_zookeeper(cluster: MemoryCluster, layout: Layout) -> Iterator[str]:
    tree = cluster.zookeeper.tree
    for folder in (znodes.DELETE_TOPICS_PATH, *_NOTIFICATIONS):
        if left := tree.children(folder):
            yield f"{folder} has {left}"
    for path in (znodes.ReassignPartitionsZnode.PATH, znodes.PreferredReplicaElectionZnode.PATH):
        if tree.exists(path) is not None:
            yield f"{path} is there"
    if set(tree.children(znodes.TOPICS_PATH)) != set(layout):
        yield f"topics are {tree.children(znodes.TOPICS_PATH)}"
    if not set(tree.children(TOPIC_CONFIGS_PATH)) <= set(layout):
        yield f"topics with a configuration are {tree.children(TOPIC_CONFIGS_PATH)}"
    for name, replicas in layout.items():
        path = znodes.TopicZnode.path(name)
        topic = znodes.TopicZnode.decode(name, tree.get(path).data)
        if topic.partitions != {p: list(each) for p, each in enumerate(replicas)}:
            yield f"{name} has {topic.partitions}"
        if topic.adding_replicas or topic.removing_replicas:
            yield f"{name} is being moved: adding {topic.adding_replicas}, removing {topic.removing_replicas}"
        if len(tree.children(path)) != 2:
            yield f"{path} has {tree.children(path)}"  # the partitions, and the topic's id
        if set(tree.children(f"{path}/partitions")) != {str(p) for p in range(len(replicas))}:
            yield f"{name} has partitions {tree.children(f'{path}/partitions')}"
    for tp, assigned in partitions_of(layout).items():
        state = cluster.state(tp)
        if state.leader not in assigned or sorted(state.isr) != sorted(assigned):
            yield f"{tp} is led by {state.leader}, in sync are {state.isr}"
        if state.elr or state.lossy:
            yield f"{tp}: eligible are {state.elr}, lossy {state.lossy}"


_NOTIFICATIONS = (znodes.ISR_CHANGE_NOTIFICATION_PATH, znodes.LOG_DIR_EVENT_NOTIFICATION_PATH)


def _on_brokers(cluster: MemoryCluster, layout: Layout) -> Iterator[str]:
    for broker_id, node in cluster.nodes.items():
        mine = {str(tp) for tp, assigned in partitions_of(layout).items() if broker_id in assigned}
        folders = {entry.name for entry in node.disk.scandir(LOG_DIR) if entry.is_dir}
        if folders != mine:
            yield f"broker {broker_id} has the folders {sorted(folders)} instead of {sorted(mine)}"
    yield from disagreements(cluster, partitions_of(layout))
