"""Files that the broker's user may not use: the log that they are of is refused, or goes offline; its disk is good."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from strandline.storage.errors import LogStorageError, NoLogDirLeft, UnusableFile
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from support.damage_site import OTHER, OTHER_RECORDS, DamageSite
from support.storage_site import TP, fill, offsets

REMEDY = r"^[^;\n]*t-0[^;\n]*; let the user that the broker runs as read and write it, and restart the broker$"
AT_THE_START = [
    ("scandir", "", "clean"),
    ("open", "/leader-epoch-checkpoint", "clean"),
    ("open", "/partition.metadata", "clean"),
    *(("open", name, how) for name in ("/*", "/*.log", "/*.index") for how in ("clean", "kill", "power")),
]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize(("operation", "name", "how"), AT_THE_START)
def test_what_may_not_be_used_has_that_log_refused_only_and_is_as_it_was(
    operation: str, name: str, how: str, number: int
) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), how)
    before = site.everything()
    fault = site.disk.fail(operation, f"{site.folder}{name}", number)
    for _ in range(2):
        manager = None
        with suppress(NoLogDirLeft):
            manager = site.start()
        assert manager is not None, "the directory is offline"
        manager.mark_loss_handled()
        refused = manager.refused[TP]
        with pytest.raises(UnusableFile, match=REMEDY):
            raise refused
        assert offsets(manager.logs[OTHER]) == list(range(OTHER_RECORDS)) and not manager.directories.offline_paths
        fill(manager.logs[OTHER], 1)
        manager.logs[OTHER].truncate_to(OTHER_RECORDS)
        manager.close(clean=True)
        assert site.everything() == before and not site.disk.exists(f"{site.root}/{CLEAN_MARKER}")
    fault.cancel()
    assert offsets(site.start().logs[TP]) == list(range(90))


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
def test_a_disk_that_cannot_read_one_file_takes_its_directory_offline(how: str) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), how)
    site.disk.fail("open", f"{site.folder}/*.log", errno.EIO)
    with pytest.raises(NoLogDirLeft, match="replace the disk"):
        site.start()


@pytest.mark.parametrize("stage", ["append", "roll", "read", "truncate", "flush"])
def test_what_may_not_be_used_any_more_takes_one_log_offline(stage: str) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), "clean")
    manager = site.start()
    log = manager.logs[TP]
    end = log.log_end_offset
    operation = {"append": "pwritev", "roll": "open", "read": "open", "truncate": "truncate", "flush": "open"}[stage]
    name = {"append": "*.log", "roll": "*", "read": f"{0:020d}.log", "truncate": "*", "flush": "*index"}[stage]
    fault = site.disk.fail(operation, f"{site.folder}/{name}", errno.EACCES)
    with pytest.raises(LogStorageError, match=REMEDY):
        if stage == "read":
            offsets(log)
        elif stage == "truncate":
            log.truncate_to(1)
        else:
            fill(log, 45, epoch=3)
            manager.flush_all()
            log.health.check()
    assert log.failure is not None and not manager.directories.offline_paths
    fill(manager.logs[OTHER], 1)
    fault.cancel()
    found = offsets(site.restart().logs[TP])
    assert found == list(range(len(found))) and (len(found) >= end or stage == "truncate")
