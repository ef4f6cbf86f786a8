"""The disk seam on a POSIX file system (`runtime/disk.py` says what each method promises).

Rules: descriptors are opened with O_CLOEXEC and O_NOFOLLOW, files have mode 0600 and folders 0700; a descriptor is
released when the last reference to its file object goes, so that a region being sent pins a file that was unlinked.
What is no regular file is not opened: a FIFO would keep its reader waiting for ever (O_NONBLOCK lets the open return).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Callable, Sequence

from strandline.runtime.disk import NO_SPACE, Buffer, DiskSpace, FolderEntry, NoRegularFile, SyncFailed

_IOV_MAX = 1024
_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
_SYNC_FILE_RANGE_WRITE = 2
_FALLOC_FL_KEEP_SIZE = 1
_NOT_OFFERED = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_NO_REGULAR_FILE = "it is no regular file; move it away"
_BLOCK_BYTES = 512
"""What st_blocks counts, on every file system."""
_RECORD_LOCK = struct.Struct("hhqqi4x")
"""Linux' struct flock: type, whence, start, length (0: to the end), process."""
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


_Call = Callable[[int, int, int, int], int]


def _c_function(names: Sequence[str], *argument_types: type) -> _Call | None:
    """The first of these functions that the C library has; None where the platform has none."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None
    function = next((found for name in names if (found := getattr(library, name, None)) is not None), None)
    if function is not None:
        function.argtypes, function.restype = argument_types, ctypes.c_int
    return function


_sync_file_range = _c_function(["sync_file_range"], ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
"""Python does not wrap it."""
_fallocate = _c_function(["fallocate64", "fallocate"], ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
"""Which only Linux has. (Python wraps posix_fallocate, which makes the file longer.)"""


def _sync(descriptor: int, path: str) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


class PosixFile:
    """One open file; `fileno()` is what sendfile takes."""

    __slots__ = ("__weakref__", "_descriptor", "path", "truncations")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.truncations = 0
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        if len(buffers) <= _IOV_MAX:
            return os.pwritev(self._descriptor, buffers, position)
        written = 0
        for first in range(0, len(buffers), _IOV_MAX):
            chunk = buffers[first : first + _IOV_MAX]
            count = os.pwritev(self._descriptor, chunk, position + written)
            written += count
            if count < sum(map(len, chunk)):
                break
        return written

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        return os.preadv(self._descriptor, [buffer], position)

    def is_resident(self, position: int, length: int) -> bool:
        if not _RWF_NOWAIT or length <= 0:
            return True
        byte = bytearray(1)
        try:
            os.preadv(self._descriptor, [byte], position, _RWF_NOWAIT)
            os.preadv(self._descriptor, [byte], position + length - 1, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # some file systems cannot tell (tmpfs before 6.0): then never wait
                return True
            raise
        return True

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        if size < self.size():
            self.truncations += 1
        os.ftruncate(self._descriptor, size)

    def reserve(self, size_bytes: int) -> bool:
        if _fallocate is None:
            return False
        while _fallocate(self._descriptor, _FALLOC_FL_KEEP_SIZE, 0, size_bytes):
            number = ctypes.get_errno()
            if number in _NOT_OFFERED:
                return False
            if number != errno.EINTR:
                if number in NO_SPACE:  # ext4 keeps the part that it found
                    os.ftruncate(self._descriptor, self.size())
                raise OSError(number, os.strerror(number), self.path)
        return True

    def fsync(self) -> None:
        if self._descriptor < 0:  # Python would say ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        _sync(self._descriptor, self.path)

    def start_writeback(self, position: int, length: int) -> None:
        if _sync_file_range is not None:  # a hint: an error shows at the fsync that follows
            _sync_file_range(self._descriptor, position, length, _SYNC_FILE_RANGE_WRITE)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        try:
            self.close()
        except OSError:  # nothing can be done with it in a finaliser, and fsync reports what matters
            pass


def _lock(descriptor: int) -> None:
    """Lock the whole file, or BlockingIOError. A Kafka has to notice it, and its lock has to be noticed: Java takes
    record locks (fcntl), which on Linux know nothing of flock. Those that belong to the open file, and not to the
    process, are as good, keep two brokers of one process apart, and outlast the closing of another descriptor of the
    file. Elsewhere flock and record locks exclude each other; a sandbox that plays Linux may offer flock only."""
    if sys.platform == "linux":
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _RECORD_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            return
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class PosixLock:
    """A lock on a lock file: the kernel releases it when the process ends, however that happens."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        said = os.fstat(descriptor)
        self.file_id = f"{said.st_dev}:{said.st_ino}"

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class PosixDisk:
    """The machine's file system."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> PosixFile:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_RDONLY if read_only else os.O_RDWR)
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket, or a pipe or device that nobody serves
                raise NoRegularFile(error.errno, _NO_REGULAR_FILE, path) from error
            raise
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            if stat.S_ISDIR(mode):
                raise OSError(errno.EISDIR, _NO_REGULAR_FILE, path)
            raise NoRegularFile(errno.EINVAL, _NO_REGULAR_FILE, path)
        return PosixFile(path, descriptor)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path) and not os.path.islink(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def scandir(self, path: str) -> list[FolderEntry]:
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    said = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed since the folder was read
                    continue
                is_dir = stat.S_ISDIR(said.st_mode)
                reserved_bytes = 0 if is_dir else max(0, said.st_blocks * _BLOCK_BYTES - said.st_size)
                mtime_ms = said.st_mtime_ns // 1_000_000
                is_link = stat.S_ISLNK(said.st_mode)
                is_special = not (is_dir or is_link or stat.S_ISREG(said.st_mode))
                found.append(
                    FolderEntry(entry.name, is_dir, said.st_size, mtime_ms, reserved_bytes, is_link, is_special)
                )
        return sorted(found)

    def makedirs(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(descriptor, path)
        finally:
            os.close(descriptor)

    def stat_mtime_ms(self, path: str) -> int:
        return os.stat(path, follow_symlinks=False).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000), follow_symlinks=False)

    def space(self, path: str) -> DiskSpace:
        answer = os.statvfs(path)
        return DiskSpace(answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize)

    def lock(self, path: str) -> PosixLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return PosixLock(descriptor)

    def boot_id(self) -> str:
        try:
            with open(_BOOT_ID_PATH, encoding="ascii") as file:
                return file.read().strip()
        except OSError:  # no such file: every start counts as a new boot, the safe side
            return ""
