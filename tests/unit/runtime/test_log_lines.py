"""How change logs are read: in pieces, packed, cut, with lines of any length."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.runtime import log_lines
from strandline.runtime.log_lines import Piece, PieceReader, pieces
from strandline.testkit.disk import MemoryDisk

LINES = [b"%d " % number + b"x" * (number % 50) for number in range(2000)]
WHOLE = b"\n".join(LINES) + b"\n"
ALIVE = b'{"broker_id":1,"event":"broker alive","timestamp":"1970-01-01T00:00:07Z"}'


def disk_of(**files: bytes) -> MemoryDisk:
    """`a__gz` is /a.gz."""
    disk = MemoryDisk()
    for name, data in files.items():
        disk.open(f"/{name.replace('__', '.')}", create=True).pwritev([data], 0)
    return disk


def read(disk: MemoryDisk, found: Iterable[Piece]) -> tuple[list[bytes], int, bool]:
    """(lines, how many were too long, whether the file is cut)"""
    readers = [PieceReader(disk, piece) for piece in found]
    lines = [line for reader in readers for line in reader]
    return lines, sum(each.lines_too_long for each in readers), any(each.is_cut for each in readers)


@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_pieces_have_each_line_once_however_it_is_cut(
    texts: list[bytes], piece_bytes: int, chunk_bytes: int, ends: bool
) -> None:
    lines = [text.replace(b"\n", b"") for text in texts]
    data = b"\n".join(lines) + b"\n" * (ends and bool(lines))
    expected = data.split(b"\n")
    expected = expected if expected[-1] else expected[:-1]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_lines, "PIECE_BYTES", piece_bytes)
        patched.setattr(log_lines, "CHUNK_BYTES", chunk_bytes)
        patched.setattr(log_lines, "MAX_LINE_BYTES", 8)
        disk = disk_of(log=data)
        found = pieces(disk, ["/log"])
        assert [(each.start, each.end) for each in found] == [
            (at, min(at + piece_bytes, len(data))) for at in range(0, len(data), piece_bytes)
        ]
        assert read(disk, found) == (
            [line for line in expected if len(line) <= 8],
            sum(len(line) > 8 for line in expected),
            False,
        )


@pytest.mark.parametrize("padding", [b"", bytes(700)])
def test_a_packed_file_is_read_whole_also_where_it_is_several(padding: bytes) -> None:
    packed = gzip.compress(WHOLE[:9_000]) + padding + gzip.compress(WHOLE[9_000:]) + padding
    disk = disk_of(log__gz=packed)
    [piece] = pieces(disk, ["/log.gz"])
    assert read(disk, [piece]) == (LINES, 0, False)


@given(st.integers(0, 10_000))
def test_a_packed_file_that_is_cut_is_read_as_far_as_it_goes(left_out: int) -> None:
    packed = gzip.compress(WHOLE)
    kept = packed[: max(0, len(packed) - 1 - left_out)]
    disk = disk_of(log__gz=kept)
    lines, _, is_cut = read(disk, pieces(disk, ["/log.gz"]))
    assert is_cut and lines[:-1] == LINES[: max(0, len(lines) - 1)]
    if left_out < 8:  # nothing but the checksum is gone
        assert lines == LINES


def test_most_of_a_damaged_file_is_read() -> None:
    noise = random.Random(1)
    lines = [b"%d" % noise.getrandbits(200) for _ in range(5000)]
    packed = bytearray(gzip.compress(b"\n".join(lines)))
    middle = len(packed) // 2
    packed[middle : middle + 2000] = bytes(2000)
    disk = disk_of(log__gz=bytes(packed))
    found, _, is_cut = read(disk, pieces(disk, ["/log.gz"]))
    assert is_cut and found[:1000] == lines[:1000], "it may take a while until damage shows"


def test_a_file_without_line_ends_is_neither_kept_nor_read_again_by_every_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_lines, "PIECE_BYTES", 1000)
    monkeypatch.setattr(log_lines, "CHUNK_BYTES", 100)
    monkeypatch.setattr(log_lines, "MAX_LINE_BYTES", 500)
    disk = disk_of(log=b"x" * 10_000 + b"\n" + ALIVE)
    found = pieces(disk, ["/log"])
    reads: list[str] = []
    disk.on_operation = lambda operation, path: reads.append(operation)
    assert read(disk, found) == ([ALIVE], 1, False)
    assert reads.count("pread") < 2 * len(found) * 11
