"""The lines of change logs, as the tasks of `history` read them: pieces of files to EVENTS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from strandline.protocol.history.wanted import Wanted
from strandline.runtime.disk import Disk
from strandline.runtime.log_lines import MAX_LINE_BYTES, Piece, PieceReader
from strandline.spark_connector.errors import NoChangeLogs
from strandline.spark_connector.pipelines.history_rows import CUT, TOO_LONG, noted, read_lines

if TYPE_CHECKING:
    import pyarrow as pa

LINES_PER_BATCH = 1000
"""Usual ones have 300 bytes; such of a thousand partitions 50 KB."""


class ReadTask:
    """Given the numbers of pieces, EVENTS of what stands in them."""

    def __init__(self, disk: Disk, pieces: list[Piece], wanted: Wanted) -> None:
        self._disk = disk
        self._pieces = pieces
        self._wanted = wanted

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from self._read(self._pieces[number])

    def _read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """NoChangeLogs."""
        reader = PieceReader(self._disk, piece)
        try:
            yield from read_lines(piece.file, _in_batches(reader), self._wanted)
        except OSError as error:
            raise NoChangeLogs(f"{piece.file} cannot be read: {error.strerror or error}") from None
        if reader.is_cut:
            yield noted(CUT, piece.file)
        if reader.lines_too_long:
            yield noted(TOO_LONG, piece.file, reader.lines_too_long)


def _in_batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size_bytes = 0
    for line in lines:
        batch.append(line)
        size_bytes += len(line)
        if len(batch) == LINES_PER_BATCH or size_bytes > MAX_LINE_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
