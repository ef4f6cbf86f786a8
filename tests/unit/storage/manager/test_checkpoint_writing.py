"""A checkpoint is written when it would say something else, or when nobody knows what stands on the disk."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from strandline.protocol.types import TopicPartition
from strandline.storage.manager.log_manager import LogManager
from support.storage_site import TOPIC_ID, TP, StorageSite, fill

OTHER = TopicPartition("t", 1)
RECOVERY_POINTS = "/logs/recovery-point-offset-checkpoint"
LOG_STARTS = "/logs/log-start-offset-checkpoint"
HIGH_WATERMARKS = "/logs/replication-offset-checkpoint"


def serving(site: StorageSite) -> LogManager:
    """Two logs whose checkpoints all say something, and were written."""
    manager = site.start()
    for tp in TP, OTHER:
        log = manager.create(tp, TOPIC_ID)
        fill(log, 60)
        log.log_start_offset = 5
    manager.flush_all()
    write_all(manager)
    return manager


def write_all(manager: LogManager, high_watermark: int = 50) -> None:
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_log_starts()
    manager.checkpoints.write_high_watermarks({TP: high_watermark, OTHER: 7})


@contextmanager
def replaced(site: StorageSite) -> Iterator[list[str]]:
    """Which checkpoints were replaced within."""
    names: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(".tmp"):
            names.append(path.rpartition("/")[2].partition(".")[0])

    site.disk.on_operation = note
    yield names
    site.disk.on_operation = None


def test_a_round_in_which_nothing_changed_writes_and_syncs_nothing(site: StorageSite) -> None:
    manager = serving(site)
    with replaced(site) as names:
        write_all(manager)
    assert names == []


def change_recovery_point(manager: LogManager) -> None:
    fill(manager.logs[TP], 1)
    manager.flush_all()


def change_log_start(manager: LogManager) -> None:
    manager.logs[OTHER].log_start_offset = 6


def delete(manager: LogManager) -> None:
    manager.delete(OTHER)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (change_recovery_point, ["recovery-point-offset-checkpoint"]),
        (change_log_start, ["log-start-offset-checkpoint"]),
        (
            delete,
            ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"],
        ),
    ],
)
def test_what_changed_is_written_and_nothing_else(
    site: StorageSite, change: Callable[[LogManager], None], expected: list[str]
) -> None:
    manager = serving(site)
    change(manager)
    for wanted in expected, []:
        with replaced(site) as names:
            write_all(manager)
        assert [name for name in names if name.endswith("-checkpoint")] == wanted


def test_a_high_watermark_that_moved_is_written(site: StorageSite) -> None:
    manager = serving(site)
    write_all(manager, 51)
    assert b"t 0 51\n" in site.disk.read(HIGH_WATERMARKS)


@pytest.mark.parametrize(
    ("operation", "pattern", "number"),
    [
        ("open", "/logs/*checkpoint*", errno.ENOSPC),
        ("rename", "/logs/*checkpoint*", errno.ENOSPC),
        ("fsync_dir", "/logs", errno.EMFILE),
    ],
)
@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_what_failed_is_written_again_even_if_all_is_as_it_was_before(
    site: StorageSite, skipped: int, operation: str, pattern: str, number: int
) -> None:
    """Then nobody knows what stands there. skipped: checkpoints that are written before it fails."""
    manager = serving(site)
    log = manager.logs[TP]
    log.truncation_guard.prepare(40)
    log.log_start_offset = 6
    fault = site.disk.fail(operation, pattern, number, after=skipped, times=1)
    write_all(manager, 40)
    assert fault.hits == 1
    log.log_start_offset = 5
    manager.flush_all()
    write_all(manager)
    assert b"t 0 60\n" in site.disk.read(RECOVERY_POINTS)
    assert b"t 0 5\n" in site.disk.read(LOG_STARTS)
    assert b"t 0 50\n" in site.disk.read(HIGH_WATERMARKS)


def test_what_stood_there_when_the_broker_started_is_written_once_by_it(site: StorageSite) -> None:
    """A line that was damaged or twice may have been left out when it was read."""
    serving(site)
    site.disk.kill()
    manager = site.start()
    with replaced(site) as names:
        write_all(manager)
    assert {"recovery-point-offset-checkpoint", "replication-offset-checkpoint"} <= set(names)


def test_what_the_event_loop_wrote_beside_a_thread_is_written_once_more(site: StorageSite) -> None:
    """Of two writers nobody knows which one was the last to rename its file."""
    manager = serving(site)
    manager.checkpoints.write_now(manager.logs[TP])
    for expected in ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"], []:
        with replaced(site) as names:
            manager.checkpoints.write_recovery_points()
            manager.checkpoints.write_log_starts()
        assert names == expected


@pytest.mark.parametrize("skipped", [0, 1, 2, 3])
def test_what_a_write_that_failed_left_vouches_for_no_later_log_of_that_name(site: StorageSite, skipped: int) -> None:
    """It had been renamed; only the folder could not be synced. skipped: folders that are synced before."""
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 60)
    log.log_start_offset = 5
    manager.flush_all()
    fault = site.disk.fail("fsync_dir", "/logs", errno.EMFILE, after=skipped, times=1)
    write_all(manager)
    assert fault.hits == 1
    manager.delete(TP)
    manager.create(TP, bytes(range(1, 17)))
    checkpoints = RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS
    assert not any(b"t 0 " in site.disk.read(path) for path in checkpoints if site.disk.exists(path))


@pytest.mark.parametrize("is_named", [True, False])
def test_a_full_directory_keeps_no_log_from_being_made_in_another(is_named: bool) -> None:
    """is_named: its checkpoints name a log of that name, which was deleted; else the last write of one failed."""
    site = StorageSite(dirs=("/logs", "/more"))
    manager = site.start()
    tps = [TopicPartition("t", number) for number in range(4)]  # in turn in each directory
    for tp in tps:
        fill(manager.create(tp, TOPIC_ID), 10)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    for tp in tps[1::2]:
        manager.delete(tp)
    fault = site.disk.fail("open", "/logs/*checkpoint*", errno.ENOSPC)
    manager.delete(tps[0])
    manager.checkpoints.write_recovery_points()
    log = manager.create(tps[0] if is_named else TopicPartition("t", 9), bytes(range(1, 17)))
    fill(log, 10)
    assert fault.hits and log.segments.folder.startswith("/more/") and manager.directories.full_paths == ["/logs"]


def test_nothing_is_skipped_by_a_thread_while_the_event_loop_writes_at_once(site: StorageSite) -> None:
    """What it began to write before may have been renamed last."""
    manager = serving(site)
    renamed: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "rename":
            renamed.append(path.partition("-checkpoint")[0])
            if path.startswith(LOG_STARTS):
                site.disk.on_operation = lambda operation, path: note_again(operation, path)
                manager.checkpoints.write_recovery_points()

    def note_again(operation: str, path: str) -> None:
        if operation == "rename":
            renamed.append(path.partition("-checkpoint")[0])

    site.disk.on_operation = note
    manager.checkpoints.write_now(manager.logs[TP])
    assert renamed.count("/logs/recovery-point-offset") == 2


def test_a_cut_while_its_checkpoint_is_written_is_what_stands_there_in_the_end(site: StorageSite) -> None:
    manager = serving(site)
    log = manager.logs[TP]
    change_recovery_point(manager)

    def cut(operation: str, path: str) -> None:
        if operation == "rename" and RECOVERY_POINTS in path:
            site.disk.on_operation = None
            log.truncate_to(10)

    site.disk.on_operation = cut
    manager.checkpoints.write_recovery_points()
    assert f"t 0 {log.log_end_offset}\n".encode() in site.disk.read(RECOVERY_POINTS) and log.log_end_offset <= 10


def test_logs_that_are_made_while_it_is_written_have_nobody_write_it_again(site: StorageSite) -> None:
    """Nor is it written for each of them: no file has their names."""
    manager = serving(site)
    made = iter(range(2, 100))

    def make_one(operation: str, path: str) -> None:
        if operation == "rename" and path.startswith(HIGH_WATERMARKS):
            written.append(path)
            if len(written) < 20:
                manager.create(TopicPartition("t", next(made)), TOPIC_ID)

    written: list[str] = []
    site.disk.on_operation = make_one
    manager.checkpoints.write_high_watermarks({TP: 51, OTHER: 7})
    site.disk.on_operation = None
    assert len(written) == 1
