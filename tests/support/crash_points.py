"""Crash points: an operation on a broker's storage ended wherever it could end, and what a start makes of that.

    record     the operation runs once, to its end; the disk is copied before each operation that changes it, and after
               the last
    endings    each copy ends in several ways: the process is killed, or in the middle of the write; the machine loses
               power, keeping this or that of what was not synced
    judge      each is started and audited (`log_audit`); what is found must be lawful (`Expected`)

Lawful after a kill: the state before or the one after, or what the operation's author declares for in between; at the
operation's end, the one after. After a power failure: all that was durable at that point (below the recovery point in
memory), and as a whole a run without a hole of what the log was at some time.

Endings that leave the same bytes on the disk and as much space, with the same demands, are judged once. `Tally` counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from strandline.protocol.records.batch import read_header
from strandline.protocol.types import TopicPartition
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from support.log_audit import LogState, States, audit_start, is_run_of
from support.storage_site import StorageSite

CHANGES = frozenset(
    ["pwritev", "truncate", "fsync", "rename", "unlink", "rmdir", "makedirs", "fsync_dir", "open", "reserve"]
)
"""Disk operations that change something (`open` may create); between two others a crash finds what the first left."""


Between = Callable[[LogState, LogState, LogState], bool]
"""(before, after, found): whether a kill in between may leave `found`."""


# --- what a kill may leave besides the state before and the one after ------------------------------------------------


def nothing_between(before: LogState, after: LogState, found: LogState) -> bool:
    return False


def part_of_what_is_appended(before: LogState, after: LogState, found: LogState) -> bool:
    """A wave that falls into several segments lands one segment after the other."""
    count = len(found.batches)
    return found.batches == after.batches[:count] and count >= len(before.batches) and found.start == before.start


def part_of_what_is_cut_off(before: LogState, after: LogState, found: LogState) -> bool:
    """Segments go newest first, so the log gets shorter in steps."""
    count = len(found.batches)
    return found.batches == before.batches[:count] and count >= len(after.batches) and found.start == before.start


def part_of_the_head_is_gone(before: LogState, after: LogState, found: LogState) -> bool:
    """Segments go oldest first, so the log begins later in steps; it ends where it did."""
    return (
        found.end == before.end
        and before.start <= found.start <= after.start
        and found.batches == before.batches[len(before.batches) - len(found.batches) :]
        and len(found.batches) >= len(after.batches)
    )


def anything_without_a_hole(before: LogState, after: LogState, found: LogState) -> bool:
    """What replaces everything (a full truncation) goes through shorter logs to an empty one."""
    return is_run_of(found.batches, before.batches) and found.start in (before.start, after.start)


# --- recording --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Between two disk operations."""

    number: int
    following: str
    """The operation that does not happen any more, with its path; "the end" after the last one."""
    disk: MemoryDisk
    torn: MemoryDisk | None
    """The same with the first half of that operation, where it is a write."""
    durable: Mapping[TopicPartition, int]
    """Recovery points in memory: what was promised to survive a power failure."""
    is_end: bool = False


def record(
    disk: MemoryDisk, operate: Callable[[], None], durable: Callable[[], Mapping[TopicPartition, int]]
) -> list[Point]:
    """Run `operate` and copy the disk at every point."""
    points: list[Point] = []
    earlier: list[str] = []

    def add(following: str, path: str, is_end: bool = False) -> None:
        twin = disk.copy()
        if points and points[-1].following.startswith("pwritev "):
            points[-1] = replace(points[-1], torn=_torn(points[-1].disk, twin, earlier[-1]))
        points.append(Point(len(points), f"{following} {path}".strip(), twin, None, dict(durable()), is_end))
        earlier.append(path)

    def watch(operation: str, path: str) -> None:
        if operation in CHANGES:
            add(operation, path)

    disk.on_operation = watch
    try:
        operate()
    finally:
        disk.on_operation = None
    add("the end", "", is_end=True)
    return points


