"""The states of a group, the moves between them, and what is answered in each: tables, as Kafka's classic coordinator
has them.

```
          ┌──────────── all left ───────────┐
          v                                 │
 Empty ──a member joins──> PreparingRebalance ──all have joined, or time is over──> CompletingRebalance
                              ^   ^                                                    │       │
                              │   └──────── a member comes, goes or is late ───────────┘       │
                              └── the same ── Stable <──── the leader's assignments are kept ──┘
 any ──deleted, expired, or its coordinator moves──> Dead
```
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from strandline.protocol.errors import ErrorCode


class GroupState(enum.Enum):
    """The value is the name that clients are told."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState

COMES_FROM: Mapping[GroupState, tuple[GroupState, ...]] = {
    _EMPTY: (_PREPARING,),
    _PREPARING: (_EMPTY, _COMPLETING, _STABLE),
    _COMPLETING: (_PREPARING,),
    _STABLE: (_COMPLETING,),
    _DEAD: (_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD),
}
"""State → those that lead to it; nothing else does."""

HEARTBEAT: Mapping[GroupState, ErrorCode] = {
    _EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    _COMPLETING: ErrorCode.NONE,
    _STABLE: ErrorCode.NONE,
    _DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What a heartbeat of a member of this generation is answered."""

COMMIT: Mapping[GroupState, ErrorCode] = {
    _EMPTY: ErrorCode.NONE,
    _PREPARING: ErrorCode.NONE,
    _COMPLETING: ErrorCode.REBALANCE_IN_PROGRESS,
    _STABLE: ErrorCode.NONE,
    _DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The same of a commit. While the next generation is prepared its members still have their partitions; once it has
begun they have joined it and may commit only when they know what is theirs."""


def check_move(source: GroupState, target: GroupState) -> None:
    """A move that is not in the table is a bug here."""
    assert source in COMES_FROM[target], f"a group does not go from {source.value} to {target.value}"
