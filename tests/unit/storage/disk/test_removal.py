"""Files that were put aside: when they go, and what stands in the way."""

from __future__ import annotations

import errno

from strandline.storage.disk.removal import Removals, remove
from strandline.testkit.disk import MemoryDisk
from support.storage_site import Reports


def disk_with(*names: str) -> MemoryDisk:
    disk = MemoryDisk()
    disk.makedirs("/d")
    for name in names:
        disk.write(f"/d/{name}", b"x")
    return disk


def test_files_count_for_nothing_at_once_and_are_unlinked_after_their_delay() -> None:
    disk = disk_with("0.log", "0.index")
    removals = Removals()
    removals.put_aside(disk, ["/d/0.log", "/d/0.index", "/d/0.snapshot"], 1000)
    assert disk.listdir("/d") == ["0.index.deleted", "0.log.deleted"] and len(removals) == 2
    assert removals.due(5_000) == [] and removals.due(5_999) == []
    remove(disk, removals.due(6_000))
    assert disk.listdir("/d") == [] and len(removals) == 0


def test_each_has_its_own_delay() -> None:
    disk = disk_with("a", "b")
    removals = Removals()
    removals.put_aside(disk, ["/d/a"], 2000)
    removals.put_aside(disk, ["/d/b"], 0)
    remove(disk, removals.due(0))
    assert disk.listdir("/d") == ["a.deleted"]


def test_a_folder_goes_with_what_is_in_it() -> None:
    disk = disk_with("0.log", "partition.metadata")
    removals = Removals()
    removals.put_aside_folder(disk, "/d", "/d.1-delete", 0)
    remove(disk, removals.due(0))
    assert disk.listdir("/") == []


def test_a_file_whose_folder_went_before_is_no_matter() -> None:
    disk = disk_with("0.log")
    removals, reports = Removals(), Reports()
    removals.put_aside(disk, ["/d/0.log"], 0)
    removals.put_aside_folder(disk, "/d", "/d.1-delete", 0)
    remove(disk, removals.due(0), reports.warning)
    assert disk.listdir("/") == [] and reports.events == []


def test_a_disk_that_refuses_is_reported_and_the_others_go_all_the_same() -> None:
    disk = disk_with("a", "b")
    removals, reports = Removals(), Reports()
    removals.put_aside(disk, ["/d/a", "/d/b"], 0)
    disk.fail("unlink", "/d/a.deleted", errno.EIO)
    remove(disk, removals.due(0), reports.warning)
    assert disk.listdir("/d") == ["a.deleted"]
    assert reports.of("removal-failed")[0]["path"] == "/d/a.deleted"
