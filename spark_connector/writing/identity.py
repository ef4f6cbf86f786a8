"""Who a task writes as: the same in each of its attempts, so that the log tells what an earlier one has written. Pure.

| | scope | version |
|---|---|---|
| stream | the query, as its checkpoint knows it | number of the micro-batch |
| batch | option `writeId`, else an id that the driver makes up for this one write | option `writeVersion`, else 0 |

A version becomes the epoch of a producer id, so that the attempts of an earlier one are shut out of each partition that
a later one has written to (KIP-98: a lower epoch is fenced).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

EPOCHS = 2**15
"""Of one producer id: versions beyond them go on with another id."""

MAX_TASKS = 2**20
"""Of one version: the lowest bits of a producer id are the number of its task."""

_OURS = 2**62
"""Brokers give out ids from 0 on: this bit keeps apart what is made up."""

_HASH_BITS = 42


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """One task of one write: `task` is the number of the partition of rows that it writes."""

    scope: str
    version: int
    task: int

    def __post_init__(self) -> None:
        assert 0 <= self.task < MAX_TASKS and self.version >= 0, f"no task {self.task} of version {self.version}"

    @property
    def producer_id(self) -> int:
        return _base(self.scope, self.version) | self.task

    @property
    def epoch(self) -> int:
        return self.version % EPOCHS

    @property
    def group(self) -> str:
        """The consumer group that holds the marks of this scope (`marks`)."""
        return f"strandline-sink.{self.scope}"

    def task_of(self, producer_id: int) -> int | None:
        """Which task of this write has that producer id; None: of another write."""
        base = _base(self.scope, self.version)
        return producer_id - base if base <= producer_id < base + MAX_TASKS else None


def _base(scope: str, version: int) -> int:
    """The producer id of task 0."""
    return made_up_id(f"{scope}\0{version // EPOCHS}")


def made_up_id(name: str) -> int:
    """The first of MAX_TASKS producer ids that no broker gives out, by a name that nobody else has."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return _OURS | (int.from_bytes(digest, "big") >> (64 - _HASH_BITS)) * MAX_TASKS
