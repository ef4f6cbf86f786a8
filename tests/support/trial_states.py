"""When do two trials stand alike? A fingerprint of everything that what follows can depend on, and of nothing else.

Two trials that stand alike behave alike from here on, so a search over moves follows one of them only. What is taken,
and why what is left out cannot matter:

* The state znode, but for how far epochs and versions have counted: these are compared with one another only, and at
  rest nobody has an older one in hand. Whether the leader was elected before its registration is taken.
* Who is registered, who runs, who is controller. What a registration said of a loss is not taken: it is read by the
  controller that hears of it, and at rest it has.
* Of each machine, as it is and as a power loss would leave it: was it booted since, is there a marker, is there the
  log's folder, what does `meta.properties` remember but for names, and has the folder missed lives of its broker: their
  number is compared with ZooKeeper's, and with nothing else.
* Of a leader: ISR, whether it is frozen, and per follower whether it has everything and counts for the quorum. When a
  follower was there last is not taken: a search rests longer than any lag after each move.
* All logs, offset by offset: who has which record, which of two records is of the later epoch, who has it durably, who
  knows it committed, what the checkpoints on the disk vouch for, must it be kept. Then the order of the logs' last
  epochs, which elects where nobody is known to be whole. Records in a row of which all of that is the same count as
  one: an offset is only ever compared with these.
* What the referee remembers: who has lost nothing since the last record was acknowledged.

Brokers keep their places: who stands before another in the assignment is elected of two that are equally good, so two
states that are alike but for names need not go on alike. The search relies on this text, which is an argument and no
proof: `tests/scenarios/test_orders_of_blows.py` goes on from all states that short orders lead to and that stand alike.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

from strandline.protocol.records.batch import scan
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import BrokerIdZnode, BrokerIncarnationZnode, PartitionStateZnode
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS
from strandline.storage.manager.directory_state import SEGMENTS_LIST, STATE, read_state
from strandline.storage.manager.identity import META_PROPERTIES
from strandline.storage.manager.log_directory import DIRECTORIES_KEY, INCARNATION_KEY
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.disk import MemoryDisk
from support.trial import Trial

COUNTING = {"controller_epoch", "leader_epoch", "version"}
NAMES = {"directory.id", "cluster.id", "strandline.boot.id", "broker.id", INCARNATION_KEY, DIRECTORIES_KEY}
"""Keys of `meta.properties` that tell nothing but whose folder it is, or are compared with something."""
SAYING_NOTHING = {".lock", SEGMENTS_LIST, STATE}
"""Files that say nothing, or nothing without an orderly stop."""
KNOWN_PLACES = {"ids", "topics", "incarnations", "seqid"}


def fingerprint(trial: Trial, *, with_timing: bool = True) -> str:
    """with_timing: also what depends on how fast things are: who of several was elected controller, and whether a high
    watermark was checkpointed yet, with the name of the log's folder."""
    cluster, tp = trial.cluster, trial.topic_partition
    brokers = sorted(cluster.nodes)
    state = json.loads(cluster.zookeeper.tree.get(PartitionStateZnode.path(*tp)).data)
    untold = set() if with_timing else {str(tp)}
    durable = {broker: cluster.nodes[broker].disk.copy() for broker in brokers}
    for disk in durable.values():
        disk.crash()
    return repr(
        (
            sorted(
                (key, sorted(of) if isinstance(of, list) else of) for key, of in state.items() if key not in COUNTING
            ),
            [broker in cluster.registered() for broker in brokers],
            _was_elected_before(cluster, state["leader"], tp),
            with_timing and cluster.controller_id,
            [cluster.nodes[broker].is_up for broker in brokers],
            [_folder(cluster, broker, cluster.nodes[broker].disk, untold) for broker in brokers],
            [_folder(cluster, broker, disk, untold) for broker, disk in durable.items()],
            [_role(cluster, broker, tp) for broker in brokers],
            _last_epochs(cluster, brokers, tp),
            [column for column, _ in itertools.groupby(_columns(trial, durable, with_timing))],
            sorted(trial.untouched),
            list(_elsewhere(cluster)),
        )
    )


def _elsewhere(cluster: MemoryCluster) -> Iterator[object]:
    """Znodes of brokers beside those that every cluster has."""
    tree = cluster.zookeeper.tree
    for name in sorted(tree.children("/brokers")):
        if name not in KNOWN_PLACES:
            for child in sorted(tree.children(f"/brokers/{name}")):
                yield name, child, tree.get(f"/brokers/{name}/{child}").data


