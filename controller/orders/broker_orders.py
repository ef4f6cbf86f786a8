"""Which broker is told what: requests as values, derived from the context after ZooKeeper was written.

`BrokerOrders` are what one broker still has to be told, by partition: a newer word on a partition replaces an older
one, so what waits for a slow broker is bounded by the number of partitions. A partition of a topic that was made anew
is another one: that a log of the earlier topic is to go remains to be said (of each topic that was moved away from the
broker before it was deleted: else its deletion waits for the broker). Their sequence on the wire: a broker that
is told something for the first time learns the metadata first (invariant 37: it must know where leaders live before it
follows them); later LeaderAndIsr goes first, so that a new leader serves before clients are sent to it. StopReplica
goes last, unless the log that it removes lies where another topic's is to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from strandline.controller.controller_context import ControllerContext, LeaderAndIsr, LiveBroker
from strandline.controller.partition_replicas import PartitionReplicas
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    LEADER_EPOCH_TOPIC_DELETED,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    LiveLeader,
    Request,
    StopReplicaPartitionState,
    StopReplicaRequest,
    UnfinishedDeletion,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.protocol.types import NO_BROKER, TopicId, TopicPartition

MAX_PARTITIONS_PER_REQUEST = 2000
"""Bounds the time that encoding, and handling on the other side, keeps an event loop."""

K = TypeVar("K")
T = TypeVar("T")


class ClusterWide(NamedTuple):
    """What every word to a broker says whole: who lives, and which deletions something holds up (topic → what).
    suspects: who is registered and does not answer just now. One may lead since nobody else has everything; followers
    get its address, or they would lack it once it answers again."""

    live: tuple[LiveBroker, ...]
    unfinished_deletions: Mapping[str, str] = MappingProxyType({})
    suspects: tuple[LiveBroker, ...] = ()


@dataclass(slots=True)
class BrokerOrders:
    """What one broker is to be told. `is_cluster_wide`: what `ClusterWide` holds is news. `all_topics`: the names of
    those that there were when this was begun; others that the broker knows are gone."""

    leader_and_isr: dict[TopicPartition, tuple[TopicId, LeaderAndIsrPartitionState]] = field(default_factory=dict)
    metadata: dict[TopicPartition, tuple[TopicId, UpdateMetadataPartitionState]] = field(default_factory=dict)
    stop: dict[tuple[TopicPartition, TopicId], StopReplicaPartitionState] = field(default_factory=dict)
    is_cluster_wide: bool = False
    all_topics: list[str] | None = None

    def __bool__(self) -> bool:
        return bool(self.leader_and_isr or self.metadata or self.stop or self.is_cluster_wide)

    @property
    def tells_metadata(self) -> bool:
        return bool(self.metadata) or self.is_cluster_wide

    def add(self, newer: BrokerOrders) -> None:
        """Merge what came later. The last word on a partition holds."""
        self.leader_and_isr.update(newer.leader_and_isr)
        for topic_partition, (topic_id, _) in newer.leader_and_isr.items():
            self.stop.pop((topic_partition, topic_id), None)
        for topic_partition, _ in newer.stop:
            if topic_partition not in newer.leader_and_isr:
                self.leader_and_isr.pop(topic_partition, None)
        self.stop.update(newer.stop)
        self.metadata.update(newer.metadata)
        self.is_cluster_wide = self.is_cluster_wide or newer.is_cluster_wide
        if newer.all_topics is not None:
            self.all_topics = newer.all_topics


def leader_and_isr_state(
    partition: int, state: LeaderAndIsr, replicas: PartitionReplicas, *, is_new: bool = False
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.zk_version,
        replicas=list(replicas.assigned),
        adding_replicas=list(replicas.adding),
        removing_replicas=list(replicas.removing),
        is_new=is_new,
        eligible_leader_replicas=list(state.elr),
    )


class OrderBuilder:
    """Collects, broker by broker, what follows from changes that ZooKeeper has taken."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        live = tuple(context.brokers[broker_id] for broker_id in sorted(context.brokers))
        suspects = tuple(context.suspects[broker_id] for broker_id in sorted(context.suspects))
        self.cluster_wide = ClusterWide(live, context.unfinished_deletions, suspects)
        self.by_broker: dict[int, BrokerOrders] = {}

    def _orders_of(self, broker_id: int) -> BrokerOrders:
        return self.by_broker.setdefault(broker_id, BrokerOrders())

    def leadership(self, partitions: Iterable[TopicPartition], *, only: int | None = None, anew: bool = False) -> None:
        """LeaderAndIsr to the live replicas of each partition (to broker `only`, if given). anew: who does not serve
        its log may begin with an empty one, since an operator said so."""
        for topic_partition in partitions:
            state = self._context.states.get(topic_partition)
            topic = self._context.topics.get(topic_partition.topic)
            replicas = self._context.replicas_of(topic_partition)
            if state is None or topic is None or replicas is None or topic.name in self._context.deleting:
                continue
            words: dict[bool, tuple[TopicId, LeaderAndIsrPartitionState]] = {}
            for replica in replicas.assigned:
                if replica in self._context.brokers and only in (None, replica):
                    is_new = anew or self._context.is_new(replica, topic)
                    if is_new not in words:
                        order = leader_and_isr_state(topic_partition.partition, state, replicas, is_new=is_new)
                        words[is_new] = topic.topic_id, order
                    self._orders_of(replica).leader_and_isr[topic_partition] = words[is_new]

    def metadata(self, partitions: Iterable[TopicPartition], *, only: int | None = None) -> None:
        """UpdateMetadata to every live broker (to broker `only`, if given)."""
        words = {}
        for topic_partition in partitions:
            word = self._metadata_word(topic_partition)
            if word is not None:
                words[topic_partition] = word
        for broker in self.cluster_wide.live:
            if only in (None, broker.broker_id) and words:
                self._orders_of(broker.broker_id).metadata.update(words)

    def live_brokers(self) -> None:
        """What is said whole to every live broker, whether there is more to say or not."""
        for broker in self.cluster_wide.live:
            self._orders_of(broker.broker_id).is_cluster_wide = True

    def all_topics(self, broker_id: int, unreadable: Iterable[str]) -> None:
        """Which topics there are, for one that may not have heard that others went. What cannot be read is there."""
        if broker_id in self._context.brokers:
            self._orders_of(broker_id).all_topics = list(dict.fromkeys([*self._context.topics, *unreadable]))

    def stop(self, broker_id: int, partitions: Iterable[TopicPartition], *, delete: bool = False) -> None:
        """StopReplica, if the broker lives: it follows no more. delete: and removes its log, under the partition's
        epoch, or, where the whole topic goes, whatever epoch the broker knows (KIP-570)."""
        context = self._context
        for topic_partition in partitions:
            topic = context.topics.get(topic_partition.topic)
            state = context.states.get(topic_partition)
            if topic is None or broker_id not in context.brokers:
                continue
            if delete and topic.name in context.deleting:
                epoch = LEADER_EPOCH_TOPIC_DELETED
            elif state is not None:
                epoch = state.leader_epoch
            else:
                continue
            orders = self._orders_of(broker_id)
            orders.leader_and_isr.pop(topic_partition, None)
            orders.stop[topic_partition, topic.topic_id] = StopReplicaPartitionState(
                topic_partition.topic, topic.topic_id, topic_partition.partition, epoch, delete
            )

    def _metadata_word(self, topic_partition: TopicPartition) -> tuple[TopicId, UpdateMetadataPartitionState] | None:
        context = self._context
        topic = context.topics.get(topic_partition.topic)
        state = context.states.get(topic_partition)
        if topic is None:
            return None
        if topic.name in context.deleting:
            leader = LEADER_DURING_DELETE
            state = state or LeaderAndIsr(leader, LEADER_EPOCH_TOPIC_DELETED, (), context.epoch, 0)
        elif state is None:
            return None  # nobody leads it yet and no znode says who does
        else:
            leader = state.leader if context.has_live_leader(topic_partition) else NO_BROKER
        return topic.topic_id, UpdateMetadataPartitionState(
            partition_index=topic_partition.partition,
            controller_epoch=state.controller_epoch,
            leader=leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.zk_version,
            replicas=list(context.replicas(topic_partition)),
            offline_replicas=context.offline_replicas_of(topic_partition),
            refused_replicas=context.refused_replicas_of(topic_partition),
        )


