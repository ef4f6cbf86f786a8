"""The disk seam: a small synchronous file system. Production: `disk_posix`; tests: `strandline.testkit.disk`.

Everything that storage does to a disk goes through these two interfaces, so that a test can know what was synced, fail
any operation with any errno, and crash between any two. Paths are absolute strings. Errors are `OSError` with the real
errno (ENOENT, ENOSPC, EIO …): the one library error that storage maps itself, because the errno decides what happens.

Durability rules (and what the in-memory disk enforces at a crash): file content survives once `fsync` returned; a
created, renamed or unlinked name survives once `fsync_dir` of its folder returned.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What an OSError's errno is when a disk, or a quota, is full."""


class SyncFailed(OSError):
    """An fsync failed, whatever its errno: what was written before may be lost although nothing says so any more."""


class NoRegularFile(OSError):
    """A pipe, a socket or a device has the name that a file was to have."""


class File(Protocol):
    """One open file. Reads and writes are positional; there is no cursor.

    It lives as long as anything refers to it: a file that was unlinked stays readable until the last `FileRegion` on it
    is dropped, then its descriptor is released by itself. So nobody calls `close` on a file that others may be sending.
    """

    path: str
    truncations: int
    """How often this file was made shorter since it was opened: a region captured before a truncation is stale."""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write the buffers one after another from `position` (bytes). Returns bytes written: may be short."""

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill `buffer` from `position`; returns the bytes read, fewer only at the end of the file."""

    def is_resident(self, position: int, length: int) -> bool:
        """Whether reading this range would not wait for the disk (a probe: preadv with RWF_NOWAIT at both ends)."""

    def size(self) -> int:
        """Length in bytes."""

    def truncate(self, size: int) -> None:
        """Make it so long. Unless that is longer, what is reserved behind the end is given back, also where the size is
        what it was (that much costs O(extents): a GiB some 2 ms on ext4)."""

    def reserve(self, size_bytes: int) -> bool:
        """Have the file system keep the space for the first `size_bytes`, whatever the file's size is: that stays as it
        is, and so does what reads find. It outlives the process. False, and nothing done, where the system or the file
        system does not offer it. OSError, and nothing reserved: there is no such space (ENOSPC, EDQUOT, EFBIG), EIO.

        It takes extents, not writes: a GiB takes some 3 ms on ext4, so it may be called on the event loop. (tmpfs takes
        its pages at once, some 0.8 s for a GiB.)"""

    def fsync(self) -> None:
        """Blocking; never call it on the event loop (`Blocking.run` does it elsewhere). SyncFailed."""

    def start_writeback(self, position: int, length: int) -> None:
        """Ask the kernel to begin writing this range out; returns at once (sync_file_range)."""

    def close(self) -> None:
        """Idempotent."""


@dataclass(slots=True, init=False)
class FileRegion:
    """`length` bytes of `file` from `position`: what `Transport.send_file_nowait` sends without copying.

    Treat it as a value. (Not a frozen dataclass: making one costs 0.9 µs, this 0.3, and every fetch makes one.)
    """

    file: File
    position: int
    length: int
    truncations: int
    """The file's counter when the region was captured."""

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.truncations = file.truncations

    @property
    def is_stale(self) -> bool:
        """The file was cut since: these may be other bytes by now. Whoever promised them closes its connection."""
        return self.file.truncations != self.truncations


@dataclass(frozen=True, slots=True)
class DiskSpace:
    total_bytes: int
    free_bytes: int


class FolderEntry(NamedTuple):
    """A name in a folder. Symbolic links are not followed: they are no folders, and have the size of their text."""

    name: str
    is_dir: bool
    size_bytes: int
    mtime_ms: int
    """Last modification, wall clock."""
    reserved_bytes: int = 0
    """What the file system keeps for it behind its end, more or less: it counts whole blocks, and some of its own."""
    is_link: bool = False
    is_special: bool = False
    """A pipe, a socket or a device."""

    @property
    def is_file(self) -> bool:
        return not (self.is_dir or self.is_link or self.is_special)


class FileLock(Protocol):
    """An exclusive advisory lock on a file, held until released or until the process ends. file_id: no other file that
    exists has it within one boot of the machine, no copy of this one either."""

    file_id: str

    def release(self) -> None: ...


class Disk(Protocol):
    """The file system that one broker sees."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing. create: make it if absent (mode 0600); exclusive: fail with EEXIST if present.
        Never follows a symbolic link in the last component. NoRegularFile."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a folder, sorted."""

    def scandir(self, path: str) -> list[FolderEntry]:
        """What is in a folder, sorted by name, with sizes: one pass, no file is opened."""

    def makedirs(self, path: str) -> None:
        """Create the folder and its parents (mode 0700); no error where it exists."""

    def rename(self, source: str, target: str) -> None:
        """Atomically; replaces an existing file."""

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this folder durable. Blocking. SyncFailed."""

    def stat_mtime_ms(self, path: str) -> int:
        """Last modification, wall clock, milliseconds."""

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """Say so: of a file that takes the place of an older one. The next write to it counts as any."""

    def space(self, path: str) -> DiskSpace: ...

    def lock(self, path: str) -> FileLock:
        """Take the exclusive lock file at `path` (created if absent). BlockingIOError if somebody else holds it, be it
        a Kafka or somebody in this process."""

    def boot_id(self) -> str:
        """Identifies this boot of the machine: an unclean stop within one boot lost nothing that was written."""


def read_file(disk: Disk, path: str, max_bytes: int = 64 * 2**20) -> bytes:
    """The whole content of a small file. ValueError when it is larger than `max_bytes`."""
    with closing(disk.open(path, read_only=True)) as file:
        size = file.size()
        if size > max_bytes:
            raise ValueError(f"{path} has {size} bytes, more than the {max_bytes} allowed")
        return file.pread(size, 0)


def remove_files(disk: Disk, paths: Iterable[str]) -> None:
    """Unlink those that are there. OSError from the disk."""
    for path in paths:
        with suppress(FileNotFoundError):
            disk.unlink(path)


def write_whole(file: File, data: Buffer, position: int) -> None:
    """All of `data`, in as many turns as the disk takes it. Blocking. OSError from the disk."""
    rest = memoryview(data)
    while rest:
        count = file.pwritev([rest], position)
        if count <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        rest, position = rest[count:], position + count
