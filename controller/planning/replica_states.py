"""The life of one replica (a broker's copy of a partition): states and legal moves as data.

```
NonExistent ──> New ──> Online <──> Offline ──> DeletionStarted ──> DeletionSuccessful ──> NonExistent
                                       ^              │
                                       └── DeletionIneligible <─┘   (its broker died or its disk refused)
```
Only the deletion states are kept (`topics/deletion_tracker`); the others are derived from the context.
"""

from __future__ import annotations

import enum

from strandline.protocol.types import TopicPartition


class ReplicaState(enum.Enum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"
    DELETION_STARTED = "DeletionStarted"
    DELETION_SUCCESSFUL = "DeletionSuccessful"
    DELETION_INELIGIBLE = "DeletionIneligible"


LEGAL_FROM: dict[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.NEW: frozenset({ReplicaState.NON_EXISTENT}),
    ReplicaState.ONLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.OFFLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE}
    ),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED}),
    ReplicaState.NON_EXISTENT: frozenset({ReplicaState.DELETION_SUCCESSFUL}),
}
"""Target → states from which it may be reached."""


class IllegalReplicaMove(AssertionError):
    """A bug: a replica was about to make a move that the table does not have."""


def check_replica_move(
    broker_id: int, topic_partition: TopicPartition, before: ReplicaState, after: ReplicaState
) -> None:
    """Raises IllegalReplicaMove unless the table allows `before` → `after`."""
    if before not in LEGAL_FROM[after]:
        raise IllegalReplicaMove(
            f"replica of {topic_partition} on broker {broker_id}: {before.value} → {after.value} is no legal move"
        )