def requests_of(
    orders: BrokerOrders,
    *,
    controller_id: int,
    controller_epoch: int,
    broker_epoch: int,
    cluster_wide: ClusterWide,
    metadata_first: bool,
    now_us: int,
) -> Iterator[Request]:
    """The requests that say them, in the sequence in which they have to go. now_us: by the controller's monotonic
    clock."""
    sender = (controller_id, controller_epoch, broker_epoch)
    roles = orders.leader_and_isr
    in_the_way = {key: stop for key, stop in orders.stop.items() if key[0] in roles and roles[key[0]][0] != key[1]}
    yield from _stop_replica(in_the_way, sender, now_us)
    if metadata_first:
        yield from _update_metadata(orders, sender, cluster_wide, now_us)
        yield from _leader_and_isr(orders, sender, cluster_wide, now_us)
    else:
        yield from _leader_and_isr(orders, sender, cluster_wide, now_us)
        yield from _update_metadata(orders, sender, cluster_wide, now_us)
    others = {key: stop for key, stop in orders.stop.items() if key not in in_the_way}
    yield from _stop_replica(others, sender, now_us)


def _stop_replica(
    stops: Mapping[tuple[TopicPartition, TopicId], StopReplicaPartitionState], sender: tuple[int, int, int], now_us: int
) -> Iterator[Request]:
    for part in _slices(stops):
        yield StopReplicaRequest(*sender, partition_states=list(part.values()), told_at_us=now_us)


