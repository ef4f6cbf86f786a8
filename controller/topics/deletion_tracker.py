"""Deleting topics, step by step and resumable: pure bookkeeping of which replica stands where.

The intent stands in `/admin/delete_topics/<topic>` before anything happens and goes last, in one transaction with the
topic's own znode, so the next controller finds it and starts again; every step may be repeated.

1. The topic leaves elections; all brokers forget it (UpdateMetadata with leader −2).
2. StopReplica(delete, leader epoch −2, topic id) to each replica on a live broker: Offline → DeletionStarted.
3. Answers: DeletionSuccessful, or DeletionIneligible (its broker died or its disk refused), which is tried again when
   the broker is back. A topic with a replica on a dead broker waits: its log would otherwise rise again.
4. Once every replica is DeletionSuccessful its znodes are removed.
"""

from __future__ import annotations

import enum
from itertools import islice

from strandline.controller.controller_context import ControllerContext, Replica
from strandline.protocol.errors import ErrorCode
from strandline.protocol.reasons import reason_of
from strandline.protocol.types import TopicPartition

MAX_UNFINISHED = 50
"""Deletions of which the cluster is told what holds them up: each word to a broker has all of them."""

GONE = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INCONSISTENT_TOPIC_ID})
"""Answers to a deletion after which that broker has no log of *this* topic (the last: one of another id)."""


class ReplicaState(enum.Enum):
    """Of a replica whose topic is being deleted, by Kafka's names. Offline: neither asked to delete it nor refused."""

    OFFLINE = "Offline"
    DELETION_STARTED = "DeletionStarted"
    DELETION_SUCCESSFUL = "DeletionSuccessful"
    DELETION_INELIGIBLE = "DeletionIneligible"


class DeletionTracker:
    """Where each replica of the topics that are being deleted stands. One per term of a controller."""

    def __init__(self) -> None:
        self._replicas: dict[str, dict[Replica, ReplicaState]] = {}
        self._refusals: dict[Replica, str] = {}

    @property
    def topics(self) -> list[str]:
        return list(self._replicas)

    def count(self, state: ReplicaState | None = None) -> int:
        """How many replicas of these topics there are, or stand there."""
        return sum(state in (None, each) for replicas in self._replicas.values() for each in replicas.values())

    def begin(self, context: ControllerContext, topic: str) -> None:
        """Take a topic in; nothing happens to one that is being deleted already."""
        if topic in self._replicas:
            return
        self._replicas[topic] = {
            (broker_id, tp): ReplicaState.OFFLINE
            for tp in context.partitions([topic])
            for broker_id in context.replicas(tp)
        }

    def start_next(self, context: ControllerContext) -> dict[int, list[TopicPartition]]:
        """broker → partitions to delete there now; they are DeletionStarted afterwards. Replicas whose broker is not
        there become DeletionIneligible."""
        result: dict[int, list[TopicPartition]] = {}
        for replicas in self._replicas.values():
            for (broker_id, tp), state in replicas.items():
                if state is not ReplicaState.OFFLINE:
                    continue
                if broker_id in context.brokers:
                    replicas[broker_id, tp] = ReplicaState.DELETION_STARTED
                    result.setdefault(broker_id, []).append(tp)
                else:
                    replicas[broker_id, tp] = ReplicaState.DELETION_INELIGIBLE
        return result

    def why_not(self, context: ControllerContext, topic: str) -> str:
        """Who holds the deletion of a topic up, one broker for all; empty where nobody is known to."""
        for (broker_id, tp), state in self._replicas.get(topic, {}).items():
            if state is ReplicaState.DELETION_SUCCESSFUL:
                continue
            if broker_id not in context.brokers:
                return f"broker {broker_id}, which has a replica of {tp}, is not there"
            if (broker_id, tp) in self._refusals:
                return f"broker {broker_id} cannot delete {tp}: {self._refusals[broker_id, tp]}"
        return ""

    def unfinished(self, context: ControllerContext) -> dict[str, str]:
        """Topic → `why_not`, of those that something holds up."""
        reasons = ((topic, self.why_not(context, topic)) for topic in self._replicas)
        return dict(islice(((topic, reason_of(why)) for topic, why in reasons if why), MAX_UNFINISHED))

    def note_refusal(self, broker_id: int, topic_partition: TopicPartition, why: str) -> bool:
        """Returns whether that is news."""
        is_news = self._refusals.get((broker_id, topic_partition)) != why
        self._refusals[broker_id, topic_partition] = why
        return is_news

    def answered(self, broker_id: int, topic_partition: TopicPartition, error: ErrorCode) -> bool:
        """A broker answered StopReplica(delete). False: it refused, try again later."""
        replicas = self._replicas.get(topic_partition.topic, {})
        if replicas.get((broker_id, topic_partition)) is not ReplicaState.DELETION_STARTED:
            return True  # an answer to an earlier life's request, or a repeated one
        gone = error in GONE
        after = ReplicaState.DELETION_SUCCESSFUL if gone else ReplicaState.DELETION_INELIGIBLE
        replicas[broker_id, topic_partition] = after
        return gone

    def broker_failed(self, broker_id: int) -> None:
        """What it had not confirmed has to be asked again when it is back; what it refused, it may not refuse then."""
        self._refusals = {replica: why for replica, why in self._refusals.items() if replica[0] != broker_id}
        for replicas in self._replicas.values():
            for replica, state in replicas.items():
                if replica[0] == broker_id and state is ReplicaState.DELETION_STARTED:
                    replicas[replica] = ReplicaState.DELETION_INELIGIBLE

    def retry(self, broker_id: int) -> None:
        """The broker is back, or some time has passed since it refused: its refused replicas may be tried again."""
        for replicas in self._replicas.values():
            for replica, state in replicas.items():
                if replica[0] == broker_id and state is ReplicaState.DELETION_INELIGIBLE:
                    replicas[replica] = ReplicaState.OFFLINE

    def finished(self) -> list[str]:
        """Topics of which no replica is left anywhere."""
        return [
            topic
            for topic, replicas in self._replicas.items()
            if all(state is ReplicaState.DELETION_SUCCESSFUL for state in replicas.values())
        ]

    def forget(self, topic: str) -> None:
        """Its znodes are gone."""
        for replica in self._replicas.pop(topic, {}):
            self._refusals.pop(replica, None)
