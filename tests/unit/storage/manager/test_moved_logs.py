"""Folders that somebody moved to another log directory: what the former one's checkpoints still say of their logs."""

from __future__ import annotations

import pytest

from strandline.storage.disk.checkpoints import LOG_START_OFFSETS
from support.storage_site import TOPIC_ID, TP, StorageSite, fill, offsets


def write_line(site: StorageSite, path: str, start: int) -> None:
    site.disk.write(f"{path}/{LOG_START_OFFSETS}", f"0\n1\n{TP.topic} {TP.partition} {start}\n".encode())


def moved(start: int) -> StorageSite:
    """Six records, of which /logs says that they begin at `start`, lie in /more, of which nobody knew."""
    site = StorageSite(dirs=("/logs", "/more"))
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    assert log.segments.folder == f"/logs/{TP}"
    fill(log, 6)
    log.flushed(log.flush_plan()())
    manager.close(clean=False)
    site.disk.kill()
    write_line(site, "/logs", start)
    site.disk.rename(f"/logs/{TP}", f"/more/{TP}")
    return site


@pytest.mark.parametrize(("start", "first"), [(0, 0), (4, 4), (6, 6), (7, 0), (1 << 40, 0)])
def test_a_log_start_goes_along_unless_it_is_beyond_the_logs_end(start: int, first: int) -> None:
    site = moved(start)
    for _ in range(3):
        log = site.start().logs[TP]
        assert (log.log_start_offset, log.log_end_offset) == (first, 6)
        site.disk.kill()


@pytest.mark.parametrize("clean", [True, False])
def test_of_a_log_that_its_own_directory_knows_another_directorys_line_hides_nothing(clean: bool) -> None:
    """As where a topic was deleted and made anew while that directory was away."""
    site = moved(2)
    manager = site.start()
    fill(manager.logs[TP], 6)
    manager.checkpoints.write_high_watermarks({TP: 12})
    manager.close(clean=clean)
    site.disk.kill()
    write_line(site, "/logs", 9)
    for _ in range(2):
        log = site.start().logs[TP]
        assert log.log_start_offset == 2 and offsets(log) == list(range(2, 12))
        site.disk.kill()
