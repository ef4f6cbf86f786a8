"""What leaves the head of a log, ended at every disk operation: retention, DeleteRecords."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.storage.disk.removal import remove
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import check_retention, raise_log_start, take_off_head
from support.crash_points import part_of_the_head_is_gone
from support.log_audit import LogState, States
from support.storage_site import TOPIC_ID, TP, fill

NOW_MS = 10_000


@pytest.fixture
def log(broker: Any) -> Any:
    """Five segments of four batches, the first ones durable; two epochs."""
    broker.site.config = replace(
        broker.site.config, segment_bytes=450, index_interval_bytes=100, retention_ms=8500, retention_bytes=1000
    )
    log = broker.start().create(TP, TOPIC_ID)
    fill(log, 10, timestamp_ms=1000)
    log.flushed(log.flush_plan()())
    broker.manager.checkpoints.write_recovery_points()
    fill(log, 10, epoch=1, timestamp_ms=9000)
    return log


def unlink(broker: Any) -> None:
    broker.manager.removals.due(0)
    remove(broker.site.disk, broker.manager.removals.due(10**9))


@pytest.mark.parametrize("high_watermark", [20, 11])
def test_retention(broker: Any, log: Log, high_watermark: int) -> None:
    """The head goes segment by segment, oldest first, and never at or above the high watermark."""

    def operate() -> None:
        take_off_head(log, check_retention(log, broker.site.disk, high_watermark, NOW_MS), high_watermark)
        unlink(broker)
        broker.manager.checkpoints.write_log_starts()

    def model(states: States) -> None:
        assert 0 < states[TP].start <= high_watermark and states[TP].end == 20

    broker.survives(operate, between=part_of_the_head_is_gone, after=model)


def test_retention_that_takes_everything(broker: Any, log: Log) -> None:
    broker.site.clock.ms = NOW_MS * 10
    log.config = replace(broker.site.config, retention_ms=1)

    def operate() -> None:
        take_off_head(log, check_retention(log, broker.site.disk, 20, NOW_MS * 10), 20)
        unlink(broker)

    def model(states: States) -> None:
        assert states[TP] == LogState(20, 20, (), ())

    broker.survives(operate, between=part_of_the_head_is_gone, after=model)


@pytest.mark.parametrize("offset", [3, 8, 14, 20])
def test_records_that_are_deleted_by_an_offset(broker: Any, log: Log, offset: int) -> None:
    """A log start inside a segment is as durable as its checkpoint: without one it comes back at the segment."""
    log.config = replace(broker.site.config, retention_ms=-1, retention_bytes=-1)

    def operate() -> None:
        raise_log_start(log, offset, 20)
        take_off_head(log, check_retention(log, broker.site.disk, 20, NOW_MS), 20)
        broker.manager.checkpoints.write_log_starts()
        unlink(broker)

    def model(states: States) -> None:
        assert (states[TP].start, states[TP].end) == (offset, 20)

    broker.survives(operate, between=part_of_the_head_is_gone, after=model)


def test_a_head_that_goes_while_the_tail_is_flushed(broker: Any, log: Log) -> None:
    def operate() -> None:
        plan = log.flush_plan()
        take_off_head(log, check_retention(log, broker.site.disk, 20, NOW_MS), 20)
        log.flushed(plan())
        broker.manager.checkpoints.write_recovery_points()

    broker.survives(operate, between=part_of_the_head_is_gone)
