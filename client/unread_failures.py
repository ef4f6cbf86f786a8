"""Failures that nobody has asked about: told by the next `flush` or `close`, each once.

A failure counts as read where the program has asked the record's future or delivery for its outcome, waits for it now,
or is called back by it, or by the producer's `on_batch`. Records that are delivered cost nothing here.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from strandline.client.errors import SendsFailed

SWEEP_AT_LEAST = 100
"""So many notes are kept before those are looked for whose failures have been read."""

MAX_REMEMBERED = 10_000
"""Calls with failures, or a quarter more; of older ones only the number of records is kept (`Tally`)."""


class Unread(NamedTuple):
    """Records that failed, and the first error."""

    records_count: int
    error: Exception | None


class Tally:
    """Counts failures of calls that are not remembered one by one. Who reads one of them later has it taken off."""

    def __init__(self) -> None:
        self.records_count = 0
        self.error: Exception | None = None
        """The first one's."""

    def add(self, unread: Unread) -> bool:
        """Whether there is anything in it."""
        self.records_count += unread.records_count
        self.error = self.error or unread.error
        return unread.records_count > 0

    def forget(self, records_count: int = 1) -> None:
        """So many of them were read. Of what was told meanwhile that changes nothing."""
        self.records_count -= records_count


class Failed(Protocol):
    """Who is told what becomes of records, as far as this file is concerned."""

    def take_unread(self) -> Unread:
        """What has failed of them so far, if nobody has read it or is waiting for it; from now on it counts as told.
        Nothing while it cannot be known whether somebody has."""

    def move_unread(self, tally: Tally) -> None:
        """The same counts there from now on, until it is read."""

    def has_unread(self) -> bool:
        """Something has failed of them that nobody has read and that was not told."""


class UnreadFailures:
    """Of one producer. Noted in the loop, taken by any thread."""

    def __init__(self) -> None:
        self._noted: dict[int, Failed] = {}
        """By identity, oldest first: a sink is noted once, however many of its batches fail."""
        self._sweep_at = SWEEP_AT_LEAST
        self._older = Tally()

    def note(self, sink: Failed) -> None:
        """Some of its records have just failed."""
        noted = self._noted
        noted.setdefault(id(sink), sink)
        if len(noted) >= self._sweep_at:
            self._sweep()

    def take(self) -> SendsFailed | None:
        """All that is unread, and from now on told; None where there is nothing."""
        older, self._older = self._older, Tally()
        count, first = older.records_count, older.error
        for sink in list(self._noted.values()):
            if self._noted.pop(id(sink), None) is None:
                continue  # another thread tells it
            unread = sink.take_unread()
            count += unread.records_count
            first = first or unread.error
            if sink.has_unread():  # who waits for it may yet give up; what is on its way to another loop is not known
                self._noted.setdefault(id(sink), sink)
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
                sink.move_unread(self._older)
                if sink.has_unread():  # as in `take`
                    noted.setdefault(id(sink), sink)
        # Seldom enough that a note costs no more for it than its sink did when it was noted.
        self._sweep_at = max(SWEEP_AT_LEAST, min(2 * len(noted), len(noted) + MAX_REMEMBERED // 4))
