"""Coming to rest: all is healed, and within a bound of virtual time the cluster is as its operators want it.

L1  every partition is led, its ISR is whole, its replicas end at the same offset
L2  one controller; what brokers know is what ZooKeeper has
L4  deletions and reassignments are finished: exactly the replicas that are assigned hold a partition, and no folder of
    another one is left on any disk
L6  the preferred replica leads, where brokers see to that
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import trio

from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import TOPICS_PATH, TopicZnode
from strandline.storage.disk.checkpoints import PARTITION_METADATA, encode_topic_id
from strandline.storage.disk.removal import STRAY_SUFFIX, partition_of_folder
from strandline.testkit.agreement import disagreements
from strandline.testkit.clock import common_time
from strandline.testkit.cluster import LOG_DIR
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.simulation.world import World

COME_TO_REST_S = 90.0
LOOK_INTERVAL_S = 0.25
KEPT = re.compile(
    r'"event":"(a replica that other brokers have is kept|logs of partitions that are not there are kept)'
)
"""What an operator is told of records that may be of another topic."""


async def come_to_rest(world: World) -> list[str]:
    """Heal everything and wait. Returns what did not come to rest in time."""
    world.cluster.network.heal()
    deadline_s = common_time() + COME_TO_REST_S
    while restless := list(_restless(world)):
        if common_time() > deadline_s:
            return [f"not-at-rest: {each}, {COME_TO_REST_S:g} s after all was healed" for each in restless]
        await trio.sleep(LOOK_INTERVAL_S)
    return []


def _restless(world: World) -> Iterator[str]:
    """Questions that cost more are asked once the others are settled."""
    topics = _topics(world)
    layout = {TopicPartition(n, p): replicas for n, topic in topics.items() for p, replicas in topic.partitions.items()}
    missing = [stream.tp for life in world.topics.values() for stream in life.streams if stream.tp not in layout]
    found = [f"{tp} does not exist" for tp in missing]
    found += [f"{tp}: {why}" for tp in layout if (why := _why_not_at_rest(world, tp, topics[tp.topic]))]
    yield from found
    if not found:
        yield from folders_left(world, layout)
        yield from disagreements(
            world.cluster, layout, [tp for tp in layout if _moves_unled(world, tp, topics[tp.topic])]
        )


def _moves_unled(world: World, tp: TopicPartition, topic: TopicZnode) -> bool:
    """A move is told with a leader's new epoch."""
    return world.waits_for_an_operator(tp) and tp.partition in {*topic.adding_replicas, *topic.removing_replicas}


def _topics(world: World) -> dict[str, TopicZnode]:
    tree = world.cluster.zookeeper.tree
    paths = {name: TopicZnode.path(name) for name in tree.children(TOPICS_PATH)}
    return {name: TopicZnode.decode(path, tree.get(path).data) for name, path in paths.items()}


def _why_not_at_rest(world: World, tp: TopicPartition, topic: TopicZnode) -> str:
    """Empty: it is."""
    state, assigned = world.states.get(tp), topic.partitions[tp.partition]
    if state is None:
        return "it has no state yet"
    if state.leader == NO_BROKER:
        return "" if world.waits_for_an_operator(tp) else f"nobody leads it: {state}"
    if tp.partition in {*topic.adding_replicas, *topic.removing_replicas}:
        return f"it moves: {topic}"
    if sorted(state.isr) != sorted(assigned):
        return f"the ISR of {assigned} is not whole: {state}"
    if world.options.config["auto.leader.rebalance.enable"] == "true" and state.leader != assigned[0]:
        return f"the first of {assigned} does not lead: {state}"
    ends = {broker: log.log_end_offset for broker, log in world.cluster.logs(tp).items()}
    is_whole = sorted(ends) == sorted(assigned) and len(set(ends.values())) == 1
    return "" if is_whole else f"replicas {assigned}, whose logs end at {ends}"


def folders_left(world: World, layout: Mapping[TopicPartition, Sequence[int]]) -> Iterator[str]:
    """Folders of partitions, also renamed ones, that are not among those that the broker is to hold. As long as nobody
    leads, nobody can say that the log of a former replica is not needed."""
    unled = {str(tp) for tp in layout if world.waits_for_an_operator(tp)}
    for broker, node in world.cluster.nodes.items():
        held = unled | {str(tp) for tp, assigned in layout.items() if broker in assigned}
        for entry in node.disk.scandir(LOG_DIR):
            if entry.is_dir and entry.name not in held and not _is_kept(world, broker, entry.name):
                yield f"a folder is left on broker {broker}: {entry.name}"


def _is_kept(world: World, broker: int, name: str) -> bool:
    """Whether it waits for an operator, who was told. A broker that was away, or came back with the disk of a backup,
    cannot tell whether what it has of an earlier life of a topic is the last copy of it: the topic was deleted when
    this broker held nothing of it any more, by the cluster's word. What lost its topic id with the power may be one."""
    node = world.cluster.nodes[broker]
    if node.lives == 1:
        return False
    if name.endswith(STRAY_SUFFIX):
        return any(name in line for line in world.cluster.history)
    if _is_of_the_present_topic(world, node.disk, name):
        return False
    told, folder = f"{node.name} {{", f'"{name}"'
    return any(told in line and folder in line and KEPT.search(line) for line in world.cluster.history)


def _is_of_the_present_topic(world: World, disk: MemoryDisk, name: str) -> bool:
    path, tp = f"{LOG_DIR}/{name}/{PARTITION_METADATA}", partition_of_folder(name)
    topic = world.topic_znode(tp.topic) if tp is not None else None
    if topic is None or topic.topic_id is None or not disk.exists(path):
        return False
    return encode_topic_id(topic.topic_id).encode() in disk.read(path)