def _torn(before: MemoryDisk, after: MemoryDisk, path: str) -> MemoryDisk | None:
    write = after.last_write(path)
    if write is None or len(write[1]) < 2:
        return None
    torn = before.copy()
    torn.open(path).pwritev([write[1][: len(write[1]) // 2]], write[0])
    return torn


@dataclass(frozen=True)
class Ending:
    """A disk after the crash, ready for the next start."""

    name: str
    disk: MemoryDisk
    is_power_loss: bool


def _chooser(names: int, fate: int) -> Callable[[int], int]:
    """For `MemoryDisk.crash`, which asks first how many of the unsynced names and truncations survive, then the fate
    of each write: names 0 (none) or −1 (all), fate as in `testkit/disk/model`."""
    asked = iter([names])

    def choose(options: int) -> int:
        return next(asked, fate) % options

    return choose


_EXTREMES = {
    "nothing unsynced is kept": (0, 0),
    "names are kept, content is not": (-1, 0),
    "names are kept, content is zeros": (-1, 3),
    "content is kept, names are not": (0, 1),
    "all is kept": (-1, 1),
}


def endings(point: Point, random_losses: int, seed: str) -> Iterator[Ending]:
    """Each way in which the point ends; `random_losses`: so many power failures that keep something at random."""
    for name, disk in (("kill", point.disk), ("kill in the middle of the write", point.torn)):
        if disk is not None:
            twin = disk.copy()
            twin.kill()
            yield Ending(name, twin, is_power_loss=False)
    for name, (names, fate) in _EXTREMES.items():
        twin = point.disk.copy()
        twin.crash(_chooser(names, fate))
        yield Ending(f"power loss, {name}", twin, is_power_loss=True)
    for number in range(random_losses):
        twin = (point.torn if point.torn is not None and number % 2 else point.disk).copy()
        twin.crash(random.Random(f"{seed} {point.number} {number}").randrange)
        yield Ending(f"power loss, random {number}", twin, is_power_loss=True)


# --- judging ----------------------------------------------------------------------------------------------------------


@dataclass
class Expected:
    """What may be found. `history`: further states that the logs went through since they were last flushed."""

    before: States
    after: States
    between: Between = nothing_between
    at_end: Between = nothing_between
    """What else a kill may leave once the operation is over: what it changed in memory only."""
    may_vanish: bool = False
    """A log that is there before and after may be gone in between: it is deleted and created again."""
    history: Sequence[States] = ()
    also: Callable[[LogManager, Point, bool], None] | None = None
    """Told the manager that was started, the point, and whether power was lost; looks at more than the logs."""

    def judge(self, point: Point, is_power_loss: bool, manager: LogManager, found: States) -> None:
        """AssertionError where `found` is not lawful."""
        if self.also is not None:
            self.also(manager, point, is_power_loss)
        for tp in sorted({*self.before, *self.after, *found}):
            if is_power_loss:
                self._judge_power_loss(tp, found.get(tp), point)
            elif tp in found:
                self._judge_kill(tp, found[tp], point)
            else:
                assert self.may_vanish or tp not in self.before or tp not in self.after, f"{tp} is gone"
                assert not point.is_end or tp not in self.after, f"{tp} is gone after the operation's end"

    def _judge_kill(self, tp: TopicPartition, found: LogState, point: Point) -> None:
        before, after = self.before.get(tp), self.after.get(tp)
        if found == after or (found == before and not point.is_end):
            return
        assert before is not None and after is not None, f"{tp}: {found.describe()} was never like that"
        lawful = self.at_end if point.is_end else self.between
        assert lawful(before, after, found), (
            f"{tp}: {found.describe()} where {before.describe()} becomes {after.describe()}"
        )

    def _judge_power_loss(self, tp: TopicPartition, found: LogState | None, point: Point) -> None:
        promised = [self.after] if point.is_end else [self.before, self.after]
        versions = [states[tp] for states in (self.before, self.after, *self.history) if tp in states]
        below = point.durable.get(tp, 0)
        sure = [
            batch
            for batch in (promised[0][tp].batches if tp in promised[0] else ())
            if read_header(batch).next_offset <= below
            and all(tp in states and batch in states[tp].batches for states in promised)
        ]
        batches = found.batches if found is not None else ()
        assert is_run_of(sure, batches), f"{tp}: of {len(sure)} durable batches {len(batches)} are there"
        assert any(is_run_of(batches, version.batches) for version in versions) or not versions, (
            f"{tp}: {found.describe() if found else 'nothing'} was never like that"
        )


# --- counting ---------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """Crash points covered: name of the operation → [points, endings, of them different]."""

    rows: dict[str, list[int]] = field(default_factory=dict)

    def add(self, name: str, points: int, endings_count: int, different: int) -> None:
        row = self.rows.setdefault(name, [0, 0, 0])
        for place, count in enumerate((points, endings_count, different)):
            row[place] += count

    def __str__(self) -> str:
        points, endings_count, different = (sum(row[place] for row in self.rows.values()) for place in range(3))
        return (
            f"crash points: {points} in {len(self.rows)} operations, {endings_count} endings, "
            f"{different} different ones loaded and judged"
        )


def survive_every_crash(
    name: str,
    site: StorageSite,
    operate: Callable[[], None],
    expected: Callable[[], Expected],
    durable: Callable[[], Mapping[TopicPartition, int]],
    *,
    tally: Tally,
    random_losses: int = 2,
    short_indexes: bool = False,
) -> None:
    """The whole of it for one operation. `expected` is called once the operation has run, `durable` at every point: the
    recovery points in memory. short_indexes: see `log_audit`. AssertionError, noting point and ending."""
    points = record(site.disk, operate, durable)
    lawful = expected()
    seen: set[tuple[object, ...]] = set()
    count = 0
    for point in points:
        for ending in endings(point, random_losses, name):
            count += 1
            promises = tuple(sorted(point.durable.items()))
            content = tuple(ending.disk.content().items())
            key = (ending.is_power_loss, point.is_end, promises, content, ending.disk.free_bytes)
            if key in seen:
                continue
            seen.add(key)
            try:
                judge = partial(lawful.judge, point, ending.is_power_loss)
                audit_start(site, ending.disk, judge, may_lose=ending.is_power_loss, short_indexes=short_indexes)
            except BaseException as error:
                error.add_note(
                    f"{name}: {ending.name} before {point.following} (point {point.number} of {len(points)})"
                )
                raise
    tally.add(name, len(points), count, len(seen))
