"""A start over a text checkpoint that was changed since an orderly stop, ended at every disk operation: the next start,
which has no marker any more, does not believe it either."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.storage.disk.checkpoints import (
    COMPACTED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from strandline.storage.log.log_start import raise_log_start
from support.crash_points import endings, record
from support.log_audit import check_log
from support.storage_site import TOPIC_ID, TP, Reports, StorageSite, epochs, fill, offsets

LOG_START, HIGH_WATERMARK, END = 7, 30, 40


def judge(site: StorageSite, name: str, compacted_below: int) -> None:
    for _ in range(2):
        manager = site.start()
        log = manager.logs[TP]
        log_start = 0 if name == LOG_START_OFFSETS else LOG_START
        assert log.log_start_offset == log_start and offsets(log) == list(range(log_start, END))
        assert epochs(log) == [(2, log_start), (5, 10), (9, 20)]
        assert log.segments.compacted_below == (0 if name == COMPACTED_OFFSETS else compacted_below)
        assert manager.high_watermarks[TP] == (log_start if name == HIGH_WATERMARKS else HIGH_WATERMARK)
        assert log.recovery_point == (0 if name == RECOVERY_POINTS else END)
        check_log(log, site.config.index_interval_bytes)
        site.disk.kill()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (LOG_START_OFFSETS, b"t 0 7", b"t 0 17"),
        (LOG_START_OFFSETS, b"t 0 7", b"t 0 3"),
        (COMPACTED_OFFSETS, b"t 0 10", b"t 0 20"),
        (HIGH_WATERMARKS, b"t 0 30", b"t 0 38"),
        (RECOVERY_POINTS, b"t 0 40", b"t 0 20"),
        (f"{TP}/{LEADER_EPOCHS}", b"5 10", b"5 12"),
    ],
)
def test_a_start_over_a_changed_checkpoint(broker: Any, name: str, old: bytes, new: bytes) -> None:
    site = broker.site
    site.config = replace(site.config, segment_bytes=500, index_interval_bytes=100)
    manager = broker.start()
    log = manager.create(TP, TOPIC_ID)
    for count, epoch in ((10, 2), (10, 5), (20, 9)):
        fill(log, count, epoch=epoch)
    raise_log_start(log, LOG_START, END)
    compacted_below = log.segments.compacted_below = [segment.base_offset for segment in log.segments][2]
    manager.checkpoints.write_high_watermarks({TP: HIGH_WATERMARK})
    manager.close(clean=True)
    content = site.disk.read(f"/logs/{name}")
    assert old in content
    site.disk.write(f"/logs/{name}", content.replace(old, new))
    site.disk.sync_everything()
    points = record(site.disk, broker.start, dict)
    count = 0
    seen = set()
    for point in points:
        for ending in endings(point, 2, name):
            count += 1
            state = tuple(ending.disk.content().items())
            if state in seen:
                continue
            seen.add(state)
            try:
                judge(replace(site, disk=ending.disk, reports=Reports()), name, compacted_below)
            except BaseException as error:
                error.add_note(f"{ending.name} before {point.following} (point {point.number} of {len(points)})")
                raise
    assert len(points) > 5
    broker.tally.add(broker.name, len(points), count, len(seen))
