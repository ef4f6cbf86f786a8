"""The small files: Kafka's formats, replaced atomically, read with tolerance."""

from __future__ import annotations

import errno
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.types import TopicPartition
from strandline.storage.disk.checkpoints import (
    HIGH_WATERMARKS,
    EpochEntry,
    decode_topic_id,
    encode_epochs,
    encode_offsets,
    encode_topic_id,
    no_report,
    read_bounds,
    read_epochs,
    read_offsets,
    write_atomically,
    write_partition_metadata,
)
from strandline.storage.manager.guarded_checkpoints import NAMES, GuardedCheckpoints
from strandline.storage.manager.orderly_stops import read_last_stop
from strandline.testkit.disk import MemoryDisk

PATH = "/d/replication-offset-checkpoint"
A, B = TopicPartition("a-topic", 0), TopicPartition("b.topic_x", 12)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.makedirs("/d")
    disk.sync_everything()
    return disk


def test_an_offset_checkpoint_is_kafkas_text(disk: MemoryDisk) -> None:
    write_atomically(disk, PATH, encode_offsets({A: 17, B: 0}))
    assert disk.read(PATH) == b"0\n2\na-topic 0 17\nb.topic_x 12 0\n"
    assert read_offsets(disk, PATH) == {A: 17, B: 0}


def test_an_epoch_checkpoint_is_kafkas_text(disk: MemoryDisk) -> None:
    entries = [EpochEntry(0, 0), EpochEntry(5, 100)]
    assert encode_epochs(entries) == b"0\n2\n0 0\n5 100\n"
    disk.write(PATH, encode_epochs(entries))
    assert read_epochs(disk, PATH) == entries


def test_partition_metadata_is_kafkas_text(disk: MemoryDisk) -> None:
    topic_id = bytes.fromhex("e8a0cf1f2a014e8ab3d9b5f4f4b4e1c2")
    write_partition_metadata(disk, "/d/partition.metadata", topic_id)
    assert disk.read("/d/partition.metadata") == b"version: 0\ntopic_id: 6KDPHyoBToqz2bX09LThwg\n"


@given(st.binary(min_size=16, max_size=16))
def test_a_topic_id_survives_its_text(topic_id: bytes) -> None:
    assert decode_topic_id(encode_topic_id(topic_id)) == topic_id


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (b"", {}),
        (b"0\n", {}),
        (b"1\n1\na-topic 0 17\n", {}),
        (b"\xff\xfe\n", {}),
        (b"0\n2\na-topic 0 17\nb.topic_x 12\n", {A: 17}),
        (b"0\n2\na-topic 0 x\nb.topic_x 12 3\n", {B: 3}),
        (b"0\n2\na-topic 0 -17\nb.topic_x 12 3\n", {B: 3}),
        (b"0\n2\na-topic 0 9223372036854775807\nb.topic_x 12 3\n", {B: 3}),
        (b"0\n2\na-topic %s 17\nb.topic_x 12 3\n" % (b"9" * 5000), {B: 3}),
        (b"0\n9\na-topic 0 17\n", {A: 17}),
        (b"0\nx\na-topic 0 17\n", {A: 17}),
        (b"0\n2\n\n\na-topic 0 17\nb.topic_x 12 3", {A: 17, B: 3}),
        (b"0\n2\na-topic 0 17\na-topic 0 50\n", {A: 17}),
        (b"0\n2\na-topic 0 50\na-topic 0 17\n", {A: 17}),
        (b"0\n3\na-topic 0 50\na-topic 0 17\na-topic 0 51\n", {A: 17}),
    ],
)
def test_a_damaged_line_costs_itself_only(disk: MemoryDisk, content: bytes, left: dict[TopicPartition, int]) -> None:
    reports: list[str] = []
    disk.write(PATH, content)
    assert read_offsets(disk, PATH, lambda event, **fields: reports.append(event)) == left
    assert bool(reports) == (content not in (b"", b"0\n2\n\n\na-topic 0 17\nb.topic_x 12 3"))


@pytest.mark.parametrize(
    ("content", "is_whole"),
    [
        (b"0\n0\n", True),
        (b"0\n2\na-topic 0 17\nb.topic_x 12 345\n", True),
        (None, False),
        (b"", False),
        (b"0\n2\na-topic 0 17\nb.topic_x 12 345", False),
        (b"0\n2\na-topic 0 17\nb.topic_x 12 3", False),
        (b"0\n2\na-topic 0 17\n", False),
        (b"0\n1\na-topic 0 x\n", False),
    ],
)
def test_bounds_are_known_only_where_the_file_is_whole_to_the_end_of_its_last_line(
    disk: MemoryDisk, content: bytes | None, is_whole: bool
) -> None:
    if content is not None:
        disk.write(PATH, content)
    assert read_bounds(disk, PATH, no_report)[1] is is_whole


def test_a_missing_checkpoint_is_an_empty_one(disk: MemoryDisk) -> None:
    assert read_offsets(disk, PATH) == {} and read_epochs(disk, PATH) == []


@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_an_error(content: bytes) -> None:
    disk = MemoryDisk()
    disk.write("/x", content)
    read_offsets(disk, "/x")
    read_epochs(disk, "/x")


@given(st.data())
def test_a_crash_at_any_step_leaves_the_old_or_the_new_content(data: st.DataObject) -> None:
    disk = MemoryDisk()
    disk.makedirs("/d")
    write_atomically(disk, PATH, b"old")
    disk.sync_everything()
    left = data.draw(st.integers(0, 8))

    def stop(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    disk.on_operation = stop
    finished = False
    try:
        write_atomically(disk, PATH, b"new content")
        finished = True
    except KeyboardInterrupt:
        pass
    disk.on_operation = None
    disk.crash(lambda options: data.draw(st.integers(0, options - 1)))
    assert disk.read(PATH) in ((b"new content",) if finished else (b"old", b"new content"))


def test_a_full_disk_leaves_the_old_content(disk: MemoryDisk) -> None:
    write_atomically(disk, PATH, b"old")
    disk.fail("pwritev", "*", errno.ENOSPC)
    with pytest.raises(OSError, match="ENOSPC"):
        write_atomically(disk, PATH, b"new")
    assert disk.read(PATH) == b"old"


class CountedOffsets(dict[TopicPartition, int]):
    """Counts how often somebody goes through them: with thousands of partitions that is what a checkpoint costs."""

    times = 0

    def items(self) -> Any:
        self.times += 1
        return super().items()


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_is_encoded_once(disk: MemoryDisk, name: str) -> None:
    files = GuardedCheckpoints(disk, "/d")
    files.open({}, no_report)
    written, final = CountedOffsets({A: 17}), CountedOffsets({A: 18})
    files.write(name, written)
    crcs = files.write_final({name: final})
    assert written.times == final.times == 1
    assert crcs == {name: [crc32c.crc32c(disk.read(f"/d/{name}"))]} and read_offsets(disk, f"/d/{name}") == {A: 18}
    assert not read_last_stop(disk, "/d", no_report).was_kafkas


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_costs_one_replaced_file_and_that_of_the_high_watermarks_two(disk: MemoryDisk, name: str) -> None:
    files = GuardedCheckpoints(disk, "/d")
    files.open({}, no_report)
    operations: list[str] = []
    disk.on_operation = lambda operation, path: operations.append(operation)
    for offset in (17, 17, 18):
        files.write(name, {A: offset})
    replaced = 5 if name == HIGH_WATERMARKS else 3
    assert [operations.count(each) for each in ("fsync", "rename", "fsync_dir")] == [replaced] * 3
