"""The folder of an archive: how a run becomes visible, all at once.

    DIR/run=00000001/day=2026-11-24/part-….parquet    what a run archived
    DIR/run=00000001/_manifest.json                   … and what that is
    DIR/_staging/…                                    a run under way, or what a killed one left
    DIR/_lock, DIR/_overview.html

Spark, pyarrow and pandas pass over names that begin with an underscore. A run is written to a folder below _staging,
manifest and all, made durable, and then renamed to its `run=` folder: this one rename commits it, and fails where
another run has taken the number. So whoever reads DIR sees whole runs only, whenever a run is killed.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from strandline.runtime.disk import Disk, read_file, write_whole
from strandline.spark_connector.errors import ArchiveBusy, ArchiveDamaged, InvalidOption
from strandline.spark_connector.pipelines.manifest import Manifest, check_history, from_json, to_json

MANIFEST = "_manifest.json"
OVERVIEW = "_overview.html"
STAGING = "_staging"
LOCK = "_lock"
MAX_MANIFEST_BYTES = 256 * 2**20

_RUN = re.compile(r"run=(\d{8})")
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


class ArchiveFolder:
    """`path` is absolute, on a file system that the driver and all executors see under this name."""

    def __init__(self, path: str, disk: Disk) -> None:
        """InvalidOption for a path that Spark would read as a pattern or as another file system's."""
        if not path.startswith("/") or re.search(r"[*?{}\[\]\\]", path):
            raise InvalidOption(
                f"The archive folder {path!r} must be an absolute path of a local or mounted file system, "
                "without any of * ? { } [ ] \\"
            )
        self.path = path.rstrip("/")
        self._disk = disk

    def for_spark(self, *names: str) -> str:
        """The folder, or what is in it, as Spark calls it."""
        return "file://" + "/".join((self.path, *names))

    @staticmethod
    def run_name(run: int) -> str:
        return f"run={run:08}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For one run at a time; made if absent. ArchiveBusy."""
        self._disk.makedirs(self.path)
        try:
            lock = self._disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError:
            raise ArchiveBusy(f"Another run archives into {self.path} now; wait for its end") from None
        try:
            yield
        finally:
            lock.release()

    def manifests(self) -> list[Manifest]:
        """Of all runs, in order; empty where nothing was archived yet. ArchiveDamaged."""
        if not self._disk.is_dir(self.path):
            return []
        found = []
        for name in self._disk.listdir(self.path):
            if (numbered := _RUN.fullmatch(name)) is None:
                continue
            where = f"{self.path}/{name}/{MANIFEST}"
            try:
                text = read_file(self._disk, where, MAX_MANIFEST_BYTES)
            except (OSError, ValueError) as error:
                raise ArchiveDamaged(f"{where} cannot be read: {error}; take it from a backup") from None
            manifest = from_json(text, where)
            if manifest.run != int(numbered[1]):
                raise ArchiveDamaged(f"{where} is the manifest of run {manifest.run}; name its folder so")
            found.append(manifest)
        check_history(found, self.path)
        return found

    def check_files(self, manifest: Manifest) -> None:
        """The run's folder holds exactly the files that were committed, as large as they were. ArchiveDamaged."""
        folder = f"{self.path}/{self.run_name(manifest.run)}"
        found = {
            f"{day.name}/{file.name}": file.size_bytes
            for day in self._disk.scandir(folder)
            if day.is_dir and not day.name.startswith((".", "_"))
            for file in self._disk.scandir(f"{folder}/{day.name}")
            if not file.name.startswith((".", "_"))
        }
        expected = {file.path: file.size_bytes for file in manifest.files}
        wrong = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        if wrong:
            name = wrong[0]
            raise ArchiveDamaged(
                f"{folder}/{name} has {found.get(name, 'no')} bytes, the manifest says "
                f"{expected.get(name, 'that there is none')}; take it from a backup"
            )

    def remove_leftovers(self) -> None:
        """What killed runs left in the staging folder; only whoever holds the lock may."""
        staging = f"{self.path}/{STAGING}"
        if self._disk.is_dir(staging):
            self._remove(staging)

    def commit(self, staged: str, manifest: Manifest) -> None:
        """Make `staged` (a name in the staging folder) the run that the manifest says. ArchiveBusy: somebody else
        committed that number. OSError."""
        source = f"{self.path}/{STAGING}/{staged}"
        if not self._disk.is_dir(source):  # Spark makes no folder where there was no record
            self._disk.makedirs(source)
        self._write(f"{source}/{MANIFEST}", to_json(manifest))
        self._sync(source)
        try:
            self._disk.rename(source, f"{self.path}/{self.run_name(manifest.run)}")
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            raise ArchiveBusy(f"Another run committed run {manifest.run} of {self.path} first; try again") from None
        self._disk.fsync_dir(self.path)

    def write_overview(self, page: str) -> str:
        """The page about the whole archive, replaced at once; returns its path."""
        target = f"{self.path}/{OVERVIEW}"
        with suppress(FileNotFoundError):
            self._disk.unlink(f"{target}.new")
        self._write(f"{target}.new", page)
        self._disk.rename(f"{target}.new", target)
        return target

    def _write(self, path: str, text: str) -> None:
        with closing(self._disk.open(path, create=True, exclusive=True)) as file:
            write_whole(file, text.encode(), 0)
            file.fsync()

    def _sync(self, folder: str) -> None:
        """Files first, then the names of them."""
        for entry in self._disk.scandir(folder):
            path = f"{folder}/{entry.name}"
            if entry.is_dir:
                self._sync(path)
            elif entry.is_file:
                with closing(self._disk.open(path)) as file:
                    file.fsync()
        self._disk.fsync_dir(folder)

    def _remove(self, folder: str) -> None:
        for entry in self._disk.scandir(folder):
            path = f"{folder}/{entry.name}"
            if entry.is_dir:
                self._remove(path)
            else:
                self._disk.unlink(path)
        self._disk.rmdir(folder)
