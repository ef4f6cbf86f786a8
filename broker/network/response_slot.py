"""The place of one request in its connection's response order, and when it came to what."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strandline.broker.network.regions import Piece
from strandline.broker.network.request_counts import NOT_YET, BurstTimes, RequestCounts


class ResponseSlot(msgspec.Struct, eq=False):
    """head: None until answered, then the encoded frame up to its attachments (empty: answered by silence).

    counts, times: where its request is counted; None for what was refused before it had a handler. answered_at:
    monotonic seconds; NOT_YET where it was answered in its burst."""

    head: bytes | None = None
    attachments: Sequence[Piece] = ()
    counts: RequestCounts | None = None
    times: BurstTimes | None = None
    answered_at: float = NOT_YET


def count_answered(slots: Sequence[ResponseSlot], left_at: float, sent_at: float) -> None:
    """The answers in these slots, of which there are some, are with the kernel: count their requests, those of a burst
    together. All of them have `counts` and `times`."""
    first = slots[0]
    counts, times, answered_at = first.counts, first.times, first.answered_at
    assert counts is not None and times is not None
    count = 0
    for slot in slots:
        if slot.times is not times or slot.counts is not counts or slot.answered_at != answered_at:
            counts.took(count, times, answered_at, left_at, sent_at)
            counts, times, answered_at, count = slot.counts, slot.times, slot.answered_at, 0
            assert counts is not None and times is not None
        count += 1
    counts.took(count, times, answered_at, left_at, sent_at)
