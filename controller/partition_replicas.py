"""The replicas of one partition, also while a reassignment moves it. Immutable; whatever can be derived is derived.

    original   who held the partition before the reassignment began     = assigned − adding
    target     who is to hold it afterwards, preferred first            = assigned − removing

A replica that stands in both lists was added by this reassignment and has to go again, since it was cancelled or got
another target meanwhile. So neither of the two sets is stored anywhere, and the topic's znode tells all (KIP-455).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """`assigned`: all that hold the partition or are about to, those of the target first. `adding`: who was no replica
    before. `removing`: who will be none afterwards."""

    assigned: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, assigned: Sequence[int], adding: Sequence[int], removing: Sequence[int]) -> PartitionReplicas:
        """What names replicas that are not assigned is left out."""
        return cls(
            tuple(assigned),
            tuple(replica for replica in assigned if replica in adding),
            tuple(replica for replica in assigned if replica in removing),
        )

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.assigned if replica not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.assigned if replica not in self.adding)

    @property
    def replication_factor(self) -> int:
        """How many replicas count for the minimum in sync: as many as before, until the reassignment is done. Else a
        partition that gets more replicas would refuse producers while those are copied."""
        return len(self.original) or len(self.assigned)

    @property
    def is_cancelled(self) -> bool:
        """Nobody is to be a replica who was none before."""
        return all(replica in self.removing for replica in self.adding)

    def towards(self, target: Sequence[int]) -> PartitionReplicas:
        """The same partition on its way to another target. Who held it before stays the same, whatever is under way;
        whom an earlier target has added meanwhile goes with the others, once that is safe."""
        original = self.original or self.assigned
        assigned = tuple(dict.fromkeys((*target, *original, *self.assigned)))
        return PartitionReplicas(
            assigned,
            tuple(replica for replica in assigned if replica not in original),
            tuple(replica for replica in assigned if replica not in target),
        )

    @property
    def done(self) -> PartitionReplicas:
        """Once the reassignment is done."""
        return PartitionReplicas(self.target)
