"""What the disk in memory is made of: content and names, each with what is durable and what came later.

`testkit/disk.py` says which states a crash may leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

Choose = Callable[[int], int]
"""choose(n) → a number in [0, n): `random.Random.randrange`, or what a property test draws."""

DROP, KEEP, KEEP_PREFIX, KEEP_ZEROS = range(4)


def lose_everything(options: int) -> int:
    """For `MemoryDisk.crash`: nothing that was not synced survives."""
    return 0


@dataclass(slots=True)
class Change:
    """One write (`data`) or truncation (`data` is None, `position` the new size) since the last fsync."""

    position: int
    data: bytes | None
    is_durable: bool = False
    is_abandoned: bool = False
    """A failed fsync was to make it durable: no later one will."""


class Inode:
    """The content of one file."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""
        self.changes: list[Change] = []
        self.mtime_ms = 0

    def apply(self, change: Change) -> None:
        _apply(self.data, change.position, change.data)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            change.is_durable = change.is_durable or not change.is_abandoned
        if all(change.is_durable for change in self.changes):
            self.synced = bytes(self.data)
            self.changes.clear()

    def abandon(self) -> None:
        for change in self.changes:
            change.is_abandoned = not change.is_durable

    def crash(self, choose: Choose) -> None:
        content = bytearray(self.synced)
        for change in self.changes:
            data = change.data
            if change.is_durable:
                _apply(content, change.position, data)
            elif data is None:
                if choose(2) == KEEP:
                    _apply(content, change.position, None)
            else:
                fate = choose(4)
                if fate == KEEP_PREFIX:
                    data = data[: choose(len(data) + 1)]
                elif fate == KEEP_ZEROS:
                    data = bytes(len(data))
                if fate != DROP:
                    _apply(content, change.position, data)
        self.data = content
        self.synced = bytes(content)
        self.changes.clear()


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is not None:
        content[position : position + len(data)] = data


class Folder:
    """The names in one folder, now and as far as they are durable."""

    def __init__(self) -> None:
        self.names: dict[str, Inode | Folder] = {}
        self._synced: dict[str, Inode | Folder] = {}
        self._pending: list[dict[str, Inode | Folder | None]] = []

    def change(self, names: dict[str, Inode | Folder | None]) -> None:
        """Set and (None) remove names, at once."""
        self._pending.append(names)
        _rename(self.names, names)

    def sync(self) -> None:
        self._synced = dict(self.names)
        self._pending.clear()

    def crash(self, choose: Choose) -> None:
        for names in self._pending[: choose(len(self._pending) + 1)]:
            _rename(self._synced, names)
        self.names = dict(self._synced)
        self._pending.clear()
        for _, node in sorted(self.names.items()):
            node.crash(choose)


def _rename(target: dict[str, Inode | Folder], names: dict[str, Inode | Folder | None]) -> None:
    for name, node in names.items():
        if node is None:
            target.pop(name, None)
        else:
            target[name] = node


def folders(root: Folder) -> Iterator[Folder]:
    yield root
    for node in root.names.values():
        if isinstance(node, Folder):
            yield from folders(node)
