"""Full and failing disks in each operation of storage: an error, nothing more accepted, nothing acknowledged lost.

One script of appends, rolls, flushes, checkpoints, a truncation, a deletion runs over two directories while one kind of
operation fails somewhere on its way. Whatever returned is remembered by a model. Then the fault ends: where the disk
was only full the same logs go on. The broker is killed, or loses power, and started: what was acknowledged must be
there, byte for byte, and nothing besides.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace

import pytest

from strandline.protocol.records import scan
from strandline.protocol.types import TopicPartition
from strandline.storage.errors import LogStorageError
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from support.storage_site import TOPIC_ID, TP, StorageSite, fill, raw

OTHER = TopicPartition("t", 1)
LATE = TopicPartition("t", 2)
ROUNDS = 6
SHORT = -1
"""A write that takes only a part, and none of the rest (the next one says ENOSPC)."""

WHERE = [
    ("pwritev", "/logs/t-0/*.log"),
    ("pwritev", "/logs/t-0/*.index"),
    ("pwritev", "/logs/t-0/*.timeindex"),
    ("pwritev", "/logs/t-0/*.snapshot*"),
    ("pwritev", "/logs/t-0/leader-epoch-checkpoint*"),
    ("pwritev", "/logs/*-checkpoint*"),
    ("pwritev", "/logs/*"),
    ("open", "/logs/t-0/*.log"),
    ("open", "/logs/t-0/*.index"),
    ("open", "/logs/*-checkpoint*"),
    ("open", "/logs/t-2/*"),
    ("makedirs", "/logs/t-2"),
    ("rename", "/logs/*"),
    ("rename", "/logs/t-*"),
    ("truncate", "/logs/t-0/*"),
    ("fsync", "/logs/t-0/*"),
    ("fsync", "/logs/*-checkpoint*"),
    ("fsync_dir", "/logs*"),
    ("pread", "/logs/t-0/*.log"),
    ("start_writeback", "/logs/t-0/*"),
    ("reserve", "/logs/t-0/*.log"),
]
NUMBERS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EMFILE": errno.EMFILE, "short": SHORT}


@dataclass
class Model:
    """What was acknowledged, per log."""

    site: StorageSite
    manager: LogManager
    contents: dict[TopicPartition, bytes] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    durable_ends: dict[TopicPartition, int] = field(default_factory=dict)
    cut_to: dict[TopicPartition, int] = field(default_factory=dict)
    """A truncation that failed: it was done, or it was not."""
    errors: int = 0

    def attempt(self, tp: TopicPartition, step: int) -> None:
        """One round of work on a log. LogStorageError."""
        log = self.manager.logs[tp]
        for place in range(8):
            fill(log, 1, epoch=step // 2, timestamp_ms=1000 + place)
            self.note(log)
        if step == 3:
            self.cut_to[tp] = self.ends[tp] - 5
            log.truncate_to(self.ends[tp] - 5)
            self.note(log)
            del self.cut_to[tp]
        log.flushed(log.flush_plan()())
        self.durable_ends[tp] = max(log.recovery_point, 0)

    def note(self, log: Log) -> None:
        tp = log.topic_partition
        self.ends[tp] = log.log_end_offset
        self.contents[tp] = b"".join(
            self.site.disk.read(segment.path + ".log")[: segment.size_bytes] for segment in log.segments
        )
        self.durable_ends[tp] = min(self.durable_ends.get(tp, 0), log.log_end_offset)

    def work(self) -> None:
        for step in range(ROUNDS):
            for tp in (TP, OTHER):
                if tp in self.cut_to:
                    continue
                try:
                    self.attempt(tp, step)
                except LogStorageError:
                    self.errors += 1
            self.manager.checkpoints.write_recovery_points()
            self.manager.checkpoints.write_high_watermarks(self.ends)
            if step == 2:
                try:
                    self.manager.create(LATE, TOPIC_ID)
                except LogStorageError:
                    self.errors += 1

    def go_on(self) -> None:
        """There is room again: every log takes more. (But for one whose file could not be shortened.)"""
        for path in self.manager.directories.full_paths:
            assert self.manager.directories.look_for_room(path)
        for tp, log in self.manager.logs.items():
            if tp in self.cut_to and log.failure is not None:
                continue
            fill(log, 20, epoch=ROUNDS)
            self.note(log)
            log.flushed(log.flush_plan()())
            assert log.recovery_point == log.log_end_offset
        self.manager.checkpoints.write_recovery_points()

    def check(self, manager: LogManager, ends: dict[TopicPartition, int]) -> None:
        """At least everything below `ends`, and nothing that was never acknowledged."""
        for tp, acknowledged in self.contents.items():
            log = manager.logs[tp]
            found = raw(log)
            if tp in self.cut_to and log.log_end_offset <= self.cut_to[tp]:
                assert acknowledged.startswith(found) and log.log_end_offset == self.cut_to[tp]
                continue
            assert acknowledged.startswith(found), f"{tp}: another content than was acknowledged"
            assert log.log_end_offset >= ends[tp], f"{tp}: {log.log_end_offset} of {ends[tp]}"


def started(site: StorageSite, operation: str = "") -> Model:
    site.config = replace(site.config, preallocate=operation == "reserve")
    manager = site.start()
    manager.mark_loss_handled()
    manager.create(TP, TOPIC_ID)
    manager.create(OTHER, TOPIC_ID)
    return Model(site, manager)


@pytest.mark.parametrize("after", [0, 3, 11])
@pytest.mark.parametrize(
    ("operation", "pattern", "number"),
    [
        pytest.param(operation, pattern, number, id=f"{operation} {pattern} {name}")
        for operation, pattern in WHERE
        for name, number in NUMBERS.items()
        if operation == {SHORT: "pwritev", errno.EMFILE: "open"}.get(number, operation)
    ],
)
def test_nothing_acknowledged_is_lost_and_nothing_refused_is_kept(
    operation: str, pattern: str, number: int, after: int
) -> None:
    site = StorageSite(dirs=("/logs", "/more"))
    model = started(site, operation)
    if number == SHORT:
        site.disk.shorten_next_write(pattern, 7)
    fault = site.disk.fail(
        operation, pattern, errno.ENOSPC if number == SHORT else number, after=after + (number == SHORT)
    )
    model.work()
    offline = model.manager.directories.offline_paths
    assert offline in ([], ["/logs"])
    assert model.ends[OTHER] == 8 * ROUNDS - 5, "the other directory never stopped"
    is_full = number in (errno.ENOSPC, SHORT) and "fsync" not in operation
    assert offline == (["/logs"] if fault.hits and not is_full and number != errno.EMFILE else [])
    model.manager.directories.mark_unsynced()
    fault.cancel()
    if is_full:
        assert not [path for path in site.disk.content() if path.endswith(".tmp")], "no room is lost to what failed"
        model.go_on()

    site.disk.kill()
    manager = site.start()
    assert manager.directories.offline_paths == [] and not manager.refused
    model.check(manager, model.ends)
    manager.close(clean=True)
    site.disk.crash()
    model.check(site.start(), model.ends)


@pytest.mark.parametrize("choice", range(3))
@pytest.mark.parametrize(("operation", "pattern"), WHERE, ids=[" ".join(where) for where in WHERE])
def test_a_power_failure_after_the_error_takes_nothing_that_was_durable(
    operation: str, pattern: str, choice: int
) -> None:
    site = StorageSite(dirs=("/logs", "/more"))
    model = started(site, operation)
    fault = site.disk.fail(operation, pattern, errno.EIO, after=5)
    model.work()
    fault.cancel()
    site.disk.crash(lambda options: (choice * 5) % options)
    manager = site.start()
    assert not manager.refused and manager.may_have_lost_data
    for tp, durable_end in model.durable_ends.items():
        if not durable_end:  # then not even its folder needs to be there
            continue
        whole = list(scan(memoryview(bytearray(model.contents[tp]))))
        durable = model.contents[tp][: sum(header.size_bytes for _, header in whole[:durable_end])]
        assert len(whole) >= durable_end and raw(manager.logs[tp]).startswith(durable)


def test_a_small_disk_takes_what_fits_and_everything_once_it_has_grown() -> None:
    site = StorageSite(dirs=("/logs",))
    model = started(site)
    del model.manager.logs[OTHER]
    site.disk.capacity_bytes = 20_000
    log = model.manager.logs[TP]
    with pytest.raises(LogStorageError, match="ENOSPC"):
        while True:
            fill(log, 1)
            model.note(log)
    assert model.ends[TP] > 50 and raw(log) == model.contents[TP]
    model.manager.close(clean=True)
    site.disk.capacity_bytes = 2**40
    manager = site.start()
    assert not manager.may_have_lost_data
    model.check(manager, model.ends)
    fill(manager.logs[TP], 10)
