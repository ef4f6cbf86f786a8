"""A disk above another one that takes every change into memory: what a program would do to a folder, without doing it.

Reads go to the disk below, but for what was changed. Files that are cut keep no copy; files that are written are held
in memory whole, so this is for programs that write little (a start of the storage does), except that the content of
`.damaged` files is only counted. Nothing is ever written below: files there are opened for reading, and an existing
lock file is locked, which changes nothing. `changes` names what was done.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from strandline.runtime.disk import Buffer, Disk, DiskSpace, File, FileLock, FolderEntry
from strandline.storage.disk.damaged_files import DAMAGED_SUFFIX


@dataclass(slots=True)
class _Node:
    """A file as the overlay shows it: the first `length` bytes of `below`, or `data`."""

    below: str | None
    length: int
    mtime_ms: int
    data: bytearray | None = None


class OverlayFile:
    def __init__(self, disk: OverlayDisk, path: str, node: _Node, read_only: bool) -> None:
        self.path = path
        self.truncations = 0
        self._disk = disk
        self._node = node
        self._read_only = read_only
        self._below: File | None = None

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        self._may_write()
        length = sum(len(buffer) for buffer in buffers)
        node = self._node
        if self.path.endswith(DAMAGED_SUFFIX):
            node.length = max(node.length, position + length)
            return length
        data = self._content()
        data.extend(bytes(max(0, position + length - len(data))))
        data[position : position + length] = b"".join(buffers)
        node.length = len(data)
        return length

    def pread(self, length: int, position: int) -> bytes:
        node = self._node
        if node.data is not None:
            return bytes(node.data[position : position + length])
        length = max(0, min(length, node.length - position))
        return self._base().pread(length, position) if node.below is not None and length else b""

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        node = self._node
        if node.data is None and node.below is not None and node.length > position:
            wanted = min(len(buffer), node.length - position)
            return self._base().pread_into(memoryview(buffer)[:wanted], position)
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def is_resident(self, position: int, length: int) -> bool:
        return True

    def size(self) -> int:
        return self._node.length

    def truncate(self, size: int) -> None:
        self._may_write()
        node = self._node
        if size < node.length:
            self.truncations += 1
            self._disk.note("cut", self.path)
        if size > node.length or node.data is not None:
            data = self._content()
            data[size:] = b""
            data.extend(bytes(size - len(data)))
        node.length = size

    def reserve(self, size_bytes: int) -> bool:
        return True

    def fsync(self) -> None:
        pass

    def start_writeback(self, position: int, length: int) -> None:
        pass

    def close(self) -> None:
        if self._below is not None:
            self._below.close()
            self._below = None

    def _may_write(self) -> None:
        if self._read_only:
            raise OSError(errno.EBADF, "opened for reading", self.path)

    def _base(self) -> File:
        if self._below is None:
            assert self._node.below is not None
            self._below = self._disk.below.open(self._node.below, read_only=True)
        return self._below

    def _content(self) -> bytearray:
        """The file's bytes, in memory from now on."""
        node = self._node
        if node.data is None:
            self._disk.note("write", self.path)
            node.data = bytearray(self.pread(node.length, 0))
        return node.data


class OverlayDisk:
    """Implements `strandline.runtime.disk.Disk` for one thread. Folders are made and emptied, never renamed."""

    def __init__(self, below: Disk) -> None:
        self.below = below
        self.changes: list[tuple[str, str]] = []
        """(make, write, cut, rename or remove; path), in order, each once."""
        self._files: dict[str, _Node | None] = {}
        self._folders: dict[str, bool] = {}

    def note(self, what: str, path: str) -> None:
        if (what, path) not in self.changes[-20:]:
            self.changes.append((what, path))

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> OverlayFile:
        node = self._node(path)
        if node is None:
            if self.is_dir(path):
                raise OSError(errno.EISDIR, "it is no regular file; move it away", path)
            if not (create or exclusive):
                raise OSError(errno.ENOENT, "no such file", path)
            node = self._files[path] = _Node(None, 0, 0, None if path.endswith(DAMAGED_SUFFIX) else bytearray())
            self.note("make", path)
        elif exclusive:
            raise OSError(errno.EEXIST, "exists", path)
        return OverlayFile(self, path, node, read_only)

    def exists(self, path: str) -> bool:
        return self._node(path) is not None or self.is_dir(path)

    def is_dir(self, path: str) -> bool:
        return self._folders[path] if path in self._folders else self.below.is_dir(path)

    def listdir(self, path: str) -> list[str]:
        return [entry.name for entry in self.scandir(path)]

    def scandir(self, path: str) -> list[FolderEntry]:
        if not self.is_dir(path):
            raise OSError(errno.ENOENT, "no such folder", path)
        found = {entry.name: entry for entry in self.below.scandir(path)} if self.below.is_dir(path) else {}
        for changed, node in self._files.items():
            parent, _, name = changed.rpartition("/")
            if parent == path:
                found.pop(name, None)
                if node is not None:
                    found[name] = FolderEntry(name, False, node.length, node.mtime_ms)
        for folder, is_there in self._folders.items():
            parent, _, name = folder.rpartition("/")
            if parent == path:
                found.pop(name, None)
                if is_there:
                    found[name] = FolderEntry(name, True, 0, 0)
        return sorted(found.values())

    def makedirs(self, path: str) -> None:
        if not self.is_dir(path):
            self.note("make", path)
            self._folders[path] = True

    def rename(self, source: str, target: str) -> None:
        node = self._node(source)
        if node is None:
            raise OSError(errno.ENOENT, "no such file", source)
        self._files[target], self._files[source] = node, None
        self.note("rename", target)

    def unlink(self, path: str) -> None:
        if self._node(path) is None:
            raise OSError(errno.ENOENT, "no such file", path)
        self._files[path] = None
        self.note("remove", path)

    def rmdir(self, path: str) -> None:
        self._folders[path] = False
        self.note("remove", path)

    def fsync_dir(self, path: str) -> None:
        pass

    def stat_mtime_ms(self, path: str) -> int:
        node = self._node(path)
        if node is None:
            raise OSError(errno.ENOENT, "no such file", path)
        return node.mtime_ms

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        node = self._node(path)
        if node is None:
            raise OSError(errno.ENOENT, "no such file", path)
        node.mtime_ms = mtime_ms

    def space(self, path: str) -> DiskSpace:
        return self.below.space(path)

    def lock(self, path: str) -> FileLock:
        """BlockingIOError where a broker runs. Without a lock file there is none."""
        return self.below.lock(path) if self.below.exists(path) else _NoLock()

    def boot_id(self) -> str:
        return self.below.boot_id()

    def _node(self, path: str) -> _Node | None:
        if path in self._files:
            return self._files[path]
        if not self.below.exists(path) or self.below.is_dir(path):
            return None
        with closing(self.below.open(path, read_only=True)) as file:
            node = _Node(path, file.size(), self.below.stat_mtime_ms(path))
        self._files[path] = node
        return node


class _NoLock:
    file_id = ""

    def release(self) -> None:
        pass
