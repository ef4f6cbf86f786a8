"""One contract for the disk seam, over the machine's file system and over the one in memory."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.runtime import disk_posix
from strandline.runtime.disk import Disk, File, FileRegion, read_file
from strandline.runtime.disk_posix import PosixDisk
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.disk.model import DROP, KEEP, KEEP_PREFIX, KEEP_ZEROS

MIB = 2**20
BLOCK_BYTES = 2**16
"""File systems count whole blocks, and some of their own."""


class Place:
    """A disk and a folder on it."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, content: bytes) -> str:
        file = self.disk.open(self.path(name), create=True)
        assert file.pwritev([content], 0) == len(content)
        file.close()
        return self.path(name)

    def reserve(self, file: File, size_bytes: int) -> None:
        if not file.reserve(size_bytes):
            pytest.skip("this file system does not offer it")

    def reserved(self, name: str) -> int:
        (reserved_bytes,) = [entry.reserved_bytes for entry in self.disk.scandir(self.root) if entry.name == name]
        return reserved_bytes


@pytest.fixture(params=["posix", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "posix":
        yield Place(PosixDisk(), str(tmp_path))
    else:
        disk = MemoryDisk()
        disk.makedirs("/some/root")
        yield Place(disk, "/some/root")


def errno_of(info: pytest.ExceptionInfo[OSError]) -> int | None:
    return info.value.errno


# --- files ------------------------------------------------------------------------------------------------------------


def test_buffers_are_written_one_after_another_and_read_anywhere(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    assert file.pwritev([b"abc", bytearray(b"def"), memoryview(b"ghi")], 2) == 9
    assert file.size() == 11
    assert file.pread(100, 0) == b"\0\0abcdefghi"
    assert file.pread(3, 4) == b"cde" and file.pread(5, 11) == b"" and file.pread(5, 99) == b""
    file.pwritev([b"X"], 5)
    assert file.pread(100, 2) == b"abcXefghi"


def test_more_buffers_than_one_system_call_takes(place: Place) -> None:
    file = place.disk.open(place.path("f"), create=True)
    assert file.pwritev([b"%04d" % number for number in range(3000)], 0) == 12000
    assert file.pread(12, 11988) == b"299729982999"


def test_reading_into_a_buffer_says_how_much_came(place: Place) -> None:
    file = place.disk.open(place.write("f", b"0123456789"))
    buffer = bytearray(b"........")
    assert file.pread_into(buffer, 1) == 8 and buffer == b"12345678"
    assert file.pread_into(memoryview(buffer)[2:6], 8) == 2 and buffer == b"12895678"
    assert file.pread_into(buffer, 10) == 0


def test_truncating_shortens_and_lengthens_and_only_shortening_counts(place: Place) -> None:
    file = place.disk.open(place.write("f", b"0123456789"))
    assert file.truncations == 0
    file.truncate(4)
    file.truncate(4)
    file.truncate(6)
    assert file.pread(100, 0) == b"0123\0\0" and file.truncations == 1


def test_a_region_is_stale_once_its_file_was_cut(place: Place) -> None:
    file = place.disk.open(place.write("f", b"0123456789"))
    region = FileRegion(file, 2, 3)
    assert not region.is_stale
    file.pwritev([b"more"], 10)
    assert not region.is_stale
    file.truncate(8)
    assert region.is_stale and not FileRegion(file, 2, 3).is_stale


def test_opening_what_is_not_there_needs_to_be_asked_for(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("f"))
    place.disk.open(place.path("f"), create=True).close()
    place.disk.open(place.path("f"), create=True).close()
    with pytest.raises(FileExistsError):
        place.disk.open(place.path("f"), exclusive=True)
    place.disk.open(place.path("g"), exclusive=True).close()
    assert place.disk.listdir(place.root) == ["f", "g"]


def test_a_file_opened_for_reading_is_not_written(place: Place) -> None:
    file = place.disk.open(place.write("f", b"abc"), read_only=True)
    assert file.pread(3, 0) == b"abc"
    with pytest.raises(OSError) as info:
        file.pwritev([b"x"], 0)
    assert errno_of(info) == errno.EBADF


def test_a_closed_file_is_closed_for_good_and_closing_is_idempotent(place: Place) -> None:
    file = place.disk.open(place.write("f", b"abc"))
    file.close()
    file.close()
    for use in (lambda: file.pread(1, 0), lambda: file.pwritev([b"x"], 0), file.size, file.fsync):
        with pytest.raises(OSError) as info:
            use()
        assert errno_of(info) == errno.EBADF


def test_a_file_that_was_unlinked_stays_readable_while_somebody_has_it(place: Place) -> None:
    file = place.disk.open(place.write("f", b"abc"))
    place.disk.unlink(place.path("f"))
    assert not place.disk.exists(place.path("f"))
    place.write("f", b"another")
    assert file.pread(10, 0) == b"abc"


def test_sync_write_back_and_residency_do_no_harm(place: Place) -> None:
    file = place.disk.open(place.write("f", b"x" * 10_000))
    file.start_writeback(0, 10_000)
    file.fsync()
    place.disk.fsync_dir(place.root)
    assert file.is_resident(0, 10_000) in (True, False)
    assert file.pread(10_000, 0) == b"x" * 10_000


def test_reserving_keeps_space_and_changes_neither_size_nor_content(place: Place) -> None:
    file = place.disk.open(place.write("f", b"0123456789"))
    assert place.reserved("f") < BLOCK_BYTES
    region = FileRegion(file, 2, 3)
    place.reserve(file, 4 * MIB)
    place.reserve(file, MIB)  # less than it has
    assert abs(place.reserved("f") - 4 * MIB) < BLOCK_BYTES
    assert file.size() == 10 and file.pread(100, 0) == b"0123456789" and not region.is_stale
    assert file.pwritev([b"abc"], 10) == 3
    assert file.size() == 13 and file.pread(100, 8) == b"89abc"
    assert abs(place.reserved("f") - 4 * MIB) < BLOCK_BYTES, "what is written takes of the same space"


def test_reserved_space_outlives_whoever_had_the_file_open(place: Place) -> None:
    file = place.disk.open(place.write("f", b"abc"))
    place.reserve(file, MIB)
    file.close()
    place.disk.rename(place.path("f"), place.path("g"))
    assert place.reserved("g") > MIB - BLOCK_BYTES
    assert read_file(place.disk, place.path("g")) == b"abc"


@pytest.mark.parametrize("size", [10, 4])
def test_cutting_a_file_gives_back_what_is_reserved_even_where_its_size_stays(place: Place, size: int) -> None:
    file = place.disk.open(place.write("f", b"0123456789"))
    place.reserve(file, MIB)
    file.truncate(size)
    assert place.reserved("f") < BLOCK_BYTES
    assert file.pread(100, 0) == b"0123456789"[:size] and file.truncations == (size < 10)


def test_space_is_reserved_for_files_that_may_be_written_only(place: Place) -> None:
    file = place.disk.open(place.write("f", b"abc"), read_only=True)
    with pytest.raises(OSError) as info:
        file.reserve(MIB)
    assert errno_of(info) == errno.EBADF


# --- folders ----------------------------------------------------------------------------------------------------------


def test_folders_are_made_with_their_parents_listed_sorted_and_removed_when_empty(place: Place) -> None:
    place.disk.makedirs(place.path("b/c"))
    place.disk.makedirs(place.path("b/c"))
    place.write("a", b"")
    assert place.disk.listdir(place.root) == ["a", "b"]
    assert place.disk.is_dir(place.path("b")) and not place.disk.is_dir(place.path("a"))
    assert place.disk.exists(place.path("b/c")) and not place.disk.exists(place.path("b/d"))
    with pytest.raises(OSError) as info:
        place.disk.rmdir(place.path("b"))
    assert errno_of(info) == errno.ENOTEMPTY
    place.disk.rmdir(place.path("b/c"))
    place.disk.rmdir(place.path("b"))
    assert place.disk.listdir(place.root) == ["a"]


def test_a_folder_is_read_with_sizes_and_times_without_opening_anything(place: Place) -> None:
    place.write("b", b"12345")
    place.disk.makedirs(place.path("a/x"))
    place.write("c", b"")
    found = place.disk.scandir(place.root)
    assert [(entry.name, entry.is_dir) for entry in found] == [("a", True), ("b", False), ("c", False)]
    assert [entry.size_bytes for entry in found[1:]] == [5, 0]
    assert [entry.mtime_ms for entry in found[1:]] == [place.disk.stat_mtime_ms(place.path(n)) for n in "bc"]


def test_renaming_replaces_and_open_files_follow(place: Place) -> None:
    file = place.disk.open(place.write("new", b"new"))
    place.write("old", b"old")
    place.disk.rename(place.path("new"), place.path("old"))
    assert place.disk.listdir(place.root) == ["old"]
    assert read_file(place.disk, place.path("old")) == b"new"
    file.pwritev([b"NEW"], 0)
    assert read_file(place.disk, place.path("old")) == b"NEW"


def test_a_folder_is_renamed_with_what_is_in_it(place: Place) -> None:
    place.disk.makedirs(place.path("a"))
    file = place.disk.open(place.write("a/f", b"abc"))
    place.disk.rename(place.path("a"), place.path("b"))
    assert place.disk.listdir(place.path("b")) == ["f"] and file.pread(3, 0) == b"abc"


def test_a_file_does_not_replace_a_folder(place: Place) -> None:
    place.disk.makedirs(place.path("a"))
    with pytest.raises(OSError) as info:
        place.disk.rename(place.write("f", b"abc"), place.path("a"))
    assert errno_of(info) == errno.EISDIR and place.disk.listdir(place.root) == ["a", "f"]


@pytest.mark.parametrize(
    ("operation", "number"),
    [
        (lambda disk, path: disk.unlink(path), errno.ENOENT),
        (lambda disk, path: disk.rename(path, path + "2"), errno.ENOENT),
        (lambda disk, path: disk.listdir(path), errno.ENOENT),
        (lambda disk, path: disk.scandir(path), errno.ENOENT),
        (lambda disk, path: disk.rmdir(path), errno.ENOENT),
        (lambda disk, path: disk.stat_mtime_ms(path), errno.ENOENT),
        (lambda disk, path: disk.set_mtime_ms(path, 1), errno.ENOENT),
        (lambda disk, path: disk.fsync_dir(path), errno.ENOENT),
        (lambda disk, path: disk.open(path + "/x", create=True), errno.ENOENT),
    ],
)
def test_what_is_missing_is_said_with_its_errno(place: Place, operation, number: int) -> None:
    with pytest.raises(OSError) as info:
        operation(place.disk, place.path("missing"))
    assert errno_of(info) == number


def test_a_large_small_file_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="has 10 bytes, more than the 9 allowed"):
        read_file(place.disk, place.write("f", b"0123456789"), max_bytes=9)


def test_space_times_and_boots(place: Place) -> None:
    space = place.disk.space(place.root)
    assert 0 <= space.free_bytes <= space.total_bytes
    assert place.disk.stat_mtime_ms(place.write("f", b"")) >= 0


def test_a_file_has_the_time_that_it_was_given_and_takes_it_along_when_it_is_renamed(place: Place) -> None:
    path, target = place.write("f", b"x"), place.path("g")
    place.disk.set_mtime_ms(path, 1_234_567_891)
    assert place.disk.stat_mtime_ms(path) == 1_234_567_891
    place.disk.rename(path, target)
    assert place.disk.stat_mtime_ms(target) == 1_234_567_891
    assert place.disk.boot_id() == place.disk.boot_id()


def test_a_lock_is_held_by_one_until_it_is_released(place: Place) -> None:
    lock = place.disk.lock(place.path(".lock"))
    with pytest.raises(BlockingIOError):
        place.disk.lock(place.path(".lock"))
    lock.release()
    lock.release()
    place.disk.lock(place.path(".lock")).release()


# --- only on a real one -----------------------------------------------------------------------------------------------


def test_descriptors_are_released_with_the_last_reference(tmp_path: Path) -> None:
    disk = PosixDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwritev([b"abc"], 0)
    descriptor = file.fileno()
    region = FileRegion(file, 0, 3)
    disk.unlink(str(tmp_path / "f"))
    del file
    assert os.pread(descriptor, 3, 0) == b"abc"
    del region
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_links_are_not_followed_and_modes_are_private(tmp_path: Path) -> None:
    disk = PosixDisk()
    disk.makedirs(str(tmp_path / "d"))
    disk.open(str(tmp_path / "d/f"), create=True).close()
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "d/f").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "d/f")
    with pytest.raises(OSError) as info:
        disk.open(str(tmp_path / "link"))
    assert errno_of(info) == errno.ELOOP
    (tmp_path / "folder").symlink_to(tmp_path / "d")
    assert not disk.is_dir(str(tmp_path / "folder"))


