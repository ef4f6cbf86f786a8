"""What all logs of one broker share: disk, clock, reports, and the bounds on descriptors and loaded indexes.

A broker with 10 K partitions has hundreds of thousands of segment files. Descriptors and the indexes of inactive
segments are therefore caches: each holder is loaded on use and evicted by a second-chance sweep (a holder that was used
since the sweep last met it is spared once). A hit costs one attribute store, which an LRU list would not.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from strandline.runtime.disk import Disk, File
from strandline.runtime.environment import WallClock
from strandline.storage.disk.checkpoints import Report, no_report
from strandline.storage.disk.directory_health import DirectoryHealth, is_about_process
from strandline.storage.disk.removal import Removals

DEFAULT_OPEN_FILES = 2000
DEFAULT_INDEX_BYTES = 16 * 2**20


class LogConfig(Protocol):
    """The part of a topic's configuration that its logs obey (`runtime.config.topic.TopicConfig` has all of it)."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def segment_jitter_ms(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def flush_messages(self) -> int: ...
    @property
    def flush_ms(self) -> int | None: ...
    @property
    def max_compaction_lag_ms(self) -> int: ...
    @property
    def cleanup_policy(self) -> Sequence[str]: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def file_delete_delay_ms(self) -> int: ...
    @property
    def preallocate(self) -> bool: ...
    @property
    def is_tiered(self) -> bool: ...


class Evictable(Protocol):
    """Something that can be dropped and loaded again."""

    used: bool

    def evict(self) -> None:
        """Drop what was loaded. Idempotent."""


class SecondChanceCache:
    """Bounds the total weight of loaded holders."""

    def __init__(self, capacity: int) -> None:
        self.capacity = self._allowed = capacity
        self.weight = 0
        self._ring: deque[Evictable] = deque()
        self._weights: dict[int, int] = {}

    def admit(self, holder: Evictable, weight: int) -> None:
        """`holder` was loaded; evict others until it fits (it is always admitted itself)."""
        self.remove(holder)
        if self.capacity < self._allowed:
            self.capacity += 1
        while self._ring and self.weight + weight > self.capacity:
            candidate = self._ring.popleft()
            if candidate.used and id(candidate) in self._weights:
                candidate.used = False
                self._ring.append(candidate)
                continue
            self.weight -= self._weights.pop(id(candidate), 0)
            candidate.evict()
        self._ring.append(holder)
        self._weights[id(holder)] = weight
        self.weight += weight

    def clear(self) -> None:
        """Evict all."""
        while self._ring:
            self._ring.popleft().evict()
        self._weights.clear()
        self.weight = 0

    def shrink(self) -> bool:
        """There is less room than `capacity` says: evict half, and take no more than what is left; each admission then
        adds one again, up to what was allowed first. False when nothing could be evicted."""
        target = self.weight // 2
        evicted = bool(self._ring)
        while self._ring and self.weight > target:
            holder = self._ring.popleft()
            self.weight -= self._weights.pop(id(holder), 0)
            holder.evict()
        self.capacity = max(1, self.weight)
        return evicted

    def remove(self, holder: Evictable) -> None:
        """`holder` is gone for good (or about to be admitted anew)."""
        weight = self._weights.pop(id(holder), None)
        if weight is not None:
            self.weight -= weight
            self._ring.remove(holder)


@dataclass(slots=True)
class RebuildPlace:
    """Where damaged indexes are built anew, of all logs of one broker."""

    is_elsewhere: bool = False
    """An event loop serves the logs: what takes long is not built where it is needed, IndexLost is raised
    (`indexes`)."""
    on_the_spot_bytes: int = 2**18
    """Of a .log file up to so large they are built there all the same: in 1 ms, or 2 where all batches are tiny."""

    def is_here(self, size_bytes: int) -> bool:
        return not self.is_elsewhere or size_bytes <= self.on_the_spot_bytes

    @contextmanager
    def here(self) -> Iterator[None]:
        """Within, it is done on the spot: for what cannot stop half-way."""
        was, self.is_elsewhere = self.is_elsewhere, False
        try:
            yield
        finally:
            self.is_elsewhere = was


@dataclass(slots=True)
class StorageContext:
    """Made by the log manager, one per log directory; clock and caches are the broker's."""

    disk: Disk
    wall_clock: WallClock
    report: Report = no_report
    open_files: SecondChanceCache = field(default_factory=lambda: SecondChanceCache(DEFAULT_OPEN_FILES))
    loaded_indexes: SecondChanceCache = field(default_factory=lambda: SecondChanceCache(DEFAULT_INDEX_BYTES))
    removals: Removals = field(default_factory=Removals)
    """Files that were put aside, until they are unlinked: the broker's, the log manager's own."""
    unreservable: set[str] = field(default_factory=set)
    """Log directories where no space could be reserved (`reserving`): reported once, whichever log found out."""
    directory: DirectoryHealth = field(default_factory=DirectoryHealth)
    """Of the log directory that this context serves."""
    rebuilds: RebuildPlace = field(default_factory=RebuildPlace)
    """The broker's, the log manager's own."""
    changed_logs: dict[Any, None] = field(default_factory=dict)
    """The logs of this directory that changed (were appended to, rolled, configured, closed, prepared for a cut) since
    somebody looked whether they are to be flushed. Who looks at them takes them out."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file, closing others for it where the process has no descriptor left. For the owner of the logs only,
        not for threads beside it."""
        while True:
            try:
                return self.disk.open(path, create=create, read_only=read_only)
            except OSError as error:
                if not (is_about_process(error) and self.open_files.shrink()):
                    raise


class PooledFile:
    """A file that is opened when it is used and closed when others need the descriptor more.

    While anybody still refers to an evicted file (a region being sent), opening it again gives that same object: so one
    counter of truncations is true for everybody.
    """

    __slots__ = ("_context", "_file", "_last", "is_made", "path", "used")

    def __init__(self, context: StorageContext, path: str) -> None:
        self.path = path
        self.used = False
        self._context = context
        self.is_made = True
        """False: `create` could not make it, the next `get` tries again."""
        self._file: File | None = None
        self._last: weakref.ref[File] | None = None

    def get(self) -> File:
        """The open file, made where `create` could not make it. OSError where it cannot be opened."""
        self.used = True
        file = self._file
        if file is not None:
            return file
        return self._open(create=False) if self.is_made else self.create()

    def create(self) -> File:
        """Open it, made new and empty."""
        self.is_made = False
        file = self._open(create=True)
        if file.size():  # left over from a crash between creating and recording it
            file.truncate(0)
        self.is_made = True
        return file

    def live(self) -> File | None:
        """The file if anybody has it open, this pool or a reader."""
        if self._file is not None:
            return self._file
        return self._last() if self._last is not None else None

    def evict(self) -> None:
        self._file = None

    def release(self) -> None:
        """This holder will not be used again."""
        self._file = None
        self._context.open_files.remove(self)

    def _open(self, *, create: bool) -> File:
        file = self._last() if self._last is not None else None
        if file is None:
            file = self._context.open(self.path, create=create)
            self._last = weakref.ref(file)
        self._file = file
        self._context.open_files.admit(self, 1)
        return file
