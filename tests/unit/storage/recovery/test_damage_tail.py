"""Above the recovery point, whatever happened to the end of a log, it is cut to its last sound batch, loudly.

516 cases: 255 cuts (a file that ends at any byte of its last batch, plain and compressed), 32 kinds of bytes behind it,
224 flipped bits (both ends of every field of a batch, at four places, after a kill and after a power failure), 5 on
real files.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.protocol.records import HEADER_BYTES, Record
from strandline.storage.log.log import Log
from support.damage_site import OTHER, OTHER_RECORDS, DamageSite
from support.storage_site import TP, epochs, fill, produced, records

BIG = 10**6


def built(site: DamageSite, codec: str = "none") -> tuple[list[Record], list[int], bytes]:
    """(records, base offsets of the batches and the end, bytes of the .log) of a log of ten batches, killed."""
    site.config = type(site.config)(segment_bytes=BIG, index_interval_bytes=100)
    log = site.build(batches=9, count=2).logs[TP]
    log.append_as_leader(produced(3, 2000, codec=codec), 3)
    before = records(log)
    site.disk.kill()
    return before, [*range(0, 20, 2), 21], site.disk.read(site.path(0))


def positions(data: bytes) -> list[int]:
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + 12 + struct.unpack_from(">i", data, found[-1] + 8)[0])
    return found


def reloaded(site: DamageSite) -> Log:
    manager = site.start()
    assert manager.logs[OTHER].log_end_offset == OTHER_RECORDS
    return manager.logs[TP]


def assert_cut(
    site: DamageSite, before: list[Record], end: int, position: int, damaged_bytes: int, *, is_kept: bool = False
) -> None:
    damaged = site.disk.read(site.path(0))
    log = reloaded(site)
    assert log.log_end_offset == end and records(log) == [record for record in before if record.offset < end]
    (report,) = site.reports.of("log-truncated")
    assert (report["offset"], report["position"]) == (end, position)
    assert report["dropped_bytes"] == damaged_bytes - position and report["why"]
    assert report["kept_aside"] == report["is_loss"] == is_kept
    kept = {f"{0:020d}.log.{position}.damaged": damaged[position:]} if is_kept else {}
    assert {name: site.disk.read(f"{site.folder}/{name}") for name in site.names(".damaged")} == kept
    fill(log, 2, epoch=5)
    assert epochs(site.restart().logs[TP])[-1] == (5, end)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_file_that_ends_at_any_byte_of_its_last_batch(codec: str) -> None:
    template = DamageSite()
    _, _, data = built(template, codec)
    start = positions(data)[-2]
    for end in range(start + 1, len(data)):
        site = DamageSite()
        before, _, data = built(site, codec)
        site.disk.write(site.path(0), data[:end])
        assert_cut(site, before, 18, start, end)


BEHIND: dict[str, Callable[[bytes, bytes], bytes]] = {
    **{f"{count} zeros": lambda data, last, count=count: bytes(count) for count in (1, 7, 12, 61, 62, 5000, 2**20)},
    **{f"{count} bytes of 0xff": lambda data, last, count=count: b"\xff" * count for count in (1, 60, 61, 4096)},
    **{f"{count} bytes of text": lambda data, last, count=count: (b"garbage " * 99)[:count] for count in (3, 64, 700)},
    **{
        f"a length field of {length}": lambda data, last, length=length: (
            last[:8] + struct.pack(">i", length) + last[12:]
        )
        for length in (-(2**31), -1, 0, 1, 48, 2**20, 2**31 - 1)
    },
    **{f"magic {magic}": lambda data, last, magic=magic: last[:16] + bytes([magic]) + last[17:] for magic in (0, 1, 3)},
    "the last batch again": lambda data, last: last,
    "the whole file again": lambda data, last: data,
    "the next batch without its end": lambda data, last: next_batch(last)[:-1],
    "only its header": lambda data, last: next_batch(last)[:HEADER_BYTES],
    "only half of its header": lambda data, last: next_batch(last)[:30],
    "its records as zeros": lambda data, last: next_batch(last)[:HEADER_BYTES] + bytes(len(last) - HEADER_BYTES),
    "its first page of zeros": lambda data, last: bytes(12) + next_batch(last)[12:],
    "a batch of a lower epoch": lambda data, last: next_batch(last)[:12] + struct.pack(">i", 1) + last[16:],
}


def next_batch(last: bytes) -> bytes:
    return struct.pack(">q", 21) + last[8:]


WHOLE = ("the last batch again", "the whole file again", "a batch of a lower epoch")
"""None of a write that was cut short, though nothing of it was durable or committed."""


@pytest.mark.parametrize("what", BEHIND)
def test_bytes_behind_the_last_batch_that_are_none(what: str) -> None:
    site = DamageSite()
    before, _, data = built(site)
    damaged = data + BEHIND[what](data, data[positions(data)[-2] :])
    site.disk.write(site.path(0), damaged)
    assert_cut(site, before, 21, len(data), len(damaged), is_kept=what in WHOLE)


FIELDS = {
    "base offset": (0, 8),
    "length": (8, 4),
    "epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "count": (57, 4),
    "payload": (61, 20),
}


@pytest.mark.parametrize("has_power_failed", [False, True])
@pytest.mark.parametrize("place", [1, 5, 8, 9])
@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_of_any_field_ends_the_log_there(field: str, place: int, has_power_failed: bool) -> None:
    """Nothing of it was durable or committed; what is cut is kept where a batch is whole there, and is a loss."""
    first, size = FIELDS[field]
    for byte, bit in ((first, 0x40), (first + size - 1, 0x01)):
        site = DamageSite()
        before, bases, data = built(site)
        starts = positions(data)
        damaged = bytearray(data)
        damaged[starts[place] + byte] ^= bit
        site.disk.write(site.path(0), bytes(damaged))
        if has_power_failed:
            site.disk.sync_everything()
            site.disk.crash()
        log = reloaded(site)
        allowed = {bases[place]}
        if field == "epoch":  # outside of the CRC
            # A higher one shows at the next batch, whose epoch falls, and not at all where there is none; a lower one
            # after a single batch of its epoch makes that batch the doubtful one.
            allowed |= {bases[-1]} if place == 9 else {bases[place - 1], bases[place + 1]}
        assert log.log_end_offset in allowed
        sound = [record for record in before if record.offset < log.log_end_offset]
        assert records(log) == sound
        if log.log_end_offset < bases[-1]:
            (report,) = site.reports.of("log-truncated")
            assert report["offset"] == log.log_end_offset
            is_kept = place < 9 or field in ("base offset", "epoch")  # those stand outside of the CRC
            assert report["kept_aside"] == report["is_loss"] == is_kept
            kept = [site.disk.read(f"{site.folder}/{name}") for name in site.names(".damaged")]
            assert kept == ([bytes(damaged[report["position"] :])] if is_kept else [])


def test_a_fault_in_an_older_segment_ends_the_log_there(tmp_path: Path) -> None:
    for site in (DamageSite(), DamageSite.on_real_files(f"{tmp_path}/logs")):
        site.build()
        before = records(site.restart().logs[TP])
        bases = [int(name[:20]) for name in site.names(".log")]
        data = bytearray(site.disk.read(site.path(1)))
        data[-1] ^= 1
        site.disk.write(site.path(1), bytes(data))
        log = site.restart().logs[TP]
        assert log.log_end_offset == bases[2] - 2
        assert records(log) == before[: bases[2] - 2]
        assert [report["base_offset"] for report in site.reports.of("log-segment-dropped")] == bases[:1:-1]
        assert site.names(".log") == [f"{base:020d}.log" for base in bases[:2]]


@pytest.mark.parametrize("what", ["cut", "zeros", "flip"])
def test_real_files_are_cut_as_those_in_memory(tmp_path: Path, what: str) -> None:
    site = DamageSite.on_real_files(f"{tmp_path}/logs")
    before, _, data = built(site)
    start = positions(data)[-2]
    flipped = data[: start + 70] + bytes([data[start + 70] ^ 4]) + data[start + 71 :]
    damaged = {"cut": data[:-9], "zeros": data + bytes(4096), "flip": flipped}[what]
    site.disk.write(site.path(0), damaged)
    end, position = (21, len(data)) if what == "zeros" else (18, start)
    assert_cut(site, before, end, position, len(damaged))
