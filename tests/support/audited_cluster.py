"""A cluster in memory for tests of audits: an admin client over `MemoryReplica`s, whose leaders can move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from strandline.client.errors import AnsweredError, CannotReachBroker, ClientError, error_for
from strandline.client.metadata import PartitionView, TopicView
from strandline.client.replicas.comparison import Compared
from strandline.client.replicas.looking import Reader, Work, look
from strandline.client.replicas.reading import Replica, ReplicaPart
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import EARLIEST_TIMESTAMP
from strandline.protocol.types import TopicPartition
from support.damaged_replicas import BEGAN_AT_MS, MemoryReplica, flipped, plain_batches

TOPIC_ID = bytes(15) + b"\x01"
T0 = TopicPartition("t", 0)
SIZES = [3, 1, 4, 2, 5]
"""Of the batches of each replica."""
END = sum(SIZES)
DAMAGED_AT = 4


@dataclass
class MemoryAdmin:
    """Replicas by where they are; broker 1 leads unless `leaders` says otherwise. `before_plan`: is called whenever the
    topics are described, with the number of the time."""

    replicas: dict[Replica, MemoryReplica]
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    epoch: int = 0
    offline: set[int] = field(default_factory=set)
    unreachable: set[int] = field(default_factory=set)
    out_of_sync: set[Replica] = field(default_factory=set)
    refused: dict[Replica, str] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    unknown_configs: set[str] = field(default_factory=set)
    internal: set[str] = field(default_factory=set)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    before_plan: Callable[[int], None] = lambda time: None
    described: int = 0
    asked_configs: int = 0
    max_bytes: int = 0
    """What was asked for last."""
    waits: list[int] = field(default_factory=list)

    def describe_topics(self) -> dict[str, TopicView]:
        self.described += 1
        self.before_plan(self.described)
        partitions: dict[str, dict[int, PartitionView]] = {}
        for replica in self.replicas:
            topic, number = replica.partition
            partitions.setdefault(topic, {})[number] = self._view(replica.partition)
        return {
            name: TopicView(name, self.topic_ids.get(name, TOPIC_ID), views, is_internal=name in self.internal)
            for name, views in partitions.items()
        }

    def _view(self, partition: TopicPartition) -> PartitionView:
        brokers = tuple(replica.broker_id for replica in self.replicas if replica.partition == partition)
        in_sync = tuple(broker for broker in brokers if Replica(partition, broker) not in self.out_of_sync)
        return PartitionView(
            self.leaders.get(partition, 1),
            self.epoch,
            brokers,
            tuple(broker for broker in in_sync if broker not in self.offline),
            tuple(broker for broker in brokers if broker in self.offline),
            refused_replicas={each.broker_id: why for each, why in self.refused.items() if each.partition == partition},
        )

    def describe_topic_configs(
        self, names: Iterable[str], keys: Sequence[str]
    ) -> dict[str, list[SimpleNamespace] | ClientError]:
        assert keys == ["cleanup.policy"]
        self.asked_configs += 1
        return {name: self._configured(name) for name in names}

    def _configured(self, name: str) -> list[SimpleNamespace] | ClientError:
        if name in self.unknown_configs:
            return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"describing topic {name}")
        return [SimpleNamespace(name="cleanup.policy", value="compact" if name in self.compacted else "delete")]

    def replica_offsets(
        self, epochs: Mapping[Replica, int], timestamp: int, *, timeout_ms: float
    ) -> dict[Replica, int | ClientError]:
        return {replica: self._offset(replica, timestamp) for replica in epochs}

    def _offset(self, replica: Replica, timestamp: int) -> int | ClientError:
        if replica.broker_id in self.unreachable:
            return CannotReachBroker(f"broker {replica.broker_id} cannot be reached")
        log = self.replicas[replica]
        end = max(log.ends.values(), default=log.log_start)
        if timestamp >= 0:
            first = max(timestamp - BEGAN_AT_MS, log.log_start)
            return first if first < end else -1
        return log.log_start if timestamp == EARLIEST_TIMESTAMP else end

    def read_replica(
        self, replica: Replica, offset: int, *, leader_epoch: int, max_wait_ms: int, max_bytes: int = 0
    ) -> ReplicaPart:
        self.max_bytes = max_bytes
        if replica.broker_id in self.unreachable:
            raise CannotReachBroker(f"broker {replica.broker_id} cannot be reached")
        if leader_epoch != self.epoch:
            raise AnsweredError(ErrorCode.FENCED_LEADER_EPOCH, "the leader has changed")
        if max_wait_ms:
            self.waits.append(replica.broker_id)
            self.replicas[replica].learn()
        return self.replicas[replica].read(offset)

    def run(self, works: list[Work]) -> list[tuple[Work, dict[int, Compared]]]:
        """What Spark does in tasks."""
        reader = Reader(self.read_replica)
        return [(work, look(reader, work)) for work in works]


def audited_cluster(*partitions: TopicPartition, **fields: Any) -> MemoryAdmin:
    """Three brokers; each has every partition."""
    replicas = {
        Replica(partition, broker): MemoryReplica(plain_batches(SIZES))
        for partition in partitions
        for broker in (1, 2, 3)
    }
    return MemoryAdmin(replicas, **fields)


def damage(admin: MemoryAdmin, broker: int, partition: TopicPartition = T0) -> None:
    """A bit of the batch at DAMAGED_AT is the other way round."""
    stored = admin.replicas[Replica(partition, broker)].stored
    stored[DAMAGED_AT] = flipped(stored[DAMAGED_AT], 65)
