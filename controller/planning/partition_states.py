"""The life of a partition: states, legal moves as data, and the state derived from the context.

```
NonExistent ──> New ──> Online <──> Offline
      ^          │         │           │
      └──────────┴─────────┴───────────┘   (deletion)
```
New: assigned, no leader yet. Online: a live replica leads. Offline: it had a leader once and none lives.
"""

from __future__ import annotations

import enum

from strandline.controller.context import ControllerContext
from strandline.protocol.types import TopicPartition


class PartitionState(enum.Enum):
    NON_EXISTENT = "NonExistent"
    NEW = "New"
    ONLINE = "Online"
    OFFLINE = "Offline"


LEGAL_FROM: dict[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
}
"""Target → states from which it may be reached."""


class IllegalPartitionMove(AssertionError):
    """A bug: a partition was about to make a move that the table does not have."""


def check_partition_move(topic_partition: TopicPartition, before: PartitionState, after: PartitionState) -> None:
    """Raises IllegalPartitionMove unless the table allows `before` → `after`."""
    if before not in LEGAL_FROM[after]:
        raise IllegalPartitionMove(f"partition {topic_partition}: {before.value} → {after.value} is no legal move")


def partition_state(context: ControllerContext, topic_partition: TopicPartition) -> PartitionState:
    """Where this partition stands now."""
    if not context.replicas(topic_partition):
        return PartitionState.NON_EXISTENT
    if topic_partition not in context.states:
        return PartitionState.NEW
    return PartitionState.ONLINE if context.has_live_leader(topic_partition) else PartitionState.OFFLINE