def _was_elected_before(cluster: MemoryCluster, leader: int, tp: TopicPartition) -> bool:
    """Whether the leader became it in an earlier life than the one that is registered."""
    if leader not in cluster.registered():
        return False
    tree = cluster.zookeeper.tree
    return tree.get(PartitionStateZnode.path(*tp)).stat.mzxid < tree.get(BrokerIdZnode.path(leader)).stat.czxid


def _folder(cluster: MemoryCluster, broker: int, disk: MemoryDisk, without: set[str]) -> object:
    """Would the broker start on this disk as one that lost data; what does the folder remember."""
    if not disk.exists(LOG_DIR):
        return None
    names = {name for name in disk.listdir(LOG_DIR) if not name.endswith("-checkpoint")}
    state = read_state(disk, f"{LOG_DIR}/{STATE}") if STATE in names else None
    is_marked = CLEAN_MARKER in names or (state is not None and state.segments_crc is not None)
    properties: dict[str, str] = {}
    if META_PROPERTIES in names:
        lines = disk.read(f"{LOG_DIR}/{META_PROPERTIES}").decode().splitlines()
        properties = dict(line.split("=", 1) for line in lines)
    has_booted = properties.get("strandline.boot.id") != disk.boot_id()
    lives = cluster.zookeeper.tree.get(BrokerIncarnationZnode.path(broker)).stat.version
    has_missed = int(properties.get(INCARNATION_KEY, lives)) < lives
    remembered = sorted(line for line in properties.items() if line[0] not in NAMES)
    return has_booted, has_missed, remembered, sorted(names - without - (set() if is_marked else SAYING_NOTHING))


def _role(cluster: MemoryCluster, broker: int, tp: TopicPartition) -> object:
    """Does it host the partition, whom does it follow, how far are its own followers."""
    if not cluster.hosts(broker, tp):
        return None
    partition = cluster.partition(broker, tp)
    leadership = partition.leadership
    if leadership is None:
        return partition.leader_id
    end = partition.log.log_end_offset
    followers = [
        (each.broker_id, each.log_end_offset == end, each in leadership.quorum)
        for each in leadership.followers.values()
    ]
    has_no_lag = leadership.quorum_offset == end
    return sorted(leadership.isr), leadership.eligible, leadership.frozen, leadership.proposal, has_no_lag, followers


def _last_epochs(cluster: MemoryCluster, brokers: Sequence[int], tp: TopicPartition) -> list[int]:
    """The rank of each log's last epoch; −1 for one that has none."""
    epochs = [
        cluster.partition(broker, tp).log.last_epoch
        if cluster.hosts(broker, tp)
        else max(_epochs_on(cluster.nodes[broker].disk, tp).values(), default=-1)
        for broker in brokers
    ]
    ranks = {epoch: rank for rank, epoch in enumerate(sorted({*epochs, -1}), -1)}
    return [ranks[epoch] for epoch in epochs]


def _epochs_on(disk: MemoryDisk, tp: TopicPartition) -> dict[int, int]:
    """offset → epoch of the batch that begins there: a trial writes batches of one record."""
    path = f"{LOG_DIR}/{tp.topic}-{tp.partition}/{0:020}.log"
    if not disk.exists(path):
        return {}
    return {header.base_offset: header.partition_leader_epoch for _, header in scan(memoryview(disk.read(path)))}


def _columns(trial: Trial, survivors: Mapping[int, MemoryDisk], with_timing: bool) -> list[str]:
    """Offset by offset, see the module. survivors: what would be left of each disk if it lost power."""
    cluster, tp, brokers = trial.cluster, trial.topic_partition, list(survivors)
    disks = [cluster.nodes[broker].disk for broker in brokers]
    epochs = [_epochs_on(disk, tp) for disk in disks]
    durable = [_epochs_on(disk, tp) for disk in survivors.values()]
    committed = [cluster.partition(b, tp).high_watermark if cluster.hosts(b, tp) else -1 for b in brokers]
    points = [_checkpoint(disk, RECOVERY_POINTS, tp) for disk in disks]
    marks = [_checkpoint(disk, HIGH_WATERMARKS, tp) if with_timing else 0 for disk in disks]
    columns = []
    for offset in sorted(set(itertools.chain(*epochs))):
        there = sorted({at[offset] for at in epochs if offset in at})
        columns.append(
            repr(
                (
                    [there.index(at[offset]) if offset in at else -1 for at in epochs],
                    [offset in log for log in durable],
                    [[offset < end for end in ends] for ends in (committed, points, marks)],
                    offset in trial.kept,
                )
            )
        )
    return columns


def _checkpoint(disk: MemoryDisk, name: str, tp: TopicPartition) -> int:
    path = f"{LOG_DIR}/{name}"
    lines = disk.read(path).decode().splitlines()[2:] if disk.exists(path) else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{tp.topic} {tp.partition} ")), 0)
