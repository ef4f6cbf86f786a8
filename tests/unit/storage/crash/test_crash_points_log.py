"""Operations on one log, ended at every disk operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.protocol.records.batch import read_header
from strandline.storage.log.log_start import raise_log_start
from strandline.storage.manager.log_manager import LogManager
from support.crash_points import (
    Point,
    anything_without_a_hole,
    part_of_what_is_appended,
    part_of_what_is_cut_off,
)
from support.log_audit import LogState, States
from support.storage_site import TOPIC_ID, TP, fill, produced, wave

SEGMENT_BYTES = 500
"""Four or five batches of one record."""
RESERVED_BYTES = 200_000


@pytest.fixture
def log(broker: Any) -> Any:
    """20 batches in segments of 5; the first 12 are durable and the checkpoint says so."""
    broker.site.config = type(broker.site.config)(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100)
    log = broker.start().create(TP, TOPIC_ID)
    fill(log, 12)
    log.flushed(log.flush_plan()())
    broker.manager.checkpoints.write_recovery_points()
    fill(log, 8, epoch=1, timestamp_ms=2000)
    return log


def cut_to(before: LogState, offset: int) -> tuple[bytes, ...]:
    return tuple(batch for batch in before.batches if read_header(batch).next_offset <= offset)


def test_a_roll(broker: Any, log: Any) -> None:
    fill(log, 2, epoch=1)
    broker.survives(log.roll)
    assert len(log.segments) > 4


def reserves(broker: Any, log: Any) -> None:
    """From the next segment on."""
    log.config = broker.site.config = replace(log.config, preallocate=True, segment_bytes=RESERVED_BYTES)


def nothing_is_reserved(manager: LogManager, point: Point, is_power_loss: bool) -> None:
    log = manager.logs[TP]
    sizes = {entry.name: entry.reserved_bytes for entry in log.segments.disk.scandir(log.segments.folder)}
    assert not any(sizes.values()), f"space was left behind {sizes}"


def test_a_roll_that_gives_space_back_and_reserves(broker: Any, log: Any) -> None:
    reserves(broker, log)
    log.roll()
    fill(log, 2, epoch=1)
    assert broker.site.disk.reserved(log.segments.active.path + ".log") > RESERVED_BYTES // 2
    broker.survives(log.roll, also=nothing_is_reserved)
    assert broker.site.disk.reserved(log.segments.active.path + ".log") == RESERVED_BYTES


def test_a_truncation_of_what_has_space_reserved(broker: Any, log: Any) -> None:
    reserves(broker, log)
    log.roll()
    fill(log, 2, epoch=1)
    broker.survives(lambda: log.truncate_to(19), between=part_of_what_is_cut_off, also=nothing_is_reserved)


@pytest.mark.parametrize("batches", [1, 3, 14])
def test_a_wave_of_batches_over_rolls(broker: Any, log: Any, batches: int) -> None:
    before = len(log.segments)
    broker.survives(lambda: log.append_as_leader(wave(batches, 2, 3000), 2), between=part_of_what_is_appended)
    assert batches < 14 or len(log.segments) > before + 2


def test_a_flush(broker: Any, log: Any) -> None:
    broker.survives(lambda: log.flushed(log.flush_plan()()))
    assert log.recovery_point == 20


def test_a_flush_whose_recovery_point_is_checkpointed(broker: Any, log: Any) -> None:
    def operate() -> None:
        log.flushed(log.flush_plan()())
        broker.manager.checkpoints.write_recovery_points()

    broker.survives(operate)


@pytest.mark.parametrize("offset", [19, 17, 13, 12, 10, 6, 5, 1])
def test_a_truncation(broker: Any, log: Any, offset: int) -> None:
    """Within the active segment, over segments, below the recovery point."""
    before = broker.manager.logs[TP]

    def model(states: States) -> None:
        assert states[TP].end == offset and len(states[TP].batches) == offset

    assert before is log
    broker.survives(lambda: log.truncate_to(offset), between=part_of_what_is_cut_off, after=model)


@pytest.mark.parametrize("offset", [0, 7, 20, 500])
def test_a_full_truncation(broker: Any, log: Any, offset: int) -> None:
    def model(states: States) -> None:
        assert states[TP] == LogState(offset, offset, (), ())

    broker.survives(lambda: log.truncate_fully_and_start_at(offset), between=anything_without_a_hole, after=model)


@pytest.mark.parametrize("offset", [16, 9])
def test_a_tail_that_is_cut_and_replaced_by_the_leaders(broker: Any, log: Any, offset: int) -> None:
    def operate() -> None:
        log.truncate_to(offset)
        broker.remember()
        for place in range(5):
            log.append_as_leader(produced(2, 9000 + place), 5)
        broker.remember()
        log.flushed(log.flush_plan()())
        broker.manager.checkpoints.write_recovery_points()

    def between(before: LogState, after: LogState, found: LogState) -> bool:
        count = len(found.batches)
        return count >= offset and found.batches in (before.batches[:count], after.batches[:count])

    broker.survives(operate, between=between)


@pytest.mark.parametrize("offset", [16, 9])
def test_a_cut_that_is_prepared_and_checkpointed_before(broker: Any, log: Any, offset: int) -> None:
    def operate() -> None:
        log.may_truncate_to(offset)
        broker.manager.checkpoints.write_cuts("/logs")
        assert log.may_truncate_to(offset)
        log.truncate_to(offset)
        broker.remember()
        for place in range(5):
            log.append_as_leader(produced(2, 9000 + place), 5)

    def between(before: LogState, after: LogState, found: LogState) -> bool:
        count = len(found.batches)
        return count >= offset and found.batches in (before.batches[:count], after.batches[:count])

    broker.survives(operate, between=between)


def test_a_cut_that_is_prepared_and_given_up(broker: Any, log: Any) -> None:
    def operate() -> None:
        assert not log.may_truncate_to(9)
        broker.manager.checkpoints.write_cuts("/logs")
        fill(log, 3, epoch=2)

    broker.survives(operate, between=part_of_what_is_appended)


@pytest.mark.parametrize("offset", [3, 9, 500])
def test_a_log_that_begins_anew_once_that_is_checkpointed(broker: Any, log: Any, offset: int) -> None:
    """Below its start, between start and end, above its end."""
    broker.remember()
    whole = broker.history[-1][TP]  # the log start may come down before anything is cut
    raise_log_start(log, 7, 20)
    broker.manager.checkpoints.write_log_starts()

    def operate() -> None:
        assert not log.may_start_at(offset)
        broker.manager.checkpoints.write_cuts("/logs")
        assert log.may_start_at(offset)
        log.truncate_fully_and_start_at(offset)

    def model(states: States) -> None:
        assert states[TP] == LogState(offset, offset, (), ())

    def between(before: LogState, after: LogState, found: LogState) -> bool:
        is_down = found.start == offset == 3 or found.end < before.start  # what is left then is all that counts
        return anything_without_a_hole(whole if is_down else before, after, found)

    broker.survives(operate, between=between, after=model)
