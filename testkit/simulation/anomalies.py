"""What must not be found in a history, by the names that Jepsen's analyses of Kafka have for it.

| name | what it means |
|---|---|
| lost-write | acknowledged by all in sync, and in the end not in the log |
| duplicate | in the log twice, though it was sent once |
| inconsistent-offsets | one offset, two values |
| failed-write-visible | it failed for sure, and somebody read it, or it is in the log |
| phantom | it stands there or was read, and nobody sent it to this life of the topic |
| dirty-read | a consumer got it, and in the end it is not in the log |
| nonmonotonic-poll | one reading got an offset that is not above the one before |
| poll-skip | one reading passed over a record that stands in the log |
| unseen | in the log, and not among what is read in the end |
| real-time-order | sent after another one was acknowledged, and stands before it |
| committed-offset-regress | a group's committed offset lies below one that was acknowledged before |
| two-owners | two members had one partition at the same time |

Pure. What is excused is said by the caller, who sees the disks: records whose last copy a loss of power or of a disk
took (`Excuses.gone`), what was deleted, what compaction may have taken, what one broker alone had acknowledged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.testkit.simulation.history import Commit, History, Outcome, Ownership, Poll, Stream, Write


class Anomaly(NamedTuple):
    name: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.where}: {self.text}"


@dataclass
class FinalLog:
    """What one stream holds once everything has come to rest. read: what consumers get of it then; None: not read."""

    start_offset: int
    records: Mapping[int, bytes]
    read: Mapping[int, bytes] | None = None
    is_compacted: bool = False
    """Records may be missing between others: only the newest of each key stays."""


@dataclass
class Excuses:
    """gone: values of which a disaster took the last copy. weak: values that one broker alone had acknowledged and may
    have lost. disasters_s: stream → when its offsets may have gone back."""

    gone: set[bytes] = field(default_factory=set)
    weak: set[bytes] = field(default_factory=set)
    disasters_s: Mapping[Stream, Sequence[float]] = field(default_factory=dict)

    def forgives(self, value: bytes) -> bool:
        return value in self.gone or value in self.weak

    def is_between(self, stream: Stream, began_s: float, ended_s: float) -> bool:
        return any(began_s <= at_s <= ended_s for at_s in self.disasters_s.get(stream, ()))


def anomalies(history: History, logs: Mapping[Stream, FinalLog], excuses: Excuses) -> list[Anomaly]:
    """All that are found. logs: of the streams that live in the end; others are held to what was said of them only."""
    writes: dict[Stream, list[Write]] = defaultdict(list)
    polls: dict[Stream, list[Poll]] = defaultdict(list)
    for write in history.writes:
        writes[write.stream].append(write)
    for poll in history.polls:
        polls[poll.stream].append(poll)
    found: list[Anomaly] = []
    for stream in {**writes, **polls, **logs}:
        log = logs.get(stream)
        found += _of_offsets(stream, writes[stream], polls[stream], log, excuses)
        found += _of_origin(stream, writes[stream], polls[stream], log)
        found += _of_readings(stream, polls[stream], log, excuses)
        found += _of_real_time(stream, writes[stream], excuses)
        if log is not None:
            found += _of_the_end(stream, writes[stream], polls[stream], log, excuses)
    found += _of_commits(history, excuses)
    found += _of_owners(history.ownerships)
    return found


# --- one stream -------------------------------------------------------------------------------------------------------


def _of_the_end(
    stream: Stream, writes: Sequence[Write], polls: Sequence[Poll], log: FinalLog, excuses: Excuses
) -> Iterator[Anomaly]:
    where = str(stream)
    places: dict[bytes, list[int]] = defaultdict(list)
    for offset, value in log.records.items():
        places[value].append(offset)
    for write in writes:
        found = places.get(write.value, [])
        if len(found) > 1 and not write.may_repeat:
            yield Anomaly("duplicate", where, f"{write.value!r} stands at {found}")
        if write.outcome is not Outcome.OK or write.offset < log.start_offset or log.is_compacted:
            continue
        if write.offset not in found and not excuses.forgives(write.value):
            there = log.records.get(write.offset)
            yield Anomaly(
                "lost-write", where, f"{write.value!r} was acknowledged at {write.offset}: there is {there!r}"
            )
    for poll in polls:
        for offset, value in poll.records:
            if offset < log.start_offset or log.is_compacted or excuses.forgives(value):
                continue
            if log.records.get(offset) != value:
                there = log.records.get(offset)
                yield Anomaly("dirty-read", where, f"{poll.process} read {value!r} at {offset}: there is {there!r}")
    if log.read is not None:
        for offset, value in log.records.items():
            if offset >= log.start_offset and log.read.get(offset) != value:
                yield Anomaly("unseen", where, f"{value!r} at {offset} is read as {log.read.get(offset)!r}")


def _of_offsets(
    stream: Stream, writes: Sequence[Write], polls: Sequence[Poll], log: FinalLog | None, excuses: Excuses
) -> Iterator[Anomaly]:
    told: dict[int, dict[bytes, str]] = defaultdict(dict)
    for write in writes:
        if write.outcome is Outcome.OK and write.offset >= 0:
            told[write.offset].setdefault(write.value, f"acknowledged to {write.process}")
    for poll in polls:
        for offset, value in poll.records:
            told[offset].setdefault(value, f"read by {poll.process}")
    for offset, value in log.records.items() if log is not None else ():
        told[offset].setdefault(value, "in the log")
    for offset, values in told.items():
        kept = [value for value in values if not excuses.forgives(value)]
        if len(kept) > 1:
            text = ", ".join(f"{value!r} ({values[value]})" for value in kept)
            yield Anomaly("inconsistent-offsets", str(stream), f"offset {offset}: {text}")


def _of_origin(
    stream: Stream, writes: Sequence[Write], polls: Sequence[Poll], log: FinalLog | None
) -> Iterator[Anomaly]:
    sent = {write.value: write for write in writes}
    seen: dict[bytes, str] = {}
    for poll in polls:
        for offset, value in poll.records:
            seen.setdefault(value, f"{poll.process} read it at {offset}")
    for offset, value in log.records.items() if log is not None else ():
        seen.setdefault(value, f"it stands at {offset}")
    for value, how in seen.items():
        if value not in sent:
            yield Anomaly("phantom", str(stream), f"{value!r} was not sent to it: {how}")
        elif sent[value].outcome is Outcome.FAILED:
            yield Anomaly("failed-write-visible", str(stream), f"{value!r} failed ({sent[value].why}): {how}")


def _of_readings(stream: Stream, polls: Sequence[Poll], log: FinalLog | None, excuses: Excuses) -> Iterator[Anomaly]:
    offsets = sorted(log.records) if log is not None and not log.is_compacted else []
    last: dict[tuple[str, int], tuple[int, float]] = {}
    for poll in polls:
        key = (poll.process, poll.reading)
        for offset, _ in poll.records:
            before, before_s = last.get(key, (-1, poll.at_s))
            last[key] = (offset, poll.at_s)
            if before < 0 or excuses.is_between(stream, before_s, poll.at_s):
                continue
            if offset <= before:
                yield Anomaly("nonmonotonic-poll", str(stream), f"{poll.process} got {offset} behind {before}")
            skipped = offsets[bisect_left(offsets, before + 1) : bisect_left(offsets, offset)]
            if skipped:
                text = f"{poll.process} got {offset} behind {before}, and passed over {skipped[:5]}"
                yield Anomaly("poll-skip", str(stream), text)


def _of_real_time(stream: Stream, writes: Sequence[Write], excuses: Excuses) -> Iterator[Anomaly]:
    """Whatever was acknowledged before another one was sent stands before it."""
    acked = [each for each in writes if each.outcome is Outcome.OK and each.offset >= 0]
    by_end = sorted(acked, key=lambda each: each.ended_s)
    highest: list[Write] = []  # of those that ended first, the one with the highest offset
    for each in by_end:
        highest.append(each if not highest or each.offset > highest[-1].offset else highest[-1])
    ends = [each.ended_s for each in by_end]
    for write in acked:
        count = bisect_left(ends, write.began_s)
        earlier = highest[count - 1] if count else None
        if earlier is None or earlier.offset < write.offset or excuses.forgives(earlier.value):
            continue
        if not excuses.forgives(write.value) and not write.may_repeat:
            text = f"{write.value!r} at {write.offset} was sent after {earlier.value!r} was acknowledged at "
            yield Anomaly("real-time-order", str(stream), f"{text}{earlier.offset}")


# --- groups -----------------------------------------------------------------------------------------------------------


def _of_commits(history: History, excuses: Excuses) -> Iterator[Anomaly]:
    """A group's commits go up in these runs; so what is said to be committed never lies below one that was
    acknowledged before that was asked."""
    commits: dict[tuple[str, Stream], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        if commit.outcome is Outcome.OK:
            commits[commit.group, commit.stream].append(commit)
    for told in history.committed:
        before = [each for each in commits[told.group, told.stream] if each.ended_s < told.began_s]
        if not before:
            continue
        highest = max(before, key=lambda each: each.offset)
        is_excused = any(highest.ended_s <= at_s <= told.ended_s for at_s in _group_disasters(excuses))
        if told.offset < highest.offset and not is_excused:
            text = f"{told.process} was told {told.offset} after {highest.process} had committed {highest.offset}"
            yield Anomaly("committed-offset-regress", f"group {told.group}, {told.stream}", text)


def _group_disasters(excuses: Excuses) -> Iterable[float]:
    return (
        at_s
        for stream, times in excuses.disasters_s.items()
        if stream.tp.topic == "__consumer_offsets"
        for at_s in times
    )


def _of_owners(ownerships: Iterable[Ownership]) -> Iterator[Anomaly]:
    by_partition: dict[tuple[str, str], list[Ownership]] = defaultdict(list)
    for each in ownerships:
        by_partition[each.group, str(each.tp)].append(each)
    for (group, tp), owned in by_partition.items():
        owned.sort(key=lambda each: each.began_s)
        latest: Ownership | None = None
        for each in owned:
            if latest is not None and each.began_s < latest.ended_s and each.process != latest.process:
                text = f"{latest.process} (generation {latest.generation}) and {each.process} ({each.generation})"
                yield Anomaly("two-owners", f"group {group}, {tp}", f"{text} at {each.began_s:.3f} s")
            if latest is None or each.ended_s > latest.ended_s:
                latest = each
