"""A running broker that is given as many partitions, groups and topics of the cluster as a test likes, all at once.

Its parts are the real ones, and so are the partitions, their leaderships and what the controller knows of them; only
the logs tell figures and hold nothing. Each has a second replica on a broker that does not run, so each of them is a
problem, too.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from strandline.broker.groups.effects import GroupSettings
from strandline.broker.groups.group import Group
from strandline.broker.groups.offsets import GroupOffsets
from strandline.broker.groups.shards import Coordinated
from strandline.broker.handlers.fetch_sessions import Read
from strandline.broker.replication.leadership import Leadership
from strandline.broker.replication.partition import Partition
from strandline.broker.server import Broker
from strandline.controller.controller_context import LeaderAndIsr, Topic
from strandline.protocol.group_records import CommittedOffset
from strandline.protocol.messages import (
    FetchPartition,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.runtime.config.topic import TopicConfig

GONE = 99
SETTINGS = GroupSettings(max_size=10, initial_delay_s=0)


def widen(broker: Broker, topics: int, partitions_each: int, *, groups: int = 0, led: bool = True) -> None:
    """led: by this broker; else nobody leads them. Each group has committed an offset, in a topic of its turn. Somebody
    has a fetch session of all that is led; of what is not, some may lie in a log directory that could not be read."""
    names = [f"topic-{number:05}" for number in range(topics)]
    for name in names:
        for index in range(partitions_each):
            _host(broker, TopicPartition(name, index), led)
    _tell(broker, names, partitions_each, led)
    if led:
        _follow(broker, names, partitions_each)
    broker.log_manager.directories.has_unread = not led
    shard = SimpleNamespace(groups={f"group-{n:05}": _group(f"group-{n:05}", names[n % topics]) for n in range(groups)})
    broker.groups.shards[-1] = cast(Any, shard)


def _host(broker: Broker, tp: TopicPartition, led: bool) -> None:
    replicas, me = broker.data.replicas, broker.broker_id
    log = SimpleNamespace(log_start_offset=0, log_end_offset=10, segments=_Segments(tp), failure=None)
    partition = Partition(
        me,
        tp,
        bytes(16),
        cast(Any, log),
        TopicConfig(),
        10,
        propose=lambda *_: None,
        is_in_sync_candidate=lambda _: False,
        maybe_lagging=replicas.maybe_lagging,
        counts=replicas.traffic.enter(tp.topic),
    )
    if led:
        partition.leader_id = me
        partition.leadership = Leadership(
            broker_id=me,
            leader_epoch=0,
            epoch_start_offset=0,
            controller_epoch=1,
            replicas=(me, GONE),
            isr=(me,),
            eligible=(),
            zk_version=0,
            high_watermark=10,
            min_insync_replicas=1,
            lag_time_max_s=10.0,
            replication_factor=2,
            is_reassigned=False,
            leading_since_offset=0,
        )
    replicas.partitions[tp] = partition


class _Segments:
    def __init__(self, tp: TopicPartition) -> None:
        self.folder = f"/data/{tp}"
        self.size_bytes = 1000

    def __len__(self) -> int:
        return 1


def _tell(broker: Broker, names: list[str], partitions_each: int, led: bool) -> None:
    """The controller, and by it the broker."""
    term, me = broker.controller.term, broker.broker_id
    assert term is not None
    leader = me if led else -1
    states = [UpdateMetadataPartitionState(n, 1, leader, 0, [me], 0, [me, GONE]) for n in range(partitions_each)]
    for number, name in enumerate(names):
        topic_id = (number + 1).to_bytes(16, "big")
        term.context.topics[name] = Topic(name, topic_id, dict.fromkeys(range(partitions_each), (me, GONE)))
        for index in range(partitions_each):
            term.context.states[TopicPartition(name, index)] = LeaderAndIsr(leader, 0, (me,), 1, 0)
    metadata = broker.data.replicas.metadata
    topic_states = [UpdateMetadataTopicState(name, (n + 1).to_bytes(16, "big"), states) for n, name in enumerate(names)]
    metadata.update(UpdateMetadataRequest(me, 1, 0, topic_states, [*metadata.brokers.values()]))


def _follow(broker: Broker, names: list[str], partitions_each: int) -> None:
    reads = [
        Read(name, NO_TOPIC_ID, FetchPartition(index, 0, 1000)) for name in names for index in range(partitions_each)
    ]
    session = broker.data.fetch.sessions.sessions.create(reads, by_ids=False, slots=1, now=0.0)
    assert session is not None
    session.reads.fetches += 1


def _group(name: str, topic: str) -> Coordinated:
    offsets = GroupOffsets(name, {topic: {0: CommittedOffset(3, -1, "", 0)}})
    return Coordinated(cast(Any, None), Group(name, SETTINGS), offsets, lambda *_: 0.0, 0)
