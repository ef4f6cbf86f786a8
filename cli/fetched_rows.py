"""What `strandline consume` makes of fetched batches: rows in pieces of some thousand records, decoded in columns.

Rules: batches that follow each other are decoded together, which costs less where they are small; of a piece with a
damaged batch everything before that one is still handed out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from strandline.cli.record_format import Rows
from strandline.protocol.records import BatchHeader, InvalidBatch, decode_columns, scan

if TYPE_CHECKING:
    from strandline.client.assignment import FetchedBatches

PIECE_RECORDS = 1_000
"""So many are printed by one write: what Ctrl-C may cut in two."""


class _Run(NamedTuple):
    """Bytes [start, end) of batches that have their leader epoch and the type of their timestamps in common."""

    start: int
    end: int
    first: BatchHeader
    next_offset: int


def rows_of(fetched: FetchedBatches, stop: int | None, *, check_crcs: bool = True) -> Iterator[Rows]:
    """The records below `stop`, in order. CorruptRecords: the next batch is damaged; without check_crcs only where it
    cannot be read."""
    for run in _runs(fetched, stop):
        try:
            rows = _decoded(fetched, run, check_crcs)
        except InvalidBatch:
            for position, header in scan(fetched.records[run.start : run.end]):
                start = run.start + position
                alone = _Run(start, start + header.size_bytes, header, header.next_offset)
                yield from _in_range(_decoded_or_corrupt(fetched, alone, check_crcs), fetched.position, stop)
        else:
            yield from _in_range(rows, fetched.position, stop)


def _runs(fetched: FetchedBatches, stop: int | None) -> Iterator[_Run]:
    run: _Run | None = None
    count = 0
    for start, header in scan(fetched.records):
        if stop is not None and header.base_offset >= stop:
            break
        end = start + header.size_bytes
        if run is not None:
            first = run.first
            if (
                count + header.records_count <= PIECE_RECORDS
                and header.partition_leader_epoch == first.partition_leader_epoch
                and header.timestamp_type == first.timestamp_type
            ):
                run, count = run._replace(end=end, next_offset=header.next_offset), count + header.records_count
                continue
            yield run
        run, count = _Run(start, end, header, header.next_offset), header.records_count
    if run is not None:
        yield run


def _decoded(fetched: FetchedBatches, run: _Run, check_crcs: bool) -> Rows:
    columns = decode_columns(fetched.records[run.start : run.end], check_crcs)
    first = run.first
    return Rows(fetched.topic, fetched.partition, first.partition_leader_epoch, first.timestamp_type, *columns)


def _decoded_or_corrupt(fetched: FetchedBatches, run: _Run, check_crcs: bool) -> Rows:
    from strandline.client.errors import CorruptRecords

    try:
        return _decoded(fetched, run, check_crcs)
    except InvalidBatch as error:
        raise CorruptRecords(
            f"the records of {fetched.topic}-{fetched.partition} at offset {run.first.base_offset} are damaged: "
            f"{error}; -o {run.next_offset} -p {fetched.partition} goes on behind them"
        ) from error


def _in_range(rows: Rows, start: int, stop: int | None) -> Iterator[Rows]:
    """In pieces: one batch alone may be large."""
    offsets = rows.offsets
    end = len(offsets) if stop is None else bisect_left(offsets, stop)
    for begin in range(bisect_left(offsets, start), end, PIECE_RECORDS):
        yield rows.cut(begin, min(begin + PIECE_RECORDS, end))
