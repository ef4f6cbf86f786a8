"""Storage of one broker for tests: a log manager over a disk, with small segments, and batches to fill logs with.

`StorageSite` can be stopped, killed and started again; `fill`, `raw`, `records` append and read as a broker would.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import crc32c

from strandline.protocol.records import Record, build_batch, decode_records, first_record_from
from strandline.protocol.records.batch import CRC_START, LENGTH_PREFIX_BYTES, TRANSACTIONAL_BIT
from strandline.protocol.records.validation import ProducedBatch, validate_produced
from strandline.protocol.types import TopicPartition
from strandline.storage.log.log import Log
from strandline.storage.log.timestamps import batch_for_timestamp
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.segments.indexes import IndexLost
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.inspection import log_bytes

T = TypeVar("T")

TP = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
FOLDER = "/logs/t-0"


@dataclass(frozen=True)
class SmallLogConfig:
    """What a log obeys; small, so that a test crosses every border."""

    segment_bytes: int = 1000
    segment_ms: int = 1_000_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = 200
    flush_messages: int = 2**63 - 1
    flush_ms: int | None = None
    max_compaction_lag_ms: int = 2**63 - 1
    cleanup_policy: tuple[str, ...] = ("delete",)
    retention_ms: int = -1
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    is_tiered: bool = False


class FixedClock:
    ms = 5_000_000

    def now_ms(self) -> int:
        return self.ms


@dataclass
class Reports:
    """Collects what storage reports."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def names(self) -> list[str]:
        return [event for event, _ in self.events]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self.events if event == name]


@dataclass
class StorageSite:
    """One broker's storage, which can be stopped, killed and started again."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    config: SmallLogConfig = field(default_factory=SmallLogConfig)
    clock: FixedClock = field(default_factory=FixedClock)
    reports: Reports = field(default_factory=Reports)
    dirs: tuple[str, ...] = ("/logs",)
    broker_id: int = 7
    cluster_id: str = "abc"
    max_open_files: int = 4

    def start(self) -> LogManager:
        self.reports.events.clear()
        manager = LogManager(
            self.disk,
            self.dirs,
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            topic_config_for=lambda topic: self.config,
            wall_clock=self.clock,
            random=random.Random(1),
            log=self.reports,
            max_open_files=self.max_open_files,
        )
        manager.load()
        return manager

    def log(self, **config: Any) -> Log:
        """A new log in a new manager."""
        self.config = replace(self.config, **config)
        return self.start().create(TP, TOPIC_ID)

    def reload(self) -> Log:
        """Kill the broker and start it again."""
        self.disk.kill()
        return self.start().logs[TP]


def produced(
    count: int = 1,
    timestamp_ms: int = 1000,
    size: int = 20,
    codec: str = "none",
    producer: tuple[int, int, int] | None = None,
) -> list[ProducedBatch]:
    """One checked batch of `count` records with rising timestamps. producer: id, epoch, base sequence."""
    records = [(timestamp_ms + place, b"k%d" % place, b"v" * size) for place in range(count)]
    return validate_produced(memoryview(bytearray(build_batch(records, codec, producer))), max_batch_bytes=2**30)


def wave(batches: int, count: int = 1, timestamp_ms: int = 1000, size: int = 20) -> list[ProducedBatch]:
    return [batch for place in range(batches) for batch in produced(count, timestamp_ms + place * count, size)]


def make_transactional(site: StorageSite, path: str) -> None:
    """The first batch of this .log file belongs to a transaction from now on."""
    content = bytearray(site.disk.read(path))
    (length,) = struct.unpack_from(">i", content, 8)
    content[22] |= TRANSACTIONAL_BIT
    struct.pack_into(">I", content, 17, crc32c.crc32c(bytes(content[CRC_START : LENGTH_PREFIX_BYTES + length])))
    site.disk.write(path, bytes(content))


def fill(log: Log, batches: int, *, epoch: int = 0, count: int = 1, size: int = 20, timestamp_ms: int = 1000) -> None:
    """Append so many batches, one at a time."""
    for place in range(batches):
        log.append_as_leader(produced(count, timestamp_ms + place * count, size), epoch)


def raw(log: Log, start: int | None = None, end: int | None = None, max_bytes: int = 2**20) -> bytes:
    """The bytes of [start, end), read as fetches read them."""
    return log_bytes(log, end, start, max_bytes)


def records(log: Log, start: int | None = None, end: int | None = None, max_bytes: int = 2**20) -> list[Record]:
    data = raw(log, start, end, max_bytes)
    return [record for record in decode_records(memoryview(data)) if start is None or record.offset >= start]


def offsets(log: Log, **bounds: int) -> list[int]:
    return [record.offset for record in records(log, **bounds)]


def epochs(log: Log) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]


def served(log: Log, ask: Callable[[], T]) -> T:
    """What `ask` says in the end where an event loop serves the log and what it needs is built elsewhere."""
    while True:
        try:
            return ask()
        except IndexLost as lost:
            for _ in log.segments.holding(lost.base_offset).indexes.build_in_slices():
                pass


def file_names(disk: MemoryDisk, suffix: str = "", folder: str = FOLDER) -> list[str]:
    return [name for name in disk.listdir(folder) if name.endswith(suffix)]


def offset_for_timestamp(log: Log, timestamp_ms: int, end_offset: int) -> tuple[int, int, int] | None:
    """(offset, timestamp, leader epoch) of the first record below `end_offset` that is at least so young."""
    start = log.log_start_offset
    while (found := batch_for_timestamp(log, timestamp_ms, start, end_offset)) is not None:
        header, batch = found
        record = first_record_from(batch, timestamp_ms, start, end_offset, 2**30)
        if record is not None:
            return (*record, header.partition_leader_epoch)
        start = header.next_offset
    return None
