"""What a log should hold, as a list; and what a kill in the middle of an operation may leave of it.

A log start that lies inside a segment is in memory until its checkpoint is written. So whatever ends may bring batches
back which lie below the log start (`below`): every rule here takes that into account.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from strandline.protocol.records.batch import read_header
from support.log_audit import is_run_of


@dataclass(frozen=True)
class Model:
    """A log as a list: batches byte for byte, [start, end)."""

    start: int = 0
    end: int = 0
    batches: tuple[bytes, ...] = ()

    def describe(self) -> str:
        return f"[{self.start}, {self.end}) {len(self.batches)} batches"

    def append(self, batches: list[bytes]) -> Model:
        return replace(self, batches=(*self.batches, *batches), end=read_header(batches[-1]).next_offset)

    def cut(self, offset: int) -> Model:
        """Without the tail from `offset` on, whole batches only."""
        kept = tuple(batch for batch in self.batches if read_header(batch).next_offset <= offset)
        end = read_header(self.batches[len(kept)]).base_offset if len(kept) < len(self.batches) else self.end
        return Model(self.start, max(self.start, end), kept)

    def begin_at(self, offset: int) -> Model:
        """Without what lies below `offset`."""
        return Model(offset, self.end, tuple(b for b in self.batches if read_header(b).next_offset > offset))

    def with_head(self, below: Batches) -> Batches:
        """Its batches behind those of `below` that are none of them: a start may have brought some back already, and a
        former version had them before they were taken away."""
        return (*(batch for batch in below if batch not in self.batches), *self.batches)


Batches = tuple[bytes, ...]
Lawful = Callable[[Batches, Model, Model, Model], bool]
"""(below, before, wanted, found): whether a kill may leave `found` where `before` was to become `wanted`."""


def untouched(below: Batches, before: Model, wanted: Model, found: Model) -> bool:
    """The operation changes nothing that is read; or it takes the head away, oldest first."""
    whole = before.with_head(below)
    return found.end == before.end and whole[len(whole) - len(found.batches) :] == found.batches


def longer_or_shorter(below: Batches, before: Model, wanted: Model, found: Model) -> bool:
    """Batches are appended or cut off at the end, one segment after the other."""
    longer, shorter = before.batches, wanted.batches
    if len(longer) < len(shorter):
        longer, shorter = shorter, longer
    if not found.batches:
        return not shorter
    more = len(below) if found.start < before.start else 0
    for count in range(len(shorter), len(longer) + 1):
        if any(found.batches == (*below[len(below) - extra :], *longer[:count]) for extra in range(more + 1)):
            return True
    return False


def replaced(below: Batches, before: Model, wanted: Model, found: Model) -> bool:
    """Everything goes, newest first, and the log begins somewhere else."""
    return is_run_of(found.batches, before.with_head(below))
