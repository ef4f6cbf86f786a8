"""Operations on all logs of a broker, ended at every disk operation: checkpoints, creation, deletion, stop, start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    read_offsets,
)
from strandline.storage.disk.removal import remove
from strandline.storage.log.log_start import raise_log_start
from strandline.storage.manager.log_manager import LogManager
from support.crash_points import Point
from support.log_audit import LogState, States, states_of
from support.storage_site import TOPIC_ID, TP, fill, produced

OTHER = TopicPartition("other", 3)
NEW_ID = bytes(reversed(range(16)))


@pytest.fixture
def logs(broker: Any) -> Any:
    """Two logs in one directory, one half durable, the other not at all."""
    broker.site.config = replace(broker.site.config, segment_bytes=500, index_interval_bytes=100)
    manager = broker.start()
    first, second = manager.create(TP, TOPIC_ID), manager.create(OTHER, TOPIC_ID)
    fill(first, 8)
    first.flushed(first.flush_plan()())
    manager.checkpoints.write_recovery_points()
    manager.checkpoints.write_high_watermarks({TP: 3, OTHER: 1})
    fill(first, 4, epoch=1)
    fill(second, 6, epoch=4)
    return manager


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_high_watermarks(broker: Any, logs: LogManager) -> None:
    """The old file or the new one, whatever happens; never above the log's end."""

    def also(manager: LogManager, point: Point, is_power_loss: bool) -> None:
        on_disk = read_offsets(manager._disk, f"/logs/{HIGH_WATERMARKS}")
        assert on_disk in ({TP: 3, OTHER: 1}, {TP: 11, OTHER: 5}) and not (point.is_end and on_disk[TP] == 3)
        assert manager.high_watermarks == {tp: min(on_disk[tp], log.log_end_offset) for tp, log in manager.logs.items()}

    broker.survives(lambda: logs.checkpoints.write_high_watermarks({TP: 11, OTHER: 5}), also=also)


def test_a_checkpoint_of_recovery_points(broker: Any, logs: LogManager) -> None:
    for log in logs.logs.values():
        log.flushed(log.flush_plan()())

    def also(manager: LogManager, point: Point, is_power_loss: bool) -> None:
        points = {tp: log.recovery_point for tp, log in manager.logs.items()}
        assert points in ({TP: 8, OTHER: 0}, {TP: 12, OTHER: 6}) and not (point.is_end and points[TP] == 8)

    broker.survives(logs.checkpoints.write_recovery_points, also=also)


def test_a_checkpoint_of_log_starts(broker: Any, logs: LogManager) -> None:
    def operate() -> None:
        raise_log_start(logs.logs[TP], 2, 12)
        logs.checkpoints.write_log_starts()

    def also(manager: LogManager, point: Point, is_power_loss: bool) -> None:
        on_disk = read_offsets(manager._disk, f"/logs/{LOG_START_OFFSETS}").get(TP, 0)
        assert on_disk == manager.logs[TP].log_start_offset
        assert on_disk == 2 or (on_disk == 0 and not point.is_end)

    broker.survives(operate, also=also)


def test_epochs_of_an_election(broker: Any, logs: LogManager) -> None:
    for log in logs.logs.values():
        log.epochs.assign(7, log.log_end_offset)
        log.append_as_leader(produced(), 7)
    broker.survives(lambda: [log.flushed(log.flush_plan()()) for log in logs.logs.values()])


# --- creation, deletion -----------------------------------------------------------------------------------------------


def test_a_creation(broker: Any, logs: LogManager) -> None:
    new = TopicPartition("new", 0)

    def also(manager: LogManager, point: Point, is_power_loss: bool) -> None:
        if new in manager.logs and not is_power_loss:
            assert manager.logs[new].topic_id == NEW_ID or (manager.logs[new].topic_id is None and not point.is_end)

    def model(states: States) -> None:
        assert states[new] == LogState(0, 0, (), ())

    broker.survives(lambda: logs.create(new, NEW_ID), after=model, also=also)


def test_a_deletion_and_the_removal_of_its_files(broker: Any, logs: LogManager) -> None:
    """The whole log or none of it; what is left of it is known to be removed, and nothing counts as lost."""

    def operate() -> None:
        logs.delete(TP)
        remove(broker.site.disk, logs.removals.due(0))
        logs.checkpoints.write_recovery_points()
        logs.checkpoints.write_high_watermarks({OTHER: 2})
        remove(broker.site.disk, logs.removals.due(10**9))

    def model(states: States) -> None:
        assert TP not in states and OTHER in states

    broker.survives(operate, after=model)


def test_a_log_that_is_deleted_and_created_again_has_nothing_of_its_former_life(broker: Any, logs: LogManager) -> None:
    def operate() -> None:
        logs.delete(TP)
        log = logs.create(TP, NEW_ID)
        broker.remember()
        fill(log, 3, epoch=0, timestamp_ms=7000)
        log.flushed(log.flush_plan()())
        logs.checkpoints.write_recovery_points()

    def also(manager: LogManager, point: Point, is_power_loss: bool) -> None:
        log = manager.logs.get(TP)
        if log is None or is_power_loss:
            return
        is_old = log.log_end_offset == 12
        assert log.topic_id == (TOPIC_ID if is_old else NEW_ID) or log.log_end_offset == 0
        assert manager.high_watermarks[TP] == (3 if is_old else 0)

    def between(before: LogState, after: LogState, found: LogState) -> bool:
        return found.batches == after.batches[: len(found.batches)]

    broker.survives(operate, between=between, also=also, may_vanish=True)


# --- stop, start ------------------------------------------------------------------------------------------------------


def test_an_orderly_stop(broker: Any, logs: LogManager) -> None:
    def also(manager: LogManager, point: Point, is_power_loss: bool) -> None:
        assert manager.was_clean or not point.is_end
        if manager.was_clean:
            assert {tp: log.recovery_point for tp, log in manager.logs.items()} == {TP: 12, OTHER: 6}

    broker.survives(lambda: logs.close(clean=True), also=also)


def test_a_disorderly_stop(broker: Any, logs: LogManager) -> None:
    def also(manager: LogManager, point: Point, is_power_loss: bool) -> None:
        assert not manager.was_clean

    broker.survives(lambda: logs.close(clean=False), also=also)


@pytest.mark.parametrize("clean", [True, False])
def test_a_start(broker: Any, logs: LogManager, clean: bool) -> None:
    before = states_of(logs)
    logs.close(clean=clean)
    broker.survives(broker.start, before=before)
