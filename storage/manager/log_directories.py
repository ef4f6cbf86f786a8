"""The log directories of one broker as a set: opened together, failing one by one.

Rules: a directory whose disk fails, or cannot be read at the start, is offline; the others serve on. The broker ends
when none is left. What is wrong without any disk being at fault (another broker's folder, a lock that is held) keeps
the broker from starting: serving without it would hide the mistake.

Each directory names all that the broker has, by their ids (`strandline.directories`), so one that left `log.dirs` or
came back empty is missed: what lay there is lost. Their list is made anew once the broker has drawn the consequences;
then a directory that is new replaces none. One that cannot be opened has no id, and may be one that is missed:
`has_unread` stands for it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk
from strandline.storage.disk.checkpoints import Report
from strandline.storage.disk.directory_health import has_room, is_about_process, is_full
from strandline.storage.errors import DiskFailed, LogDirUnusable, NoLogDirLeft, StorageError
from strandline.storage.manager.log_directory import LogDirectory

CHECKPOINT_FAILED = "writing a checkpoint failed"
META_FAILED = "writing meta.properties failed"


class LogDirectories:
    """In the order of `log.dirs`."""

    def __init__(self, disk: Disk, paths: Sequence[str], broker_id: int, cluster_id: str, report: Report) -> None:
        """paths: absolute. cluster_id: empty where nobody knows it. LogDirUnusable for a list that cannot be."""
        self.has_unread = False
        """One could not be read when the broker started: whatever log is not known may lie in there."""
        self._opened: list[str] = []
        self._missed: list[str] = []
        """Ids of directories that are not there, or cannot be opened."""
        self._unopened = 0
        self._disk = disk
        self._report = report
        self._all = [LogDirectory(disk, _checked(path), broker_id, cluster_id, report) for path in paths]
        normal = [directory.path for directory in self._all]
        for path in normal:
            if normal.count(path) > 1:
                raise LogDirUnusable(path, "it stands in the list twice")
        if not normal:
            raise LogDirUnusable("(none)", "the list is empty")

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._all)

    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._all if directory.health.failure is None]

    @property
    def offline_paths(self) -> list[str]:
        return [directory.path for directory in self._all if directory.health.failure is not None]

    @property
    def directory_id(self) -> str:
        """Of the first that could be opened."""
        return next(filter(None, (directory.directory_id for directory in self._all)))

    @property
    def lock_id(self) -> str:
        """Of the first that could be opened; see `LogDirectory`."""
        return next(each.lock_id for each in self._all if each.directory_id in self._opened)

    @property
    def may_have_lost_data(self) -> bool:
        """A suffix that this broker acknowledged may be gone: no clean marker and another boot of the machine, a
        directory that was replaced or left the list, or one whose disk did not take what it was given. SIGKILL within
        one boot loses nothing."""
        return self._is_one_gone or any(directory.may_have_lost_data for directory in self._all)

    @property
    def _is_one_gone(self) -> bool:
        return len(self._missed) > self._unopened

    @property
    def is_loss_open(self) -> bool:
        """Data may be lost, and `mark_loss_handled` was not called: a stop must not look like an orderly one."""
        lossy = (each for each in self.online() if each.may_have_lost_data or self._is_one_gone)
        return not all(each.is_loss_handled for each in lossy)

    def begin_life(self, past_lives: int, was_ours: bool) -> bool:
        """Note that one more life of this broker begins, in each directory, and return `may_have_lost_data`: one that
        missed any of the `past_lives` was replaced by an older state of it. was_ours: no Kafka had the cluster since
        the last of them; one may have removed our count. Blocking. NoLogDirLeft."""
        known = sorted({*self._opened, *self._missed})
        self.each_at_start(META_FAILED, lambda directory: directory.begin_life(past_lives, was_ours, known))
        return self.may_have_lost_data

    def mark_loss_handled(self) -> None:
        """Call it once ZooKeeper credits this broker with nothing that it may have lost, where `may_have_lost_data`:
        only then is the boot recorded, so that no end of this life before makes the loss forgotten. Blocking."""
        known = sorted({*self._opened, *(self._missed if self._unopened else ())})
        self.each_online(META_FAILED, lambda directory: directory.mark_loss_handled(known))

    def check(self) -> None:
        """NoLogDirLeft when all are offline."""
        failures = [failure for directory in self._all if (failure := directory.health.failure) is not None]
        if len(failures) == len(self._all):
            raise NoLogDirLeft(failures)

    def open(self, new_id: Callable[[], str]) -> None:
        """Open what can be opened. Blocking. LogDirLocked, InconsistentMetaProperties; LogDirUnusable: no directory can
        be used, or one for a reason that is not its disk's."""
        try:
            # All are held before the first is changed: a refused start leaves the others' clean markers, too.
            unusable = self._each_usable(LogDirectory.seize)
            self._refuse_copies()
            unusable += self._each_usable(lambda directory: directory.open(new_id()))
        except StorageError:
            for directory in self._all:
                directory.unlock()
            raise
        if len(unusable) == len(self._all):
            raise unusable[0]
        self._look_for_missing(len(unusable))
        unsynced = {directory_id for directory in self._all for directory_id in directory.unsynced_others}
        for directory in self.online():
            if directory.directory_id in unsynced:
                directory.distrust()

    def _refuse_copies(self) -> None:
        """LogDirUnusable where two have one id, as where somebody copied a `meta.properties`: the other one would stand
        for one of them that is gone."""
        paths: dict[str, str] = {}
        for directory in filter(lambda each: each.directory_id, self.online()):
            if (path := paths.setdefault(directory.directory_id, directory.path)) != directory.path:
                why = f"its meta.properties has the directory.id of {path}; remove that line from the copy of the two"
                raise LogDirUnusable(directory.path, why)

    def _each_usable(self, act: Callable[[LogDirectory], None]) -> list[LogDirUnusable]:
        """Do it for each; what its disk refused makes one offline."""
        unusable: list[LogDirUnusable] = []
        for directory in self.online():
            try:
                act(directory)
            except LogDirUnusable as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or is_about_process(cause):
                    raise
                directory.health.fail("opening it failed", cause, at_start=True)
                unusable.append(error)
        return unusable

    def _look_for_missing(self, unopened: int) -> None:
        online = self.online()
        named = {directory_id for directory in online for directory_id in directory.siblings}
        self._opened = [directory.directory_id for directory in online]
        self._missed = sorted(named.difference(each.directory_id for each in online if not each.is_new))
        self._unopened = unopened
        if self._is_one_gone:
            self._report("log-dir-missing", path=online[0].path, directory_ids=self._missed)
        if named and not self._missed:
            self.each_online(META_FAILED, lambda each: each.count_as_added() if each.is_new else None)

    def cannot_be_read(self, directory: LogDirectory, error: OSError) -> None:
        """While its logs were loaded. Raises `error` where only descriptors are lacking."""
        directory.health.fail("loading its logs failed", error, at_start=True)
        if directory.health.failure is None:
            raise error

    def read_failed(self, path: str, error: OSError) -> None:
        """A file could not be read by somebody outside storage."""
        for directory in self._all:
            if path.startswith(f"{directory.path}/"):
                directory.health.fail(f"reading {path} failed", error)

    def least_used(self) -> LogDirectory:
        """The online one with the fewest logs, one with room where there is any. LogStorageError: all are offline."""
        online = self.online()
        if not online:
            raise DiskFailed("(a new log)", "no log directory is left")
        return min(online, key=lambda directory: (directory.health.full is not None, directory.log_count))

    def loaded(self) -> None:
        """All logs that can be loaded are. NoLogDirLeft."""
        self.has_unread = bool(self.offline_paths)
        self.check()

    def each_online(
        self, what: str, act: Callable[[LogDirectory], None], only: str | None = None, *, at_start: bool = False
    ) -> None:
        """Do it for each (only: for the one at this path). A directory whose disk fails meanwhile is offline (at_start:
        one that is full, too); the others go on. Blocking."""
        for directory in self.online():
            if only not in (None, directory.path):
                continue
            try:
                act(directory)
            except OSError as error:
                directory.health.fail(what, error, at_start=at_start)
                if not is_full(error):  # which is told once
                    self._report("log-dir-not-written", path=directory.path, what=what, error=str(error))

    def each_at_start(self, what: str, act: Callable[[LogDirectory], None], only: str | None = None) -> None:
        """The same of what a start cannot do without: who goes on would vouch for what no disk has. NoLogDirLeft."""
        self.each_online(what, act, only, at_start=True)
        self.check()

    @property
    def full_paths(self) -> list[str]:
        """Where nothing is appended until there is room."""
        return [directory.path for directory in self.online() if directory.health.full is not None]

    def look_for_room(self, path: str) -> bool:
        """Whether the full directory at `path` has room again; it is used again then. Blocking."""
        for directory in self._all:
            if directory.path == path and has_room(self._disk, path):
                directory.health.full = None
                return True
        return False

    def mark_unsynced(self) -> None:
        """Note, for the next start, which directories failed in such a way that their page cache proves nothing. Call
        it after a failure. Blocking."""
        for directory in self._all:
            if directory.health.is_unsynced and directory.directory_id and not directory.is_marked_unsynced:
                try:
                    directory.mark_unsynced()
                except OSError as error:
                    self._report("log-dir-unsynced-not-noted", path=directory.path, error=str(error))
                    self._have_it_named(directory.directory_id)

    def _have_it_named(self, directory_id: str) -> None:
        self.each_online(META_FAILED, lambda other: other.name_unsynced(directory_id))


def owners_of(found: Mapping[LogDirectory, Iterable[TopicPartition]]) -> dict[TopicPartition, list[LogDirectory]]:
    """In which directories each partition lies: in one, unless something is wrong."""
    owners: dict[TopicPartition, list[LogDirectory]] = {}
    for directory, partitions in found.items():
        for tp in partitions:
            owners.setdefault(tp, []).append(directory)
    return owners


def _checked(path: str) -> str:
    if not posixpath.isabs(path):
        raise LogDirUnusable(path, "it is not an absolute path")
    return posixpath.normpath(path)
