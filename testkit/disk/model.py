"""What the disk in memory is made of: content and names, each with what is durable and what came later.

`testkit/disk/__init__.py` says which states a crash may leave.
"""

from __future__ import annotations

import errno
import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

Choose = Callable[[int], int]
"""choose(n) → a number in [0, n): `random.Random.randrange`, or what a property test draws."""

DROP, KEEP, KEEP_PREFIX, KEEP_ZEROS = range(4)


def lose_everything(options: int) -> int:
    """For `MemoryDisk.crash`: nothing that was not synced survives."""
    return 0


@dataclass(slots=True, eq=False)
class Change:
    """One write (`data`) or truncation (`data` is None, `position` the new size) since the file's last fsync."""

    position: int
    data: bytes | None
    is_durable: bool = False
    is_lost: bool = False
    is_abandoned: bool = False
    """A failed fsync was to make it durable: no later one will."""


@dataclass(slots=True, eq=False)
class Naming:
    """Names of one folder set or (None) removed at once, since the folder's last fsync."""

    names: dict[str, Inode | Folder | None]
    is_durable: bool = False
    is_lost: bool = False


@dataclass(slots=True)
class Journal:
    """Names and truncations of the whole disk in the order they were made: file systems keep that order.
    used_bytes: what all files that have a name take of the disk."""

    entries: list[Change | Naming] = field(default_factory=list)
    used_bytes: int = 0
    _tidy_above: int = 1000

    def append(self, entry: Change | Naming) -> None:
        self.entries.append(entry)
        if len(self.entries) > self._tidy_above:
            self.entries = [entry for entry in self.entries if not entry.is_durable]
            self._tidy_above = max(1000, 2 * len(self.entries))

    def crash(self, choose: Choose) -> None:
        pending = [entry for entry in self.entries if not entry.is_durable]
        for entry in pending[choose(len(pending) + 1) :]:
            entry.is_lost = True
        self.entries.clear()


class Inode:
    """The content of one file."""

    def __init__(self, journal: Journal) -> None:
        self.data = bytearray()
        self.synced = bytearray()
        self.changes: list[Change] = []
        self.names = 0
        self.mtime_ms = 0
        self.reserved_bytes = 0
        """Space is kept for the file up to here. After a crash that is the most that it ever was since the last sync:
        what was given back and not synced comes back, the worst that a journal may do."""
        self._most_reserved_bytes = 0
        self._journal = journal

    @property
    def space_bytes(self) -> int:
        """What it takes of the disk."""
        return max(len(self.data), self.reserved_bytes)

    def count_name(self, more: int) -> None:
        """It got a name, or lost one (−1). What has none takes no space, though it may be open."""
        before = self._counted_bytes
        self.names += more
        self._journal.used_bytes += self._counted_bytes - before

    @property
    def _counted_bytes(self) -> int:
        return self.space_bytes if self.names else 0

    def reserve(self, size_bytes: int) -> None:
        before = self._counted_bytes
        self.reserved_bytes = max(self.reserved_bytes, size_bytes)
        self._most_reserved_bytes = max(self._most_reserved_bytes, size_bytes)
        self._journal.used_bytes += self._counted_bytes - before

    def apply(self, change: Change) -> None:
        before = self._counted_bytes
        if change.data is None and change.position <= len(self.data):
            self.reserved_bytes = 0
        _apply(self.data, change.position, change.data)
        self.changes.append(change)
        if change.data is None:
            self._journal.append(change)
        self._journal.used_bytes += self._counted_bytes - before

    def sync(self) -> None:
        for change in self.changes:
            change.is_durable = change.is_durable or not change.is_abandoned
        if all(change.is_durable for change in self.changes):
            for change in self.changes:
                _apply(self.synced, change.position, change.data)
            self.changes.clear()
            self._most_reserved_bytes = self.reserved_bytes

    def abandon(self) -> None:
        for change in self.changes:
            change.is_abandoned = not change.is_durable

    def crash(self, choose: Choose) -> None:
        content = bytearray(self.synced)
        for change in self.changes:
            data = change.data
            if change.is_lost:
                break  # what was written after a truncation that never happened went nowhere
            if not change.is_durable and data is not None:
                fate = choose(4)
                if fate == DROP:
                    continue
                if fate == KEEP_PREFIX:
                    data = data[: choose(len(data) + 1)]
                elif fate == KEEP_ZEROS:
                    data = bytes(len(data))
            _apply(content, change.position, data)
        before = self._counted_bytes
        self.reserved_bytes = self._most_reserved_bytes
        self._journal.used_bytes += self._counted_bytes - before
        self.replace(content)

    def replace(self, content: bytes | bytearray) -> None:
        """The file has this content, durably."""
        before = self._counted_bytes
        self.data, self.synced = bytearray(content), bytearray(content)
        self.changes.clear()
        self._most_reserved_bytes = self.reserved_bytes
        self._journal.used_bytes += self._counted_bytes - before


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is not None:
        content[position : position + len(data)] = data


