"""Storage of one broker whose files can be damaged by hand, in memory or on the machine's file system.

Two logs in one directory: `t-0` has several segments and two leader epochs, `other-0` is what nothing may happen to.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import read_file
from strandline.runtime.disk_posix import PosixDisk, PosixLock
from strandline.storage.manager.log_manager import LogManager
from support.storage_site import TOPIC_ID, TP, StorageSite, fill

OTHER = TopicPartition("other", 0)
OTHER_RECORDS = 7


class RealDisk(PosixDisk):
    """The machine's disk with the hands of a `MemoryDisk`: a kill gives up the locks, a crash is another boot."""

    def __init__(self) -> None:
        self._boot = 1
        self._locks: list[PosixLock] = []

    def boot_id(self) -> str:
        return f"boot-{self._boot}"

    def lock(self, path: str) -> PosixLock:
        lock = super().lock(path)
        self._locks.append(lock)
        return lock

    def read(self, path: str) -> bytes:
        return read_file(self, path)

    def write(self, path: str, content: bytes) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        file.pwritev([content], 0)
        file.close()

    def kill(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def sync_everything(self) -> None:
        """Nothing to do: `crash` loses nothing."""

    def crash(self) -> None:
        """Power failed after all had been written out."""
        self.kill()
        self._boot += 1


@dataclass
class DamageSite(StorageSite):
    root: str = "/logs"

    @classmethod
    def on_real_files(cls, root: str) -> DamageSite:
        """root: a folder that need not be there yet."""
        return cls(disk=RealDisk(), dirs=(root,), root=root)

    @property
    def folder(self) -> str:
        """Of the log that is damaged."""
        return f"{self.root}/{TP}"

    def build(self, *, batches: int = 45, count: int = 2, flushed: bool = False) -> LogManager:
        """Fill both logs; the broker has been through its first start, and runs."""
        manager = self.start()
        manager.mark_loss_handled()
        log, other = manager.create(TP, TOPIC_ID), manager.create(OTHER, TOPIC_ID)
        manager.checkpoints.write_high_watermarks({TP: 0, OTHER: 0})
        fill(log, batches // 2, epoch=0, count=count)
        fill(log, batches - batches // 2, epoch=3, count=count)
        fill(other, OTHER_RECORDS)
        if flushed:
            manager.flush_all()
            manager.checkpoints.write_recovery_points()
        return manager

    def stop(self, manager: LogManager, how: str) -> None:
        """`clean`: in order; `kill`: the process; `power`: the machine, after all was written out."""
        if how == "clean":
            marks = {tp: log.log_end_offset for tp, log in manager.logs.items()}
            manager.checkpoints.write_high_watermarks(marks)
            manager.close(clean=True)
        elif how == "kill":
            self.disk.kill()
        else:
            self.disk.sync_everything()
            self.disk.crash()

    def restart(self) -> LogManager:
        """Killed, if it runs, and started."""
        self.disk.kill()
        return self.start()

    def names(self, suffix: str = "") -> list[str]:
        """Of the files in the log's folder."""
        return [name for name in self.disk.listdir(self.folder) if name.endswith(suffix)]

    def path(self, number: int, suffix: str = ".log") -> str:
        """Of segment `number`'s file."""
        return f"{self.folder}/{self.names('.log')[number].removesuffix('.log')}{suffix}"

    def everything(self) -> dict[str, bytes]:
        """Every file of the log's folder."""
        return {name: self.disk.read(f"{self.folder}/{name}") for name in self.names()}
