"""What a disk has altered, as those see it who judge: which byte is wrong, and which records cannot be read for it."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.testkit.disk import MemoryDisk
from strandline.testkit.simulation.history import Stream


@dataclass(frozen=True)
class Damage:
    """Of one log. whole_below: offsets whose records are as they were. wrong: the byte that stands at `at` now; empty:
    the file is gone, or, where `added` says so, it was not there before."""

    stream: Stream
    what: str
    path: str
    whole_below: int
    at: int = 0
    right: bytes = b""
    wrong: bytes = b""
    added: bytes = b""

    def is_seen(self, disk: MemoryDisk) -> bool:
        """Whether it still stands there: what is cut off, or fetched anew, is sound."""
        if not self.wrong:
            return disk.exists(self.path) == bool(self.added)
        return disk.exists(self.path) and self.in_content(disk.read(self.path))

    def in_content(self, content: bytes) -> bool:
        """Of that file."""
        return content[self.at : self.at + 1] == self.wrong

    def undo(self, disk: MemoryDisk) -> None:
        """Nothing comes back of a file that is gone."""
        if self.wrong:
            disk.write(self.path, self.undone(disk.read(self.path)))
        elif self.added:
            disk.unlink(self.path)

    def redo(self, disk: MemoryDisk) -> None:
        """After `undo`."""
        if self.wrong:
            content = disk.read(self.path)
            disk.write(self.path, content[: self.at] + self.wrong + content[self.at + 1 :])
        elif self.added:
            disk.write(self.path, self.added)

    def undone(self, content: bytes) -> bytes:
        """That file as it was written."""
        return content[: self.at] + self.right + content[self.at + 1 :]
