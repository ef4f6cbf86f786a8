"""What a task is given, in pieces that it can hold."""

from __future__ import annotations

import pyarrow as pa

from strandline.spark_connector.writing.task import PIECE_BYTES, pieces


def test_batches_of_large_rows_are_taken_in_pieces_and_nothing_is_left_out() -> None:
    large = pa.RecordBatch.from_pydict({"value": [b"%06d" % number + bytes(100_000) for number in range(250)]})
    empty, small = large.slice(0, 0), pa.RecordBatch.from_pydict({"value": [b"x", None]})
    found = list(pieces([empty, large, small]))
    assert len(found) == 5 and all(each.nbytes <= PIECE_BYTES for each in found)
    assert pa.Table.from_batches(found) == pa.Table.from_batches([large, small])


def test_a_row_that_is_larger_than_a_piece_is_one() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [bytes(2 * PIECE_BYTES), b"x"]})
    assert [each.num_rows for each in pieces([rows])] == [1, 1]
