"""The folder of an archive: a run counts as a whole or not at all."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from strandline.runtime.disk_posix import PosixDisk
from strandline.spark_connector.errors import ArchiveBusy, ArchiveDamaged, InvalidOption
from strandline.spark_connector.pipelines.folder import MANIFEST, ArchiveFolder
from strandline.spark_connector.pipelines.manifest import ArchivedFile, Manifest, Offsets

NAME = "day=2026-11-24/part-0.parquet"


def manifest(run: int) -> Manifest:
    file = ArchivedFile(NAME, 4, "2026-11-24", 0, 1, 1, run - 1, run - 1, 1)
    return Manifest(run, "clicks", "07", {0: Offsets(run - 1, run)}, (), (file,))


@pytest.fixture
def folder(tmp_path: Any) -> ArchiveFolder:
    made = ArchiveFolder(str(tmp_path / "archive"), PosixDisk())
    with made.locked():
        pass
    return made


def stage(folder: ArchiveFolder, name: str = "s") -> str:
    disk = PosixDisk()
    disk.makedirs(f"{folder.path}/_staging/{name}/day=2026-11-24")
    with_content = disk.open(f"{folder.path}/_staging/{name}/{NAME}", create=True)
    with_content.pwritev([b"PAR1"], 0)
    with_content.close()
    return name


def test_committed_runs_are_found_in_order(folder: ArchiveFolder) -> None:
    assert folder.manifests() == []
    for run in (1, 2):
        folder.commit(stage(folder), manifest(run))
    assert folder.manifests() == [manifest(1), manifest(2)]
    for each in folder.manifests():
        folder.check_files(each)
    assert ArchiveFolder("/nowhere/at/all", PosixDisk()).manifests() == []


def test_a_number_that_is_taken_is_not_overwritten(folder: ArchiveFolder) -> None:
    folder.commit(stage(folder), manifest(1))
    late = Manifest(1, "clicks", "07", {0: Offsets(0, 0)}, (), ())
    with pytest.raises(ArchiveBusy, match="committed run 1"):
        folder.commit(stage(folder, "late"), late)
    assert folder.manifests() == [manifest(1)]


def test_one_run_at_a_time(folder: ArchiveFolder) -> None:
    with folder.locked(), pytest.raises(ArchiveBusy, match="wait for its end"), folder.locked():
        pass
    with folder.locked():
        pass


class FullDisk(PosixDisk):
    """Fails at the n-th operation that changes something."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "no space")

    def open(self, path: str, **options: Any) -> Any:
        self._count()
        return super().open(path, **options)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)


@pytest.mark.parametrize("left", range(3))
def test_a_commit_that_fails_anywhere_leaves_nothing_that_counts(folder: ArchiveFolder, left: int) -> None:
    dying = ArchiveFolder(folder.path, FullDisk(left))
    with pytest.raises(OSError, match="no space"):
        dying.commit(stage(folder), manifest(1))
    assert folder.manifests() == []
    folder.remove_leftovers()
    assert sorted(PosixDisk().listdir(folder.path)) == ["_lock"]
    folder.commit(stage(folder), manifest(1))
    assert folder.manifests() == [manifest(1)]


def test_a_run_without_records_is_a_manifest(folder: ArchiveFolder) -> None:
    empty = Manifest(1, "clicks", "07", {0: Offsets(0, 5)}, (), ())
    folder.commit("nothing", empty)
    assert folder.manifests() == [empty]
    folder.check_files(empty)


def test_damage_is_named(folder: ArchiveFolder) -> None:
    disk = PosixDisk()
    folder.commit(stage(folder), manifest(1))
    folder.commit(stage(folder), manifest(2))
    first = f"{folder.path}/run=00000001"
    disk.unlink(f"{first}/{NAME}")
    with pytest.raises(ArchiveDamaged, match=r"part-0\.parquet has no bytes, the manifest says 4"):
        folder.check_files(manifest(1))
    disk.unlink(f"{first}/{MANIFEST}")
    with pytest.raises(ArchiveDamaged, match=r"run=00000001/_manifest\.json cannot be read"):
        folder.manifests()
    disk.rename(f"{folder.path}/run=00000002", f"{folder.path}/run=00000003")
    disk.rmdir(f"{first}/day=2026-11-24")
    disk.rmdir(first)
    with pytest.raises(ArchiveDamaged, match="is the manifest of run 2"):
        folder.manifests()


def test_the_overview_is_replaced(folder: ArchiveFolder) -> None:
    for text in ("<p>a long one</p>", "<p>b</p>"):
        path = folder.write_overview(text)
        assert PosixDisk().open(path).pread(100, 0) == text.encode()


@pytest.mark.parametrize("path", ["relative", "s3a://bucket/x", "/data/*", "/data/{a,b}", "/data/[x]", "/data/?"])
def test_paths_that_spark_would_take_for_something_else_are_refused(path: str) -> None:
    with pytest.raises(InvalidOption, match="archive folder"):
        ArchiveFolder(path, PosixDisk())
