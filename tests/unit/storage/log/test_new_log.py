"""A log that begins is what loading its folder would make of it, and asks the disk for less."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.storage.log.log import Log
from support.storage_site import TOPIC_ID, TP, StorageSite, fill


def facts(log: Log) -> dict[str, Any]:
    active = log.segments.active
    return {
        "topic id": log.topic_id,
        "offsets": (log.log_start_offset, log.log_end_offset, log.recovery_point, log.durable_log_start_offset),
        "epochs": (log.epochs.entries, log.last_epoch),
        "producers": (len(log.producers.states), list(log.producers.snapshots.offsets)),
        "segments": [(segment.base_offset, segment.size_bytes) for segment in log.segments],
        "compacted": log.segments.compacted_below,
        "indexes": (len(active.indexes.offset), len(active.indexes.time), active.unindexed_bytes),
        "timestamps": (active.max_timestamp_ms, active.max_timestamp_offset, active.first_timestamp_ms),
    }


@pytest.mark.parametrize("topic_id", [TOPIC_ID, NO_TOPIC_ID])
def test_a_new_log_is_as_its_folder_is_loaded(site: StorageSite, topic_id: TopicId) -> None:
    manager = site.start()
    made = facts(manager.create(TP, topic_id))
    site.disk.kill()
    loaded = site.start().logs[TP]
    assert facts(loaded) == made
    fill(loaded, 3)
    assert loaded.log_end_offset == 3


def test_nothing_is_looked_for_in_the_folder_of_a_new_log(site: StorageSite) -> None:
    manager = site.start()
    touched: list[tuple[str, str]] = []
    site.disk.on_operation = lambda operation, path: touched.append((operation, path))
    manager.create(TP, TOPIC_ID)
    site.disk.on_operation = None
    assert not [(operation, path) for operation, path in touched if operation in ("truncate", "fsync", "fsync_dir")]
    assert len({path for _, path in touched if "checkpoint" in path}) == 0


def test_where_logs_were_deleted_the_next_ones_go(site: StorageSite) -> None:
    site.dirs = ("/a", "/b")
    manager = site.start()
    for number in range(4):
        manager.create(TopicPartition("t", number), TOPIC_ID)
    there = [tp for tp in manager.logs if site.disk.exists(f"/b/{tp}")]
    for tp in there:
        manager.delete(tp)
    for number in range(4, 6):
        manager.create(TopicPartition("t", number), TOPIC_ID)
    assert [site.disk.exists(f"/b/t-{number}") for number in (4, 5)] == [True, True]
