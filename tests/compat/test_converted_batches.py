"""`kafka.tools.DumpLogSegments` of a real Kafka reads what workers recompressed and what the broker stamped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from strandline.protocol.records import BatchBuilder, validate_produced
from strandline.protocol.records.conversion import convert, stamp, take_over
from strandline.protocol.records.rules import CODEC_NUMBERS, BatchRules
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.inspection.dump import DumpOptions, dump_file
from support.storage_site import TOPIC_ID, SmallLogConfig, StorageSite

MAIN = "kafka.tools.DumpLogSegments"
COMPLAINTS = re.compile(r"isvalid: false|invalid bytes|mismatch|Exception|corrupt|out of order", re.IGNORECASE)
NOW_MS = 1_700_000_000_000
STAMP_MS = NOW_MS + 86_400_000
SOURCES = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE = 2**30
RECORDS_PER_BATCH = 7
BATCH_LINE = re.compile(
    r"baseOffset: (\d+) .* count: (\d+) baseSequence: (-?\d+) .* producerId: (-?\d+) producerEpoch: (-?\d+) .*"
    r" (CreateTime|LogAppendTime): (\d+) size: \d+ magic: 2 compresscodec: (\w+) crc: \d+ isvalid: true"
)
RECORD_LINE = re.compile(
    r"\| offset: (\d+) (CreateTime|LogAppendTime): (\d+) keySize: \d+ valueSize: \d+ sequence: (-?\d+) "
    r"headerKeys: \[(.*)\] key: (\S+) payload: (\S+)"
)


class Case(NamedTuple):
    source: str
    target: str
    stamped: bool
    idempotent: bool


CASES = [
    Case(source, target, stamped, idempotent)
    for source in SOURCES
    for target in CODEC_NUMBERS
    for stamped in (False, True)
    for idempotent in (False, True)
]


def sent(case: Case, number: int) -> bytes:
    builder = BatchBuilder(case.source, LARGE)
    for place in range(RECORDS_PER_BATCH):
        time_ms = NOW_MS + number * 1000 + (place * 37) % 100
        builder.append(time_ms, b"k%d" % place, b"%d-%d-" % (number, place) * 30, [("h", b"1"), ("i", None)])
    if case.idempotent:
        builder.set_producer(4000, 3, number * RECORDS_PER_BATCH)
    return builder.build()


@pytest.fixture(scope="module")
def log_files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One partition with a batch per case, over several segments."""
    path = tmp_path_factory.mktemp("converted")
    config = SmallLogConfig(segment_bytes=30_000, index_interval_bytes=500)
    site = StorageSite(disk=PosixDisk(), config=config, dirs=(str(path),))
    manager = site.start()
    log = manager.create(TopicPartition("converted", 0), TOPIC_ID)
    for number, case in enumerate(CASES):
        (batch,) = validate_produced(memoryview(bytearray(sent(case, number))), max_batch_bytes=LARGE)
        rules = BatchRules(codec=CODEC_NUMBERS[case.target], stamps=case.stamped)
        converted, _ = convert(batch.view, rules, NOW_MS, LARGE, LARGE)
        if converted is not None:
            take_over(batch, converted)
        if case.stamped:
            stamp(batch, STAMP_MS)
        log.append_as_leader([batch], 0)
    manager.close(clean=True)
    return sorted(str(file) for file in Path(path).glob("*/*.log"))


def test_kafka_reads_every_converted_batch_and_record(log_files: list[str], run_kafka) -> None:
    output = run_kafka(MAIN, "--deep-iteration", "--print-data-log", "--files", ",".join(log_files))
    assert len(log_files) > 1 and not COMPLAINTS.search(output), COMPLAINTS.search(output)
    batches = BATCH_LINE.findall(output)
    records = RECORD_LINE.findall(output)
    assert len(batches) == len(CASES) and len(records) == RECORDS_PER_BATCH * len(CASES)
    for number, (case, found) in enumerate(zip(CASES, batches, strict=True)):
        first = number * RECORDS_PER_BATCH
        times = [NOW_MS + number * 1000 + (place * 37) % 100 for place in range(RECORDS_PER_BATCH)]
        clock, latest = ("LogAppendTime", STAMP_MS) if case.stamped else ("CreateTime", max(times))
        producer = (first, 4000, 3) if case.idempotent else (-1, -1, -1)
        codec = "none" if case.target == "uncompressed" else case.target
        expected = (first, RECORDS_PER_BATCH, *producer, clock, latest, codec)
        assert found == tuple(map(str, expected)), case
        for place, time_ms in enumerate(times):
            shown = (
                first + place,
                clock,
                STAMP_MS if case.stamped else time_ms,
                first + place if case.idempotent else -1,
                "h,i",
                f"k{place}",
                f"{number}-{place}-" * 30,
            )
            assert records[first + place] == tuple(map(str, shown)), case


def test_our_own_dump_prints_the_same_lines(log_files: list[str], run_kafka) -> None:
    theirs = run_kafka(MAIN, "--deep-iteration", "--print-data-log", "--files", ",".join(log_files)).splitlines()
    options = DumpOptions(print_data_log=True)
    ours = [entry.line for file in log_files for entry in dump_file(PosixDisk(), file, options)]
    assert ours == [line for line in theirs if not line.startswith("log4j:")]


def test_kafka_takes_the_indexes_too(log_files: list[str], run_kafka) -> None:
    files = [file.replace(".log", suffix) for file in log_files for suffix in (".index", ".timeindex")]
    output = run_kafka(MAIN, "--verify-index-only", "--files", ",".join(files))
    assert not COMPLAINTS.search(output), output
