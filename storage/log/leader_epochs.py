"""Which leader epoch wrote which offsets of one log: what followers and clients are told when their tails diverge.

Rules (invariant 5): entries rise strictly in epoch *and* in start offset; epoch 0 is valid; an epoch without a record
is replaced by the next one that starts at the same offset. Where compaction took an epoch's first records, whoever
learns it from batches lets it begin behind the last batch of the epoch before: not later, or a replica that has records
of the old epoch there, which were never committed, would not hear that it has to drop them. That cuts a replica further
than need be that is behind the compaction, though, so within such a gap an earlier life is believed (`learn`).

The cache is changed in memory first; its file, `leader-epoch-checkpoint`, is written with each flush and covers
everything below the recovery point. Above it recovery takes the epochs from the batch headers; an epoch that
has no record in the log then is forgotten, whatever the file says; a log that was emptied keeps its last one. So no
disk stands between an election and the first append.

Format of `leader-epoch-checkpoint`, text: `0` (version), the number of entries, then a line `epoch start_offset` each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from strandline.storage.disk.checkpoints import EpochEntry

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEnd(NamedTuple):
    """`epoch` ends at `end_offset` (exclusive); both −1 where nothing is known."""

    epoch: int
    end_offset: int


class LeaderEpochCache:
    """The entries of one log, oldest first."""

    __slots__ = ("_entries", "latest_epoch", "version")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """`entries` may break the rules (a damaged file): those that do are dropped, the older one wins."""
        self._entries: list[EpochEntry] = []
        for entry in entries:
            last = self._entries[-1] if self._entries else EpochEntry(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
            if entry.epoch > last.epoch and entry.start_offset > last.start_offset:
                self._entries.append(EpochEntry(*entry))
        self.version = 0
        """Counts the changes, so that a flush knows whether the file on disk lags behind."""
        self.latest_epoch = UNDEFINED_EPOCH
        """−1 while no epoch is known. A plain attribute: every append compares it."""
        self._note_latest()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def starts(self, first_offset: int) -> Sequence[EpochEntry]:
        """The entries that say where their epoch began, of a log whose segments begin at `first_offset`: the oldest one
        behind it may be the log start of its time, within its epoch."""
        is_start = bool(self._entries) and self._entries[0].start_offset <= first_offset
        return self._entries[0 if is_start else 1 :]

    def assign(self, epoch: int, start_offset: int) -> None:
        """From `start_offset` (the log's end) on, batches carry `epoch`. Nothing when it is the latest one already.

        Both are the caller's own facts, so an epoch or offset that goes back is a bug here, not bad input."""
        if epoch == self.latest_epoch:
            return
        assert epoch > self.latest_epoch, f"leader epoch {epoch} after {self.latest_epoch}"
        if self._entries:
            last = self._entries[-1]
            assert start_offset >= last.start_offset, f"epoch {epoch} starts at {start_offset}, before {last}"
            if last.start_offset == start_offset:
                self._entries.pop()
        self._entries.append(EpochEntry(epoch, start_offset))
        self._changed()

    def learn(self, epoch: int, least: int, most: int, noted: Iterable[EpochEntry] = ()) -> None:
        """The batch at `most` carries `epoch`, the one before it ends at `least`. Where the epoch began in between, and
        which ones came before it there, `noted` says, if it knows this one; else it began at `least`."""
        if epoch == self.latest_epoch:
            return
        there = [
            each for each in noted if self.latest_epoch < each.epoch <= epoch and least <= each.start_offset <= most
        ]
        if not there or there[-1].epoch != epoch:
            there = [EpochEntry(epoch, least)]
        for entry in there:
            self.assign(*entry)

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest known epoch ≤ `epoch` and where it ends.

        Below the first entry: (the epoch asked for, the first start offset). Nothing known: (−1, −1)."""
        if not self._entries or epoch < 0:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        after = bisect_right(self._entries, epoch, key=_epoch_of)
        if after == len(self._entries):
            return EpochEnd(self.latest_epoch, log_end_offset)
        end_offset = self._entries[after].start_offset
        return EpochEnd(self._entries[after - 1].epoch if after else epoch, end_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`, −1 where unknown."""
        after = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[after - 1].epoch if after else UNDEFINED_EPOCH

    def truncate_to(self, offset: int) -> None:
        """The log ends at `offset` now: forget the epochs that start there or later."""
        self._keep(bisect_left(self._entries, offset, key=_start_of))

    def start_at(self, offset: int) -> None:
        """The log begins at `offset` now: the epoch that wrote it starts there, older ones are gone."""
        after = bisect_right(self._entries, offset, key=_start_of)
        if after > 1 or (after == 1 and self._entries[0].start_offset < offset):
            self._entries[:after] = [EpochEntry(self._entries[after - 1].epoch, offset)]
            self._changed()

    def fit(self, log_start_offset: int, log_end_offset: int) -> None:
        """What was stored is of a log with these bounds: epochs without a record are forgotten. One that was emptied
        keeps the epoch of what stood last in it."""
        self.start_at(log_start_offset)
        self.truncate_to(max(log_end_offset, log_start_offset + 1))

    def forget_above(self, epoch: int) -> None:
        """Drop the epochs after this one: no batch of the log carries them."""
        self._keep(bisect_right(self._entries, epoch, key=_epoch_of))

    def clear(self) -> None:
        self._keep(0)

    def _keep(self, count: int) -> None:
        """Only the first so many entries stay."""
        if count < len(self._entries):
            del self._entries[count:]
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._note_latest()

    def _note_latest(self) -> None:
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset
