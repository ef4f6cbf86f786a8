"""How fast one worker compacts: MB/s of 1 KB records and records/s of 100 B ones, from the page cache.

    python tests/benchmarks/cleaner.py [--mb 128] [--keys 100000] [--folder /tmp]

Each line is one cleaning of a log that is all dirty: both passes over it (index, rewrite), as a worker process does
them. MB/s and records/s count the log once, as it was before. "cpu" is by the time of this process, which other load on
the machine does not touch.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

from strandline.protocol.records import build_batch
from strandline.protocol.records.batch import assign_offset
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.cleaning.cleaner import Cleaner
from strandline.storage.cleaning.grouping import Source
from strandline.storage.cleaning.plan import Done, Plan

SEGMENT_BYTES = 64 * 2**20
BATCH_BYTES = 16384


def fill(folder: Path, record_bytes: int, codec: str, keys: int, total_bytes: int) -> tuple[list[Source], int]:
    """Segments of random batches; returns them and the number of records."""
    rng = random.Random(1)
    count = max(1, BATCH_BYTES // record_bytes)
    pool = []
    for _ in range(max(1, total_bytes // BATCH_BYTES // 2)):  # each batch comes twice on average
        values = (rng.randbytes(record_bytes // 4).hex().encode() for _ in range(count))
        records = [(1_700_000_000_000 + n, b"key-%012d" % rng.randrange(keys), v) for n, v in enumerate(values)]
        pool.append(bytearray(build_batch([(t, k, (v * 2)[: record_bytes - 28]) for t, k, v in records], codec)))
    offset = written = 0
    bounds: list[tuple[int, int]] = []
    while written < total_bytes:
        base, size = offset, 0
        with (folder / f"{base:020d}.log").open("wb") as file:
            while size < SEGMENT_BYTES and written < total_bytes:
                batch = rng.choice(pool)
                assign_offset(batch, offset, 0)
                file.write(batch)
                offset, size, written = offset + count, size + len(batch), written + len(batch)
        bounds.append((base, size))
    ends = [base for base, _ in bounds[1:]] + [offset]
    return [Source(base, end, size, 0) for (base, size), end in zip(bounds, ends, strict=True)], offset


def measure(folder: Path, record_bytes: int, codec: str, keys: int, total_bytes: int) -> None:
    sources, records = fill(folder, record_bytes, codec, keys, total_bytes)
    plan = Plan(
        folder=str(folder),
        sources=sources,
        first_dirty_offset=0,
        now_ms=0,
        delete_retention_ms=86_400_000,
        segment_bytes=2**30,
        segment_index_bytes=10 * 2**20,
        index_interval_bytes=4096,
        map_bytes=128 * 2**20,
        map_load_factor=0.9,
        max_decompressed_bytes=64 * 2**20,
        chunk_bytes=512 * 2**10,
        hash_seed=7,
        last_of_producer={},
    )
    wall, cpu = time.perf_counter(), time.process_time()
    done: Done | None = None
    for step in Cleaner(PosixDisk(), plan).run():
        done = step.done or done
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    size = sum(source.size_bytes for source in sources)
    assert done is not None and done.end_offset == records
    print(
        f"{record_bytes:5d} B {codec:6s} {size / wall / 1e6:6.0f} MB/s {records / wall / 1e3:6.0f} K records/s"
        f"   cpu {size / cpu / 1e6:6.0f} MB/s {records / cpu / 1e3:6.0f} K records/s"
        f"   {done.records_kept / records:4.0%} kept of {records} in {wall:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=128)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    for record_bytes, codec in ((1024, "none"), (100, "none"), (1024, "lz4"), (100, "zstd"), (100, "gzip")):
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            measure(folder, record_bytes, codec, options.keys, options.mb * 2**20 // (1 if codec == "none" else 4))
        finally:
            shutil.rmtree(folder)
    print(f"page cache, {os.cpu_count()} cores, one worker")


if __name__ == "__main__":
    main()
