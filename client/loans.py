"""Records for a loop over a consumer, one by one: `for record in consumer`, `async for record in consumer`.

The event loop takes them as a poll does, and lends them to the program's loop, which takes them in its own thread or
task, without a crossing for each. What it has taken counts as read, and nothing else does: positions and commits look
at how far each loan is (`Assigned.read_position`). So a `break` loses nothing, and commits nothing that was not handed
out; a poll, or another loop, goes on behind the last record that was.

Each step of the loop counts as a poll: in a group one a second goes to the event loop, so that commits are made, and a
rebalance is taken part in, however slowly the records are worked on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

from strandline.client.deserializing import Deserializers
from strandline.client.errors import DeserializationFailed
from strandline.client.record import ConsumerRecord, Loan
from strandline.client.settings import ConsumerSettings
from strandline.protocol.types import TopicPartition

TOUCH_S = 1.0
"""A loop that has records left tells its group so often that it goes on."""


class Reader:
    """The program's side: what it was lent, and how its records are made. Used by one thread or task at a time."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.wait_ms = settings.consumer_timeout_ms
        """A loop without a record for so long ends."""
        self.touch_ms = settings.default_api_timeout_ms
        """A rebalance may take so long."""
        self._touch_every_s = TOUCH_S if settings.group_id else math.inf
        self._touch_at = math.inf
        self._loans: deque[Loan] = deque()
        self._deserializers = Deserializers(settings)
        self._failure: DeserializationFailed | None = None

    def is_due(self, now_s: float) -> bool:
        """The event loop is to be told now that the loop goes on. Asked before each record."""
        if now_s < self._touch_at or not self._loans:
            return False
        self._touch_at = now_s + self._touch_every_s
        return True

    def add(self, loans: Iterable[Loan], now_s: float) -> None:
        """What a step has lent."""
        self._loans.extend(loans)
        self._touch_at = now_s + self._touch_every_s

    def end(self) -> None:
        """Hand out nothing more; by any thread."""
        self._loans = deque()  # a loop may be in the middle of the other one

    def next(self) -> ConsumerRecord | None:
        """The next record, which counts as read from now on; None: more has to be lent. DeserializationFailed: it stays
        the next one."""
        loans = self._loans
        while loans:
            loan = loans[0]
            taken = loan.taken
            if loan.is_over or taken == len(loan.records):
                loans.popleft()
                continue
            if loans is not self._loans:  # ended meanwhile
                return None
            record = loan.records[taken]
            if self._deserializers.are_needed:
                record = self._deserializers.applied(record)
            loan.taken = taken + 1  # last: an interrupt comes before it, or within the loop's body
            return record
        return None

    # --- Polls ---

    def deserialized(
        self, polled: Mapping[TopicPartition, list[ConsumerRecord]]
    ) -> tuple[dict[TopicPartition, list[ConsumerRecord]], dict[TopicPartition, list[ConsumerRecord]]]:
        """What a poll returns, and what is to be given back: records from the first that failed on, of each partition.
        What failed is kept for `take_failure`."""
        good: dict[TopicPartition, list[ConsumerRecord]] = {}
        rest: dict[TopicPartition, list[ConsumerRecord]] = {}
        if not self._deserializers.are_needed:
            return dict(polled), rest
        for partition, records in polled.items():
            made: list[ConsumerRecord] = []
            try:
                for record in records:
                    made.append(self._deserializers.applied(record))
            except DeserializationFailed as failure:
                self._failure = self._failure or failure
                rest[partition] = records[len(made) :]
            if made:
                good[partition] = made
        return good, rest

    def take_failure(self) -> DeserializationFailed | None:
        """What the last poll could not return."""
        failure, self._failure = self._failure, None
        return failure
