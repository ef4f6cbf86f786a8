"""Which groups this broker coordinates: those of the partitions of `__consumer_offsets` that it leads.

    partition of a group = |hash of its id, as Java's strings have it| modulo the partitions of that topic

A shard is one such partition: its groups come out of its log before anybody is served (COORDINATOR_LOAD_IN_PROGRESS),
and go when the leadership does. A new epoch of this broker's own changes nothing.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from functools import lru_cache

from strandline.broker.groups.group import Group
from strandline.broker.groups.offsets import GroupOffsets
from strandline.broker.metadata_cache import Deleted
from strandline.broker.replication.deadlines import NEVER
from strandline.broker.replication.partition import Partition
from strandline.protocol.errors import ErrorCode
from strandline.protocol.group_records import can_hold

OFFSETS_TOPIC = "__consumer_offsets"


MAX_ID_BYTES = 2**15 - 1
"""What a string of Kafka's records holds."""
CACHED_CHARACTERS = 256
"""The hashes of longer names are not kept, nor are the names."""
CHARACTERS_PER_COUNT = 128
"""Looking for a group with so long a name costs about as much as one partition of an answer."""


def may_be_a_group(group_id: str) -> bool:
    """Whether records can hold that name. To be asked before it is hashed."""
    return can_hold(group_id)


def cost_of_finding(group_id: str) -> int:
    """As `steps` counts."""
    return 1 + min(len(group_id), MAX_ID_BYTES) // CHARACTERS_PER_COUNT


def java_hash(text: str) -> int:
    """`String.hashCode`: over units of UTF-16, in 32 bits with a sign."""
    return _cached_hash(text) if len(text) <= CACHED_CHARACTERS else _hash(text)


def _hash(text: str) -> int:
    found = 0
    data, _ = codecs.utf_16_le_encode(text, "surrogatepass")  # `str.encode` would open a module when first called
    for unit in struct.unpack(f"<{len(data) // 2}H", data):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - 2**32 if found >= 2**31 else found


_cached_hash = lru_cache(4096)(_hash)


def partition_of(group_id: str, partitions: int) -> int:
    """As Kafka has it: the absolute value of the lowest integer is 0 there."""
    found = java_hash(group_id)
    return 0 if found == -(2**31) else abs(found) % partitions


class Coordinated:
    """A group, its offsets, and when it is to be looked at (`deadlines.Timed`)."""

    __slots__ = ("_look", "deletions", "due_at", "group", "offsets", "shard")

    def __init__(
        self,
        shard: Shard,
        group: Group,
        offsets: GroupOffsets,
        look: Callable[[Coordinated, float], float],
        deletions: int,
    ) -> None:
        """deletions: the number of the last one whose offsets it let go of."""
        self.shard = shard
        self.group = group
        self.offsets = offsets
        self.deletions = deletions
        self.due_at = NEVER
        self._look = look

    def expire(self, now: float) -> float:
        return self._look(self, now)


class Shard:
    """See the module. `groups` is None until they are loaded. `deletions`: the number of the last one that all of its
    groups have heard of. `deleted`: what is gone since the load began. `unburied`: by group, keys whose tombstones are
    not committed, be they under way or refused, each with the last append of one. `overdue`: so many offsets were
    appended by commits that timed out and may still be committed."""

    __slots__ = ("deleted", "deletions", "groups", "overdue", "partition", "unburied")

    def __init__(self, partition: Partition, deletions: int = 0) -> None:
        self.partition = partition
        self.deletions = deletions
        self.deleted: Deleted = {}
        self.unburied: dict[str, dict[bytes, object]] = {}
        self.groups: dict[str, Coordinated] | None = None
        self.overdue = 0


GROUP_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What members are told where the state of their group could not be written (Kafka's table)."""

OFFSET_ERRORS = {
    **GROUP_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The same of a commit."""
