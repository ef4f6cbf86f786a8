"""What a step of a consumer hands out of what is here: records, loans, columns or batches; and how many records it was.

Partitions take turns: each time another one comes first. Records that are damaged are told, and asked for anew: they
may be sound on the broker that leads by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from strandline.client.assignment import Assigned, FetchedBatches, give_back
from strandline.client.errors import CorruptRecords
from strandline.client.fetcher import Fetcher
from strandline.client.record import ConsumerRecord, Loan
from strandline.client.samples import Samples
from strandline.client.settings import ConsumerSettings
from strandline.protocol.types import NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from strandline.client.columns import FetchedColumns


class Taking:
    """From the partitions that the fetcher fills."""

    def __init__(self, settings: ConsumerSettings, fetcher: Fetcher, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._wake = wake
        self._first = 0
        self._counted = 0
        self._lent: list[Loan] = []
        """The last step of a loop lent these: what it has taken of them is not in `_counted`."""
        self.lags = Samples()
        """Of each partition, whenever something was taken of it: how many records were left then."""

    @property
    def handed_out_records(self) -> int:
        """In all, but for those of batches."""
        return self._counted + sum(loan.taken for loan in self._lent)

    def records(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """At most so many."""
        taken = self._records(limit)
        self._counted += sum(map(len, taken.values()))
        return taken

    def loans(self) -> list[Loan]:
        """For a loop, which takes none of the last ones any more."""
        taken = self._records(self._settings.max_poll_records)
        self._counted = self.handed_out_records
        self._lent = [self._fetcher.assigned[partition].lend(records) for partition, records in taken.items()]
        return self._lent

    def batches(self) -> list[FetchedBatches]:
        """All that is buffered, undecoded."""
        taken: list[FetchedBatches] = []
        for state in self._fetcher.assigned.values():
            while not state.paused and (batches := state.take_batches()) is not None:
                taken.append(batches)
                self._note_lag(state)
            self._fetcher.reset_when_drained(state)
        return taken

    def columns(self) -> list[FetchedColumns]:
        """All that is buffered. CorruptRecords and the like where nothing else is left."""
        taken: list[FetchedColumns] = []
        failed: tuple[Assigned, Exception] | None = None
        for state in self._in_turn():
            if state.paused:
                continue
            had_records = state.has_records
            try:
                while (columns := state.take_columns(self._settings.check_crcs)) is not None:
                    taken.append(columns)
                    self._counted += columns.records_count
                    self._note_lag(state)
            except Exception as error:
                failed = failed or (state, error)
                continue  # met again by the next poll
            if had_records:
                self._wake()  # there is room for the next fetch, whatever came of this one
            self._fetcher.reset_when_drained(state)
        if failed is not None and not taken:
            self._give_up(*failed)
            raise failed[1]
        return taken

    def give_back(self, taken: object) -> None:
        """Nobody got it. Of loans nothing counts as read yet."""
        self._counted -= give_back(self._fetcher.assigned, taken)

    def _records(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        left = limit
        for state in self._in_turn():
            if left <= 0:
                break
            if state.paused:
                continue
            if state.has_records:
                try:
                    records = state.take_records(left, self._settings.check_crcs)
                except Exception as error:
                    if taken:
                        continue  # met again by the next poll
                    self._give_up(state, error)
                    raise
                if records:
                    taken[state.topic_partition] = records
                    left -= len(records)
                    self._note_lag(state)
                else:
                    self._wake()  # compaction left batches without records: there is room for the next fetch
            self._fetcher.reset_when_drained(state)
        return taken

    def _give_up(self, state: Assigned, error: Exception) -> None:
        """What cannot be read is asked for once more."""
        if isinstance(error, CorruptRecords):
            state.fetch_anew()
            self._wake()  # the broker may not have been asked for anything, since so much was buffered

    def _note_lag(self, state: Assigned) -> None:
        if state.high_watermark != NO_OFFSET:
            self.lags.add(max(0, state.high_watermark - state.position), trio.current_time())

    def _in_turn(self) -> list[Assigned]:
        states = list(self._fetcher.assigned.values())
        self._first = (self._first + 1) % max(1, len(states))
        return states[self._first :] + states[: self._first]