def _leader_and_isr(
    orders: BrokerOrders, sender: tuple[int, int, int], cluster_wide: ClusterWide, now_us: int
) -> Iterator[Request]:
    addresses = {
        b.broker_id: LiveLeader(b.broker_id, b.inter_broker.host, b.inter_broker.port, b.broker_key)
        for b in (*cluster_wide.live, *cluster_wide.suspects)
    }
    for part in _slices(orders.leader_and_isr):
        topics: dict[tuple[str, TopicId], LeaderAndIsrTopicState] = {}
        for (name, _), (topic_id, state) in part.items():
            topic = topics.setdefault((name, topic_id), LeaderAndIsrTopicState(name, topic_id, []))
            topic.partition_states.append(state)
        leaders = sorted({state.leader for _, state in part.values()} & addresses.keys())
        yield LeaderAndIsrRequest(
            *sender,
            topic_states=list(topics.values()),
            live_leaders=[addresses[leader] for leader in leaders],
            told_at_us=now_us,
        )


def _update_metadata(
    orders: BrokerOrders, sender: tuple[int, int, int], cluster_wide: ClusterWide, now_us: int
) -> Iterator[Request]:
    if not orders.tells_metadata:
        return
    brokers = [
        UpdateMetadataBroker(
            b.broker_id,
            [UpdateMetadataEndpoint(e.listener, e.host, e.port, e.security_protocol) for e in b.endpoints],
            b.rack,
            b.broker_key,
        )
        for b in cluster_wide.live
    ]
    unfinished = [UnfinishedDeletion(topic, why) for topic, why in cluster_wide.unfinished_deletions.items()]
    parts = list(_slices(orders.metadata)) or [{}]
    for number, part in enumerate(parts, 1):
        topics: dict[tuple[str, TopicId], UpdateMetadataTopicState] = {}
        for (name, _), (topic_id, state) in part.items():
            topic = topics.setdefault((name, topic_id), UpdateMetadataTopicState(name, topic_id, []))
            topic.partition_states.append(state)
        # First what is gone is dropped: what was added to these orders since may not be among all topics.
        all_topics = orders.all_topics if number == 1 else None
        has_told_all = orders.all_topics is not None and number == len(parts)
        yield UpdateMetadataRequest(
            *sender, list(topics.values()), brokers, unfinished, all_topics, now_us, has_told_all
        )


def _slices(mapping: Mapping[K, T]) -> Iterator[dict[K, T]]:
    items = list(mapping.items())
    for start in range(0, len(items), MAX_PARTITIONS_PER_REQUEST):
        yield dict(items[start : start + MAX_PARTITIONS_PER_REQUEST])
