"""Another program (a Kafka) had the data folder between two lives of ours, or before the first."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from strandline.protocol.types import TopicPartition
from strandline.storage.errors import DamagedLog, TransactionalLog
from strandline.storage.log.log import Log
from strandline.storage.manager.directory_state import DirectoryState, decode_state, encode_state
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.segments.offset_index import OffsetIndex
from strandline.storage.segments.scan import walk_headers
from support.storage_site import (
    FOLDER,
    TOPIC_ID,
    TP,
    StorageSite,
    file_names,
    fill,
    make_transactional,
    offset_for_timestamp,
    offsets,
)

MARKER = "/logs/.kafka_cleanshutdown"
META = "/logs/meta.properties"
KAFKAS_MARKER = b'{"version":0,"brokerEpoch":-1}'
OTHER = TopicPartition("other", 0)


class Stopped(BaseException):
    """The broker died right there."""


@pytest.fixture
def site() -> StorageSite:
    """Two logs of several segments, and an orderly stop."""
    site = StorageSite()
    manager = site.start()
    for tp in (TP, OTHER):
        fill(manager.create(tp, TOPIC_ID), 60)
    manager.close(clean=True)
    return site


def log_of(manager: LogManager) -> Log:
    """Its log, which must not have been refused."""
    assert not manager.refused
    return manager.logs[TP]


def remove_oldest_segment(site: StorageSite) -> int:
    """As retention would; returns the new log start."""
    names = file_names(site.disk, ".log")
    for suffix in (".log", ".index", ".timeindex"):
        site.disk.unlink(f"{FOLDER}/{names[0].removesuffix('.log')}{suffix}")
    return int(names[1].removesuffix(".log"))


OURS = encode_state(DirectoryState({}, 17, is_for_all=True))


def test_our_marker_is_one_that_kafka_reads(site: StorageSite) -> None:
    marker = json.loads(site.disk.read(MARKER))
    assert (marker["version"], marker["brokerEpoch"]) == (0, -1) and len(marker) == 3
    state = DirectoryState({"one": [4_100_000_000], "none": [None, 17]}, 4_000_000_000, is_for_all=True)
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize(
    "marker",
    [
        KAFKAS_MARKER,
        b"",
        b"\xff{",
        b"[]",
        b'{"strandline":"x"}',
        OURS.replace(b"segments_crc", b"segment_crc"),
        OURS.replace(b"checkpoints", b"checkpoinds"),
        OURS.replace(b"true", b"tru"),
    ],
)
def test_any_other_marker_is_not_ours(marker: bytes) -> None:
    assert decode_state(marker) is None


def test_segments_that_kafka_removed_are_not_missed(site: StorageSite) -> None:
    log_start = remove_oldest_segment(site)
    site.disk.write(MARKER, KAFKAS_MARKER)
    log = log_of(site.start())
    assert offsets(log) == list(range(log_start, 60))
    assert not site.reports.events


def test_segments_that_nobody_may_have_removed_are_missed(site: StorageSite) -> None:
    remove_oldest_segment(site)
    assert isinstance(site.start().refused[TP], DamagedLog)


def test_a_list_that_is_not_the_one_of_the_marker_is_not_believed(site: StorageSite) -> None:
    site.disk.write("/logs/.strandline_segments", b'[["t",0,0,[[0,17]]]]')
    assert len(offsets(log_of(site.start()))) == 60
    assert site.reports.names() == ["segment-list-not-usable"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_with_transactions_is_refused_at_every_start_and_the_others_are_served(
    site: StorageSite, is_clean: bool
) -> None:
    make_transactional(site, f"{FOLDER}/{file_names(site.disk, '.log')[0]}")
    if is_clean:
        site.disk.write(MARKER, KAFKAS_MARKER)
    else:
        site.disk.unlink(MARKER)
        meta = site.disk.read(META).decode().splitlines(keepends=True)
        site.disk.write(META, "".join(line for line in meta if "strandline" not in line).encode())
    for _ in range(3):
        manager = site.start()
        assert isinstance(manager.refused[TP], TransactionalLog)
        assert len(offsets(manager.logs[OTHER])) == 60
        manager.close(clean=is_clean)
        site.disk.kill()


def test_a_start_that_dies_before_everything_was_loaded_leaves_the_folder_foreign(site: StorageSite) -> None:
    make_transactional(site, f"{FOLDER}/{file_names(site.disk, '.log')[0]}")
    site.disk.write(MARKER, KAFKAS_MARKER)

    def stop_there(operation: str, path: str) -> None:
        if path.startswith("/logs/other-0/"):
            raise Stopped

    site.disk.on_operation = stop_there
    with pytest.raises(Stopped):
        site.start()
    site.disk.on_operation = None
    site.disk.kill()
    assert not site.disk.exists(MARKER)
    assert isinstance(site.start().refused[TP], TransactionalLog)


def test_a_folder_is_looked_through_once(site: StorageSite) -> None:
    site.disk.write(MARKER, KAFKAS_MARKER)
    site.start().close(clean=True)
    make_transactional(site, f"{FOLDER}/{file_names(site.disk, '.log')[1]}")  # nobody else was there: not looked for
    assert len(offsets(log_of(site.start()))) == 60


def test_a_log_that_no_checkpoint_knows_is_looked_through(site: StorageSite) -> None:
    site.start().close(clean=True)
    make_transactional(site, f"{FOLDER}/{file_names(site.disk, '.log')[0]}")
    site.disk.rename(FOLDER, "/logs/moved-0")
    assert isinstance(site.start().refused[TopicPartition("moved", 0)], TransactionalLog)


def test_sparse_entries_of_an_older_followers_index_are_believed() -> None:
    """One for each append of several batches: the last offset of all of them, the position of the first."""
    site = StorageSite()
    site.config = replace(site.config, segment_bytes=1600, index_interval_bytes=200)
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    fill(log, 200)
    indexes = {}
    for segment in log.segments:
        index = OffsetIndex(segment.base_offset)
        found = list(walk_headers(segment.file.get(), 0, segment.size_bytes))
        for first in range(1, len(found) - 4, 4):
            index.append(found[first + 3][1].last_offset, found[first][0])
        indexes[f"{segment.path}.index"] = index.encode()
    manager.close(clean=True)
    for path, data in indexes.items():
        site.disk.write(path, data)
    site.disk.write(MARKER, KAFKAS_MARKER)
    manager = site.start()
    log = manager.logs[TP]
    site.reports.events.clear()  # that of the active segment was built anew: appends go on from its last entry
    manager.rebuilds.is_elsewhere = True
    manager.rebuilds.on_the_spot_bytes = 0
    assert offset_for_timestamp(log, 10**9, 200) is None
    assert offsets(log) == list(range(200))
    for offset in range(200):
        assert offsets(log, start=offset, max_bytes=1)[0] == offset
    assert site.reports.names() == []
