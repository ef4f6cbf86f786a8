"""The change logs of all brokers as one stream of lines by time, read from their files.

In memory are a chunk of the file of each log that is read just now, however long the files are, and some places of what
could not be read. Files of one log are read one after the other, the oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from strandline.protocol.history.lines import UnreadableLine, read_line
from strandline.protocol.history.merging import Told, in_order
from strandline.runtime.disk import Disk
from strandline.runtime.log_files import Log, logs_of
from strandline.runtime.log_lines import PieceReader, whole

CHUNK_BYTES = 64 << 10
MOST_DAMAGED = 1000
"""Lines that are named; more are counted."""


class DamagedLine(NamedTuple):
    file: str
    number: int
    why: str


class LogMerge:
    """Iterates over the lines that were understood; the rest is known afterwards. failed: file → why it could not be
    read to its end, where it could not."""

    def __init__(self, disk: Disk, files: Iterable[str]) -> None:
        self.lines = 0
        self.damaged_lines = 0
        self.damaged: list[DamagedLine] = []
        self.lines_too_long = 0
        self.cut_files: list[str] = []
        self.failed: dict[str, str] = {}
        self._disk = disk
        self._logs = logs_of(files)

    def __iter__(self) -> Iterator[Told]:
        return in_order(self._lines_of(number, log) for number, log in enumerate(self._logs))

    def _lines_of(self, number: int, log: Log) -> Iterator[Told]:
        for file in log.files:
            try:
                yield from self._lines_in(number, log.beats, file)
            except OSError as error:
                self.failed[file] = error.strerror or str(error)

    def _lines_in(self, log: int, beats: bool, file: str) -> Iterator[Told]:
        reader = PieceReader(self._disk, whole(self._disk, file), CHUNK_BYTES)
        for text in reader:
            try:
                line = read_line(text)
            except UnreadableLine as error:
                self.damaged_lines += 1
                if len(self.damaged) < MOST_DAMAGED:
                    self.damaged.append(DamagedLine(file, reader.number, str(error)))
                continue
            self.lines += 1
            yield Told(log, beats, file, reader.number, line)
        self.lines_too_long += reader.lines_too_long
        if reader.is_cut:
            self.cut_files.append(file)
