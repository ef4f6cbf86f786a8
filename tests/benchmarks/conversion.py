"""What topics with rules cost: `ProduceHandler.handle` of ordinary topics beside them, and what a worker converts.

Run it as `python tests/benchmarks/conversion.py`; some 15 s. Each figure is the best of many runs. "MB/s of records"
counts decoded bytes, with everything: packing, the pipe, decoding, every record checked, encoding, and back.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))
from strandline.protocol.records import build_batch
from strandline.protocol.records.conversion import convert_all
from strandline.protocol.records.rules import CODEC_NUMBERS, BatchRules
from strandline.runtime.processes.workers import WorkerPool
from support.replica_site import T0, FakeConnection, ReplicaSite, in_hand, produce_hand

SHAPES = ((16, 1000), (150, 90))
"""Records × bytes of a batch of 16 KB."""
HANDLED, ROUNDS = 200, 40
JOB_BYTES = 2_000_000
LARGE = 2**30
NOW_MS = 1_700_000_000_000


def batch_of(count: int, size_bytes: int, codec: str) -> bytes:
    values = ((b"value %d of a record " % number * 60)[:size_bytes] for number in range(count))
    return build_batch([(NOW_MS + place, b"key-%d" % place, value) for place, value in enumerate(values)], codec)


async def measure_handle() -> None:
    """Microseconds of the inline part of one request, up to the wave."""
    topics = {
        "ordinary": ({}, "none"),
        "ordinary, compressed": ({}, "gzip"),
        "compacted": ({"cleanup.policy": "compact"}, "none"),
        "stamped": ({"message.timestamp.type": "LogAppendTime"}, "none"),
        "zstd as it came": ({"compression.type": "zstd"}, "zstd"),
        "leaves for a worker": ({"compression.type": "zstd"}, "gzip"),
    }
    for name, (topic, codec) in topics.items():
        site = ReplicaSite(topic=topic)
        await site.lead(replicas=(1,), isr=(1,))
        handle, connection = site.data.produce.handle, FakeConnection()
        for count, size_bytes in SHAPES:
            data = batch_of(count, size_bytes, codec)
            best_us = float("inf")
            for _ in range(ROUNDS):
                hands = [in_hand(produce_hand((T0, data), acks=0, connection=connection)) for _ in range(HANDLED)]
                began = time.perf_counter()
                for hand in hands:
                    handle(hand)
                best_us = min(best_us, (time.perf_counter() - began) / HANDLED * 1e6)
                site.data.burst.end()
            print(f"handle, {name:22} {count:4} x {size_bytes:4} B: {best_us:6.1f} us")


async def measure_workers() -> None:
    """One worker process, jobs of some megabytes."""
    pool = WorkerPool(1)
    for count, size_bytes in (*SHAPES, (900, 1000)):
        plain_bytes = len(batch_of(count, size_bytes, "none"))
        times = max(1, JOB_BYTES // plain_bytes)
        for source in ("none", "gzip", "snappy", "lz4", "zstd"):
            for target in ("zstd", "lz4", "uncompressed"):
                rules = BatchRules(needs_keys=True, codec=CODEC_NUMBERS[target])
                batches = [batch_of(count, size_bytes, source)] * times
                best_s = float("inf")
                for _ in range(3):
                    began = time.perf_counter()
                    await pool.run(convert_all, batches, [rules] * times, [(LARGE, LARGE)] * times, NOW_MS, LARGE)
                    best_s = min(best_s, time.perf_counter() - began)
                rate = plain_bytes * times / best_s / 1e6
                print(f"worker, {count:4} x {size_bytes:4} B, {source:6} -> {target:12} {rate:7.0f} MB/s of records")
    one, rules = batch_of(16, 1000, "gzip"), BatchRules(codec=CODEC_NUMBERS["zstd"])
    best_s = float("inf")
    for _ in range(50):
        began = time.perf_counter()
        await pool.run(convert_all, [one], [rules], [(LARGE, LARGE)], NOW_MS, LARGE)
        best_s = min(best_s, time.perf_counter() - began)
    print(f"worker, one batch of 16 KB, there and back: {best_s * 1e6:.0f} us")
    await pool.close()


async def main() -> None:
    await measure_handle()
    await measure_workers()


if __name__ == "__main__":
    sys.exit(trio.run(main))