class Folder:
    """The names in one folder, now and as far as they are durable."""

    def __init__(self, journal: Journal) -> None:
        self.names: dict[str, Inode | Folder] = {}
        self._synced: dict[str, Inode | Folder] = {}
        self._pending: list[Naming] = []
        self._journal = journal

    def change(self, names: dict[str, Inode | Folder | None]) -> None:
        """Set and (None) remove names, at once."""
        naming = Naming(names)
        self._pending.append(naming)
        self._journal.append(naming)
        _count_names([self.names.get(name) for name in names], -1)
        _rename(self.names, names)
        _count_names(names.values(), 1)

    def sync(self) -> None:
        for naming in self._pending:
            naming.is_durable = True
            _rename(self._synced, naming.names)
        self._pending.clear()

    def crash(self, choose: Choose) -> None:
        for naming in self._pending:
            if not naming.is_lost:
                _rename(self._synced, naming.names)
        _count_names(self.names.values(), -1)
        self.names = dict(self._synced)
        _count_names(self.names.values(), 1)
        self._pending.clear()
        for _, node in sorted(self.names.items()):
            node.crash(choose)


def _count_names(nodes: Iterable[Inode | Folder | None], more: int) -> None:
    for node in nodes:
        if isinstance(node, Inode):
            node.count_name(more)


def _rename(target: dict[str, Inode | Folder], names: dict[str, Inode | Folder | None]) -> None:
    for name, node in names.items():
        if node is None:
            target.pop(name, None)
        else:
            target[name] = node


def folders(root: Folder) -> Iterator[Folder]:
    """`root` and all folders below it."""
    yield root
    for node in root.names.values():
        if isinstance(node, Folder):
            yield from folders(node)


def space_of_files(root: Folder) -> int:
    """What all files below `root` take of the disk."""
    inodes = [node for folder in folders(root) for node in folder.names.values() if isinstance(node, Inode)]
    return sum(node.space_bytes for node in dict.fromkeys(inodes))


def contents(root: Folder, path: str = "") -> Iterator[tuple[str, bytes | None]]:
    """(path, content) of every file, (path, None) of every folder below `root`, sorted."""
    for name, node in sorted(root.names.items()):
        if isinstance(node, Inode):
            yield f"{path}/{name}", bytes(node.data)
        else:
            yield f"{path}/{name}", None
            yield from contents(node, f"{path}/{name}")


@dataclass(slots=True)
class Fault:
    """An errno that operations on some paths raise. `cancel()` ends it."""

    operation: str
    pattern: str
    number: int
    after: int = 0
    """Let so many matching operations pass first."""
    times: int | None = None
    """Fail so many of them, None: all."""
    hits: int = field(default=0, init=False)
    """How many have failed."""
    is_cancelled: bool = field(default=False, init=False)

    def cancel(self) -> None:
        self.is_cancelled = True

    def strikes(self, operation: str, path: str) -> bool:
        if self.is_cancelled or operation != self.operation or not fnmatch.fnmatchcase(path, self.pattern):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


def parts(path: str) -> list[str]:
    """The names of the folders on the way to `path`, and its own."""
    return [name for name in path.split("/") if name]


def disk_error(number: int, path: str) -> OSError:
    return OSError(number, errno.errorcode[number], path)


class NoRoom:
    """For `MemoryDisk.on_growth`: ENOSPC for what takes room, from the operation of number `first` on, so often."""

    def __init__(self, first: int = 0, times: int = 2**40) -> None:
        self.refused: list[str] = []
        self._numbers = range(first, first + times)
        self._next = 0

    def end(self) -> None:
        """There is room again."""
        self._numbers = range(0)

    def __call__(self, operation: str, path: str) -> None:
        number, self._next = self._next, self._next + 1
        if number in self._numbers:
            self.refused.append(f"{operation} {path}")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def nothing_happens(operation: str, path: str) -> None:
    """`MemoryDisk.on_growth` as it begins. It has a name: trials are pickled with their disks."""
