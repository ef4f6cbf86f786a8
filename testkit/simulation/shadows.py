"""The god's copy of every log: which batch stands at which offset, of what epoch and with what checksum; and what is
committed.

Pure data: `god_view` keeps it up to date and holds one against the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Set
from operator import attrgetter
from typing import NamedTuple

BASE = attrgetter("base_offset")
NEXT = attrgetter("next_offset")


class Entry(NamedTuple):
    """One batch. epoch: of the leader that appended it. checksum: of its content as it was stored."""

    base_offset: int
    next_offset: int
    epoch: int
    checksum: int

    def __str__(self) -> str:
        return f"[{self.base_offset}, {self.next_offset}) of epoch {self.epoch}"


class Shadow:
    """Of one log. Whatever lies below its log start may be gone."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = list(entries)

    @property
    def end_offset(self) -> int:
        return self.entries[-1].next_offset if self.entries else 0

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)

    def cut(self, end_offset: int) -> list[Entry]:
        """Drop what reaches beyond that; returns it."""
        at = bisect_right(self.entries, end_offset, key=NEXT)
        dropped = self.entries[at:]
        del self.entries[at:]
        return dropped

    def between(self, start_offset: int, end_offset: int) -> Iterator[Entry]:
        """Batches with an offset in there."""
        entries, at = self.entries, bisect_right(self.entries, start_offset, key=NEXT)
        while at < len(entries) and entries[at].base_offset < end_offset:
            yield entries[at]
            at += 1

    def up_to(self, end_offset: int) -> Shadow:
        """Of what does not reach beyond that."""
        return Shadow(self.entries[: bisect_right(self.entries, end_offset, key=NEXT)])

    def has(self, entry: Entry) -> bool:
        at = bisect_left(self.entries, entry.base_offset, key=BASE)
        return at < len(self.entries) and self.entries[at] == entry


class Copy(NamedTuple):
    """A record in some log. A producer may have sent it to two leaders, who wrote it at the same offset."""

    offset: int
    epoch: int
    value: bytes


class Committed(Shadow):
    """What was below the high watermark that some leader has used, of one life of a partition. high_watermark: the
    highest of these. compacted_below: some log has rewritten batches there, and they say nothing any more."""

    def __init__(self) -> None:
        super().__init__()
        self.high_watermark = 0
        self.compacted_below = 0
        self._up_to: dict[int, int] = {}
        """Leader epoch → the high watermark that its leader raised it to, as far as that is still promised."""
        self._told: dict[int, int] = {}
        """The same, whatever became of it."""
        self.ever_committed = 0
        """The highest high watermark that a leader has used, whatever became of it."""
        self._latest_begun = -1
        self._begun: dict[int, int] = {}
        """Leader epoch → where the log of its leader ended when he began."""
        self._shown: dict[int, int] = {}
        """Leader epoch → the highest end that clients were told by then, as far as that is still promised."""

    def grow(self, entries: Iterable[Entry], high_watermark: int, leader_epoch: int) -> None:
        self.entries += [entry for entry in entries if entry.base_offset >= self.end_offset]
        self._up_to[leader_epoch] = self._told[leader_epoch] = self.high_watermark = high_watermark
        self.ever_committed = max(self.ever_committed, high_watermark)

    def known_below(self, leader_epoch: int) -> int:
        """What that leader commits begins there. One that does not hear that it has been replaced, and all copies but
        his were lost, has committed nothing once more."""
        return max(self.high_watermark, self._told.get(leader_epoch, 0))

    def begin(self, leader_epoch: int, end_offset: int) -> None:
        """Somebody leads, and his log ends there."""
        self._begun.setdefault(leader_epoch, end_offset)
        self._latest_begun = max(self._latest_begun, leader_epoch)

    def ends_for(self, leader_epoch: int) -> int | None:
        """Where the log of the next leader ended when he began: he has no more of what that one appends."""
        if leader_epoch >= self._latest_begun:
            return None
        later = [epoch for epoch in self._begun if epoch > leader_epoch]
        return self._begun[min(later)]

    def show(self, leader_epoch: int, high_watermark: int) -> int:
        """That leader tells clients so. Returns the highest that he or one before him had told."""
        before = max([0, *(shown for epoch, shown in self._shown.items() if epoch <= leader_epoch)])
        self._shown[leader_epoch] = max(before, high_watermark)
        return before

    def has_copy(self, copy: Copy) -> bool:
        """Whether it is one that was committed, and not of a leader whose records were cut off, or will be."""
        if copy.offset < self.compacted_below:
            return copy.offset < self.high_watermark
        at = bisect_right(self.entries, copy.offset, key=NEXT)
        return (
            at < len(self.entries)
            and self.entries[at].base_offset <= copy.offset
            and self.entries[at].epoch == copy.epoch
        )

    def lose_from(self, offset: int) -> None:
        """A disaster took the last copy of what stands there: from there on nothing is promised."""
        self.cut(offset)
        self._lower(offset)

    def keep(self, left: Set[tuple[int, int]], start_offset: int) -> None:
        """Of anything but these (offset, epoch) no log has a copy that it would read. What lies below `start_offset`,
        where some log begins, was deleted."""
        self.entries = [
            entry
            for entry in self.entries
            if entry.next_offset > start_offset
            or any((offset, entry.epoch) in left for offset in range(entry.base_offset, entry.next_offset))
        ]
        # What was there of a compacted part only its end says.
        self._lower(max(self.end_offset, min(self.compacted_below, self.high_watermark) if left else 0))

    def _lower(self, offset: int) -> None:
        self.high_watermark = min(self.high_watermark, offset)
        self._up_to = {epoch: min(up_to, offset) for epoch, up_to in self._up_to.items()}
        self._shown = {epoch: min(shown, offset) for epoch, shown in self._shown.items()}

    def missing_in(self, other: Shadow, start_offset: int, leader_epoch: int | None = None) -> Entry | None:
        """The first batch that ends above `start_offset` and that the other log does not have as it is here.
        leader_epoch: of who is to have what he and earlier leaders committed; he may hear late that he leads."""
        end_offset = self.high_watermark
        if leader_epoch is not None:
            end_offset = max((up_to for epoch, up_to in self._up_to.items() if epoch <= leader_epoch), default=0)
        start_offset = max(start_offset, self.compacted_below)
        return next((entry for entry in self.between(start_offset, end_offset) if not other.has(entry)), None)
