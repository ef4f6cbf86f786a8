"""The crash points find what they are for: each of these mistakes, made on purpose, is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.storage.disk.checkpoints import write_atomically
from strandline.storage.errors import StorageError
from strandline.storage.log.flush import FlushPlan
from strandline.storage.log.log import Log
from strandline.storage.manager import guarded_checkpoints, log_directory
from strandline.storage.manager.checkpoint_writing import Checkpoints
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.segments.scan import IndexBuilder
from strandline.storage.segments.segment_list import SegmentList
from support.crash_points import (
    Tally,
    anything_without_a_hole,
    part_of_what_is_cut_off,
)
from support.storage_site import TOPIC_ID, TP, fill, produced


def unsynced_checkpoints(patch: pytest.MonkeyPatch) -> None:
    original = write_atomically
    patch.setattr(
        guarded_checkpoints,
        "write_atomically",
        lambda disk, path, content, sync=True: original(disk, path, content, False),
    )


def checkpoints_in_place(patch: pytest.MonkeyPatch) -> None:
    def write(disk: Any, path: str, content: bytes, sync: bool = True) -> None:
        file = disk.open(path, create=True)
        file.truncate(0)
        file.pwritev([content], 0)
        file.fsync()

    patch.setattr(guarded_checkpoints, "write_atomically", write)


def a_flush_that_syncs_no_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlushPlan, "_sync", lambda self, path: None)


def a_flush_that_leaves_new_segments_nameless(patch: pytest.MonkeyPatch) -> None:
    original = FlushPlan.__call__

    def call(self: FlushPlan) -> int:
        self.folders = ()
        return original(self)

    patch.setattr(FlushPlan, "__call__", call)


def a_cut_that_leaves_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpoints, "write_now", lambda self, log: None)


def a_marker_that_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_directory, "take_marker", lambda disk, path: None)


def a_tail_that_goes_oldest_first(patch: pytest.MonkeyPatch) -> None:
    def cut(self: SegmentList, segment: Any, position: int, end_offset: int) -> int:
        place = self._segments.index(segment)
        for later in self._segments[place + 1 :]:
            later.delete(stale=True)
        del self._segments[place + 1 :]
        return original(self, segment, position, end_offset)

    original = SegmentList.cut
    patch.setattr(SegmentList, "cut", cut)


def an_index_that_forgets(patch: pytest.MonkeyPatch) -> None:
    def add(self: IndexBuilder, position: int, header: Any) -> None:
        original(self, position, header)
        if self.offset_index.positions and self.offset_index.positions[-1] == position:
            self.offset_index.truncate_entries(len(self.offset_index) - 1)

    original = IndexBuilder.add
    patch.setattr(IndexBuilder, "add", add)


# --- operations that show them ----------------------------------------------------------------------------------------


def flushed_and_checkpointed(broker: Any, log: Log) -> None:
    def operate() -> None:
        fill(log, 6, epoch=1)
        log.flushed(log.flush_plan()())
        broker.manager.checkpoints.write_recovery_points()

    broker.survives(operate, between=lambda before, after, found: len(found.batches) > 12)


def high_watermark_checkpointed(broker: Any, log: Log) -> None:
    def also(manager: LogManager, point: Any, is_power_loss: bool) -> None:
        assert manager.high_watermarks[TP] in (3, 7)

    broker.survives(lambda: broker.manager.checkpoints.write_high_watermarks({TP: 7}), also=also)


def cut_and_written_anew(broker: Any, log: Log) -> None:
    def operate() -> None:
        log.truncate_to(1)
        for place in range(12):
            log.append_as_leader(produced(1, 9000 + place), 5)

    def between(before: Any, after: Any, found: Any) -> bool:
        count = len(found.batches)
        return count >= 1 and found.batches in (before.batches[:count], after.batches[:count])

    broker.survives(operate, between=between)


def cut_over_segments(broker: Any, log: Log) -> None:
    broker.survives(lambda: log.truncate_to(3), between=part_of_what_is_cut_off)


def stopped_and_started(broker: Any, log: Log) -> None:
    def operate() -> None:
        broker.manager.close(clean=True)
        broker.start()
        fill(broker.manager.logs[TP], 3, epoch=2)

    broker.survives(operate, between=anything_without_a_hole, also=lambda manager, point, lost: marked(manager, point))


def marked(manager: LogManager, point: Any) -> None:
    assert not (manager.was_clean and point.is_end), "what was written after the start is not looked at"


@pytest.mark.parametrize(
    ("mistake", "operation"),
    [
        (unsynced_checkpoints, high_watermark_checkpointed),
        (checkpoints_in_place, high_watermark_checkpointed),
        (a_flush_that_syncs_no_file, flushed_and_checkpointed),
        (a_flush_that_leaves_new_segments_nameless, flushed_and_checkpointed),
        (a_cut_that_leaves_the_recovery_point, cut_and_written_anew),
        (a_marker_that_stays, stopped_and_started),
        (a_tail_that_goes_oldest_first, cut_over_segments),
        (an_index_that_forgets, flushed_and_checkpointed),
    ],
)
def test_a_mistake_is_caught(
    broker: Any,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Callable[[pytest.MonkeyPatch], None],
    operation: Callable[[Any, Log], None],
) -> None:
    broker.site.config = replace(broker.site.config, segment_bytes=500, index_interval_bytes=100)
    broker.tally = Tally()
    log = broker.start().create(TP, TOPIC_ID)
    fill(log, 10, epoch=1)
    log.flushed(log.flush_plan()())
    broker.manager.checkpoints.write_recovery_points()
    broker.manager.checkpoints.write_high_watermarks({TP: 3})
    fill(log, 3, epoch=1)
    mistake(monkeypatch)
    with pytest.raises((AssertionError, StorageError)):
        operation(broker, log)
