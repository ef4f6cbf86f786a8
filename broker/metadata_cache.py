"""What this broker knows of the cluster, from the controller's UpdateMetadata: answers Metadata for any client.

A topic's states are replaced whole; a partition's leader epoch never goes back within one topic id (invariant 37).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.client.errors import CannotReachBroker
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    UnfinishedDeletion,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from strandline.protocol.types import NO_BROKER, TopicId
from strandline.runtime.network import Address

Deleted = dict[str, set[int]]
"""Partitions, by topic."""


@dataclass(slots=True)
class TopicMetadata:
    topic_id: TopicId
    partitions: dict[int, UpdateMetadataPartitionState] = field(default_factory=dict)


class MetadataCache:
    """Brokers that live, topics, and who leads what."""

    def __init__(self) -> None:
        self.brokers: dict[int, UpdateMetadataBroker] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.name_of: dict[TopicId, str] = {}
        """Of each of them, by its id."""
        self.unfinished_deletions: list[UnfinishedDeletion] = []
        self.controller_id = NO_BROKER
        self.version = 0
        """Rises with each update."""

    def partition(self, topic: str, index: int) -> UpdateMetadataPartitionState | None:
        known = self.topics.get(topic)
        return known.partitions.get(index) if known is not None else None

    def partitions_of(self, topic: str) -> int:
        """How many a topic has; 0 where it is not known."""
        known = self.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def has_topic(self, name: str, topic_id: TopicId) -> bool:
        """Whether the topic of that name has this id now."""
        known = self.topics.get(name)
        return known is not None and known.topic_id == topic_id

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def address_of(self, broker_id: int, listener: str) -> Address:
        """Where that listener of the broker is reached. CannotReachBroker when it is not known to live."""
        broker = self.brokers.get(broker_id)
        for endpoint in broker.endpoints if broker is not None else ():
            if endpoint.listener == listener:
                return Address(endpoint.host, endpoint.port)
        raise CannotReachBroker(f"broker {broker_id} has no live listener {listener} that this broker knows of")

    def key_of(self, broker_id: int) -> str:
        """By which that broker knows that another one asks; "" where it is not known."""
        broker = self.brokers.get(broker_id)
        return "" if broker is None else broker.broker_key

    def update(self, request: UpdateMetadataRequest) -> Deleted:
        """Take over what the controller says: live brokers and deletions whole, topics as a change set. Returns what
        was known and is deleted, also where a topic of that name was made anew; not what went unheard: an old copy of
        ZooKeeper's data lacks topics, too, and nothing that groups have committed for these is to go with them."""
        deleted: Deleted = {}
        self.version += 1
        self.controller_id = request.controller_id
        self.brokers = {broker.id: broker for broker in request.live_brokers}
        self.unfinished_deletions = request.unfinished_deletions
        if request.all_topics is not None:
            there = frozenset(request.all_topics)
            for name in [name for name in self.topics if name not in there]:
                self.name_of.pop(self.topics.pop(name).topic_id, None)
        for topic in request.topic_states:
            known = self.topics.get(topic.topic_name)
            if known is None or known.topic_id != topic.topic_id:
                if all(state.leader == LEADER_DURING_DELETE for state in topic.partition_states):
                    continue  # gone already, or created anew since: that one stays
                if known is not None:
                    self.name_of.pop(known.topic_id, None)
                    deleted.setdefault(topic.topic_name, set()).update(known.partitions)
                known = self.topics[topic.topic_name] = TopicMetadata(topic.topic_id)
                self.name_of[topic.topic_id] = topic.topic_name
            for state in topic.partition_states:
                if state.leader == LEADER_DURING_DELETE:
                    if known.partitions.pop(state.partition_index, None) is not None:
                        deleted.setdefault(topic.topic_name, set()).add(state.partition_index)
                    continue
                current = known.partitions.get(state.partition_index)
                if current is None or (state.leader_epoch, state.controller_epoch) >= (
                    current.leader_epoch,
                    current.controller_epoch,
                ):
                    known.partitions[state.partition_index] = state
            if not known.partitions:
                del self.topics[topic.topic_name]
                self.name_of.pop(known.topic_id, None)
        return deleted
