"""Partition folders that our storage wrote: every codec, after rolls, truncation, restarts, compaction and log start
moves, as leader and as follower, of idempotent producers."""

from __future__ import annotations

import hashlib
import shutil
import time
import zlib
from pathlib import Path

from compat.real_kafka import BROKER_ID, Site
from strandline.protocol.records import build_batch, decode_records
from strandline.protocol.records.batch import scan
from strandline.protocol.records.validation import ProducedBatch, validate_produced
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import ConfigZnode, PartitionStateZnode, TopicZnode
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.log.checked_append import Appended, append_checked
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import check_retention, raise_log_start, take_off_head
from strandline.storage.manager.log_manager import LogManager
from support.cleaning import clean
from support.storage_site import SmallLogConfig, StorageSite, fill, produced, raw

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = SmallLogConfig(segment_bytes=20_000, index_interval_bytes=500, segment_ms=10_000_000)
NOW_MS = 1_700_000_000_000
LEADER_EPOCH = 20
"""Above every epoch in the folders, as it would be had the cluster that wrote them gone on."""


class Written:
    """Folders that our storage wrote, and what is in their logs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.contents: dict[str, list[tuple[int, int, bytes | None, bytes | None]]] = {}
        """Folder → (offset, timestamp, key, value) of its records."""
        self.raw: dict[str, bytes] = {}
        """Folder → all its batches."""
        site = StorageSite(disk=PosixDisk(), config=CONFIG, dirs=(str(path),))
        manager = site.start()
        logs = self._fill_all(manager)
        manager.close(clean=True)
        manager = site.start()  # reports.events begins anew
        for name, log in logs.items():
            reopened = manager.logs[log.topic_partition]
            assert (reopened.log_start_offset, reopened.log_end_offset) == (log.log_start_offset, log.log_end_offset)
            self.raw[name] = b"".join(path.read_bytes() for path in sorted((path / name).glob("*.log")))
            decoded = decode_records(memoryview(self.raw[name]))
            self.contents[name] = [tuple(record)[:2] + tuple(record)[3:5] for record in decoded]
        assert not site.reports.events  # nothing had to be repaired: these are the files as they were written
        manager.close(clean=True)

    def _fill_all(self, manager: LogManager) -> dict[str, Log]:
        return {
            str(log.topic_partition): log
            for log in (
                self._codecs(manager),
                self._truncated(manager),
                self._reopened(manager),
                self._follower(manager),
                self._odd_times(manager),
                self._idempotent(manager),
                self._compacted(manager),
                self._emptied(manager),
                self._begun(manager),
            )
        }

    def _create(self, manager: LogManager, topic: str) -> Log:
        return manager.create(TopicPartition(topic, 0), topic_id_of(topic))

    def _codecs(self, manager: LogManager) -> Log:
        log = self._create(manager, "codecs")
        for place in range(300):
            log.append_as_leader(
                produced(1 + place % 7, 1_600_000_000_000 + place * 100, size=place % 90, codec=CODECS[place % 5]),
                place // 50,
            )
        return log

    def _truncated(self, manager: LogManager) -> Log:
        log = self._create(manager, "truncated")
        for epoch, cut in enumerate((1000, 700, 333, 332, 90)):
            fill(log, 250, epoch=epoch, count=3, timestamp_ms=10_000 * epoch + 1000)
            log.truncate_to(cut)
        fill(log, 50, epoch=9, count=2, timestamp_ms=500)
        return log

    def _reopened(self, manager: LogManager) -> Log:
        """Index files written in several waves."""
        log = self._create(manager, "reopened")
        for _ in range(10):
            fill(log, 37, count=2, timestamp_ms=1000 + log.log_end_offset)
            log.flushed(log.flush_plan()())
        return log

    def _follower(self, manager: LogManager) -> Log:
        leader, log = StorageSite(config=CONFIG).log(), self._create(manager, "follower")
        fill(leader, 100, epoch=1, count=4)
        fill(leader, 100, epoch=3, count=2)
        while log.log_end_offset < leader.log_end_offset:
            region = leader.read(log.log_end_offset, 7000, leader.log_end_offset)
            assert region is not None
            log.append_as_follower(memoryview(region.file.pread(region.length, region.position)), 3)
        assert raw(log) == raw(leader)
        return log

    def _odd_times(self, manager: LogManager) -> Log:
        """Timestamps that fall, stand still, and are missing."""
        log = self._create(manager, "odd-times")
        for place in range(200):
            timestamp_ms = -1 if place % 5 == 0 else 1000 + zlib.crc32(b"%d" % place) % 400 + place
            log.append_as_leader(produced(1, timestamp_ms, size=60), 0)
        return log

    def _idempotent(self, manager: LogManager) -> Log:
        """Three producers, one of which begins anew with another epoch. Of today: Kafka forgets old producers."""
        log = self._create(manager, "idempotent")
        now_ms = int(time.time() * 1000)
        sequences = [0, 0, 0]
        for place in range(240):
            pid = place % 3
            epoch = 1 if pid == 2 and place > 100 else 0
            if place == 101:
                sequences[2] = 0
            producer = (1000 + pid, epoch, sequences[pid])
            outcome = append_checked(log, [produced(2, now_ms + place, 60, CODECS[place % 5], producer)], place // 100)
            assert isinstance(outcome[0], Appended)
            sequences[pid] += 2
        return log

    def _compacted(self, manager: LogManager) -> Log:
        """Cleaned twice: some tombstones are gone, those of the second half have their delete horizons."""
        log = self._create(manager, "compacted")
        self._append_keys(log, 0, 150)
        clean(log, PosixDisk(), now_ms=NOW_MS, segment_bytes=CONFIG.segment_bytes)
        self._append_keys(log, 150, 300)
        clean(log, PosixDisk(), now_ms=NOW_MS + 5000, segment_bytes=CONFIG.segment_bytes)
        return log

    def _append_keys(self, log: Log, start: int, end: int) -> None:
        for place in range(start, end):
            keys = [b"key %d" % (zlib.crc32(b"%d %d" % (place, number)) % 70) for number in range(4)]
            values = [None if zlib.crc32(key) % 5 == place % 5 else b"%d" % place * 20 for key in keys]
            rows = [(NOW_MS - 100_000 + place, key, value) for key, value in zip(keys, values, strict=True)]
            log.append_as_leader(checked(rows, CODECS[place % 5]), place // 70)

    def _emptied(self, manager: LogManager) -> Log:
        """One key only: of all segments but the last nothing remains but an empty batch each, and each producer's."""
        log = self._create(manager, "emptied")
        now_ms = int(time.time() * 1000)
        for place in range(300):
            batch = checked(
                [(now_ms + place, b"key", b"%d" % place * 60)], producer=(2000 + place // 150, 0, place % 150)
            )
            assert isinstance(append_checked(log, [batch], 0)[0], Appended)
        clean(log, PosixDisk(), now_ms=now_ms, segment_bytes=1, last_of_producer={2000: 149, 2001: 299})
        assert sum(1 for _, header in scan(memoryview(whole(log))) if header.records_count == 0) > 2
        return log

    def _begun(self, manager: LogManager) -> Log:
        """Its start was raised into a batch of the third segment; the two before are gone."""
        log = self._create(manager, "begun")
        fill(log, 200, count=3, size=70)
        bases = [segment.base_offset for segment in log.segments]
        assert raise_log_start(log, bases[2] + 4, log.log_end_offset)
        take_off_head(log, check_retention(log, PosixDisk(), log.log_end_offset, None), log.log_end_offset)
        assert next(iter(log.segments)).base_offset == bases[2]
        manager.checkpoints.write_recovery_points()
        return log

    def files(self, *suffixes: str) -> list[str]:
        return sorted(str(path) for path in self.path.glob("*/*") if path.name.endswith(suffixes))

    def folders(self) -> list[Path]:
        """One per partition."""
        return sorted(path for path in self.path.iterdir() if path.is_dir())

    def files_by_name(self, *suffixes: str) -> dict[str, bytes]:
        """`<folder>/<name>` → content."""
        return {str(Path(path).relative_to(self.path)): Path(path).read_bytes() for path in self.files(*suffixes)}


def checked(
    rows: list[tuple[int, bytes | None, bytes | None]],
    codec: str = "none",
    producer: tuple[int, int, int] | None = None,
) -> list[ProducedBatch]:
    """One batch of (timestamp, key, value)."""
    return validate_produced(memoryview(bytearray(build_batch(rows, codec, producer))), max_batch_bytes=2**20)


def whole(log: Log) -> bytes:
    """Every batch of the log."""
    return b"".join(segment.file.get().pread(segment.size_bytes, 0) for segment in log.segments)


def topic_config() -> dict[str, str]:
    """What a topic has to be configured like to go on as these folders were written; nothing expires."""
    return {
        "retention.ms": "-1",
        "segment.bytes": str(CONFIG.segment_bytes),
        "index.interval.bytes": str(CONFIG.index_interval_bytes),
        "segment.ms": str(CONFIG.segment_ms),
        "segment.index.bytes": "4000",
    }


def install(site: Site, path: Path, topic: str, **overrides: str) -> None:
    """Give a stopped Kafka this topic: our folder in `path` and a cluster's znodes; no checkpoint or marker."""
    shutil.copytree(path / f"{topic}-0", site.data / f"{topic}-0")
    config = topic_config() | {key.replace("_", "."): value for key, value in overrides.items()}
    state = PartitionStateZnode(controller_epoch=1, leader=BROKER_ID, leader_epoch=LEADER_EPOCH, isr=[BROKER_ID])
    with site.znodes() as client:
        for path, content in (
            (ConfigZnode.path(topic), ConfigZnode(config).encode()),
            (TopicZnode.path(topic), TopicZnode(topic_id_of(topic), {0: [BROKER_ID]}).encode()),
            (PartitionStateZnode.path(topic, 0), state.encode()),
        ):
            client.create(path, content, makepath=True)


def topic_id_of(topic: str) -> bytes:
    return hashlib.md5(topic.encode()).digest()
