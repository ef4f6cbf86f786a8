"""How long a writer waits for leaders to agree with what can be read."""

from __future__ import annotations

from typing import Protocol

from strandline.spark_connector.errors import SourceError

PATIENCE_MS = 120_000
"""How long what a leader knows, or refuses, may contradict what can be read: one that was just deposed does so for a
moment, and a record whose followers are away is not committed yet."""


class Pauses(Protocol):
    """Time, as who waits for the cluster sees it."""

    def now_ms(self) -> int:
        """Wall clock."""

    def pause(self) -> None:
        """Let leaders hear of one another."""


class Patience:
    """With what may be otherwise in a moment."""

    def __init__(self, cluster: Pauses) -> None:
        self._cluster = cluster
        self._ends_at_ms: int | None = None

    def wait(self, error: SourceError) -> None:
        """Raises it once that has been so for too long."""
        now_ms = self._cluster.now_ms()
        if self._ends_at_ms is None:
            self._ends_at_ms = now_ms + PATIENCE_MS
        if now_ms > self._ends_at_ms:
            raise error
        self._cluster.pause()

    def end(self) -> None:
        """It is otherwise."""
        self._ends_at_ms = None
