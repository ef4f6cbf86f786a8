"""A disk that has no room for a new log: what attempts leave is used again, or goes; what others put there is kept."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

import pytest

from strandline.storage.errors import DiskFull, LogStorageError
from strandline.storage.manager.log_manager import LogManager
from support.storage_site import TOPIC_ID, TP, StorageSite, fill

NO_ROOM = [
    ("open", "/logs/t-0/partition.metadata*"),
    ("pwritev", "/logs/t-0/partition.metadata*"),
    ("rename", "/logs/t-0/partition.metadata*"),
    ("open", "/logs/t-0/*.log"),
    ("reserve", "/logs/t-0/*.log"),
    ("open", "/logs/t-0/*index"),
]


@pytest.mark.parametrize(("operation", "pattern"), NO_ROOM)
def test_attempts_to_create_a_log_without_room_leave_one_folder(
    site: StorageSite, operation: str, pattern: str
) -> None:
    site.config = replace(site.config, preallocate=True)
    manager = site.start()
    fault = site.disk.fail(operation, pattern, errno.ENOSPC, times=5)
    for _ in range(5):
        with contextlib.suppress(DiskFull):
            manager.create(TP, bytes(range(16)))
            break
        manager.directories.look_for_room("/logs")
    fault.cancel()
    if TP not in manager.logs:
        log = manager.create(TP, TOPIC_ID)
        assert log.topic_id == TOPIC_ID and log.log_end_offset == 0
    assert [name for name in site.disk.listdir("/logs") if name.startswith("t-0")] == ["t-0"]
    assert not manager.directories.offline_paths and not site.reports.of("log-stray")
    fill(manager.logs[TP], 3)
    site.disk.kill()
    assert site.start().logs[TP].log_end_offset == 3


def begin_without_room(
    site: StorageSite, manager: LogManager, operation: str = "open", pattern: str = "/logs/t-0/*.log"
) -> None:
    """What needs no room for that is created all the same."""
    fault = site.disk.fail(operation, pattern, errno.ENOSPC)
    with contextlib.suppress(DiskFull):
        manager.create(TP, TOPIC_ID)
    fault.cancel()


@pytest.mark.parametrize(("operation", "pattern"), NO_ROOM)
def test_nothing_is_left_of_a_log_that_could_not_be_created_and_is_not_wanted_any_more(
    site: StorageSite, operation: str, pattern: str
) -> None:
    site.config = replace(site.config, preallocate=True)
    manager = site.start()
    begin_without_room(site, manager, operation, pattern)
    if TP not in manager.logs:
        manager.give_up(TP)
        assert not [name for name in site.disk.listdir("/logs") if name.startswith("t-0")]
    manager.give_up(TP)  # of one that is there nothing goes
    assert (TP in manager.logs) == site.disk.exists("/logs/t-0")


def test_what_somebody_put_beside_what_was_begun_is_kept_when_that_goes(site: StorageSite) -> None:
    manager = site.start()
    begin_without_room(site, manager)
    site.disk.write("/logs/t-0/notes", b"somebody's")
    manager.give_up(TP)
    (kept,) = (name for name in site.disk.listdir("/logs") if name.startswith("t-0"))
    assert site.disk.read(f"/logs/{kept}/notes") == b"somebody's"


def test_what_was_given_up_is_not_taken_for_begun_later_on(site: StorageSite) -> None:
    manager = site.start()
    begin_without_room(site, manager)
    manager.give_up(TP)
    manager.directories.look_for_room("/logs")
    site.disk.makedirs("/logs/t-0")
    site.disk.write("/logs/t-0/00000000000000000000.log", b"")
    manager.create(TP, TOPIC_ID)
    assert len(site.reports.of("log-stray")) == 1, "somebody put it there"


def test_of_a_directory_that_is_offline_nothing_is_removed(site: StorageSite) -> None:
    manager = site.start()
    begin_without_room(site, manager)
    site.disk.fail("unlink", "/logs/t-0/*", errno.EIO, times=1)
    for _ in range(2):
        with pytest.raises(LogStorageError, match="offline"):
            manager.give_up(TP)
    assert site.disk.exists("/logs/t-0") and TP in manager.begun


def test_a_folder_that_was_begun_and_cannot_go_is_tried_again(site: StorageSite) -> None:
    manager = site.start()
    begin_without_room(site, manager)
    manager.directories.look_for_room("/logs")
    site.disk.fail("unlink", "/logs/t-0/*", errno.ENOSPC, times=1)
    with pytest.raises(LogStorageError, match="t-0"):
        manager.give_up(TP)
    manager.give_up(TP)
    assert not site.disk.exists("/logs/t-0")


@pytest.mark.parametrize("name", ["00000000000000000000.log", "notes"])
def test_what_somebody_put_where_a_log_is_being_created_is_kept(site: StorageSite, name: str) -> None:
    manager = site.start()
    fault = site.disk.fail("open", "/logs/t-0/*.log", errno.ENOSPC)
    with pytest.raises(DiskFull):
        manager.create(TP, TOPIC_ID)
    fault.cancel()
    manager.directories.look_for_room("/logs")
    site.disk.write(f"/logs/t-0/{name}", b"somebody's")
    manager.create(TP, TOPIC_ID)
    kept = [site.disk.read(f"{fields['kept_in']}/{name}") for fields in site.reports.of("log-stray")]
    assert kept == [b"somebody's"]
