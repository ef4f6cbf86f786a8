"""The lock on a file of a `MemoryDisk`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.testkit.disk import MemoryDisk


class MemoryLock:
    """Dead, as files are, once the disk lives on without the process that took it."""

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._life = disk.life
        self.file_id = f"{disk.copies}:{path}"

    def release(self) -> None:
        if self._life == self._disk.life:
            self._disk.unlock(self._path)
