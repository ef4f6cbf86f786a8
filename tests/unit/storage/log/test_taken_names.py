"""A folder has the name that a log needs while it removes or replaces segments: that log stops there, and says so."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.storage.errors import LogStorageError
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import check_retention, raise_log_start, take_off_head
from support.cleaning import clean
from support.damage_site import OTHER, DamageSite
from support.storage_site import TP, fill, records

KINDS = (".log", ".index", ".timeindex")
DELETED_BELOW = 70


def compact(log: Log) -> None:
    clean(log, log.segments.disk)


def delete_records(log: Log) -> None:
    raise_log_start(log, DELETED_BELOW, log.log_end_offset)
    decision = check_retention(log, log.segments.disk, log.log_end_offset, None)
    take_off_head(log, decision, log.log_end_offset)


def newest(log: Log, start: int) -> dict[bytes | None, int]:
    return {record.key: record.offset for record in records(log) if record.offset >= start}


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize(
    ("operate", "number", "suffix"),
    [(compact, 0, ".swap"), (compact, 0, ".deleted"), (compact, 2, ".deleted"), (delete_records, 1, ".deleted")],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_in_the_way_of_a_rename_stops_that_log_only_and_costs_no_record(
    tmp_path: Path, operate: Callable[[Log], None], number: int, suffix: str, kind: str, how: str
) -> None:
    site = DamageSite.on_real_files(f"{tmp_path}/logs")
    site.stop(site.build(flushed=True), "clean")
    taken = f"{site.path(number, kind)}{suffix}"
    os.makedirs(f"{taken}/kept")
    manager = site.start()
    log = manager.logs[TP]
    before = newest(log, DELETED_BELOW)
    with pytest.raises(LogStorageError) as info:
        operate(log)
    assert re.search(rf"^t-0 .*{re.escape(taken)}.*; .*move away what is there, and restart", str(info.value))
    assert log.failure is not None and not manager.directories.offline_paths
    assert site.reports.names().count("log-offline") == 1
    fill(manager.logs[OTHER], 1)
    if how == "clean":
        manager.close(clean=True)
    else:
        site.disk.kill()
    manager = site.start()
    log = manager.logs[TP]
    assert newest(log, DELETED_BELOW) == before and log.log_end_offset == 90 and not manager.may_have_lost_data
    assert os.path.isdir(f"{taken}/kept") and taken in [each["path"] for each in site.reports.of("log-unknown-file")]
    site.disk.kill()
    os.rmdir(f"{taken}/kept")
    os.rmdir(taken)
    log = site.start().logs[TP]
    operate(log)
    assert newest(log, DELETED_BELOW) == before and log.failure is None
