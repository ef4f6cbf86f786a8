"""The lines of change logs, whatever their files hold.

A plain file is read in pieces, side by side or one after the other; a packed one (`.gz`) is one piece. In memory are a
chunk and some lines:

| what may be there | what becomes of it |
|---|---|
| a packed file that is cut, or damaged in the middle | it is read up to there, and counts as cut |
| a line longer than MAX_LINE_BYTES, a file without line ends | is skipped, and counted |
| a line that is being written, or was cut | is handed out: it is no line of a change log, which who reads it finds |
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from strandline.runtime.disk import Disk, File

PIECE_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
PACKED_CHUNK_BYTES = 4096
"""What comes before damage in the same chunk is lost."""
MAX_LINE_BYTES = 8 << 20
"""A line tells of a thousand partitions at most, with names of 249 characters in 1 MiB."""

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
        piece = whole(disk, file)
        if piece.is_packed:
            found.append(piece)
            continue
        found += [Piece(file, at, min(at + PIECE_BYTES, piece.end)) for at in range(0, piece.end, PIECE_BYTES)]
    return found


def whole(disk: Disk, file: str) -> Piece:
    """As long as the file is now. OSError."""
    with closing(disk.open(file, read_only=True)) as opened:
        return Piece(file, 0, opened.size())


class PieceReader:
    """Iterates over the lines of a piece, without their ends; afterwards it knows what it could not give. OSError.
    chunk_bytes: so much of a plain file is read at once."""

    def __init__(self, disk: Disk, piece: Piece, chunk_bytes: int | None = None) -> None:
        self.lines_too_long = 0
        self.number = 0
        """Of the line that was given last: from 1 on, in a piece from the beginning of its file."""
        self.is_cut = False
        self._disk = disk
        self._piece = piece
        self._chunk_bytes = chunk_bytes or CHUNK_BYTES

    def __iter__(self) -> Iterator[bytes]:
        piece = self._piece
        with closing(self._disk.open(piece.file, read_only=True)) as file:
            if piece.is_packed:
                yield from self._lines(self._unpacked(file), 0, _ENDLESS)
                return
            begins = max(0, piece.start - 1)  # up to the first line end it is a line of the piece before
            yield from self._lines(
                _chunks(file, begins, self._chunk_bytes), begins, piece.end, is_inside=piece.start > 0
            )

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
                self.number += 1
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
        self.number += 1
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
                    yield inflate.decompress(data, self._chunk_bytes)
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
