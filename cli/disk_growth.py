"""Whether what grows on a volume is bounded by its retention, before the volume is full. Pure.

Known is what `retention.bytes` lets each log come to. Retention by time says nothing here: when the oldest records go
is in no answer of a broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.client.log_dirs import LogDirView

CLEANUP, RETENTION, SEGMENT = "cleanup.policy", "retention.bytes", "segment.bytes"
BOUNDS = (CLEANUP, RETENTION, SEGMENT)
"""The keys of topics that are asked for."""


def ends_in_time(was: LogDirView, now: LogDirView, topic_configs: Mapping[str, Mapping[str, str | None]]) -> bool:
    """Each log that has grown between two looks at this directory has a largest size, and there is room for all of
    that. What somebody else writes to the volume is not known: no log has grown, and nothing is bounded."""
    room_bytes = 0
    grown = [
        (tp, log.size_bytes)
        for tp, log in now.logs.items()
        if log.size_bytes > (was.logs[tp].size_bytes if tp in was.logs else 0)
    ]
    for tp, size_bytes in grown:
        bound = _largest(topic_configs.get(tp.topic, {}))
        if bound is None:
            return False
        room_bytes += max(0, bound - size_bytes)
    return bool(grown) and room_bytes < now.usable_bytes


def _largest(configs: Mapping[str, str | None]) -> int | None:
    """Retention takes whole segments, so one more may be there. None: nothing bounds it."""
    kept, segment = configs.get(RETENTION), configs.get(SEGMENT)
    if kept is None or segment is None or int(kept) < 0 or "delete" not in (configs.get(CLEANUP) or ""):
        return None
    return int(kept) + int(segment)
