"""A cleaning ended at every disk operation: each group of segments is the old one or the new one, never a mixture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.storage.disk.removal import remove
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import raise_log_start
from support.cleaning import clean
from support.crash_points import Point
from support.log_audit import LogState, States
from support.storage_site import TOPIC_ID, TP, produced


@pytest.fixture
def log(broker: Any) -> Log:
    """24 batches of three records with the same three keys, some compressed, in segments of four; all of it durable."""
    broker.site.config = replace(
        broker.site.config, segment_bytes=640, index_interval_bytes=100, cleanup_policy=("compact",)
    )
    log: Log = broker.start().create(TP, TOPIC_ID)
    for place in range(24):
        log.append_as_leader(produced(3, 1000 + 10 * place, codec="lz4" if place % 3 else "none"), place // 10)
    log.flushed(log.flush_plan()())
    broker.manager.checkpoints.write_recovery_points()
    assert len(log.segments) >= 5
    return log


def unlink(broker: Any) -> None:
    broker.manager.removals.due(0)
    remove(broker.site.disk, broker.manager.removals.due(10**9))


def test_all_segments_become_one(broker: Any, log: Log) -> None:
    def operate() -> None:
        clean(log, broker.site.disk)
        unlink(broker)

    def model(states: States) -> None:
        assert (states[TP].start, states[TP].end) == (0, 72)
        assert len(states[TP].batches) < 6

    broker.survives(operate, after=model)
    assert len(log.segments) == 2


def test_several_groups_one_after_another(broker: Any, log: Log) -> None:
    steps: list[LogState] = []
    take_over_segments = log.segments.replace

    def operate() -> None:
        log.segments.replace = observe
        clean(log, broker.site.disk, segment_bytes=1300)
        del log.segments.replace
        unlink(broker)

    def observe(*arguments: Any) -> None:
        take_over_segments(*arguments)
        log.segments_replaced()
        broker.remember()
        steps.append(broker.history[-1][TP])

    def between(before: LogState, after: LogState, found: LogState) -> bool:
        return found in steps

    broker.survives(operate, between=between)
    assert len(steps) >= 3


def test_a_second_cleaning_of_what_was_cleaned(broker: Any, log: Log) -> None:
    clean(log, broker.site.disk, segment_bytes=1300)
    for place in range(12):
        log.append_as_leader(produced(3, 3000 + place), 4)
    log.flushed(log.flush_plan()())
    broker.manager.checkpoints.write_recovery_points()
    broker.survives(lambda: clean(log, broker.site.disk))


def test_a_cleaning_whose_result_is_given_up(broker: Any, log: Log) -> None:
    """Leftovers of an abandoned cleaning never stand in the way of a later one that gets half way."""
    disk = broker.site.disk
    for name in ("00000000000000000000.log", "00000000000000000000.index", "00000000000000000012.log"):
        disk.open(f"{log.segments.folder}/{name}.cleaned", create=True).pwritev([b"half"], 0)
    broker.survives(lambda: clean(log, disk))


def test_a_log_start_inside_of_what_is_cleaned(broker: Any, log: Log) -> None:
    raise_log_start(log, 13, 72)
    broker.manager.checkpoints.write_log_starts()

    def also(manager: Any, point: Point, is_power_loss: bool) -> None:
        assert manager.logs[TP].log_start_offset == 13

    broker.survives(lambda: clean(log, broker.site.disk), also=also)
