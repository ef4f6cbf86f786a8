"""Fetched batches become rows: in pieces, within a range, and as far as they are whole."""

from __future__ import annotations

import pytest

from strandline.cli import fetched_rows
from strandline.cli.fetched_rows import rows_of
from strandline.client.assignment import FetchedBatches
from strandline.client.errors import CorruptRecords
from strandline.protocol.records import assign_offset, build_batch


def fetched(*sizes: int, position: int = 0, epochs: tuple[int, ...] = (), damaged: int | None = None) -> FetchedBatches:
    """Batches of so many records, whose values are their offsets."""
    batches, offset = [], 0
    for number, size in enumerate(sizes):
        batch = bytearray(build_batch([(1_000, None, b"%d" % (offset + index), []) for index in range(size)]))
        assign_offset(batch, offset, epochs[number] if epochs else 1)
        if number == damaged:
            batch[-1] ^= 1
        batches.append(batch)
        offset += size
    return FetchedBatches("t", 0, position, offset, offset, 0, memoryview(b"".join(batches)))


def test_small_batches_are_taken_together_and_large_ones_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_rows, "PIECE_RECORDS", 4)
    pieces = [list(rows.offsets) for rows in rows_of(fetched(1, 2, 2, 9), None)]
    assert pieces == [[0, 1, 2], [3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13]]


def test_only_what_lies_in_the_range_is_handed_out() -> None:
    [rows] = rows_of(fetched(3, 3, 3, position=2), 7)
    assert list(rows.values) == [b"2", b"3", b"4", b"5", b"6"]
    assert list(rows_of(fetched(3, 3, position=4), 2)) == []


def test_each_row_has_the_leader_epoch_of_its_batch() -> None:
    assert [(rows.leader_epoch, list(rows.offsets)) for rows in rows_of(fetched(1, 1, 1, epochs=(4, 4, 6)), None)] == [
        (4, [0, 1]),
        (6, [2]),
    ]


def test_what_stands_before_a_damaged_batch_is_handed_out_and_the_way_on_is_told() -> None:
    found = []
    with pytest.raises(CorruptRecords, match=r"t-0 at offset 4 are damaged: .*; -o 6 -p 0 goes on behind them"):
        found.extend(int(rows.values[-1]) for rows in rows_of(fetched(2, 2, 2, 2, damaged=2), None))
        pytest.fail("the damage went unnoticed")
    seen = []
    with pytest.raises(CorruptRecords):
        for rows in rows_of(fetched(2, 2, 2, 2, damaged=2), None):
            seen += rows.values
    assert seen == [b"0", b"1", b"2", b"3"]
