"""How long a broker's storage takes to start: after a clean stop and after a kill, cold and warm, by threads.

    python tests/benchmarks/startup.py [--partitions 1000] [--segments 10] [--epochs 20] [--scan-mb 1024]
                                       [--output json] [--keep DIR]

It builds its own folder: small logs of many segments for the clean start (whose time depends on the number of files,
not on their size), and some partitions of one large unflushed segment each for the start after a kill, which checks
every batch. *Clean, no list*: the ends of segments are looked at and the latest epochs are held against the batches,
because nothing tells that their files are as they were written. *Warm*: the folder was just written. *Cold*: file
contents were dropped from the page cache (posix_fadvise), and as root, with --drop-caches, the kernel's names and
inodes, too. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import trio

from strandline.broker.upkeep.loading import load_logs
from strandline.protocol.records import build_batch
from strandline.protocol.records.validation import validate_produced
from strandline.protocol.types import TopicPartition
from strandline.runtime.clock import SystemWallClock
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import topic_config
from strandline.runtime.disk_posix import PosixDisk
from strandline.runtime.environment import Environment
from strandline.runtime.production import production_environment
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, encode_offsets, write_atomically
from strandline.storage.log.log import Log
from strandline.storage.manager.directory_state import (
    SEGMENTS_LIST,
    DirectoryState,
    ListedLog,
    encode_state,
    list_logs,
    write_list,
)
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.manager.orderly_stops import CLEAN_MARKER

INDEX_INTERVAL = "4096"


class Quiet:
    """A logger for which nothing is worth a word."""

    def info(self, event: str, **fields: Any) -> None:
        pass

    warning = info


def config_of(**keys: str) -> BrokerConfig:
    given = {"broker.id": "1", "zookeeper.connect": "unused:2181", "log.index.interval.bytes": INDEX_INTERVAL}
    return load_broker_config({**given, **{name.replace("_", "."): value for name, value in keys.items()}})


def manager_of(root: str, config: BrokerConfig) -> LogManager:
    return LogManager(
        PosixDisk(),
        [root],
        broker_id=1,
        topic_config_for=lambda _: topic_config(config, {}),
        wall_clock=SystemWallClock(),
        random=random.Random(1),
    )


def batches(record_bytes: int, batch_bytes: int) -> Iterator[Any]:
    count = max(1, batch_bytes // record_bytes)
    template = build_batch([(1_700_000_000_000 + n, b"k%d" % n, os.urandom(record_bytes)) for n in range(count)])
    while True:
        yield validate_produced(memoryview(bytearray(template)), max_batch_bytes=2**30)


def fill_log(log: Log, source: Iterator[Any], *, segments: int = 0, size_bytes: int = 0, epochs: int = 1) -> None:
    """epochs: so many, one batch of each but of the last."""
    epoch = 0
    while len(log.segments) < segments or log.size_bytes < size_bytes:
        log.append_as_leader(next(source), epoch)
        epoch = min(epoch + 1, epochs - 1)


def build_clean(
    root: str, partitions: int, segments: int, epochs: int
) -> tuple[BrokerConfig, Mapping[TopicPartition, ListedLog]]:
    """Many logs, each a copy of the first: 16 KB per segment."""
    config = config_of(log_segment_bytes="16384")
    manager = manager_of(root, config)
    manager.load()
    log = manager.create(TopicPartition("t", 0), bytes(range(16)))
    fill_log(log, batches(1000, 1000), segments=segments, epochs=epochs)
    manager.mark_loss_handled()
    (listed,) = list_logs([log]).values()
    end_offset = log.log_end_offset
    manager.close(clean=True)
    everywhere = [TopicPartition("t", number) for number in range(partitions)]
    for tp in everywhere[1:]:
        shutil.copytree(f"{root}/t-0", f"{root}/{tp}")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        write_atomically(PosixDisk(), f"{root}/{name}", encode_offsets(dict.fromkeys(everywhere, end_offset)))
    return config, dict.fromkeys(everywhere, listed)


def leave_clean(root: str, logs: Mapping[TopicPartition, ListedLog], *, with_list: bool) -> None:
    """As an orderly stop does, but for a list that is not the one of the marker."""
    crc = write_list(PosixDisk(), f"{root}/{SEGMENTS_LIST}", logs if with_list else {})
    state = DirectoryState({}, crc if with_list else crc ^ 1, is_for_all=True)
    Path(root, CLEAN_MARKER).write_bytes(encode_state(state))


def build_unclean(root: str, partitions: int, size_bytes: int, record_bytes: int, batch_bytes: int) -> BrokerConfig:
    config = config_of()
    manager = manager_of(root, config)
    manager.load()
    manager.mark_loss_handled()
    source = batches(record_bytes, batch_bytes)
    log = manager.create(TopicPartition("t", 0), bytes(range(16)))
    fill_log(log, source, size_bytes=size_bytes // partitions)
    manager.close(clean=False)
    for number in range(1, partitions):
        shutil.copytree(f"{root}/t-0", f"{root}/t-{number}")
    return config


def chill(root: str, drop_caches: bool) -> None:
    """Write everything out and forget it."""
    os.sync()
    for folder, _, names in os.walk(root):
        for name in names:
            descriptor = os.open(f"{folder}/{name}", os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    if drop_caches:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")


def start(root: str, config: BrokerConfig, threads: int, environment: Environment) -> tuple[float, int]:
    """(seconds, bytes checked) of one start, as the broker does it."""
    manager = manager_of(root, config)
    before = time.perf_counter()
    progress = trio.run(load_logs, manager, environment, threads, Quiet())
    seconds = time.perf_counter() - before
    manager.close(clean=False)
    return seconds, progress.bytes_checked


def measure(arguments: argparse.Namespace, root: str) -> Iterator[dict[str, Any]]:
    clean_root, unclean_root = f"{root}/clean", f"{root}/unclean"
    config, listed = build_clean(clean_root, arguments.partitions, arguments.segments, arguments.epochs)
    for cold, threads, with_list in itertools.product((False, True), (1, 4), (True, False)):
        leave_clean(clean_root, listed, with_list=with_list)
        if cold:
            chill(clean_root, arguments.drop_caches)
        seconds, _ = start(clean_root, config, threads, production_environment())
        stop = "clean" if with_list else "clean, no list"
        yield row(stop, cold, threads, seconds, arguments.partitions, 0)
    for cold in (False, True):
        if cold:
            chill(clean_root, arguments.drop_caches)
        seconds, checked = start(clean_root, config, 1, production_environment())
        yield row("killed, all flushed", cold, 1, seconds, arguments.partitions, checked)
    config = build_unclean(
        unclean_root, arguments.scan_partitions, arguments.scan_mb * 2**20, arguments.record, arguments.batch
    )
    for cold in (False, True):
        for threads in (1, 2):
            if cold:
                chill(unclean_root, arguments.drop_caches)
            # A pool of its own for each start: the workers' own start belongs to it, as for a broker.
            seconds, checked = start(unclean_root, config, threads, production_environment())
            yield row("killed, nothing flushed", cold, threads, seconds, arguments.scan_partitions, checked)


def row(stop: str, cold: bool, threads: int, seconds: float, partitions: int, checked: int) -> dict[str, Any]:
    return {
        "stop": stop,
        "cache": "cold" if cold else "warm",
        "threads": threads,
        "partitions": partitions,
        "seconds": round(seconds, 3),
        "checked_mb": checked // 2**20,
        "mb_per_s": round(checked / 2**20 / seconds) if checked else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1000, help="of the clean start")
    parser.add_argument("--segments", type=int, default=10, help="of each of them")
    parser.add_argument("--epochs", type=int, default=20, help="of each of them, the batches of one each but the last")
    parser.add_argument("--scan-mb", type=int, default=1024, help="to be checked after a kill, all together")
    parser.add_argument("--scan-partitions", type=int, default=8)
    parser.add_argument("--record", type=int, default=1000, help="bytes of a record")
    parser.add_argument("--batch", type=int, default=16384, help="bytes of a batch")
    parser.add_argument("--drop-caches", action="store_true", help="as root: cold means names and inodes, too")
    parser.add_argument("--keep", metavar="DIR", help="build it there and leave it")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    root = arguments.keep or tempfile.mkdtemp(prefix="strandline-startup-")
    rows = []
    try:
        for found in measure(arguments, root):
            rows.append(found)
            if arguments.output == "text":
                if len(rows) == 1:
                    print("".join(f"{name:>{max(12, len(name) + 2)}}" for name in found))
                print("".join(f"{value!s:>{max(12, len(name) + 2)}}" for name, value in found.items()), flush=True)
    finally:
        if not arguments.keep:
            shutil.rmtree(root, ignore_errors=True)
    if arguments.output == "json":
        json.dump(rows, sys.stdout, indent=1)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
