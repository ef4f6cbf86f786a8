"""The place of one request in its connection's response order, and when it came to what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.broker.network.regions import Piece
from strandline.broker.network.request_counts import NOT_YET, RequestTimes


class ResponseSlot(msgspec.Struct, eq=False):
    """head: None until answered, then the encoded frame up to its attachments (empty: answered by silence).

    times: of a request that stayed behind when its burst ended. answered_at: of such a one; monotonic seconds."""

    head: bytes | None = None
    attachments: Sequence[Piece] = ()
    times: RequestTimes | None = None
    answered_at: float = NOT_YET