def test_descriptors_do_not_reach_child_processes(tmp_path: Path) -> None:
    file = PosixDisk().open(str(tmp_path / "f"), create=True)
    assert not os.get_inheritable(file.fileno())


class FakeSystemCall:
    """fallocate that says these errnos one after another, then what the real one says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
        self.numbers = list(numbers)
        self._real = disk_posix._fallocate
        monkeypatch.setattr(disk_posix, "_fallocate", self)

    def __call__(self, descriptor: int, mode: int, offset: int, length: int) -> int:
        if self.numbers:
            if self._real is not None:
                self._real(descriptor, mode, offset, length // 2)  # ext4 keeps what it found before it ran out of it
            ctypes.set_errno(self.numbers.pop(0))
            return -1
        return 0 if self._real is None else self._real(descriptor, mode, offset, length)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_cannot_reserve_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    FakeSystemCall(monkeypatch, number)
    assert PosixDisk().open(str(tmp_path / "f"), create=True).reserve(MIB) is False


def test_a_system_without_the_call_says_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_posix, "_fallocate", None)
    assert PosixDisk().open(str(tmp_path / "f"), create=True).reserve(MIB) is False


def test_reserving_goes_on_after_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = FakeSystemCall(monkeypatch, errno.EINTR, errno.EINTR)
    assert PosixDisk().open(str(tmp_path / "f"), create=True).reserve(MIB) and not call.numbers


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_reserves_nothing_rather_than_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    FakeSystemCall(monkeypatch, number)
    place = Place(PosixDisk(), str(tmp_path))
    file = place.disk.open(place.write("f", b"abc"))
    with pytest.raises(OSError) as info:
        file.reserve(4 * MIB)
    assert errno_of(info) == number and info.value.filename == place.path("f")
    assert place.reserved("f") < BLOCK_BYTES and file.pread(10, 0) == b"abc"


# --- only in memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fates", "content"),
    [  # the first number: how many names and truncations survive
        ([1, DROP, DROP], b"synced\0\0\0\0"),
        ([1, KEEP, KEEP], b"synced1234abcd"),
        ([1, KEEP, DROP], b"synced1234"),
        ([0, KEEP], b"synced12345678"),
        ([1, DROP, KEEP], b"synced\0\0\0\0abcd"),
        ([1, KEEP, KEEP_PREFIX, 3], b"synced1234abc"),
        ([0, KEEP_ZEROS], b"synced\0\0\0\0\0\0\0\0"),
        ([0, DROP], b"synced"),
    ],
)
def test_a_crash_keeps_what_was_synced_and_any_of_the_rest(fates: list[int], content: bytes) -> None:
    disk = MemoryDisk()
    file = disk.open("/f", create=True)
    file.pwritev([b"synced"], 0)
    file.fsync()
    disk.fsync_dir("/")
    file.pwritev([b"12345678"], 6)
    file.truncate(10)
    file.pwritev([b"abcd"], 10)
    disk.crash(lambda options: fates.pop(0) if options > 1 else 0)
    assert disk.read("/f") == content and not fates


def test_a_name_survives_a_crash_only_when_its_folder_was_synced() -> None:
    disk = MemoryDisk()
    disk.makedirs("/d")
    disk.sync_everything()
    disk.open("/d/f", create=True).fsync()
    disk.crash()
    assert disk.listdir("/d") == []
    disk.open("/d/f", create=True)
    disk.fsync_dir("/d")
    disk.rename("/d/f", "/d/g")
    disk.crash()
    assert disk.listdir("/d") == ["f"]
    disk.unlink("/d/f")
    disk.crash(lambda options: options - 1)
    assert disk.listdir("/d") == []


def test_names_and_truncations_survive_in_their_order() -> None:
    disk = MemoryDisk()
    disk.open("/a", create=True).pwritev([b"content"], 0)
    disk.sync_everything()
    disk.open("/a").truncate(3)
    disk.rename("/a", "/b")
    disk.open("/c", create=True)
    disk.crash(lambda options: 2)
    assert disk.listdir("/") == ["b"] and disk.read("/b") == b"con"


def test_a_kill_keeps_everything_but_files_and_locks() -> None:
    disk = MemoryDisk()
    boot = disk.boot_id()
    file = disk.open("/f", create=True)
    file.pwritev([b"abc"], 0)
    disk.lock("/.lock")
    disk.kill()
    assert disk.read("/f") == b"abc" and disk.boot_id() == boot and disk.open_files() == []
    with pytest.raises(OSError) as info:
        file.pread(1, 0)
    assert errno_of(info) == errno.ESTALE
    disk.lock("/.lock").release()
    disk.crash()
    assert disk.boot_id() != boot


def test_a_failed_fsync_is_not_made_good_by_the_next() -> None:
    disk = MemoryDisk()
    file = disk.open("/f", create=True)
    disk.fsync_dir("/")
    file.pwritev([b"lost"], 0)
    disk.fail("fsync", "/f", errno.EIO, times=1)
    with pytest.raises(OSError):
        file.fsync()
    file.pwritev([b"kept"], 4)
    file.fsync()
    assert disk.read("/f") == b"lostkept"
    disk.crash()
    assert disk.read("/f") == b"\0\0\0\0kept"


def test_faults_strike_by_operation_and_path_after_and_as_often_as_told() -> None:
    disk = MemoryDisk()
    file, other = disk.open("/a.log", create=True), disk.open("/b.log", create=True)
    fault = disk.fail("pwritev", "/a.*", errno.ENOSPC, after=1, times=2)
    outcomes = []
    for _ in range(5):
        try:
            outcomes.append(file.pwritev([b"x"], 0))
        except OSError as error:
            outcomes.append(error.errno)
        other.pwritev([b"x"], 0)
    assert outcomes == [1, errno.ENOSPC, errno.ENOSPC, 1, 1] and fault.hits == 2


def test_a_full_disk_takes_what_fits_and_then_nothing() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    file = disk.open("/f", create=True)
    assert file.pwritev([b"12345678"], 0) == 8
    assert file.pwritev([b"9abcdef"], 8) == 2
    with pytest.raises(OSError) as info:
        file.pwritev([b"x"], 10)
    assert errno_of(info) == errno.ENOSPC
    assert file.pwritev([b"over"], 0) == 4  # writing over what is there needs no space
    assert disk.space("/").free_bytes == 0


def test_what_is_reserved_is_taken_from_all_others_until_it_is_given_back() -> None:
    disk = MemoryDisk(capacity_bytes=100)
    file, other = disk.open("/f", create=True), disk.open("/g", create=True)
    assert file.reserve(90) and disk.space("/").free_bytes == 10
    assert other.pwritev([b"x" * 20], 0) == 10
    with pytest.raises(OSError) as info:
        other.pwritev([b"x"], 10)
    assert errno_of(info) == errno.ENOSPC
    with pytest.raises(OSError) as info:
        file.reserve(91)
    assert errno_of(info) == errno.ENOSPC
    assert file.pwritev([b"y" * 90], 0) == 90, "its own space is there"
    file.truncate(30)
    assert disk.space("/").free_bytes == 60
    assert file.reserve(90)
    disk.unlink("/f")
    assert disk.space("/").free_bytes == 90


@pytest.mark.parametrize("synced", [False, True])
def test_reserved_space_survives_crashes_and_comes_back_where_giving_it_back_was_not_synced(synced: bool) -> None:
    disk = MemoryDisk()
    file = disk.open("/f", create=True)
    file.reserve(100)
    disk.sync_everything()
    disk.kill()
    assert disk.reserved("/f") == 100
    file = disk.open("/f")
    file.truncate(0)
    if synced:
        file.fsync()
    assert disk.reserved("/f") == 0
    disk.crash()
    assert disk.reserved("/f") == (0 if synced else 100)


def test_a_disk_that_does_not_offer_it_reserves_nothing() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    disk.offers_reserving = False
    assert disk.open("/f", create=True).reserve(100) is False and disk.reserved("/f") == 0


def test_a_write_can_be_made_short() -> None:
    disk = MemoryDisk()
    file = disk.open("/f", create=True)
    disk.shorten_next_write("/f", 3)
    assert [file.pwritev([b"12345"], 0), file.pwritev([b"12345"], 0)] == [3, 5]


def test_cold_files_are_not_resident() -> None:
    disk = MemoryDisk()
    file = disk.open("/a.log", create=True)
    assert file.is_resident(0, 10)
    disk.cold_patterns.append("*.log")
    assert not file.is_resident(0, 10)
