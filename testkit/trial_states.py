"""When do two trials stand alike? A fingerprint of everything that what follows can depend on, and of nothing else.

Taken: who runs and who is registered, who is controller, leader, ISR and what else the state znode remembers, which
losses are remembered where, and all logs with what of them is durable. Left out: how far epochs and offsets have
counted, and which of the brokers is which: that one stands before another in the assignment decides who is elected of
two that are equally good, and nothing else. Records that the same replicas have, and have durably, in a row count as
one.

Two trials that stand alike behave alike from here on, so a search over moves follows one of them only. The search
relies on that alone; it is an argument, and no proof: short sequences are played without it, too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import BrokerIdZnode, PartitionStateZnode
from strandline.storage.log_directory import META_PROPERTIES
from strandline.testkit.cluster import LOG_DIR, BrokerNode, MemoryCluster
from strandline.testkit.trial import Trial, records_on

COUNTING = {"controller_epoch", "leader_epoch", "version"}
NAMES = {"directory.id", "cluster.id", "strandline.boot.id", "broker.id"}
"""Keys of `meta.properties` that tell nothing but whose folder it is."""
KNOWN_PLACES = {"ids", "topics", "incarnations", "seqid"}


def fingerprint(trial: Trial) -> str:
    cluster, tp = trial.cluster, trial.topic_partition
    brokers = sorted(cluster.nodes)
    of_each = {
        broker: repr(
            (_registration(cluster, broker, tp), _machine(cluster.nodes[broker]), cluster.controller_id == broker)
        )
        for broker in brokers
    }
    state = json.loads(cluster.zookeeper.tree.get(PartitionStateZnode.path(*tp)).data)
    led = {broker: _leading(cluster, broker, tp) for broker in brokers}
    columns = _columns(trial, brokers)

    def seen_as(order: Sequence[int]) -> str:
        place = {broker: index for index, broker in enumerate(order)}
        return repr(
            (
                [of_each[broker] for broker in order],
                sorted((key, _placed(value, place)) for key, value in state.items() if key not in COUNTING),
                [_placed(led[broker], place) for broker in order],
                _collapsed([_column(column, [brokers.index(broker) for broker in order]) for column in columns]),
            )
        )

    return min(seen_as(order) for order in itertools.permutations(brokers)) + repr(list(_elsewhere(cluster)))


def _placed(value: object, place: Mapping[int, int]) -> object:
    if isinstance(value, list | tuple):
        return sorted(repr(_placed(each, place)) for each in value)
    return place.get(value, value) if isinstance(value, int) else value


def _elsewhere(cluster: MemoryCluster) -> Iterator[object]:
    """Znodes of brokers beside those that every cluster has."""
    tree = cluster.zookeeper.tree
    for name in sorted(tree.children("/brokers")):
        if name not in KNOWN_PLACES:
            for child in sorted(tree.children(f"/brokers/{name}")):
                yield name, child, tree.get(f"/brokers/{name}/{child}").data


def _registration(cluster: MemoryCluster, broker: int, tp: TopicPartition) -> object:
    """What a controller concludes from it: is it lossy, is the partition's state older than it."""
    if broker not in cluster.registered():
        return None
    tree = cluster.zookeeper.tree
    znode, state = tree.get(BrokerIdZnode.path(broker)), tree.get(PartitionStateZnode.path(*tp)).stat
    says = {key: value for key, value in json.loads(znode.data).items() if isinstance(value, bool)}
    return sorted(says.items()), state.mzxid < znode.stat.czxid


def _machine(node: BrokerNode) -> object:
    """Is it up; would it start as one that lost data; what its folder remembers."""
    if not node.disk.exists(LOG_DIR):
        return node.is_up, None
    names = [name for name in node.disk.listdir(LOG_DIR) if not name.endswith("-checkpoint")]
    properties: list[str] = []
    has_booted = None
    if META_PROPERTIES in names:
        lines = node.disk.read(f"{LOG_DIR}/{META_PROPERTIES}").decode().splitlines()
        properties = [line for line in lines if line.partition("=")[0] not in NAMES]
        has_booted = f"strandline.boot.id={node.disk.boot_id()}" not in lines
    return node.is_up, has_booted, sorted(properties), names


def _leading(cluster: MemoryCluster, broker: int, tp: TopicPartition) -> list[object]:
    """Does it host the partition, with which ISR does it lead it, what is it at."""
    if not cluster.hosts(broker, tp):
        return []
    leadership = cluster.partition(broker, tp).leadership
    if leadership is None:
        return [()]
    return [leadership.isr, f"{leadership.frozen} {leadership.proposal}"]


Column = tuple[list[bytes | None], list[bool], list[bool], bool]


def _columns(trial: Trial, brokers: Sequence[int]) -> list[Column]:
    """Offset by offset: the record of each replica, who has it durably, who knows it committed, must it be kept."""
    cluster, tp = trial.cluster, trial.topic_partition
    now = [records_on(cluster.nodes[broker].disk, tp) for broker in brokers]
    durable = []
    for broker in brokers:
        twin = cluster.nodes[broker].disk.copy()
        twin.crash()
        durable.append(records_on(twin, tp))
    committed = [cluster.partition(b, tp).high_watermark if cluster.hosts(b, tp) else -1 for b in brokers]
    return [
        (
            [log.get(offset) for log in now],
            [offset in log for log in durable],
            [offset < high_watermark for high_watermark in committed],
            offset in trial.kept,
        )
        for offset in sorted(set(itertools.chain(*now)))
    ]


def _column(column: Column, order: Sequence[int]) -> str:
    """In another order of the replicas; records by whether they are the same."""
    values, durable, committed, is_kept = column
    labels: dict[bytes | None, int] = {None: -1}
    return repr(
        (
            [labels.setdefault(values[index], len(labels)) for index in order],
            [durable[index] for index in order],
            [committed[index] for index in order],
            is_kept,
        )
    )


def _collapsed(columns: Sequence[str]) -> list[str]:
    return [column for column, _ in itertools.groupby(columns)]
