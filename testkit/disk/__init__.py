"""A disk in memory that knows what was synced, fails on demand, and crashes to any state that a real one may end in.

What a crash of the machine (`crash`) keeps:
* of a file, what was there at its last `fsync`, plus any of the later writes, each whole, cut short, or as zeros (the
  size reached the disk, the data did not);
* of all names and truncations that were not synced, the first few: file systems journal them in order. A rename is one
  change. What was written to a file after a truncation that is lost is lost, too.
A crash of the process (`kill`) keeps everything. Both end every open file and lock. After a failed `fsync` the pages
count as clean, as on Linux: later ones succeed, yet what the failed one was to write may be lost in a crash (ATC'20).

Nothing here sleeps or draws randomness: `crash` is given the choices.
"""

from __future__ import annotations

import errno
import fnmatch
import pickle
import weakref
from collections.abc import Callable, Sequence

from strandline.runtime.disk import Buffer, DiskSpace, FolderEntry, SyncFailed
from strandline.testkit.disk.model import (
    Change,
    Choose,
    Fault,
    Folder,
    Inode,
    Journal,
    contents,
    disk_error,
    folders,
    lose_everything,
    nothing_happens,
    parts,
    space_of_files,
)

UNLIMITED_BYTES = 2**40


class MemoryFile:
    """One open file of a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode, read_only: bool) -> None:
        self.path = path
        self.truncations = 0
        self._disk = disk
        self._life = disk.life
        self._inode = inode
        self._read_only = read_only
        self._closed = False

    def _enter(self, operation: str) -> Inode:
        if self._closed:
            raise disk_error(errno.EBADF, self.path)
        if self._life != self._disk.life:
            raise disk_error(errno.ESTALE, self.path)
        if self._read_only and operation in ("pwritev", "truncate", "reserve"):
            raise disk_error(errno.EBADF, self.path)
        self._disk.enter(operation, self.path)
        return self._inode

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        inode = self._enter("pwritev")
        self._disk.on_growth("pwritev", self.path)
        data = b"".join(buffers)
        data = data[: self._disk.bytes_accepted(self.path, len(data), position + len(data) - inode.space_bytes)]
        if data:
            inode.apply(Change(position, data))
        inode.mtime_ms = self._disk.now_ms
        return len(data)

    def pread(self, length: int, position: int) -> bytes:
        return bytes(self._enter("pread").data[position : position + length])

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        data = self._enter("pread").data[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def is_resident(self, position: int, length: int) -> bool:
        return not any(fnmatch.fnmatchcase(self.path, pattern) for pattern in self._disk.cold_patterns)

    def size(self) -> int:
        return len(self._enter("size").data)

    def truncate(self, size: int) -> None:
        inode = self._enter("truncate")
        if size < len(inode.data):
            self.truncations += 1
        inode.apply(Change(size, None))
        inode.mtime_ms = self._disk.now_ms

    def reserve(self, size_bytes: int) -> bool:
        inode = self._enter("reserve")
        if self._disk.offers_reserving:
            if size_bytes - inode.space_bytes > self._disk.free_bytes:
                raise disk_error(errno.ENOSPC, self.path)
            inode.reserve(size_bytes)
        return self._disk.offers_reserving

    def fsync(self) -> None:
        try:
            self._enter("fsync")
        except OSError:
            self._inode.abandon()
            raise
        self._inode.sync()

    def start_writeback(self, position: int, length: int) -> None:
        self._enter("start_writeback")

    def close(self) -> None:
        self._closed = True


class MemoryLock:
    """The lock on a file. Dead, as files are, once the disk lives on without the process that took it."""

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._life = disk.life
        self.file_id = f"{disk.copies}:{path}"

    def release(self) -> None:
        if self._life == self._disk.life:
            self._disk.unlock(self._path)


class MemoryDisk:
    """Implements `strandline.runtime.disk.Disk`; see the module for what a crash keeps."""

    def __init__(self, *, capacity_bytes: int = UNLIMITED_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.life = 0
        """Counts crashes and kills: files and locks of an earlier life are dead (ESTALE)."""
        self.now_ms = 0
        """What files get as their modification time."""
        self.cold_patterns: list[str] = []
        """Paths (with wildcards) whose content is not in the page cache."""
        self.offers_reserving = True  # whether files can have space kept for them
        self.on_operation: Callable[[str, str], None] | None = None
        """Called with (operation, path) before each operation; may raise to stop a program right there."""
        self.on_growth: Callable[[str, str], None] = nothing_happens
        """The same for what takes room: new names and what is written (`NoRoom`)."""
        self.boot = 1
        """Counts the starts of the machine that the disk is in."""
        self.copies = 0
        """Of how many disks one after the other this is the copy."""
        self._journal = Journal()
        self._root = Folder(self._journal)
        self._locks: set[str] = set()
        self._faults: list[Fault] = []
        self._short: dict[str, int] = {}
        self._open: weakref.WeakSet[MemoryFile] = weakref.WeakSet()

    # --- what a test does to it ---------------------------------------------------------------------------------------

    def fail(self, operation: str, pattern: str, number: int, *, after: int = 0, times: int | None = None) -> Fault:
        """Let `operation` (a method's name) on paths that match `pattern` raise OSError with errno `number`."""
        fault = Fault(operation, pattern, number, after, times)
        self._faults.append(fault)
        return fault

    def shorten_next_write(self, pattern: str, to_bytes: int) -> None:
        """The next write to a matching path takes only `to_bytes`."""
        self._short[pattern] = to_bytes

    def kill(self) -> None:
        """The process ends: what it wrote stays, its files and locks do not."""
        self.life += 1
        self._locks.clear()

    def crash(self, choose: Choose = lose_everything) -> None:
        """The machine loses power and starts again."""
        self.kill()
        self.boot += 1
        self._journal.crash(choose)
        self._root.crash(choose)
        self._journal.used_bytes = space_of_files(self._root)  # whole folders may be gone

    def sync_everything(self) -> None:
        """As if all was written out long ago."""
        for folder in folders(self._root):
            folder.sync()
            for node in folder.names.values():
                if isinstance(node, Inode):
                    node.replace(bytes(node.data))
        self._journal.entries.clear()

    def read(self, path: str) -> bytes:
        """The content of a file, past all faults."""
        return bytes(self._inode(path).data)

    def write(self, path: str, content: bytes) -> None:
        """Replace the content of a file, durably: damage done by hand. Makes it if absent."""
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if not isinstance(node, Inode):
            node = Inode(self._journal)
            folder.change({name: node})
            folder.sync()
        node.replace(content)

    def copy(self) -> MemoryDisk:
        """This disk as it is now, durable or not, as another one that nobody has open: to crash it in several ways."""
        twin = MemoryDisk(capacity_bytes=self.capacity_bytes)
        # Together: they share their entries. Five times as fast as `copy.deepcopy`.
        twin._root, twin._journal = pickle.loads(pickle.dumps((self._root, self._journal)))
        twin.boot, twin.life, twin.now_ms = self.boot, self.life, self.now_ms
        twin.offers_reserving, twin.copies = self.offers_reserving, self.copies + 1
        return twin

    def content(self) -> dict[str, bytes | None]:
        """Path → content of every file, path → None of every folder, past all faults."""
        return dict(contents(self._root))

    def reserved(self, path: str) -> int:
        """How many bytes are kept for a file behind its end."""
        inode = self._inode(path)
        return inode.space_bytes - len(inode.data)

    @property
    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self._journal.used_bytes)

    def last_write(self, path: str) -> tuple[int, bytes] | None:
        """(position, data) of the last change to a file, if that was a write and is not synced."""
        node = self._find(path)
        if not isinstance(node, Inode) or not node.changes or node.changes[-1].data is None:
            return None
        return node.changes[-1].position, node.changes[-1].data

    def names(self, path: str) -> list[str]:
        """Of what a folder has, none where there is none; no operation, for who looks on."""
        folder = self._find(path)
        return sorted(folder.names) if isinstance(folder, Folder) else []

    def open_files(self) -> list[str]:
        """Paths of the files that are open in this life."""
        return sorted(file.path for file in self._open if not file._closed and file._life == self.life)

    # --- for files and locks ------------------------------------------------------------------------------------------

    def enter(self, operation: str, path: str) -> None:
        """Every operation passes here: faults strike, `on_operation` sees it."""
        if self.on_operation is not None:
            self.on_operation(operation, path)
        for fault in self._faults:
            if fault.strikes(operation, path):
                if operation in ("fsync", "fsync_dir"):
                    raise SyncFailed(fault.number, errno.errorcode[fault.number], path)
                raise disk_error(fault.number, path)

    def bytes_accepted(self, path: str, length: int, growth: int) -> int:
        """How many of `length` bytes a write takes that would make its file longer by `growth`. ENOSPC: none."""
        for pattern in list(self._short):
            if fnmatch.fnmatchcase(path, pattern):
                return min(length, self._short.pop(pattern))
        lacking = self._journal.used_bytes + max(0, growth) - self.capacity_bytes
        if growth > 0 and lacking > 0:
            if lacking >= length:
                raise disk_error(errno.ENOSPC, path)
            return length - lacking
        return length

    def unlock(self, path: str) -> None:
        self._locks.discard(path)

    # --- Disk ---------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> MemoryFile:
        self.enter("open", path)
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if isinstance(node, Folder):
            raise disk_error(errno.EISDIR, path)
        if node is None:
            if not (create or exclusive):
                raise disk_error(errno.ENOENT, path)
            self.on_growth("open", path)
            node = Inode(self._journal)
            node.mtime_ms = self.now_ms
            folder.change({name: node})
        elif exclusive:
            raise disk_error(errno.EEXIST, path)
        file = MemoryFile(self, path, node, read_only)
        self._open.add(file)
        return file

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Folder)

    def listdir(self, path: str) -> list[str]:
        self.enter("listdir", path)
        return sorted(self._folder(path).names)

    def scandir(self, path: str) -> list[FolderEntry]:
        self.enter("scandir", path)
        return [
            FolderEntry(name, False, len(node.data), node.mtime_ms, node.space_bytes - len(node.data))
            if isinstance(node, Inode)
            else FolderEntry(name, True, 0, 0)
            for name, node in sorted(self._folder(path).names.items())
        ]

    def makedirs(self, path: str) -> None:
        self.enter("makedirs", path)
        folder = self._root
        for name in parts(path):
            node = folder.names.get(name)
            if isinstance(node, Inode):
                raise disk_error(errno.EEXIST, path)
            if node is None:
                self.on_growth("makedirs", path)
                node = Folder(self._journal)
                folder.change({name: node})
            folder = node

    def rename(self, source: str, target: str) -> None:
        self.enter("rename", source)
        self.on_growth("rename", source)
        folder, name = self._parent(source)
        other, new_name = self._parent(target)
        node = folder.names.get(name)
        if node is None:
            raise disk_error(errno.ENOENT, source)
        replaced = other.names.get(new_name)
        if isinstance(replaced, Folder) and not isinstance(node, Folder):
            raise disk_error(errno.EISDIR, target)
        if isinstance(replaced, Folder) and replaced.names:
            raise disk_error(errno.ENOTEMPTY, target)
        if folder is other:
            folder.change({name: None, new_name: node})
        else:
            other.change({new_name: node})
            folder.change({name: None})

    def unlink(self, path: str) -> None:
        self.enter("unlink", path)
        folder, name = self._parent(path)
        self._inode(path)
        folder.change({name: None})

    def rmdir(self, path: str) -> None:
        self.enter("rmdir", path)
        if self._folder(path).names:
            raise disk_error(errno.ENOTEMPTY, path)
        folder, name = self._parent(path)
        folder.change({name: None})

    def fsync_dir(self, path: str) -> None:
        self.enter("fsync_dir", path)
        self._folder(path).sync()

    def stat_mtime_ms(self, path: str) -> int:
        return self._inode(path).mtime_ms

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        self.enter("set_mtime_ms", path)
        self._inode(path).mtime_ms = mtime_ms

    def space(self, path: str) -> DiskSpace:
        self._folder(path)
        return DiskSpace(self.capacity_bytes, self.free_bytes)

    def lock(self, path: str) -> MemoryLock:
        self.open(path, create=True)
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "held", path)
        self._locks.add(path)
        return MemoryLock(self, path)

    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    # --- inside -------------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Inode | Folder | None:
        node: Inode | Folder | None = self._root
        for name in parts(path):
            if not isinstance(node, Folder):
                return None
            node = node.names.get(name)
        return node

    def _folder(self, path: str) -> Folder:
        node = self._find(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if isinstance(node, Inode):
            raise disk_error(errno.ENOTDIR, path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if isinstance(node, Folder):
            raise disk_error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._folder(parent), name
