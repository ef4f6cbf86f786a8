"""The part of the fake cluster about replicas on the move: the controller's answers, sizes of logs, throttles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strandline.client.errors import ClientError, UnknownTopic
from strandline.client.log_dirs import LogDirView, LogSize
from strandline.client.metadata import BrokerView, ClusterView, PartitionView, TopicView
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ConfigResource, ConfigSource, DescribeConfigsResourceResult
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address


@dataclass
class MovingReplicas:
    """`racks`: of the brokers that live. `looks`: how often `list` is asked before a reassignment is done, None: it
    never is by itself. `refused`: what the controller says of partitions instead."""

    racks: dict[int, str | None] = field(default_factory=dict)
    size_bytes: dict[TopicPartition, int] = field(default_factory=dict)
    ongoing: dict[TopicPartition, OngoingReassignment] = field(default_factory=dict)
    looks: int | None = 3
    refused: dict[TopicPartition, ClientError] = field(default_factory=dict)
    asked: list[dict[TopicPartition, tuple[int, ...] | None]] = field(default_factory=list)
    elected: list[tuple[list[TopicPartition] | None, bool]] = field(default_factory=list)
    election: dict[TopicPartition, int | ClientError] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    unheard: dict[int, ClientError] = field(default_factory=dict)
    on_look: list[Callable[[], None]] = field(default_factory=list)
    """Called one after the other, one at each look at what is under way."""

    def view(self) -> ClusterView:
        brokers = {each: BrokerView(each, Address("localhost", 9092), rack) for each, rack in self.racks.items()}
        return ClusterView("id", min(self.racks, default=-1), brokers)


class FakeMovingAdmin:
    cluster: Any
    describe_configs: Any

    def _set(self, tp: TopicPartition, **changes: Any) -> None:
        topic: TopicView = self.cluster.topics[tp.topic]
        partitions = {**topic.partitions, tp.partition: replace(topic.partitions[tp.partition], **changes)}
        self.cluster.topics[tp.topic] = replace(topic, partitions=partitions)

    def _view(self, tp: TopicPartition) -> PartitionView:
        topic = self.cluster.topics.get(tp.topic)
        if topic is None or tp.partition not in topic.partitions:
            raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"reassigning {tp}: there is none")
        view: PartitionView = topic.partitions[tp.partition]
        return view

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ClientError | None]:
        moves: MovingReplicas = self.cluster.moves
        moves.asked.append({tp: None if each is None else tuple(each) for tp, each in targets.items()})
        results: dict[TopicPartition, ClientError | None] = {}
        for tp, target in targets.items():
            results[tp] = moves.refused.get(tp)
            if results[tp] is not None:
                continue
            before = moves.ongoing[tp].original if tp in moves.ongoing else self._view(tp).replicas
            if target is None:
                del moves.ongoing[tp]
                self._set(tp, replicas=before)
                continue
            new = tuple(each for each in target if each not in before)
            old = tuple(each for each in before if each not in target)
            if new or old:
                moves.ongoing[tp] = OngoingReassignment((*target, *old), new, old)
            self._set(tp, replicas=(*target, *old))
        return results

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        moves: MovingReplicas = self.cluster.moves
        if moves.on_look:
            moves.on_look.pop(0)()
        if moves.ongoing and moves.looks is not None:
            moves.looks -= 1
            if moves.looks < 0:
                self.finish()
        asked = None if partitions is None else set(partitions)
        return {tp: each for tp, each in moves.ongoing.items() if asked is None or tp in asked}

    def finish(self, *partitions: TopicPartition) -> None:
        """All targets (of these partitions) have everything."""
        ongoing = self.cluster.moves.ongoing
        for tp in partitions or list(ongoing):
            moving = ongoing.pop(tp)
            leader = self._view(tp).leader
            leader = leader if leader in moving.target else moving.target[0]
            self._set(tp, replicas=moving.target, in_sync_replicas=moving.target, leader=leader)

    def describe_log_dirs(
        self, brokers: Iterable[int], partitions: Any = None, *, timeout_ms: float
    ) -> dict[int, list[LogDirView] | ClientError]:
        """Half of what is being copied is there."""
        moves: MovingReplicas = self.cluster.moves
        found: dict[int, list[LogDirView] | ClientError] = {}
        for broker_id in brokers:
            logs = {}
            for tp, size in moves.size_bytes.items():
                if broker_id in self._view(tp).replicas:
                    is_new = tp in moves.ongoing and broker_id in moves.ongoing[tp].adding
                    logs[tp] = LogSize(size // 2 if is_new else size, 0)
            found[broker_id] = moves.unheard.get(broker_id) or [LogDirView("/data", logs)]
        return found

    def elect_leaders(
        self, partitions: list[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, int | ClientError]:
        moves: MovingReplicas = self.cluster.moves
        moves.elected.append((partitions, unclean))
        return {tp: each for tp, each in moves.election.items() if partitions is None or tp in partitions}

    # --- Throttles ---

    def set_config(self, kind: int, name: str, changes: Mapping[str, str | None]) -> None:
        configs = self.cluster.moves.configs.setdefault((kind, name), {})
        for key, value in changes.items():
            if value is None:
                configs.pop(key, None)
            else:
                configs[key] = value

    def set_configs(self, kind: int, name: str) -> list[DescribeConfigsResourceResult]:
        source = ConfigSource.TOPIC if kind == ConfigResource.TOPIC else ConfigSource.DYNAMIC_BROKER
        found = self.cluster.moves.configs.get((kind, name), {})
        return [DescribeConfigsResourceResult(key, value, False, False, source) for key, value in found.items()]

    def describe_topic_configs(
        self, names: Iterable[str], keys: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> dict[str, list[DescribeConfigsResourceResult]]:
        if "configs" in self.cluster.unanswered:
            raise self.cluster.unanswered["configs"]
        if not keys:
            return {name: self.describe_configs(ConfigResource.TOPIC, name) for name in names}
        return {name: self.set_configs(ConfigResource.TOPIC, name) for name in names}
