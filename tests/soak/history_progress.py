"""Whether a run of `make soak-history` still gets on: without a bound one whose cluster is lost would last for ever."""

from __future__ import annotations

from collections.abc import Collection

STALLED_S = 180.0
"""Without a fault under way: by then any cluster acknowledges records again."""
STALLED_ANYWAY_S = 600.0
"""Whatever is done to it: no fault strikes all of it for so long, and those that follow one another let it breathe."""


class Progress:
    """Is told again and again how many records are acknowledged, and which faults are under way."""

    def __init__(self, now_s: float) -> None:
        self._acked = 0
        self._acked_s = self._struck_s = now_s
        """When there were more than before, and when a fault was last under way."""

    def note(self, acked: int, under_way: Collection[str], now_s: float) -> str:
        """Empty: it gets on. Else what is wrong."""
        if acked > self._acked:
            self._acked, self._acked_s = acked, now_s
        if under_way:
            self._struck_s = now_s
        silent_s = now_s - self._acked_s
        if silent_s >= STALLED_ANYWAY_S:
            return f"nothing is acknowledged for {silent_s:.0f} s"
        if silent_s >= STALLED_S and now_s - self._struck_s >= STALLED_S:
            return (
                f"nothing is acknowledged for {silent_s:.0f} s, the last {now_s - self._struck_s:.0f} s without a fault"
            )
        return ""
