"""Where a partition stands, in a cluster that is wholly in memory: what ZooKeeper has of it, and who believes what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from strandline.broker.replication.partition import Partition
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import BrokerIdZnode, PartitionStateZnode
from strandline.testkit.zookeeper.tree import ZnodeTree


class HasTree(Protocol):
    tree: ZnodeTree


class ClusterView(ABC):
    """`nodes`: by broker id, whether they run or not."""

    zookeeper: HasTree
    nodes: Mapping[int, Any]

    @abstractmethod
    def hosts(self, broker_id: int, tp: TopicPartition) -> bool:
        """Whether that broker runs and has a replica."""

    @abstractmethod
    def partition(self, broker_id: int, tp: TopicPartition) -> Partition:
        """A replica. KeyError when that broker does not host it (yet)."""

    def state(self, tp: TopicPartition) -> PartitionStateZnode:
        """Leader and ISR as ZooKeeper has them. NoNode before the topic is there."""
        path = PartitionStateZnode.path(tp.topic, tp.partition)
        return PartitionStateZnode.decode(path, self.zookeeper.tree.get(path).data)

    def leader(self, tp: TopicPartition) -> int:
        """As ZooKeeper has it; −1: nobody."""
        return self.state(tp).leader

    def isr(self, tp: TopicPartition) -> list[int]:
        return sorted(self.state(tp).isr)

    def leads(self, broker_id: int, tp: TopicPartition) -> bool:
        """Whether that broker believes that it leads."""
        return self.hosts(broker_id, tp) and self.partition(broker_id, tp).leadership is not None

    def registered(self) -> list[int]:
        return [n for n in self.nodes if self.zookeeper.tree.exists(BrokerIdZnode.path(n)) is not None]
