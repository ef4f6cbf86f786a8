"""One folder of `log.dirs`: its lock, its identity, its clean-shutdown marker, its checkpoints.

```
<log dir>/.lock                              held while a broker uses the folder
          meta.properties                    whose folder this is, and in which boot of the machine it was last used
          .kafka_cleanshutdown               what an orderly stop leaves for a Kafka: present until the next start
                                             (`orderly_stops`)
          .strandline_state                  how we left it, and which of its checkpoints are as we wrote them
          .strandline_segments               which segments there were at our orderly stop (`directory_state`)
          replication-offset-checkpoint, recovery-point-offset-checkpoint, log-start-offset-checkpoint,
          cleaner-offset-checkpoint          see `checkpoints`; put aside as `.damaged` where they were changed while no
                                             broker ran (`guarded_checkpoints`)
          <topic>-<partition>/               segments, indexes, leader-epoch-checkpoint, partition.metadata
          <topic>-<partition>.<id>-delete/   about to be removed
          <topic>-<partition>.<id>-stray/    a log that had another topic id than its topic: kept, not read
```
`meta.properties`, text, one `key=value` per line: `version=0`, `broker.id`, `cluster.id` (once known), `directory.id`
(22 characters), and our own `strandline.boot.id`, `strandline.unsynced.directories`, `strandline.directories` (the ids
of all that the broker has, see `log_directories`), `strandline.incarnation` (in which start of the broker it was last
used) and those of `adoption`. Kafka leaves the file as it is unless one of its own keys changes; then ours go. We keep
what we do not know.

Rules: the marker is removed, durably, before anything is loaded or a checkpoint is written. The boot id is brought up
to date only when nothing may have been lost, or once the broker has drawn the consequences (`mark_loss_handled`): a
kill in between must not hide it, and neither must a stop, which is none in order then. A directory that knows of fewer
starts of the broker than ZooKeeper is an old backup, or was away: what it got in the lives that it missed is lost,
however orderly it was left.

Kafka may have had the folder before us, or between two lives of ours: the marker tells (`orderly_stops`), the high
watermarks (`guarded_checkpoints`), and its hand shows in a log (`foreign`). Until it was looked through then, a log is
foreign: what this broker does not serve may be anywhere in it. When every log was looked through or refused, that is
noted; those that were refused then stay foreign, by name (`adoption`). A log in the list of our orderly stop was served
by us.

A directory that is left *unsynced* (`directory_health`) gets a boot id of dashes, written in place: that
needs no space and no new name. Where even that fails, the other directories name it. The next start then counts as one
that may have lost data, and writes everything above the recovery points again before it trusts in it (`rewriting`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk, FileLock
from strandline.storage.disk.checkpoints import (
    COMPACTED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    Report,
    read_bounds,
    write_atomically,
)
from strandline.storage.disk.directory_health import DirectoryHealth
from strandline.storage.disk.properties import dash_out
from strandline.storage.disk.removal import is_temporary
from strandline.storage.errors import LogDirLocked, LogDirUnusable, StorageError, UnsafePath
from strandline.storage.manager.adoption import is_adopted, was_in_order, with_adoption, without_adoption
from strandline.storage.manager.directory_state import SEGMENTS_LIST, DirectoryState, list_logs, write_list
from strandline.storage.manager.guarded_checkpoints import NAMES, GuardedCheckpoints
from strandline.storage.manager.identity import META_PROPERTIES, read_identity
from strandline.storage.manager.orderly_stops import (
    LastStop,
    leave_markers,
    read_last_stop,
    take_marker,
    unvouched_folders,
)
from strandline.storage.recovery.known_state import KnownState
from strandline.storage.recovery.verdicts import Origin

if TYPE_CHECKING:
    from strandline.storage.log.log import Log

LOCK = ".lock"
BOOT_ID_KEY = "strandline.boot.id"
UNSYNCED_KEY = "strandline.unsynced.directories"
INCARNATION_KEY = "strandline.incarnation"
ADDED = "added"
"""Stands for the number of lives where a new directory was not used in one yet."""
DIRECTORIES_KEY = "strandline.directories"


class LogDirectory:
    """Opened by `LogManager.load`."""

    def __init__(self, disk: Disk, path: str, broker_id: int, cluster_id: str, report: Report) -> None:
        self.path = path
        self.health = DirectoryHealth(path, report)
        self.last_stop = LastStop()
        """The one before this start."""
        self.may_have_lost_data = False
        self.is_new = False
        """It was no log directory before this start."""
        self.was_unsynced = False
        """An earlier life could not make durable what it had written."""
        self.is_marked_unsynced = False
        self._disk = disk
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._report = report
        self._lock: FileLock | None = None
        self._meta: dict[str, str] = {}
        self.stored: dict[str, dict[TopicPartition, int]] = {name: {} for name in NAMES}
        """Of each checkpoint what it says on the disk, but for those that are `unsure`."""
        self.bounds_known = True
        """Recovery points and high watermarks were whole when it was opened."""
        self._files = GuardedCheckpoints(disk, path)
        self.unsure: set[str] = set()
        """Checkpoints of which the last write failed: they may say what was to be written."""
        self._written_in: dict[str, int | None] = {}
        """In which round each checkpoint was written; None: outside of any."""
        self._at_stop: DirectoryState | None = None
        """What an orderly stop leaves, once all of it is written."""
        self.log_count = 0
        """Of those that lie here, refused ones too; the log manager counts them."""
        self.refused: set[TopicPartition] = set()
        """Logs that were not loaded: their checkpoints stay as they are."""
        self._is_lossy_next = False
        self.is_loss_handled = False
        """The broker has drawn the consequences of what may be lost here."""

    @property
    def directory_id(self) -> str:
        """Empty where the directory could not be opened."""
        return self._meta.get("directory.id", "")

    @property
    def lock_id(self) -> str:
        """Tells the folder of this process from every other one, copies of it too, for as long as it is locked: whoever
        had the same lock before is gone. Empty where the machine does not tell its boots apart."""
        assert self._lock is not None
        boot_id = self._disk.boot_id()
        return boot_id and f"{self.directory_id} {boot_id} {self._lock.file_id}"

    def seize(self) -> None:
        """Make and lock the folder, and see whose it is. LogDirLocked, LogDirUnusable, InconsistentMetaProperties."""
        try:
            self._make_folder()
            self._lock = self._disk.lock(f"{self.path}/{LOCK}")
            self._meta = read_identity(self._disk, self.path, broker_id=self._broker_id, cluster_id=self._cluster_id)
        except BlockingIOError:
            raise LogDirLocked(self.path) from None
        except OSError as error:
            self.unlock()
            raise LogDirUnusable(self.path, error) from error
        except StorageError:
            self.unlock()
            raise

    def open(self, new_directory_id: str) -> None:
        """Once it is seized: see how it was left, take away the clean marker, read the checkpoints. LogDirUnusable."""
        try:
            self._remove_temporaries()
            self._look_back(new_directory_id)
            self._files.open(self.last_stop.checkpoints, self._report)
            take_marker(self._disk, self.path)
            found = {name: read_bounds(self._disk, f"{self.path}/{name}", self._report) for name in NAMES}
            self.stored = {name: offsets for name, (offsets, _) in found.items()}
            self.bounds_known = found[RECOVERY_POINTS][1] and found[HIGH_WATERMARKS][1]
        except OSError as error:
            self.unlock()
            raise LogDirUnusable(self.path, error) from error

    def _make_folder(self) -> None:
        """Make the folder and its parents, durably."""
        path, missing = self.path, []
        while not self._disk.exists(path):
            path = posixpath.dirname(path)
            missing.append(path)
        self._disk.makedirs(self.path)
        for parent in missing:
            self._disk.fsync_dir(parent)

    def _remove_temporaries(self) -> None:
        for name in self._disk.listdir(self.path):
            if is_temporary(name) and not self._disk.is_dir(f"{self.path}/{name}"):
                self._disk.unlink(f"{self.path}/{name}")

    def _look_back(self, new_directory_id: str) -> None:
        """What an earlier life left, and whether it may have lost data."""
        boot_id = self._disk.boot_id()
        missing = {"directory.id": new_directory_id} | ({"cluster.id": self._cluster_id} if self._cluster_id else {})
        if not self._meta:
            # An empty or replaced folder: what this broker acknowledged before is gone.
            self.may_have_lost_data = self.is_new = True
            self._meta = {"version": "0", "broker.id": str(self._broker_id), **missing}
            self._write_meta()
            return
        self.last_stop = read_last_stop(self._disk, self.path, self._report)
        if self.last_stop.was_kafkas and (foreign := without_adoption(self._meta)) != self._meta:
            self._meta = foreign
            self._write_meta()
        self.was_unsynced = set(self._meta.get(BOOT_ID_KEY, "")) == {"-"}
        same_boot = bool(boot_id) and self._meta.get(BOOT_ID_KEY) == boot_id
        self.may_have_lost_data = not self.last_stop.was_clean and not same_boot
        if not missing.keys() <= self._meta.keys() or not (self.may_have_lost_data or same_boot):
            self._meta = missing | self._meta
            if not self.may_have_lost_data:
                self._meta[BOOT_ID_KEY] = boot_id
            self._write_meta()

    @property
    def siblings(self) -> list[str]:
        """Ids of all directories that the broker had when it last noted them here."""
        return [name for name in self._meta.get(DIRECTORIES_KEY, "").split(",") if name]

    def count_as_added(self) -> None:
        """This new one replaces none: nothing is lost with it. Blocking. OSError from the disk."""
        self._meta |= {BOOT_ID_KEY: self._disk.boot_id(), INCARNATION_KEY: ADDED}
        self._write_meta()
        self.may_have_lost_data = False

    def begin_life(self, past_lives: int, was_ours: bool, siblings: Sequence[str]) -> None:
        """Note that the broker was started once more than `past_lives` times, with these directories. One that missed a
        life lost what it got then. Blocking."""
        known = self._meta.get(INCARNATION_KEY)
        if known is None:  # a backup from before our first life, unless a Kafka took our keys away
            is_outdated = was_ours and past_lives > 0 and not self.is_new
        else:
            is_outdated = known.isdecimal() and int(known) < past_lives
        self._meta[INCARNATION_KEY] = str(past_lives + 1)
        self._meta[DIRECTORIES_KEY] = ",".join(siblings)
        if is_outdated:
            self._report("log-dir-outdated", path=self.path, last_used_in_start=int(known or 0), starts=past_lives)
            self._meta.pop(BOOT_ID_KEY, None)
            self.may_have_lost_data = True
        self._write_meta()

    def mark_loss_handled(self, siblings: Sequence[str]) -> None:
        """The broker has renounced what it might betray: from now on this boot counts, and these directories."""
        if self._is_lossy_next:
            return
        self.is_loss_handled = True
        if self._meta.get(BOOT_ID_KEY) != self._disk.boot_id() or self.unsynced_others or self.siblings != siblings:
            self._meta |= {BOOT_ID_KEY: self._disk.boot_id(), DIRECTORIES_KEY: ",".join(siblings)}
            self._meta.pop(UNSYNCED_KEY, None)
            self._write_meta()

    def note_loaded(self) -> None:
        """Every log here was looked through and loaded, or refused. Blocking."""
        in_order = [tp for tp in sorted(self.refused) if self.known_state(tp).clean]
        adopted = with_adoption(self._meta, self.refused, in_order)
        if adopted != self._meta:
            self._meta = adopted
            self._write_meta()

    def note_loss(self) -> None:
        """Something is lost here that was durable or committed: this broker may have lost data, and a crash before it
        has drawn the consequences does not make that forgotten. Durable when it returns, whichever of several threads
        asks first. Blocking."""
        if not self.may_have_lost_data:
            if BOOT_ID_KEY in self._meta:
                self._meta = {key: value for key, value in self._meta.items() if key != BOOT_ID_KEY}
            self._write_meta()
            self.may_have_lost_data = True

    def note_late_loss(self) -> None:
        """As `note_loss`, found after the start: this life leaves no in-sync set any more, the next one will."""
        self._is_lossy_next = True
        self._meta.pop(BOOT_ID_KEY, None)
        self._write_meta()

    def known_state(self, tp: TopicPartition) -> KnownState:
        """What the checkpoints and the last stop say of a log here."""
        listed = self.last_stop.listed.get(tp)
        has_bounds = listed is not None or tp in self.stored[RECOVERY_POINTS] or tp in self.stored[HIGH_WATERMARKS]
        unlisted = Origin.ANOTHERS if not is_adopted(self._meta, tp) else Origin.OURS if has_bounds else Origin.UNKNOWN
        return KnownState(
            clean=self.last_stop.vouches_for(tp) or was_in_order(self._meta, tp),
            may_have_lost_data=self.may_have_lost_data,
            recovery_point=self.stored[RECOVERY_POINTS].get(tp, 0),
            high_watermark=self.stored[HIGH_WATERMARKS].get(tp, 0),
            log_start_offset=self.stored[LOG_START_OFFSETS].get(tp, 0),
            compacted_below=self.stored[COMPACTED_OFFSETS].get(tp, 0),
            listed=listed.segments if listed is not None else None,
            epochs_crc=listed.epochs_crc if listed is not None else None,
            bounds_known=self.bounds_known and has_bounds,
            on_loss=self.note_loss,
            origin=unlisted if listed is None else Origin.OURS,
        )

    @property
    def unsynced_others(self) -> list[str]:
        """Ids of directories that could not note themselves that they are unsynced."""
        return [name for name in self._meta.get(UNSYNCED_KEY, "").split(",") if name]

    def name_unsynced(self, directory_id: str) -> None:
        """Note that of another directory. Blocking. OSError from the disk."""
        if directory_id not in self.unsynced_others:
            self._meta[UNSYNCED_KEY] = ",".join([*self.unsynced_others, directory_id])
            self._write_meta()

    def distrust(self) -> None:
        """At a start: another directory names this one."""
        self.was_unsynced = self.may_have_lost_data = True
        self.last_stop = LastStop()

    def mark_unsynced(self) -> None:
        """Note it for the next start: dashes over the boot id. Blocking. OSError from the disk."""
        path = f"{self.path}/{META_PROPERTIES}"
        self._meta[BOOT_ID_KEY] = "-"
        dash_out(self._disk, path, BOOT_ID_KEY)
        self.is_marked_unsynced = True

    def folder_of(self, tp: TopicPartition) -> str:
        """Where a partition's log lies, or would. UnsafePath."""
        name = str(tp)
        if "/" in name or tp.partition < 0:
            raise UnsafePath(f"{name!r} would not be a folder of {self.path}; choose another topic name")
        return f"{self.path}/{name}"

    def write_recovery_points(self, logs: Iterable[Log], in_round: int | None = None) -> None:
        """Blocking, as the others. OSError: the directory is offline, or full; what stands on the disk counts on.

        in_round: nothing is written, and no fsync waited for, where the file was written in the same round and says the
        same. The event loop, which may write beside a thread, begins another round before and after (`Checkpoints`)."""
        self._write_offsets(RECOVERY_POINTS, {log.topic_partition: log.recovery_point for log in logs}, in_round)

    def write_log_start_offsets(self, logs: Iterable[Log], in_round: int | None = None) -> None:
        """Also of those that begin with a segment: the renames of the ones before may not be on the disk yet."""
        starts = {log: min(log.log_start_offset, log.truncation_guard.log_start_floor) for log in logs}
        offsets = {log.topic_partition: start for log, start in starts.items() if start > 0}
        if offsets or self.stored[LOG_START_OFFSETS] or LOG_START_OFFSETS in self.unsure:
            self._write_offsets(LOG_START_OFFSETS, offsets, in_round)
        for log, start in starts.items():
            log.durable_log_start_offset = start

    def write_compacted_offsets(self, logs: Iterable[Log]) -> None:
        """Where that changed."""
        offsets = {log.topic_partition: below for log in logs if (below := log.segments.compacted_below)}
        is_changed = self._with_refused(COMPACTED_OFFSETS, offsets) != self.stored[COMPACTED_OFFSETS]
        if is_changed or COMPACTED_OFFSETS in self.unsure:
            self._write_offsets(COMPACTED_OFFSETS, offsets)

    def names(self, tp: TopicPartition) -> bool:
        """Whether a checkpoint here has this log."""
        return any(tp in offsets for offsets in self.stored.values())

    def forget_mark(self, tp: TopicPartition) -> None:
        """Take a log that is gone out of the high watermarks. Blocking."""
        marks = self.stored[HIGH_WATERMARKS]
        self.write_high_watermarks({other: at for other, at in marks.items() if other != tp})

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int], in_round: int | None = None) -> None:
        self._write_offsets(HIGH_WATERMARKS, offsets, in_round)

    def _with_refused(self, name: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        stored = self.stored[name]
        return {**{tp: stored[tp] for tp in sorted(self.refused) if tp in stored}, **offsets}

    def write_segments(self, logs: Sequence[Log]) -> None:
        """What the next start shall find, written just before the state. logs: all that were recovered. Blocking."""
        segments_crc = write_list(self._disk, f"{self.path}/{SEGMENTS_LIST}", list_logs(logs))
        unvouched = unvouched_folders(self._disk, self.path, [log.topic_partition for log in logs])
        self._at_stop = DirectoryState(self._files.write_final(self.stored), segments_crc, is_for_all=not unvouched)
        if unvouched:
            self._report("log-dir-not-vouched-for", path=self.path, folders=unvouched[:3], count=len(unvouched))

    def _write_offsets(self, name: str, offsets: Mapping[TopicPartition, int], in_round: int | None = None) -> None:
        contents = self._with_refused(name, offsets)
        is_same = name not in self.unsure and contents == self.stored[name]
        if is_same and in_round is not None and in_round == self._written_in.get(name):
            return
        try:
            self._files.write(name, contents)
        except OSError as error:
            self.unsure.add(name)
            self.health.fail(f"writing {name} failed", error)
            raise
        self.unsure.discard(name)
        self._written_in[name] = in_round
        self.stored[name] = contents  # afterwards: another thread may just be writing what is outdated

    def close(self, clean: bool) -> None:
        """Leave the markers where the stop is an orderly one, and let the lock go. Blocking. OSError from the disk."""
        try:
            if clean and self._at_stop is not None and not self._is_lossy_next:  # they say that nothing is lost
                leave_markers(self._disk, self.path, self._at_stop)
        finally:
            self.unlock()

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _write_meta(self) -> None:
        content = "".join(f"{key}={value}\n" for key, value in self._meta.items())
        write_atomically(self._disk, f"{self.path}/{META_PROPERTIES}", content.encode())
        if self.health.is_unsynced:  # it failed meanwhile, and what was noted then may just have been replaced
            self.mark_unsynced()
