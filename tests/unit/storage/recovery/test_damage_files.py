"""The files beside a log may be missing, short, overlong, unsorted, of another log: the answers stay the same.

Here the checkpoints of a directory and a folder's small files, 17 kinds of damage to each of 8 files after each of 3
kinds of stop: 408 cases; indexes and epochs as such are in `test_recovery` (62 cases).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.storage.disk.checkpoints import (
    COMPACTED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from strandline.storage.manager.directory_state import SEGMENTS_LIST
from support.damage_site import OTHER, OTHER_RECORDS, DamageSite
from support.storage_site import TP, epochs, fill, offset_for_timestamp, offsets, records

DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "without its last byte": lambda data: data[:-1],
    "without its last line": lambda data: b"".join(data.splitlines(keepends=True)[:-1]),
    "only the version": lambda data: b"0\n",
    "another version": lambda data: b"7" + data[1:],
    "no version": lambda data: b"\n".join(data.split(b"\n")[1:]),
    "a count that is too large": lambda data: b"0\n99\n" + b"\n".join(data.split(b"\n")[2:]),
    "a count that is no number": lambda data: b"0\nmany\n" + b"\n".join(data.split(b"\n")[2:]),
    "lines of nonsense": lambda data: data + b"x y z w\n\n- -\nt\n",
    "negative numbers": lambda data: data + b"t 0 -5\nt -1 3\n-2 -2\n",
    "numbers beyond 64 bits": lambda data: data + b"gone 0 99999999999999999999999\n",
    "zeros": lambda data: bytes(len(data)),
    "zeros behind": lambda data: data + bytes(4096),
    "bytes that are no text": lambda data: b"\xff\xfe" + data,
    "of a log that is not there": lambda data: data + b"gone 4 17\n",
}
FILES = (
    RECOVERY_POINTS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    COMPACTED_OFFSETS,
    SEGMENTS_LIST,
    f"{TP}/{LEADER_EPOCHS}",
    f"{OTHER}/{LEADER_EPOCHS}",
    f"{TP}/{90:020d}.snapshot",
)


def check(site: DamageSite, name: str, how: str, damage: str) -> None:
    manager = site.build(flushed=True)
    site.disk.write(f"{site.root}/{COMPACTED_OFFSETS}", b"0\n1\nother 0 2\n")
    log = manager.logs[TP]
    expected, expected_epochs, end = records(log), epochs(log), log.log_end_offset
    site.stop(manager, how)
    path = f"{site.root}/{name}"
    before = site.disk.read(path) if site.disk.exists(path) else b"0\n0\n"
    damaged = DAMAGE[damage](before)
    if damaged is not None:
        site.disk.write(path, damaged)
    elif site.disk.exists(path):
        site.disk.unlink(path)
    for _ in range(2):  # what the first start mends the second finds mended
        manager = site.start()
        log = manager.logs[TP]
        assert records(log) == expected and log.log_end_offset == end
        assert log.recovery_point <= end and log.log_start_offset <= manager.high_watermarks[TP] <= end
        assert epochs(log) == expected_epochs
        assert manager.logs[OTHER].log_end_offset == OTHER_RECORDS
        assert not manager.refused
        site.disk.kill()
    fill(site.start().logs[TP], 3, epoch=9)
    assert offsets(site.restart().logs[TP]) == list(range(end + 3))


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_costs_no_record_and_no_start(name: str, how: str) -> None:
    for damage in DAMAGE:
        check(DamageSite(), name, how, damage)


@pytest.mark.parametrize("name", [RECOVERY_POINTS, f"{TP}/{LEADER_EPOCHS}"])
def test_the_same_on_real_files(tmp_path: Path, name: str) -> None:
    for number, damage in enumerate(("missing", "zeros", "half")):
        check(DamageSite.on_real_files(f"{tmp_path}/{number}"), name, "kill", damage)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_another_segment_is_not_believed(suffix: str) -> None:
    for how in ("clean", "kill"):
        site = DamageSite(config=type(DamageSite().config)(index_interval_bytes=100))
        manager = site.build(flushed=True, batches=60)
        expected = records(manager.logs[TP])
        times = {ms: offset_for_timestamp(manager.logs[TP], ms, 120) for ms in range(995, 1065, 3)}
        site.stop(manager, how)
        for number in range(len(site.names(".log")) - 1):
            site.disk.write(site.path(number, suffix), site.disk.read(site.path(number + 1, suffix)))
        log = site.start().logs[TP]
        for start in range(0, 120, 7):
            assert records(log, start=start, max_bytes=400) == expected[start:]
        assert {ms: offset_for_timestamp(log, ms, 120) for ms in times} == times
