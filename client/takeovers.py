"""How long a client waits that was told by a broker that it does not lead, while leadership changes hands.

The usual back-off is for trouble of which nobody knows the end. Here it is known: another broker leads, as the answer
says (KIP-951), or is about to, and has not heard of it yet.
"""

from __future__ import annotations

import math

from strandline.client.metadata import AFTER_NEWS_MS, PartitionView
from strandline.protocol.types import NO_BROKER, NO_EPOCH

MIN_RETRIES = 10
"""Some attempts may be made within a moment, if so many are allowed: fewer are spread as usual."""


def takeover_wait_ms(
    known: PartitionView | None, asked: int, leader_epoch: int, *, attempt: int, retries: int
) -> float:
    """The longest wait before the next attempt; infinite where nothing tells of a takeover.

    known: the partition, once the answer's hint was taken. asked: who answered, as of `leader_epoch` (−1: it does not
    say). attempt: from 1; each waits twice as long for a leader that is to be, so that no broker keeps a client busy.
    retries: how many attempts are allowed after the first."""
    if known is None or known.leader == NO_BROKER or leader_epoch == NO_EPOCH or retries < MIN_RETRIES:
        return math.inf
    if known.leader != asked:
        return AFTER_NEWS_MS if known.leader_epoch == leader_epoch else math.inf
    return AFTER_NEWS_MS * 2.0 ** min(attempt - 1, 20) if known.leader_epoch > leader_epoch else math.inf
