"""The place of one request in its connection's response order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from strandline.broker.network.regions import Piece
from strandline.broker.network.request_counts import NOT_YET


class Answered(NamedTuple):
    """at: monotonic seconds, of an answer that could not leave at once; else NOT_YET."""

    at: float
    has_error: bool


WITH_ERROR = Answered(NOT_YET, has_error=True)
DROPPED = Answered(NOT_YET, has_error=False)
"""Nobody has handled it, and it is answered by silence."""


class ResponseSlot(msgspec.Struct, eq=False):
    """head: None until answered, then the encoded frame up to its attachments (empty: answered by silence).

    answered: None, as for nearly all: without an error, and it leaves as soon as it is there."""

    head: bytes | None = None
    attachments: Sequence[Piece] = ()
    answered: Answered | None = None

    @property
    def has_error(self) -> bool:
        return self.answered is not None and self.answered.has_error
