"""`log-check` says beforehand what the start then does, whatever the damage, and changes nothing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.runtime.disk import Disk
from strandline.storage.errors import LogDirLocked
from strandline.storage.inspection.log_check import Finding, check_directories
from strandline.storage.inspection.overlay_disk import OverlayDisk
from strandline.storage.manager.loading import LoadProgress
from strandline.testkit.disk import MemoryDisk
from support.damage_site import DamageSite
from support.storage_site import TP


def checked(site: DamageSite, **options: bool) -> list[Finding]:
    return check_directories(
        site.disk, list(site.dirs), site.config, site.clock, random.Random(1), quick=options.get("quick", False)
    )


def image(disk: Disk, path: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for entry in disk.scandir(path):
        name = f"{path}/{entry.name}"
        if entry.is_dir:
            found[name] = None
            found.update(image(disk, name))
        else:
            file = disk.open(name, read_only=True)
            found[name] = file.pread(file.size(), 0)
    return found


def flip(number: int, byte: int) -> Callable[[DamageSite], None]:
    def change(site: DamageSite) -> None:
        data = bytearray(site.disk.read(site.path(number)))
        data[byte] ^= 1
        site.disk.write(site.path(number), bytes(data))

    return change


def append(number: int, suffix: str, what: bytes) -> Callable[[DamageSite], None]:
    def change(site: DamageSite) -> None:
        path = site.path(number, suffix)
        site.disk.write(path, site.disk.read(path) + what)

    return change


DAMAGE: dict[str, Callable[[DamageSite], None]] = {
    "none": lambda site: None,
    "a torn tail": append(-1, ".log", b"torn" * 20),
    "a flipped bit in the middle": flip(1, 200),
    "a flipped bit at the end": flip(-1, 80),
    "an index too long": append(0, ".index", b"xyz"),
    "a missing index": lambda site: site.disk.unlink(site.path(0, ".timeindex")),
    "a missing segment": lambda site: site.disk.unlink(site.path(1)),
    "a missing last segment": lambda site: site.disk.unlink(site.path(-1)),
    "wrong epochs": lambda site: site.disk.write(f"{site.folder}/leader-epoch-checkpoint", b"0\n1\n9 0\n"),
    "a damaged checkpoint": lambda site: site.disk.write(f"{site.root}/recovery-point-offset-checkpoint", b"junk"),
    "leftovers": lambda site: site.disk.write(f"{site.folder}/{5:020d}.log.deleted", b"old"),
    "a stray folder": lambda site: site.disk.makedirs(f"{site.root}/lost+found"),
}
REBUILT_ANYHOW = {"an index too long", "a missing index", "wrong epochs"}
"""After an unclean stop, of what is checked then."""
REPORTED = {"log-truncated", "log-segment-dropped", "index-rebuilt", "epochs-rebuilt", "log-refused"}


@pytest.mark.parametrize("how", ["clean", "kill", "power"])
@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("damage", DAMAGE)
def test_it_says_what_the_start_then_does(damage: str, flushed: bool, how: str) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=flushed), how)
    DAMAGE[damage](site)
    site.disk.kill()
    before = image(site.disk, "/logs")
    findings = checked(site)
    assert image(site.disk, "/logs") == before
    said = sorted((found.event, str(found.fields)) for found in findings if found.event in REPORTED)
    quick = sorted((found.event, str(found.fields)) for found in checked(site, quick=True) if found.event in REPORTED)
    site.start()
    assert said == quick == sorted((event, str(fields)) for event, fields in site.reports.events if event in REPORTED)
    if damage == "none":
        assert {found.severity for found in findings} <= {"note"}
    elif damage == "a stray folder":
        assert "log-dir-unknown-folder" in {found.event for found in findings}
    elif how == "clean" or not (damage in REBUILT_ANYHOW or (damage == "a missing last segment" and not flushed)):
        assert any(found.severity != "note" for found in findings)
    assert all("\n" not in found.what and found.where for found in findings)


def test_damage_that_a_start_would_not_see_is_told_unless_it_is_quick() -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), "clean")
    flip(1, 200)(site)
    assert checked(site, quick=True) == []
    (found,) = checked(site)
    assert (found.severity, found.event) == ("lose", "batch-damaged") and "CRC" in found.what
    assert found.where == site.path(1) and found.fields["position"] <= 200


def test_a_cut_below_what_was_committed_is_a_loss() -> None:
    site = DamageSite()
    manager = site.build(flushed=False)
    manager.checkpoints.write_high_watermarks({TP: 80})
    site.stop(manager, "kill")
    flip(1, 200)(site)
    assert "lose" in {found.severity for found in checked(site) if found.event == "log-truncated"}


def test_what_would_be_kept_aside_and_fetched_again_is_no_repair() -> None:
    site = DamageSite()
    site.stop(site.build(), "clean")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        site.disk.write(f"{site.root}/{name}", b"junk")
    site.disk.write(site.path(-1), site.disk.read(site.path(-1))[:-7])
    found = {finding.event: finding for finding in checked(site)}
    for event in ("log-truncated", "log-segment-shorter"):
        assert (
            found[event].severity == "lose" and "the broker would leave the ISRs and fetch again" in found[event].what
        )
    assert "bytes aside" in found["log-truncated"].what


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_logs_in_a_folder_without_an_identity_are_a_loss(how: str) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), how)
    site.disk.unlink(f"{site.root}/meta.properties")
    assert [finding.event for finding in checked(site) if finding.severity == "lose"] == ["new-folder"]
    site.start()


def test_a_running_brokers_folder_is_not_checked() -> None:
    site = DamageSite()
    site.build()
    with pytest.raises(LogDirLocked):
        checked(site)


def test_folders_of_two_brokers_are_refused() -> None:
    site = DamageSite(dirs=("/logs", "/more"))
    site.stop(site.build(), "clean")
    other = site.disk.read("/more/meta.properties").replace(b"broker.id=7", b"broker.id=8")
    site.disk.write("/more/meta.properties", other)
    assert [found.severity for found in checked(site)] == ["refuse"]


def test_progress_goes_from_nothing_to_everything() -> None:
    site = DamageSite()
    site.stop(site.build(), "kill")
    seen: list[tuple[int, int]] = []

    def note(progress: LoadProgress) -> None:
        seen.append((progress.bytes_checked, progress.bytes_total))

    check_directories(site.disk, ["/logs"], site.config, site.clock, random.Random(1), on_progress=note)
    assert seen[-1][0] == seen[-1][1] > 0


# --- the overlay -----------------------------------------------------------------------------------------------------


def test_an_overlay_shows_its_changes_and_the_disk_below_has_none() -> None:
    below = MemoryDisk()
    below.makedirs("/a/b")
    below.write("/a/f", b"0123456789")
    below.write("/a/g", b"gone")
    disk = OverlayDisk(below)
    file = disk.open("/a/f")
    file.truncate(6)
    assert file.pread(99, 2) == b"2345" and file.truncations == 1
    file.pwritev([b"XY", b"Z"], 5)
    assert file.pread(99, 0) == b"01234XYZ" and disk.open("/a/f", read_only=True).pread(3, 5) == b"XYZ"
    buffer = bytearray(4)
    assert file.pread_into(buffer, 6) == 2 and buffer[:2] == b"YZ"
    file.truncate(9)
    assert file.pread(9, 0) == b"01234XYZ\0" and file.size() == 9
    disk.open("/a/new", create=True).pwritev([b"n"], 2)
    disk.rename("/a/new", "/a/newer")
    disk.unlink("/a/g")
    disk.makedirs("/a/c")
    disk.rmdir("/a/b")
    assert disk.listdir("/a") == ["c", "f", "newer"] and disk.is_dir("/a/c") and not disk.exists("/a/b")
    assert [entry.size_bytes for entry in disk.scandir("/a")][1:] == [9, 3]
    assert below.listdir("/a") == ["b", "f", "g"] and below.read("/a/f") == b"0123456789"
    for missing in ("/a/g", "/a/new", "/x"):
        with pytest.raises(FileNotFoundError):
            disk.open(missing)
        with pytest.raises(FileNotFoundError):
            disk.unlink(missing)
    with pytest.raises(FileExistsError):
        disk.open("/a/f", exclusive=True)
    with pytest.raises(OSError):
        disk.open("/a/f", read_only=True).truncate(0)
    assert ("cut", "/a/f") in disk.changes and ("remove", "/a/g") in disk.changes


@pytest.mark.parametrize(
    ("suffix", "byte", "bit", "event"),
    [(".index", 11, 1, "index-wrong"), (".index", 14, 8, "index-wrong"), (".timeindex", 19, 2, "index-wrong")],
)
def test_an_entry_in_the_middle_of_an_index_that_is_wrong_is_told_unless_it_is_quick(
    suffix: str, byte: int, bit: int, event: str
) -> None:
    site = DamageSite(config=type(DamageSite().config)(index_interval_bytes=100))
    site.stop(site.build(flushed=True), "clean")
    path = site.path(1, suffix)
    data = bytearray(site.disk.read(path))
    data[byte] ^= bit
    site.disk.write(path, bytes(data))
    assert checked(site, quick=True) == []
    (found,) = checked(site)
    assert (found.severity, found.event, found.where) == ("repair", event, path)
    assert "would be rebuilt" in found.what and "\n" not in found.what


def test_an_entry_that_only_begins_a_search_earlier_is_no_repair() -> None:
    """As older Kafkas' followers write them, too."""
    site = DamageSite(config=type(DamageSite().config)(index_interval_bytes=100))
    site.stop(site.build(flushed=True), "clean")
    path = site.path(1, ".index")
    data = bytearray(site.disk.read(path))
    relative_offset = int.from_bytes(data[8:12], "big")
    data[8:12] = (relative_offset + 1).to_bytes(4, "big")
    site.disk.write(path, bytes(data))
    (found,) = checked(site)
    assert (found.severity, found.event, found.fields["entries"]) == ("note", "index-imprecise", 1)


@pytest.mark.parametrize("number", [1, -1])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_folder_in_place_of_a_file_is_refused(suffix: str, number: int) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), "clean")
    path = site.path(number, suffix)
    site.disk.unlink(path)
    site.disk.makedirs(path)
    assert "refuse" in {finding.severity for finding in checked(site)}


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", f"{TP}/leader-epoch-checkpoint"])
def test_a_folder_in_place_of_a_small_file_is_refused(name: str) -> None:
    site = DamageSite()
    site.stop(site.build(flushed=True), "clean")
    site.disk.unlink(f"{site.root}/{name}")
    site.disk.makedirs(f"{site.root}/{name}")
    assert "refuse" in {finding.severity for finding in checked(site)}


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path, suffix: str) -> None:
    site = DamageSite.on_real_files(f"{tmp_path}/data")
    site.stop(site.build(), "clean")
    path = site.path(1, suffix)
    os.unlink(path)
    os.mkfifo(path)
    assert "refuse" in {finding.severity for finding in checked(site)}
