"""What a log says of groups, read by a real worker process: the same as here, in pieces that arrive whole."""

from __future__ import annotations

import msgspec

from strandline.protocol.group_changes import Reading, read_changes, unpack_changes
from strandline.protocol.group_records import CommittedOffset, offset_key, offset_value
from strandline.protocol.records import assign_offset, build_batch
from strandline.runtime.processes.workers import WorkerPool

BATCHES, RECORDS = 20, 500


def log() -> bytes:
    data = b""
    for number in range(BATCHES):
        first = number * RECORDS
        records = [
            (1000, offset_key(f"group-{number}", "t", place), offset_value(CommittedOffset(first + place)))
            for place in range(RECORDS)
        ]
        batch = bytearray(build_batch(records, "zstd"))
        assign_offset(batch, first, 0)
        data += batch
    return data


async def test_a_worker_reads_what_a_log_says() -> None:
    data = log()
    pool = WorkerPool(1)
    try:
        reading = msgspec.convert(await pool.run(read_changes, data, 0, 2**20), Reading)
    finally:
        await pool.close()
    assert reading == msgspec.convert(read_changes(None, data, 0, 2**20), Reading)
    assert (reading.next_offset, reading.is_damaged, reading.skipped) == (BATCHES * RECORDS, False, 0)
    found = [
        committed.offset
        for piece in reading.pieces
        for topics in unpack_changes(piece).offsets.values()
        for committed in topics["t"].values()
        if committed is not None
    ]
    assert sorted(found) == list(range(BATCHES * RECORDS))
