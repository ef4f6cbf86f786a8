"""Failures that nobody has asked about: told by the next `flush` or `close`, each once.

A failure counts as read where the program has asked the record's future or delivery for its outcome, or is called back
by it, or by the producer's `on_batch`. Records that are delivered cost nothing here.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from strandline.client.errors import SendsFailed

SWEEP_AT_LEAST = 100
"""So many notes are kept before those are looked for whose failures have been read."""

MAX_REMEMBERED = 10_000
"""Calls with failures, or a quarter more; of older ones the records count as they stand then."""


class Unread(NamedTuple):
    """Records that failed, and the first error."""

    records_count: int
    error: Exception | None


class Failed(Protocol):
    """Who is told what becomes of records, as far as this file is concerned."""

    def take_unread(self) -> Unread:
        """What has failed of them so far, if nobody has read it; from now on it counts as told. Nothing while that
        cannot be known."""

    def has_unread(self) -> bool:
        """Something has failed of them that nobody has read and that was not told."""


class UnreadFailures:
    """Of one producer. Noted in the loop, taken by any thread."""

    def __init__(self) -> None:
        self._noted: dict[int, Failed] = {}
        """By identity, oldest first: a sink is noted once, however many of its batches fail."""
        self._sweep_at = SWEEP_AT_LEAST
        self._older_count = 0
        self._older_error: Exception | None = None

    def note(self, sink: Failed) -> None:
        """Some of its records have just failed."""
        noted = self._noted
        noted.setdefault(id(sink), sink)
        if len(noted) >= self._sweep_at:
            self._sweep()

    def take(self) -> SendsFailed | None:
        """All that is unread, and from now on told; None where there is nothing."""
        count, first = self._older_count, self._older_error
        self._older_count, self._older_error = 0, None
        for sink in list(self._noted.values()):
            if self._noted.pop(id(sink), None) is None:
                continue  # another thread tells it
            unread = sink.take_unread()
            if not unread.records_count and sink.has_unread():
                self._noted.setdefault(id(sink), sink)  # nobody can know yet, since it is on its way to another loop
            count += unread.records_count
            first = first or unread.error
        if not count or first is None:
            return None
        records = "1 record was" if count == 1 else f"{count} records were"
        error = SendsFailed(
            f"{records} not delivered, and nobody has asked for the outcome; the first: {first}",
            failed_records=count,
            outcome_unknown=getattr(first, "outcome_unknown", False),
            cause=first,
        )
        error.__cause__ = first
        return error

    def _sweep(self) -> None:
        """Forget what was read, and then the oldest beyond the limit. In the loop."""
        noted = self._noted
        for sink in list(noted.values()):
            if not sink.has_unread():
                noted.pop(id(sink), None)
        for sink in list(noted.values())[: max(0, len(noted) - MAX_REMEMBERED)]:
            if noted.pop(id(sink), None) is not None:
                count, error = sink.take_unread()
                self._older_count += count
                self._older_error = self._older_error or error
        # Seldom enough that a note costs no more for it than its sink did when it was noted.
        self._sweep_at = max(SWEEP_AT_LEAST, min(2 * len(noted), len(noted) + MAX_REMEMBERED // 4))
