"""Cuts that are prepared before: what they wait for, and what the disk says meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

import pytest

from strandline.storage.disk.checkpoints import COMPACTED_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets
from strandline.storage.errors import LogStorageError
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import raise_log_start
from strandline.storage.manager.log_manager import LogManager
from support.storage_site import TOPIC_ID, TP, StorageSite, fill, offsets

DURABLE = 40


class Durable(NamedTuple):
    site: StorageSite
    manager: LogManager
    log: Log

    def checkpointed(self, name: str) -> int:
        return read_offsets(self.site.disk, f"/logs/{name}").get(TP, 0)

    def flush(self) -> None:
        self.log.flushed(self.log.flush_plan()())

    def syncs(self, operate: Callable[[], None]) -> list[str]:
        """What is synced meanwhile."""
        seen: list[str] = []
        self.site.disk.on_operation = lambda operation, path: seen.append(path) if "fsync" in operation else None
        operate()
        self.site.disk.on_operation = None
        return seen


@pytest.fixture
def durable(site: StorageSite) -> Durable:
    """40 records are durable, as the checkpoint says; 20 more are not."""
    manager = site.start()
    each = Durable(site, manager, manager.create(TP, TOPIC_ID))
    fill(each.log, DURABLE)
    each.flush()
    manager.checkpoints.write_recovery_points()
    fill(each.log, 20, epoch=1)
    return each


def test_a_cut_above_the_recovery_point_waits_for_nothing(durable: Durable) -> None:
    assert durable.log.may_truncate_to(DURABLE) and durable.log.may_truncate_to(1000)
    assert durable.syncs(lambda: durable.log.truncate_to(DURABLE)) == []


def test_a_cut_below_it_waits_for_a_checkpoint_and_then_for_no_disk(durable: Durable) -> None:
    log = durable.log
    assert not log.may_truncate_to(16) and not log.may_truncate_to(16)
    assert log.log_end_offset == 60 and durable.checkpointed(RECOVERY_POINTS) == DURABLE
    durable.manager.checkpoints.write_cuts("/logs")
    assert durable.checkpointed(RECOVERY_POINTS) == 16 and log.may_truncate_to(16)
    assert durable.syncs(lambda: log.truncate_to(16)) == []
    assert offsets(log) == list(range(16))


def test_a_cut_that_nobody_prepared_writes_the_checkpoint_itself(durable: Durable) -> None:
    assert durable.syncs(lambda: durable.log.truncate_to(16))
    assert durable.checkpointed(RECOVERY_POINTS) == 16 == durable.log.log_end_offset


def test_a_flush_after_the_checkpoint_makes_another_one_necessary(durable: Durable) -> None:
    assert not durable.log.may_truncate_to(16)
    durable.manager.checkpoints.write_cuts("/logs")
    durable.flush()
    durable.manager.checkpoints.write_recovery_points()
    assert not durable.log.may_truncate_to(16)
    assert durable.checkpointed(RECOVERY_POINTS) == 60
    durable.manager.checkpoints.write_cuts("/logs")
    assert durable.log.may_truncate_to(16) and durable.checkpointed(RECOVERY_POINTS) == 16


def test_what_is_prepared_while_a_checkpoint_is_written_waits_for_the_next(durable: Durable) -> None:
    assert not durable.log.may_truncate_to(30)
    lower: list[bool] = []

    def look(operation: str, path: str) -> None:
        if operation == "rename" and not lower:
            lower.append(durable.log.may_truncate_to(16))

    durable.site.disk.on_operation = look
    durable.manager.checkpoints.write_cuts("/logs")
    durable.site.disk.on_operation = None
    assert lower == [False] and not durable.log.may_truncate_to(16)
    durable.manager.checkpoints.write_cuts("/logs")
    assert durable.log.may_truncate_to(16) and durable.checkpointed(RECOVERY_POINTS) == 16


def test_checkpoints_of_something_else_do_not_count(durable: Durable) -> None:
    assert not durable.log.may_truncate_to(16)
    durable.manager.checkpoints.write_log_starts()
    durable.manager.checkpoints.write_compacted(TP)
    assert not durable.log.may_truncate_to(16)


def test_a_cut_into_what_was_compacted_waits_too(durable: Durable) -> None:
    log = durable.log
    log.segments.compacted_below = 50
    durable.manager.checkpoints.write_compacted(TP)
    assert not log.may_truncate_to(45)
    durable.manager.checkpoints.write_cuts("/logs")
    sealed_below = log.segments.holding(45).base_offset
    assert durable.checkpointed(COMPACTED_OFFSETS) == sealed_below and log.may_truncate_to(45)
    assert durable.checkpointed(RECOVERY_POINTS) == DURABLE


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_without_the_checkpoint_nothing_may_be_cut(durable: Durable, number: int) -> None:
    log = durable.log
    assert not log.may_truncate_to(16)
    fault = durable.site.disk.fail("open", "*recovery-point*", number)
    with pytest.raises(OSError):
        durable.manager.checkpoints.write_cuts("/logs")
    fault.cancel()
    if number == errno.EMFILE:
        assert not log.may_truncate_to(16)
    else:
        with pytest.raises(LogStorageError):
            log.may_truncate_to(16)
    assert log.log_end_offset == 60


def test_a_cut_below_the_log_start_is_prepared_as_a_new_beginning(durable: Durable) -> None:
    log = durable.log
    raise_log_start(log, 25, 60)
    durable.manager.checkpoints.write_log_starts()
    assert not log.may_truncate_to(3)
    durable.manager.checkpoints.write_cuts("/logs")
    assert durable.checkpointed(LOG_START_OFFSETS) <= 3 and log.may_truncate_to(3)
    assert durable.syncs(lambda: log.truncate_to(3)) == []
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


@pytest.mark.parametrize("offset", [3, 30, 1000])
def test_a_log_begins_anew_without_waiting_for_a_disk_once_that_is_prepared(durable: Durable, offset: int) -> None:
    log = durable.log
    raise_log_start(log, 25, 60)
    durable.manager.checkpoints.write_log_starts()
    assert durable.checkpointed(LOG_START_OFFSETS) == 25
    assert not log.may_start_at(offset)
    durable.manager.checkpoints.write_cuts("/logs")
    assert durable.checkpointed(LOG_START_OFFSETS) <= offset and log.may_start_at(offset)
    assert (log.log_start_offset, log.log_end_offset) == (25, 60)
    assert durable.syncs(lambda: log.truncate_fully_and_start_at(offset)) == []
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset)


def test_a_log_start_that_did_not_come_down_after_all_is_checkpointed_again(durable: Durable) -> None:
    log = durable.log
    raise_log_start(log, 25, 60)
    durable.manager.checkpoints.write_log_starts()
    assert not log.may_start_at(3)
    durable.manager.checkpoints.write_cuts("/logs")
    durable.manager.checkpoints.write_log_starts()
    assert durable.checkpointed(LOG_START_OFFSETS) == 3 and log.log_start_offset == 25
    log.truncation_guard.end()
    durable.manager.checkpoints.write_log_starts()
    assert durable.checkpointed(LOG_START_OFFSETS) == 25
    assert not log.may_start_at(3), "what the disk says now is above"
