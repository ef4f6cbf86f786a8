"""Messages of formats 0 and 1 are no damage: their log is refused and stays as it is, wherever they stand in it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.records.batch import InvalidBatch
from strandline.protocol.records.validation import validate_produced
from strandline.protocol.types import TopicPartition
from strandline.storage.errors import DamagedLog, OldFormat, TieredLog
from strandline.storage.inspection.dump import DumpOptions, dump_file
from strandline.storage.inspection.log_check import REFUSE, check_directories
from strandline.storage.segments.scan import ScannedSegment, scan_segments
from support.foreign import (
    as_of_transaction,
    kafka_is_killed,
    kafka_starts,
    kafka_stops,
    old_message,
    old_messages,
)
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, file_names, fill, offsets

OTHER = TopicPartition("other", 0)


def written() -> StorageSite:
    """Two logs, and an orderly stop."""
    site = StorageSite()
    manager = site.start()
    for tp in (TP, OTHER):
        fill(manager.create(tp, TOPIC_ID), 60)
    manager.close(clean=True)
    return site


def everything(site: StorageSite) -> dict[str, bytes]:
    return {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)}


def whole_log(site: StorageSite, magic: int) -> None:
    for name in file_names(site.disk, ".log"):
        site.disk.write(f"{FOLDER}/{name}", old_messages(int(name[:20]), int(name[:20]) + 8, magic))


def first_segment(site: StorageSite, magic: int) -> None:
    """The format was changed later."""
    names = file_names(site.disk, ".log")
    site.disk.write(f"{FOLDER}/{names[0]}", old_messages(0, int(names[1][:20]), magic))


def last_segment(site: StorageSite, magic: int) -> None:
    """The format was changed back."""
    name = file_names(site.disk, ".log")[-1]
    site.disk.write(f"{FOLDER}/{name}", old_messages(int(name[:20]), 70, magic))


def behind_batches(site: StorageSite, magic: int) -> None:
    path = f"{FOLDER}/{file_names(site.disk, '.log')[-1]}"
    site.disk.write(path, site.disk.read(path) + old_messages(60, 63, magic))


def behind_batches_inside(site: StorageSite, magic: int) -> None:
    path = f"{FOLDER}/{file_names(site.disk, '.log')[0]}"
    content = site.disk.read(path)
    (length,) = struct.unpack_from(">i", content, 8)
    site.disk.write(path, content[: 12 + length] + old_message(1, magic, value=b"v" * 500))


def before_batches(site: StorageSite, magic: int) -> None:
    path = f"{FOLDER}/{file_names(site.disk, '.log')[-1]}"
    content, base = site.disk.read(path), int(path.rpartition("/")[2][:20])
    site.disk.write(path, old_message(base - 1, magic) + content)


def in_a_swap(site: StorageSite, magic: int) -> None:
    """It was to replace a segment; read as batches it would replace more."""
    name = file_names(site.disk, ".log")[0]
    site.disk.write(f"{FOLDER}/{name}.swap", old_messages(0, 9, magic))


PLACES = [
    whole_log,
    first_segment,
    last_segment,
    behind_batches,
    behind_batches_inside,
    before_batches,
    in_a_swap,
]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_of_an_old_format_is_refused_at_every_start_and_stays_as_it_is(
    place: Callable[[StorageSite, int], None], magic: int, is_clean: bool
) -> None:
    site = written()
    kafka_starts(site.disk, "/logs")
    place(site, magic)
    (kafka_stops if is_clean else lambda disk, directory: kafka_is_killed(disk, FOLDER))(site.disk, "/logs")
    before = everything(site)
    findings = check_directories(site.disk, ["/logs"], site.config, site.clock, random.Random(1))
    assert any(finding.severity == REFUSE and f"format {magic}" in finding.what for finding in findings)
    for ends_in_order in (True, False, True):
        manager = site.start()
        refused = manager.refused[TP]
        assert isinstance(refused, OldFormat) and f"format {magic} at offset" in str(refused)
        with pytest.raises(OldFormat):
            manager.create(TP, TOPIC_ID)
        assert len(offsets(manager.logs[OTHER])) == 60
        manager.close(clean=ends_in_order)
        site.disk.kill()
        assert everything(site) == before


@pytest.mark.parametrize("magic", [0, 1])
def test_where_no_kafka_was_noticed_they_are_not_cut_either(magic: int) -> None:
    site = written()
    site.start()
    site.disk.kill()
    last_segment(site, magic)
    before = everything(site)
    assert isinstance(site.start().refused.get(TP), OldFormat)
    assert everything(site) == before


@pytest.mark.parametrize("ends_in_order", [True, False])
def test_checkpoints_of_a_log_with_a_remote_tier_stay_as_they_are(ends_in_order: bool) -> None:
    """Its log start and its first epochs are of records that lie there; to raise the one has a Kafka delete them."""
    site = written()
    site.start().close(clean=True)
    kafka_starts(site.disk, "/logs")
    for name in site.disk.listdir(FOLDER):
        if name.startswith(f"{0:020d}."):
            site.disk.unlink(f"{FOLDER}/{name}")
    site.disk.write("/logs/log-start-offset-checkpoint", f"0\n1\n{TP.topic} {TP.partition} 0\n".encode())
    kafka_stops(site.disk, "/logs")
    before = everything(site) | {"log start": site.disk.read("/logs/log-start-offset-checkpoint")}
    site.config = replace(site.config, is_tiered=True)
    manager = site.start()
    assert isinstance(manager.refused.get(TP), TieredLog)
    manager.checkpoints.write_log_starts()
    manager.close(clean=ends_in_order)
    assert everything(site) | {"log start": site.disk.read("/logs/log-start-offset-checkpoint")} == before


@given(st.integers(0, 10**6), st.sampled_from([0, 1]), st.binary(max_size=300), st.data())
def test_a_message_with_a_wrong_bit_is_damage_and_no_old_format(
    offset: int, magic: int, value: bytes, data: st.DataObject
) -> None:
    site = StorageSite()
    site.disk.makedirs("/x")
    message = bytearray(old_message(offset, magic, value=value))
    message[data.draw(st.integers(17, len(message) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    site.disk.write(f"/x/{0:020d}.log", bytes(message))
    (found,) = scan_segments(site.disk, [[f"/x/{0:020d}.log", 0, len(message), 0, True, [], True]])
    assert not ScannedSegment(*found).unserved and ScannedSegment(*found).fault


def test_headers_that_cannot_be_followed_are_no_proof_that_there_are_no_transactions() -> None:
    site = written()
    kafka_starts(site.disk, "/logs")
    path = f"{FOLDER}/{file_names(site.disk, '.log')[0]}"
    content = bytearray(as_of_transaction(site.disk.read(path)))
    content[8:12] = b"\xff" * 4
    site.disk.write(path, bytes(content))
    kafka_stops(site.disk, "/logs")
    before = everything(site)
    refused = site.start().refused[TP]
    assert isinstance(refused, DamagedLog) and "no whole batch stands at byte 0" in str(refused)
    assert everything(site) == before


def test_a_swap_that_is_damaged_replaces_nothing() -> None:
    site = written()
    names = file_names(site.disk, ".log")
    content = bytearray(b"".join(site.disk.read(f"{FOLDER}/{name}") for name in names[:3]))
    content[-1] ^= 1
    site.disk.write(f"{FOLDER}/{names[0]}.swap", bytes(content))
    before = everything(site)
    assert isinstance(site.start().refused.get(TP), DamagedLog)
    assert everything(site) == before


@pytest.mark.parametrize("magic", [0, 1])
def test_dump_log_prints_them_in_kafkas_words(magic: int) -> None:
    site = written()
    path = f"{FOLDER}/{file_names(site.disk, '.log')[0]}"
    batches = site.disk.read(path)
    flipped = bytearray(old_message(9, magic))
    flipped[-1] ^= 1
    site.disk.write(path, batches + old_messages(7, 9, magic) + bytes(flipped) + batches)
    entries = [entry for entry in dump_file(site.disk, path, DumpOptions()) if entry.kind in ("batch", "message")]
    kinds = [entry.kind for entry in entries]
    count = kinds.index("message")
    assert kinds == ["batch"] * count + ["message"] * 3 + ["batch"] * count
    time = "CreateTime: 1000" if magic else "NoTimestampType: -1"
    first = entries[count]
    assert first.line.startswith(f"offset: 7 position: {len(batches)} {time} size: {len(old_message(7, magic))} ")
    assert f"magic: {magic} compresscodec: none crc: " in first.line and first.line.endswith("isvalid: true")
    assert [entry.is_damage for entry in entries if entry.kind == "message"] == [False, False, True]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("count", [1, 5])
def test_a_follower_and_a_leader_append_none_of_them(magic: int, count: int) -> None:
    log = StorageSite().log()
    fill(log, 3)
    messages = bytearray(old_messages(3, 3 + count, magic))
    with pytest.raises(InvalidBatch):
        log.append_as_follower(memoryview(messages))
    with pytest.raises(InvalidBatch):
        validate_produced(memoryview(messages), max_batch_bytes=2**20)
    assert log.log_end_offset == 3 and len(offsets(log)) == 3
