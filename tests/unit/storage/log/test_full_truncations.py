"""A truncation on a disk that gets full anywhere in it is done, or nothing of it is; then it may be tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from strandline.storage.errors import DiskFull, LogStorageError
from strandline.storage.log.checked_append import append_checked
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk.model import NoRoom, nothing_happens
from support.storage_site import TOPIC_ID, TP, StorageSite, fill, produced, raw

Truncation = Callable[[Log], None]

TRUNCATIONS: dict[str, Truncation] = {
    **{f"to {offset}": partial(Log.truncate_to, offset=offset) for offset in (39, 30, 13, 4, 0)},
    **{f"anew at {offset}": partial(Log.truncate_fully_and_start_at, offset=offset) for offset in (0, 13, 40, 500)},
}


def as_appended(site: StorageSite, manager: LogManager) -> LogManager:
    return manager


def checkpointed(site: StorageSite, manager: LogManager) -> LogManager:
    """The checkpoints vouch for all of it: they have to be written first."""
    log = manager.logs[TP]
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks({TP: log.log_end_offset})
    return manager


def indexes_are_gone(site: StorageSite, manager: LogManager) -> LogManager:
    """Of sealed segments, after the start: they are built anew when somebody looks for the cut."""
    manager.close(clean=True)
    manager = site.start()
    for path in site.disk.content():
        if path.endswith("index"):
            site.disk.unlink(path)
    return manager


def space_is_reserved(site: StorageSite, manager: LogManager) -> LogManager:
    manager.logs[TP].config = replace(site.config, preallocate=True)
    manager.logs[TP].roll()
    fill(manager.logs[TP], 2, epoch=8)
    return manager


SITUATIONS = [as_appended, checkpointed, indexes_are_gone, space_is_reserved]


def prepared(situation: Callable[[StorageSite, LogManager], LogManager]) -> tuple[StorageSite, LogManager]:
    site = StorageSite()
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    for place in range(40):
        append_checked(log, [produced(1, 1000 + place, producer=(5, 0, place))], place // 9)
    manager.mark_loss_handled()
    return site, situation(site, manager)


def end_of(log: Log) -> tuple[int, int, bytes]:
    return log.log_start_offset, log.log_end_offset, raw(log)


@contextmanager
def refused(site: StorageSite, no_room: NoRoom) -> Iterator[None]:
    site.disk.on_growth = no_room
    yield
    site.disk.on_growth = nothing_happens


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "until there is room"])
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_a_truncation_is_done_or_not_and_may_be_tried_again(
    truncation: str, situation: Callable[[StorageSite, LogManager], LogManager], lasts: bool
) -> None:
    truncate = TRUNCATIONS[truncation]
    site, manager = prepared(situation)
    before = raw(manager.logs[TP])
    truncate(manager.logs[TP])
    expected = end_of(manager.logs[TP])
    for first in range(40):
        site, manager = prepared(situation)
        log = manager.logs[TP]
        no_room = NoRoom(first, times=2**40 if lasts else 1)
        with refused(site, no_room):
            try:
                truncate(log)
                is_done = True
            except LogStorageError as error:
                assert isinstance(error, DiskFull), f"half done: {error}"
                is_done = False
            assert log.failure is None
            assert end_of(log) == expected if is_done else raw(log) == before
            twin = replace(site, disk=site.disk.copy(), reports=type(site.reports)())
            killed = twin.start()
            assert not killed.refused and raw(killed.logs[TP]) == raw(log)
        assert not manager.directories.full_paths or manager.directories.look_for_room("/logs")
        truncate(log)
        assert end_of(log) == expected
        fill(log, 20, epoch=9)
        log.flushed(log.flush_plan()())
        whole = end_of(log)
        site.disk.kill()
        assert end_of(site.start().logs[TP]) == whole
        if not no_room.refused:
            return
    raise AssertionError("a truncation that never comes to its end")
