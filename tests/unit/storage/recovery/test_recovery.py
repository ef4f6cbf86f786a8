"""Starting again: after a clean stop, after a kill, after a power failure, over damaged files."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable

import pytest

from strandline.protocol.records import HEADER_BYTES
from strandline.storage.log.log_start import raise_log_start
from strandline.storage.segments.scan import build_indexes
from support.storage_site import (
    FOLDER,
    TP,
    StorageSite,
    epochs,
    file_names,
    fill,
    offset_for_timestamp,
    offsets,
    raw,
    records,
)


def active_path(site: StorageSite, suffix: str = ".log") -> str:
    return f"{FOLDER}/{file_names(site.disk, suffix)[-1]}"


def snapshot(site: StorageSite) -> dict[str, bytes]:
    return {name: site.disk.read(f"{FOLDER}/{name}") for name in site.disk.listdir(FOLDER)}


def test_a_kill_loses_nothing_and_cuts_nothing(site: StorageSite) -> None:
    log = site.log()
    fill(log, 100, count=2)
    expected = raw(log)
    log = site.reload()
    assert raw(log) == expected and log.log_end_offset == 200
    assert site.reports.names() == []


def test_loading_twice_changes_nothing_more(site: StorageSite) -> None:
    log = site.log()
    fill(log, 50)
    site.disk.write(active_path(site), site.disk.read(active_path(site)) + b"torn")
    site.reload()
    once = snapshot(site)
    recovery_point = site.reload().recovery_point
    assert snapshot(site) == once and recovery_point == 0


def test_appending_goes_on_after_each_kind_of_start(site: StorageSite) -> None:
    log = site.log()
    fill(log, 7)
    for round_number in range(1, 6):
        log = site.reload()
        fill(log, 7, epoch=round_number)
    assert offsets(log) == list(range(42))
    assert epochs(log) == [(number, number * 7) for number in range(6)]


TEARS: dict[str, Callable[[bytes, int], bytes]] = {
    "inside the last header": lambda data, last: data[: last + 30],
    "before the last header's length": lambda data, last: data[: last + 5],
    "inside the last records": lambda data, last: data[:-3],
    "zeros behind": lambda data, last: data + bytes(5000),
    "a few zeros behind": lambda data, last: data + bytes(7),
    "garbage behind": lambda data, last: data + b"\xa7garbage" * 50,
    "a length that says more": lambda data, last: (
        data + data[last : last + 8] + b"\x7f\xff\xff\xff" + data[last + 12 :]
    ),
    "a negative length": lambda data, last: data + data[last : last + 8] + b"\xff\xff\xff\xff" + data[last + 12 :],
    "the last batch twice": lambda data, last: data + data[last:],
    "a batch of an older format": lambda data, last: data + data[last : last + 16] + b"\x01" + data[last + 17 :],
}


@pytest.mark.parametrize("tear", TEARS)
def test_a_torn_tail_is_cut_to_the_last_whole_batch(site: StorageSite, tear: str) -> None:
    log = site.log()
    fill(log, 45, count=2)
    before = records(log)
    path = active_path(site)
    data = site.disk.read(path)
    last = len(data) - len(raw(log, start=88))
    torn = TEARS[tear](data, last)
    site.disk.write(path, torn)
    log = site.reload()
    kept = 90 if torn.startswith(data) else 88
    assert records(log) == before[:kept] and log.log_end_offset == kept
    (report,) = site.reports.of("log-truncated")
    whole = len(data) if kept == 90 else last
    assert (report["offset"], report["position"], report["dropped_bytes"]) == (kept, whole, len(torn) - whole)
    fill(log, 3)
    assert site.reload().log_end_offset == kept + 3


BYTES = {"length": 9, "epoch": 13, "magic": 16, "crc": 18, "attributes": 22, "last delta": 26, "pid": 45, "count": 60}


@pytest.mark.parametrize("what", [*BYTES, "payload"])
def test_a_flipped_bit_above_the_recovery_point_ends_the_log_there(site: StorageSite, what: str) -> None:
    log = site.log(segment_bytes=10**6)
    fill(log, 30)
    before = records(log)
    size = log.size_bytes // 30
    data = bytearray(site.disk.read(active_path(site)))
    data[size * 20 + BYTES.get(what, HEADER_BYTES + 3)] ^= 0x10
    site.disk.write(active_path(site), bytes(data))
    log = site.reload()
    if what == "epoch":  # outside the CRC; the batch behind it gives it away, since epochs do not fall
        assert log.log_end_offset in (20, 21)
    else:
        assert records(log) == before[:20]
    assert len(site.reports.of("log-truncated")) == 1


def test_a_fault_in_a_sealed_segment_drops_the_younger_ones_loudly_and_is_a_loss(site: StorageSite) -> None:
    """A process that is killed leaves whole segments: what stands behind the fault may have been committed."""
    manager = site.start()
    manager.mark_loss_handled()
    log = manager.create(TP, bytes(16))
    manager.checkpoints.write_recovery_points()  # it is known as ours, and nothing of it as durable
    fill(log, 60)
    bases = [segment.base_offset for segment in log.segments]
    path = f"{FOLDER}/{bases[1]:020d}.log"
    data = bytearray(site.disk.read(path))
    data[-1] ^= 1
    site.disk.write(path, bytes(data))
    site.disk.kill()
    manager = site.start()
    log = manager.logs[TP]
    assert log.log_end_offset == bases[2] - 1
    assert [report["base_offset"] for report in site.reports.of("log-segment-dropped")] == bases[:1:-1]
    assert offsets(log) == list(range(bases[2] - 1))
    assert manager.may_have_lost_data
    assert len(file_names(site.disk, ".damaged")) == len(bases) - 1


def test_of_what_lies_below_the_recovery_point_only_the_ends_are_read(site: StorageSite) -> None:
    manager = site.start()
    manager.mark_loss_handled()
    log = manager.create(TP, bytes(16))
    fill(log, 300)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    fill(log, 10)
    site.disk.kill()
    reads: Counter[str] = Counter()
    site.disk.on_operation = lambda operation, path: reads.update([path] if operation.startswith("pread") else [])
    manager = site.start()
    assert manager.logs[TP].log_end_offset == 310
    sealed = [path for path in reads if path.endswith(".log") and int(path.split("/")[-1][:20]) < 250]
    # Below the recovery point only the tail of each segment is looked at, by headers, and both ends of the epoch.
    assert sealed and max(reads[path] for path in sealed) <= 4
    assert site.reports.names() == []


# --- indexes ----------------------------------------------------------------------------------------------------------

DAMAGE: dict[str, Callable[[bytes, int], bytes | None]] = {
    "missing": lambda data, size: None,
    "empty": lambda data, size: b"",
    "cut inside an entry": lambda data, size: data[:-3],
    "cut at an entry": lambda data, size: data[: size * 2],
    "extra bytes": lambda data, size: data + b"xyz",
    "extra entry": lambda data, size: data + data[-size:],
    "zeros behind": lambda data, size: data + bytes(size * 10),
    "unsorted": lambda data, size: data[size : 2 * size] + data[:size] + data[2 * size :],
    "zeros": lambda data, size: bytes(len(data)),
    "garbage": lambda data, size: b"\x7e" * len(data),
    "past the end": lambda data, size: data[:-size] + b"\x7f" * size,
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_gives_the_same_answers_as_before(
    site: StorageSite, damage: str, suffix: str, clean: bool
) -> None:
    manager = site.start()
    site.config = type(site.config)(segment_bytes=3000, index_interval_bytes=100)
    log = manager.create(TP, bytes(16))
    fill(log, 120, count=2)
    expected = records(log)
    times = {ms: offset_for_timestamp(log, ms, 240) for ms in range(990, 1250, 9)}
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    manager.close(clean=clean)
    for name in file_names(site.disk, suffix):
        damaged = DAMAGE[damage](site.disk.read(f"{FOLDER}/{name}"), 8 if suffix == ".index" else 12)
        if damaged is None:
            site.disk.unlink(f"{FOLDER}/{name}")
        else:
            site.disk.write(f"{FOLDER}/{name}", damaged)
    log = site.reload()
    for start in range(0, 240, 7):
        assert records(log, start=start, max_bytes=400) == expected[start:]
    assert {ms: offset_for_timestamp(log, ms, 240) for ms in times} == times
    fill(log, 30, timestamp_ms=5000)
    assert offsets(log) == list(range(270))


@pytest.mark.parametrize("flushes_to", [0, 1])
@pytest.mark.parametrize("log_start_offset", [5, 30, 31, 44])
def test_a_log_start_that_was_not_written_down_before_a_kill_has_no_epochs_rebuilt(
    site: StorageSite, log_start_offset: int, flushes_to: int
) -> None:
    """The file of the epochs was written when the log began there; it begins lower again, and nothing is wrong."""
    manager = site.start()
    log = manager.create(TP, bytes(16))
    for epoch in (0, 1, 2):
        fill(log, 15, epoch=epoch)
    if flushes_to:
        manager.flush_all()
        manager.checkpoints.write_recovery_points()
    raise_log_start(log, log_start_offset, log.log_end_offset)
    log.epochs.version += 1
    log.flush_plan()()
    log = site.reload()
    assert log.log_start_offset == 0 and epochs(log) == [(0, 0), (1, 15), (2, 30)]
    assert "epochs-rebuilt" not in site.reports.names()


def test_an_index_that_was_rebuilt_equals_the_one_that_was_written(site: StorageSite) -> None:
    log = site.log(index_interval_bytes=0)
    fill(log, 100, count=2)
    written = {name: data for name, data in snapshot(site).items() if "index" in name}
    names = [name for name in written if not name.startswith(f"{log.segments.active.base_offset:020d}")]
    for name in names:
        site.disk.unlink(f"{FOLDER}/{name}")
    site.reload()
    assert {name: snapshot(site)[name] for name in names} == {name: written[name] for name in names}


def test_index_files_without_a_log_are_removed(site: StorageSite) -> None:
    fill(site.log(), 5)
    for suffix in (".index", ".timeindex"):
        site.disk.write(f"{FOLDER}/{3:020d}{suffix}", b"x" * 24)
    site.reload()
    assert file_names(site.disk, "index") == [f"{0:020d}.index", f"{0:020d}.timeindex"]
    assert len(site.reports.of("index-orphan-removed")) == 2


# --- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"garbage",
        b"\xff\xfe",
        b"0\n1\n0 0\n",
        b"0\n2\n0 0\n9 30\n",
        b"0\n3\n0 0\n2 10\n3 40\n",
        b"0\n1\n7 0\n",
        b"1\n0\n",
    ],
)
def test_a_wrong_epoch_file_gives_the_same_answers_as_before(
    site: StorageSite, content: bytes | None, clean: bool
) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    for epoch in (0, 2, 3, 7):
        fill(log, 20, epoch=epoch)
    expected = epochs(log)
    manager.flush_all()
    manager.checkpoints.write_recovery_points()
    manager.close(clean=clean)
    path = f"{FOLDER}/leader-epoch-checkpoint"
    if content is None:
        site.disk.unlink(path)
    else:
        site.disk.write(path, content)
    log = site.reload()
    assert epochs(log) == expected
    assert log.log_end_offset == 80, "no batch is cut for what a file says"


# --- leftovers --------------------------------------------------------------------------------------------------------


def test_leftovers_of_deletions_and_compactions_are_resolved(site: StorageSite) -> None:
    log = site.log()
    fill(log, 40)
    expected = raw(log)
    base = [segment.base_offset for segment in log.segments][1]
    leftovers = [f"{5:020d}.log.deleted", f"{base:020d}.log.cleaned", f"{base:020d}.log.swap"]
    leftovers += ["leader-epoch-checkpoint.3.tmp", "partition.metadata.tmp", f"{base:020d}.snapshot.0.tmp"]
    somebodys = ["x.3.tmp", "notes.deleted", "all.log.cleaned", "x.swap"]
    for name in leftovers + somebodys:
        site.disk.write(f"{FOLDER}/{name}", b"anything")
    log = site.reload()
    assert raw(log) == expected
    names = site.disk.listdir(FOLDER)
    assert not {*leftovers} & {*names} and {*somebodys} <= {*names}
    assert [fields["path"] for fields in site.reports.of("log-unknown-file")] == [
        f"{FOLDER}/{name}" for name in sorted(somebodys)
    ]


def test_folders_that_are_called_like_leftovers_are_left_alone(site: StorageSite) -> None:
    log = site.log()
    fill(log, 40)
    expected = raw(log)
    folders = [f"{FOLDER}/{0:020d}.log.{suffix}" for suffix in ("cleaned", "deleted", "swap")]
    for path in folders:
        site.disk.makedirs(path)
        site.disk.write(f"{path}/precious", b"mine")
    assert raw(site.reload()) == expected
    assert all(site.disk.read(f"{path}/precious") == b"mine" for path in folders)
    assert [fields["path"] for fields in site.reports.of("log-unknown-file")] == folders


def test_a_finished_swap_replaces_the_segments_it_was_made_from(site: StorageSite) -> None:
    log = site.log()
    fill(log, 40)
    bases = [segment.base_offset for segment in log.segments]
    expected = raw(log)
    merged = b"".join(site.disk.read(f"{FOLDER}/{base:020d}.log") for base in bases[1:3])
    site.disk.write(f"{FOLDER}/{bases[1]:020d}.log.swap", merged)
    site.disk.write(f"{FOLDER}/{bases[1]:020d}.index.swap", struct.pack(">ii", 1, 1))
    log = site.reload()
    assert [segment.base_offset for segment in log.segments] == [*bases[:2], *bases[3:]]
    assert raw(log) == expected


@pytest.mark.parametrize("name", [None, "x.cleaned", "0-note.cleaned", f"{0:020d}.backup.cleaned", f"{0:020d}.cleaned"])
def test_a_finished_swap_is_not_thrown_away_for_a_later_one_that_is_not_or_for_somebodys_file(
    site: StorageSite, name: str | None
) -> None:
    log = site.log()
    fill(log, 40)
    expected = raw(log)
    first, second = [f"{FOLDER}/{segment.base_offset:020d}.log" for segment in log.segments][:2]
    site.disk.write(f"{first}.deleted", site.disk.read(first))
    site.disk.rename(first, f"{first}.swap")
    site.disk.write(f"{FOLDER}/{name}" if name else f"{second}.cleaned", b"anything")
    assert raw(site.reload()) == expected
    assert name is None or site.disk.read(f"{FOLDER}/{name}") == b"anything"


# --- power failure ----------------------------------------------------------------------------------------------------


def test_what_was_flushed_survives_a_power_failure(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    fill(log, 50, epoch=1)
    fill(log, 30, epoch=4)
    log.flushed(log.flush_plan()())
    expected = raw(log)
    fill(log, 20, epoch=6)
    site.disk.crash()
    log = site.start().logs[TP]
    assert log.log_end_offset == 80 and raw(log) == expected and epochs(log) == [(1, 0), (4, 50)]


def test_indexes_of_the_last_segment_equal_a_rebuild_after_recovery(site: StorageSite) -> None:
    log = site.log(segment_bytes=10**6, index_interval_bytes=100)
    fill(log, 77, count=2)
    log = site.reload()
    segment = log.segments.active
    built = build_indexes(segment.file.get(), 0, segment.size_bytes, 100)
    assert segment.indexes.offset.encode() == built.offset_index.encode()
    assert len(segment.indexes.time) >= len(built.time_index)


@pytest.mark.parametrize("which", ["missing", "overlapping"])
def test_segments_above_the_recovery_point_that_do_not_join_end_the_log_loudly(site: StorageSite, which: str) -> None:
    log = site.log()
    fill(log, 60)
    bases = [segment.base_offset for segment in log.segments]
    before = records(log)
    if which == "missing":
        site.disk.unlink(f"{FOLDER}/{bases[2]:020d}.log")
        end = bases[2]
    else:
        site.disk.write(f"{FOLDER}/{bases[2] + 2:020d}.log", site.disk.read(f"{FOLDER}/{bases[2]:020d}.log"))
        end = bases[3]
    log = site.reload()
    assert records(log) == before[:end]
    assert [report["base_offset"] for report in site.reports.of("log-segment-dropped")]


def test_gaps_that_compaction_left_are_kept(site: StorageSite) -> None:
    manager = site.start()
    log = manager.create(TP, bytes(16))
    fill(log, 60)
    bases = [segment.base_offset for segment in log.segments]
    site.disk.unlink(f"{FOLDER}/{bases[2]:020d}.log")
    site.disk.write("/logs/cleaner-offset-checkpoint", b"0\n1\nt 0 %d\n" % bases[4])
    log = site.reload()
    assert site.reports.of("log-segment-dropped") == []
    assert offsets(log) == [*range(bases[2]), *range(bases[3], 60)]
    assert log.read(bases[2], 100, 60) is not None
    assert offsets(log, start=bases[2])[0] == bases[3]
