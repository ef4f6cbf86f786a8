"""Failures that nobody has asked about: told by the next `flush` or `close`, each once.

A failure counts as read where the program has asked the record's future or delivery for its outcome, or is called back
by it, or by the producer's `on_batch`. Records that are delivered cost nothing here.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from strandline.client.errors import SendsFailed

MAX_REMEMBERED = 10_000
"""Calls with failures; of older ones the records count as they stand then."""


class Unread(NamedTuple):
    """Records that failed, and the first error."""

    records_count: int
    error: Exception | None


class Failed(Protocol):
    """Who is told what becomes of records, as far as this file is concerned."""

    def unread_failures(self) -> Unread:
        """What has failed of them so far, if nobody has read it."""


class UnreadFailures:
    """Of one producer. Noted in the loop, taken by any thread."""

    def __init__(self) -> None:
        self._noted: deque[Failed] = deque()
        self._older_count = 0
        self._older_error: Exception | None = None

    def note(self, sink: Failed) -> None:
        """Some of its records have just failed."""
        self._noted.append(sink)
        if len(self._noted) > MAX_REMEMBERED:
            count, error = self._noted.popleft().unread_failures()
            self._older_count += count
            self._older_error = self._older_error or error

    def take(self) -> SendsFailed | None:
        """All that is unread, and from now on told; None where there is nothing."""
        count, first = self._older_count, self._older_error
        self._older_count, self._older_error = 0, None
        seen: dict[int, Failed] = {}
        while self._noted:
            sink = self._noted.popleft()
            if id(sink) in seen:
                continue
            seen[id(sink)] = sink
            unread = sink.unread_failures()
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
