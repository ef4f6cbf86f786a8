"""The place of one request in its connection's response order, and when it came to what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.broker.network.regions import Piece
from strandline.broker.network.request_counts import NOT_YET, RequestCounts, RequestTimes


class ResponseSlot(msgspec.Struct, eq=False):
    """head: None until answered, then the encoded frame up to its attachments (empty: answered by silence).

    times: of a request that stayed behind when its burst ended. answered_at: of such a one; monotonic seconds.
    has_error: of one that was answered within its burst, and is among the `failed` already."""

    head: bytes | None = None
    attachments: Sequence[Piece] = ()
    times: RequestTimes | None = None
    answered_at: float = NOT_YET
    has_error: bool = False

    def note_error(self, counts: RequestCounts) -> None:
        """An error stands in its answer."""
        if self.times is None:
            self.has_error = True
            counts.failed += 1
        else:
            self.times = self.times.failed()
