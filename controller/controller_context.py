"""What the acting controller knows of the cluster: a picture of ZooKeeper, rebuilt from it at every fail-over.

Rules: values are immutable and replaced whole; the context changes only after ZooKeeper did, from
plain functions of the event loop; whatever can be derived (which replicas are online, which partitions are offline) is
derived. Planners read it and change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from strandline.controller.partition_replicas import PartitionReplicas
from strandline.protocol.messages import RefusedReplica
from strandline.protocol.types import NO_BROKER, NO_EPOCH, TopicId, TopicPartition
from strandline.protocol.znodes import BrokerEndpoint, PartitionStateZnode
from strandline.runtime.network import Address

MAX_REASONS = 300
"""Replicas of which the cluster is told why they are refused: their texts are part of the metadata, whose answers are
bounded (`frame.MAX_BODY_BYTES`). Of the others the brokers' logs say it."""

Replica = tuple[int, TopicPartition]


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker. `epoch` is the czxid of its registration: another one is another life (KIP-380).

    inter_broker: where the controller and the followers reach it.
    lossy_start: this start found a log that may lack a suffix it had acknowledged (invariant 22), and has written so
    into the states of its partitions.
    broker_key: by which it knows that it is asked by one of the cluster.
    """

    broker_id: int
    epoch: int
    endpoints: tuple[BrokerEndpoint, ...]
    inter_broker: Address
    rack: str | None = None
    lossy_start: bool = False
    broker_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Topic:
    """`assignment`: partition → replica ids, preferred first. `czxid`: the transaction that made the topic, 0 where it
    is not read yet. `adding_replicas`, `removing_replicas`: of partitions that are being reassigned, see
    `PartitionReplicas`; another tool may have begun that."""

    name: str
    topic_id: TopicId
    assignment: dict[int, tuple[int, ...]]
    czxid: int = 0
    adding_replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def replicas_of(self, partition: int) -> PartitionReplicas | None:
        """None: there is no such partition."""
        assigned = self.assignment.get(partition)
        if assigned is None:
            return None
        adding, removing = self.adding_replicas.get(partition, ()), self.removing_replicas.get(partition, ())
        return PartitionReplicas.of(assigned, adding, removing)

    def with_replicas(self, changed: Mapping[int, PartitionReplicas]) -> Topic:
        """The same topic with other replicas of these partitions."""
        adding, removing = dict(self.adding_replicas), dict(self.removing_replicas)
        for partition, replicas in changed.items():
            for lists, theirs in ((adding, replicas.adding), (removing, replicas.removing)):
                lists.pop(partition, None)
                if theirs:
                    lists[partition] = theirs
        assignment = {**self.assignment, **{partition: each.assigned for partition, each in changed.items()}}
        return replace(self, assignment=assignment, adding_replicas=adding, removing_replicas=removing)


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """One partition-state znode. `zk_version` is the compare-and-set token, `mzxid` the transaction that wrote it
    (0 when this controller wrote it and has not read it since). `elr`, `lossy`, `last_known_leader`: see
    `PartitionStateZnode`."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    zk_version: int
    mzxid: int = 0
    elr: tuple[int, ...] = ()
    lossy: tuple[int, ...] = ()
    last_known_leader: int = NO_BROKER

    @classmethod
    def of(cls, state: PartitionStateZnode, zk_version: int, mzxid: int = 0) -> LeaderAndIsr:
        return cls(
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.controller_epoch,
            zk_version,
            mzxid,
            tuple(state.elr),
            tuple(state.lossy),
            state.last_known_leader,
        )

    def to_znode(self) -> PartitionStateZnode:
        return PartitionStateZnode(
            controller_epoch=self.controller_epoch,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=list(self.isr),
            elr=list(self.elr),
            lossy=list(self.lossy),
            last_known_leader=self.last_known_leader,
        )

    @property
    def has_leader(self) -> bool:
        return self.leader >= 0

    @property
    def whole(self) -> tuple[int, ...]:
        """Who has everything that is committed, alive or not: ISR, but for who may have lost it, and eligible ones."""
        return tuple(dict.fromkeys((*(member for member in self.isr if member not in self.lossy), *self.elr)))


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One state znode to write: created where there is none `before`, else on the condition that it has that version
    still. `after.zk_version` is what the write will yield.

    why: for the state-change log. unclean: data may be lost; counted and logged loudly. life: how often the new leader
    was started when it said what made it leader; it is written only while that is so. None: it said nothing.
    """

    topic_partition: TopicPartition
    before: LeaderAndIsr | None
    after: LeaderAndIsr
    why: str
    unclean: bool = False
    life: int | None = None

    @property
    def expected_version(self) -> int | None:
        return None if self.before is None else self.before.zk_version


@dataclass(slots=True)
class ControllerContext:
    """The picture. `brokers` holds every live broker, also those that are shutting down.

    suspects: brokers that are registered and whose processes seem to be gone (`liveness`): they do not count as live,
        and may come back as they are.
    shutting_down: brokers that asked for a controlled shutdown → the epoch of the life that did (`is_leaving`); they
        still get requests but lead nothing new.
    unfinished_deletions: topics of `deleting` that something holds up → what.
    offline_replicas: whose log failed, was refused or cannot be made, on a live broker → why; "" where that is not
        kept any more.
    later_epochs: whose log was refused for a leader epoch later than its partition's → that epoch; also while its
        broker is away, until a role is taken with it.
    accepted_losses: partitions of which an operator accepted that data is lost, until somebody leads.
    """

    epoch: int = 0
    epoch_zk_version: int = -1
    brokers: dict[int, LiveBroker] = field(default_factory=dict)
    suspects: dict[int, LiveBroker] = field(default_factory=dict)
    shutting_down: dict[int, int] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    states: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    deleting: dict[str, None] = field(default_factory=dict)
    unfinished_deletions: dict[str, str] = field(default_factory=dict)
    offline_replicas: dict[Replica, str] = field(default_factory=dict)
    later_epochs: dict[Replica, int] = field(default_factory=dict)
    accepted_losses: dict[TopicPartition, None] = field(default_factory=dict)

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Assigned replicas, preferred first; empty for a partition that does not exist."""
        topic = self.topics.get(topic_partition.topic)
        return () if topic is None else topic.assignment.get(topic_partition.partition, ())

    def replicas_of(self, topic_partition: TopicPartition) -> PartitionReplicas | None:
        """The same with what a reassignment has made of them. None: there is no such partition."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.replicas_of(topic_partition.partition)

    def moving(self) -> dict[TopicPartition, PartitionReplicas]:
        """The partitions that are being reassigned; a topic that is being deleted moves no more (invariant 36)."""
        found: dict[TopicPartition, PartitionReplicas] = {}
        for name, topic in self.topics.items():
            if name not in self.deleting and (topic.adding_replicas or topic.removing_replicas):
                for partition in sorted({*topic.adding_replicas, *topic.removing_replicas}):
                    replicas = topic.replicas_of(partition)
                    if replicas is not None and replicas.is_moving:
                        found[TopicPartition(name, partition)] = replicas
        return found

    def set_replicas(self, changed: Mapping[TopicPartition, PartitionReplicas]) -> None:
        """ZooKeeper has these replicas of partitions now. What was said of others is forgotten."""
        by_topic: dict[str, dict[int, PartitionReplicas]] = {}
        for (name, partition), replicas in changed.items():
            by_topic.setdefault(name, {})[partition] = replicas
        for name, its_own in by_topic.items():
            self.topics[name] = self.topics[name].with_replicas(its_own)
        for said in (self.offline_replicas, self.later_epochs):
            for broker_id, tp in [key for key in said if key[1] in changed]:
                if broker_id not in changed[tp].assigned:
                    said.pop((broker_id, tp), None)

    def partitions(self, topics: Iterable[str] | None = None) -> Iterator[TopicPartition]:
        """Every assigned partition (of `topics`), in the order of topic and partition."""
        for name in self.topics if topics is None else topics:
            topic = self.topics.get(name)
            if topic is not None:
                for partition in topic.assignment:
                    yield TopicPartition(name, partition)

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """Partitions that have a replica on this broker."""
        return [tp for tp in self.partitions() if broker_id in self.replicas(tp)]

    def is_online(self, broker_id: int, topic_partition: TopicPartition) -> bool:
        """Its broker lives (or is shutting down) and its log works."""
        return broker_id in self.brokers and (broker_id, topic_partition) not in self.offline_replicas

    def able_replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Those that are online and stay, preferred first. (Who has the data is another question:
        `LeaderAndIsr.whole`.)"""
        replicas = self.replicas(topic_partition)
        return tuple(r for r in replicas if self.is_online(r, topic_partition) and not self.is_leaving(r))

    def is_leaving(self, broker_id: int) -> bool:
        """This life of the broker asked for a controlled shutdown, whether it was suspected meanwhile or not."""
        broker = self.brokers.get(broker_id)
        return broker is not None and self.shutting_down.get(broker_id) == broker.epoch

    def is_new(self, broker_id: int, topic: Topic) -> bool:
        """The topic was made since this live broker registered, thus since it read its log directories: none of those
        holds anything of it that the broker does not know. (A state proves nothing: it may have been made anew.)"""
        return topic.czxid > self.brokers[broker_id].epoch

    def offline_replicas_of(self, topic_partition: TopicPartition) -> list[int]:
        return [replica for replica in self.replicas(topic_partition) if not self.is_online(replica, topic_partition)]

    def refused_replicas_of(self, topic_partition: TopicPartition) -> list[RefusedReplica]:
        """Replicas that a live broker does not serve, with what it says why; others are left out."""
        reasons = ((b, self.offline_replicas.get((b, topic_partition))) for b in self.replicas(topic_partition))
        return [RefusedReplica(broker_id, why) for broker_id, why in reasons if why]

    def note_refusal(self, replica: Replica, why: str) -> bool:
        """A live broker does not serve this replica. Returns whether that, or why, is news."""
        known = self.offline_replicas.get(replica)
        is_room = bool(known) or len(self.offline_replicas) < MAX_REASONS
        self.offline_replicas[replica] = why if is_room else ""
        return self.offline_replicas[replica] != known

    def note_role(self, replica: Replica) -> bool:
        """A live broker serves this replica. Returns whether that is news."""
        was_later = self.later_epochs.pop(replica, None) is not None
        return self.offline_replicas.pop(replica, None) is not None or was_later

    def replicas_with_later_epochs(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Those whose logs were written under a later state than this one: it is an old copy or was made anew."""
        if not self.later_epochs:
            return ()
        epochs = {r: self.later_epochs.get((r, topic_partition), NO_EPOCH) for r in self.replicas(topic_partition)}
        return tuple(replica for replica, epoch in epochs.items() if self.is_later(epoch, topic_partition))

    def is_later(self, log_epoch: int, topic_partition: TopicPartition) -> bool:
        state = self.states.get(topic_partition)
        return log_epoch > (NO_EPOCH if state is None else state.leader_epoch)

    def has_live_leader(self, topic_partition: TopicPartition) -> bool:
        """Its leader lives. One that is no replica is never told to lead."""
        state = self.states.get(topic_partition)
        return (
            state is not None
            and state.leader in self.replicas(topic_partition)
            and self.is_online(state.leader, topic_partition)
        )

    def offline_partitions(self) -> list[TopicPartition]:
        """Partitions without a live leader that are not being deleted."""
        return [tp for tp in self.partitions() if tp.topic not in self.deleting and not self.has_live_leader(tp)]

    def leads(self, broker_id: int) -> list[TopicPartition]:
        """Partitions that this broker leads."""
        return [tp for tp, state in self.states.items() if state.leader == broker_id and broker_id != NO_BROKER]

    def remove_topic(self, name: str) -> None:
        """Forget a topic with all that hangs on it."""
        self.topics.pop(name, None)
        self.deleting.pop(name, None)
        for gone in [tp for tp in self.states if tp.topic == name]:
            del self.states[gone]
        self.offline_replicas = {key: why for key, why in self.offline_replicas.items() if key[1].topic != name}
        self.later_epochs = {key: epoch for key, epoch in self.later_epochs.items() if key[1].topic != name}

    def remove_broker(self, broker_id: int) -> None:
        """Forget one life of a broker: what was said of it does not hold for its next one. It may come back in the same
        life (`suspects`): whether that one is about to stop counts by its epoch."""
        self.brokers.pop(broker_id, None)
        self.offline_replicas = {key: why for key, why in self.offline_replicas.items() if key[0] != broker_id}
