"""The consumer's side of a fetch session (KIP-227): what has to be named in the next request to one broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import NO_EPOCH

NO_SESSION = 0
FULL = 0
WITHOUT = -1


class Wanted(NamedTuple):
    """From where one partition is fetched. fetched_epoch: of the record before; −1: it is not told."""

    offset: int
    leader_epoch: int
    fetched_epoch: int = NO_EPOCH


class Step(NamedTuple):
    """What one request says. named: partitions that are new or have another position."""

    session_id: int
    epoch: int
    named: dict[int, Wanted]
    forgotten: list[int]


@dataclass(eq=False)
class FetchSession:
    """With one broker. is_used: False asks without a session each time."""

    is_used: bool
    _id: int = NO_SESSION
    _epoch: int = FULL
    _known: dict[int, Wanted] = field(default_factory=dict)

    def next_step(self, wanted: dict[int, Wanted]) -> Step:
        if not self.is_used:
            return Step(NO_SESSION, WITHOUT, wanted, [])
        known = self._known if self._epoch != FULL else {}
        self._known = dict(wanted)
        named = {partition: each for partition, each in wanted.items() if known.get(partition) != each}
        return Step(self._id, self._epoch, named, sorted(known.keys() - wanted.keys()))

    def answered(self, session_id: int) -> None:
        """session_id: as the answer has it; 0: the broker keeps none."""
        self._id = session_id
        self._epoch = FULL if session_id == NO_SESSION else self._epoch + 1

    def failed(self, code: ErrorCode | None = None) -> None:
        """The next request begins anew. code: as the answer as a whole has it; None: there was no answer."""
        self._epoch = FULL
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = NO_SESSION
