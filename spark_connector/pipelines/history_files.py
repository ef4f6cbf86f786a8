"""The lines of change logs, as the tasks of `history` read them. Pure but for its `Disk`.

A plain file is read in pieces, side by side; a packed one (`.gz`) by one task. In memory are a chunk and some lines,
whatever a file holds:

| what may be there | what becomes of it |
|---|---|
| a packed file that is cut, or damaged in the middle | it is read up to there, and counts as cut |
| a line longer than MAX_LINE_BYTES, a file without line ends | is skipped, and counted |
| a line that is being written, or was cut | is no line of a change log, which `history_rows` finds |
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from strandline.runtime.disk import Disk, File
from strandline.spark_connector.errors import NoChangeLogs
from strandline.spark_connector.pipelines.history_rows import CUT, TOO_LONG, Wanted, noted, read_lines

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
PACKED_CHUNK_BYTES = 4096
"""What comes before damage in the same chunk is lost."""
MAX_LINE_BYTES = 8 << 20
"""A line tells of a thousand partitions at most, with names of 249 characters in 1 MiB."""
LINES_PER_BATCH = 1000
"""Usual ones have 300 bytes; such of a thousand partitions 50 KB."""

_GZIP = 16 + zlib.MAX_WBITS
_ENDLESS = 2**63


class Piece(NamedTuple):
    """Lines that begin in [start, end), bytes of a plain file; a packed one is a piece."""

    file: str
    start: int
    end: int

    @property
    def is_packed(self) -> bool:
        return self.file.endswith(".gz")


def pieces(disk: Disk, files: Iterable[str]) -> list[Piece]:
    """As long as the files are now: they grow. OSError."""
    found: list[Piece] = []
    for file in files:
        with closing(disk.open(file, read_only=True)) as opened:
            whole = Piece(file, 0, opened.size())
        if whole.is_packed:
            found.append(whole)
            continue
        found += [Piece(file, at, min(at + PIECE_BYTES, whole.end)) for at in range(0, whole.end, PIECE_BYTES)]
    return found


class PieceReader:
    """Iterates over the lines of a piece, without their ends; afterwards it knows what it could not give. OSError."""

    def __init__(self, disk: Disk, piece: Piece) -> None:
        self.lines_too_long = 0
        self.is_cut = False
        self._disk = disk
        self._piece = piece

    def __iter__(self) -> Iterator[bytes]:
        piece = self._piece
        with closing(self._disk.open(piece.file, read_only=True)) as file:
            if piece.is_packed:
                yield from self._lines(self._unpacked(file), 0, _ENDLESS)
                return
            begins = max(0, piece.start - 1)  # up to the first line end it is a line of the piece before
            yield from self._lines(_chunks(file, begins, CHUNK_BYTES), begins, piece.end, is_inside=piece.start > 0)

    def _lines(self, chunks: Iterable[bytes], begins: int, end: int, *, is_inside: bool = False) -> Iterator[bytes]:
        """begins: where the first line does, of which we see the end only if it is inside. Lines that begin at `end` or
        later are others'."""
        held: list[bytes] = []
        length = 0
        for chunk in chunks:
            *ended, rest = chunk.split(b"\n")
            for text in ended:
                if begins >= end:
                    return
                length += len(text)
                if length > MAX_LINE_BYTES:
                    self.lines_too_long += not is_inside
                elif not is_inside:
                    yield b"".join((*held, text))
                begins += length + 1
                held, length, is_inside = [], 0, False
            length += len(rest)
            held = [*held, rest] if length <= MAX_LINE_BYTES and not is_inside else []
            if begins + length >= end and (begins >= end or is_inside or length > MAX_LINE_BYTES):
                break  # the rest of this line is not needed
        if is_inside or not length or begins >= end:
            return
        if length > MAX_LINE_BYTES:
            self.lines_too_long += 1
        else:
            yield b"".join(held)

    def _unpacked(self, file: File) -> Iterator[bytes]:
        """As far as it goes. A file may be several packed ones, one behind the other, and zeros."""
        inflate = zlib.decompressobj(_GZIP)
        for chunk in _chunks(file, 0, PACKED_CHUNK_BYTES):
            data = chunk
            while data:
                if inflate.eof:
                    if not (data := data.lstrip(b"\0")):
                        break
                    inflate = zlib.decompressobj(_GZIP)
                try:
                    yield inflate.decompress(data, CHUNK_BYTES)
                except zlib.error:
                    self.is_cut = True
                    return
                data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        if not inflate.eof:
            self.is_cut = True
            yield inflate.flush()


def _chunks(file: File, position: int, size: int) -> Iterator[bytes]:
    while chunk := file.pread(size, position):
        yield chunk
        position += len(chunk)


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
