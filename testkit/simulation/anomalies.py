"""What must not be found in a history, by the names that Jepsen's analyses of Kafka have for it.

| name | what it means |
|---|---|
| lost-write | acknowledged by all in sync, and in the end not in the log (nor a newer one of its key, if compacted) |
| duplicate | in the log twice, though it was sent once |
| inconsistent-offsets | one offset, two values |
| failed-write-visible | it failed for sure, and somebody read it, or it is in the log |
| phantom | it stands there or was read, and nobody sent it to this life of the topic |
| dirty-read | a consumer got it, and in the end it is not in the log |
| nonmonotonic-poll | one reading got an offset that is not above the one before |
| poll-skip | one reading passed over a record that stands in the log |
| end-offset-regress | a stream was said to end below where it was said to end, or was read, before that was asked |
| unseen | in the log, and not among what is read in the end |
| real-time-order | sent after another one was acknowledged, and stands before it |
| passed-over | a group has committed behind a record that none of its members got |
| committed-offset-regress | a group was told an offset that a later commit had replaced, or that nobody committed |
| stale-commit | a member committed for a partition that a later generation had given to another one |
| two-owners | two members were given one partition in one generation |

A member that is cut off believes that it owns what others have by now, and cannot know better: so nothing is said of
two members at one time, but of two in one generation, and of what the coordinator took from the one left behind.

Pure. What is excused is said by the caller, who sees the disks: records whose last copy a loss of power or of a disk
took (`Excuses.gone`), what was deleted, which logs are compacted, what one broker alone had acknowledged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from strandline.broker.groups.shards import OFFSETS_TOPIC, partition_of
from strandline.protocol.messages import NO_GENERATION
from strandline.protocol.types import NO_OFFSET, TopicPartition
from strandline.testkit.simulation.history import (
    NEVER_S,
    Commit,
    Committed,
    EndOffset,
    History,
    Outcome,
    Ownership,
    Poll,
    Stream,
    Write,
)

LOOK_INTERVAL_S = 0.1
"""Somebody looks so often who leads, and who thinks that he does."""
TOLD_LATE_S = 5.0
"""So long before a poll tells a member what it has been given the coordinator may have answered it."""


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
    """A record may be missing where a newer one of its key stands, or stood before a disaster took it."""


class Replaced(NamedTuple):
    """A broker was seen to lead that had been replaced. since_s: by then somebody else led."""

    seen_s: float
    since_s: float


@dataclass
class Excuses:
    """gone: values of which a disaster took the last copy, or that stood where it took the end of the log, deleted by
    then or not. weak: values that one broker alone had acknowledged and may have lost. disasters_s: stream → when its
    offsets may have gone back. replaced: stream → leaders that did not know it. offsets_partitions: so many partitions
    the topic of committed offsets has. asked_starts: stream → below that somebody wanted records deleted."""

    gone: set[bytes] = field(default_factory=set)
    weak: set[bytes] = field(default_factory=set)
    disasters_s: Mapping[Stream, Sequence[float]] = field(default_factory=dict)
    replaced: Mapping[Stream, Sequence[Replaced]] = field(default_factory=dict)
    offsets_partitions: int = 1
    asked_starts: Mapping[Stream, int] = field(default_factory=dict)

    def forgives(self, value: bytes) -> bool:
        return value in self.gone or value in self.weak

    def is_between(self, stream: Stream, began_s: float, ended_s: float) -> bool:
        return any(began_s <= at_s <= ended_s for at_s in self.disasters_s.get(stream, ()))

    def is_group_hit(self, group: str, began_s: float, ended_s: float) -> bool:
        """What the group's coordinators had written may have gone back meanwhile."""
        return self.is_between(offsets_stream(partition_of(group, self.offsets_partitions)), began_s, ended_s)

    def replaced_s(self, group: str, began_s: float, ended_s: float) -> float:
        """Since when another broker coordinated the group, if the one before may have answered meanwhile; inf: not so.
        Cut off from all others, it does not know of later commits, and goes on for who reaches it, as brokers do while
        ZooKeeper is away."""
        seen = self.replaced.get(offsets_stream(partition_of(group, self.offsets_partitions)), ())
        close = (each for each in seen if began_s - LOOK_INTERVAL_S <= each.seen_s <= ended_s + LOOK_INTERVAL_S)
        return min((each.since_s for each in close), default=NEVER_S)


def offsets_stream(partition: int) -> Stream:
    """Of what groups commit; that topic is never made anew."""
    return Stream(TopicPartition(OFFSETS_TOPIC, partition), 1)


def anomalies(history: History, logs: Mapping[Stream, FinalLog], excuses: Excuses) -> list[Anomaly]:
    """All that are found. logs: of the streams that live in the end; others are held to what was said of them only."""
    writes: dict[Stream, list[Write]] = defaultdict(list)
    polls: dict[Stream, list[Poll]] = defaultdict(list)
    ends: dict[Stream, list[EndOffset]] = defaultdict(list)
    for write in history.writes:
        writes[write.stream].append(write)
    for poll in history.polls:
        polls[poll.stream].append(poll)
    for end in history.end_offsets:
        ends[end.stream].append(end)
    found: list[Anomaly] = []
    for stream in {**writes, **polls, **ends, **logs}:
        log = logs.get(stream)
        found += _of_offsets(stream, writes[stream], polls[stream], log, excuses)
        found += _of_origin(stream, [*writes[stream], *_late(stream, writes)], polls[stream], log)
        found += _of_readings(stream, polls[stream], log, excuses)
        found += _of_end_offsets(stream, polls[stream], ends[stream], excuses)
        found += _of_real_time(stream, writes[stream], excuses)
        if log is not None:
            found += _of_the_end(stream, writes[stream], polls[stream], log, excuses)
    found += _of_group_readings(history, logs, excuses)
    found += _of_commits(history, excuses)
    found += _of_stale_commits(history, excuses)
    found += _of_owners(history.ownerships, excuses)
    return found


# --- one stream -------------------------------------------------------------------------------------------------------


def _of_the_end(
    stream: Stream, writes: Sequence[Write], polls: Sequence[Poll], log: FinalLog, excuses: Excuses
) -> Iterator[Anomaly]:
    where = str(stream)
    places: dict[bytes, list[int]] = defaultdict(list)
    for offset, value in log.records.items():
        places[value].append(offset)
    newest = _newest(writes, places, excuses) if log.is_compacted else {}
    keys = {write.value: write.key for write in writes}
    for write in writes:
        found = places.get(write.value, [])
        if len(found) > 1 and not write.may_repeat:
            yield Anomaly("duplicate", where, f"{write.value!r} stands at {found}")
        if write.outcome is not Outcome.OK or write.offset < log.start_offset:
            continue
        is_excused = excuses.forgives(write.value) or newest.get(write.key, -1) > write.offset
        if write.offset not in found and not is_excused:
            there = log.records.get(write.offset)
            yield Anomaly(
                "lost-write", where, f"{write.value!r} was acknowledged at {write.offset}: there is {there!r}"
            )
    for poll in polls:
        for offset, value in poll.records:
            is_excused = excuses.forgives(value) or newest.get(keys.get(value, b""), -1) > offset
            if offset >= log.start_offset and not is_excused and log.records.get(offset) != value:
                there = log.records.get(offset)
                yield Anomaly("dirty-read", where, f"{poll.process} read {value!r} at {offset}: there is {there!r}")
    if log.read is not None:
        for offset, value in log.records.items():
            if offset >= log.start_offset and log.read.get(offset) != value:
                yield Anomaly("unseen", where, f"{value!r} at {offset} is read as {log.read.get(offset)!r}")


def _newest(writes: Sequence[Write], places: Mapping[bytes, Sequence[int]], excuses: Excuses) -> dict[bytes, float]:
    """Key → the highest offset at which a record of it stands, or stood before a disaster took its last copy: what is
    below may have been compacted away. Where the latter stood is not known of one that nobody acknowledged."""
    newest: dict[bytes, float] = defaultdict(lambda: -1)
    for write in writes:
        offsets: list[float] = list(places.get(write.value, ()))
        if write.value in excuses.gone:
            offsets.append(write.offset if write.offset >= 0 else float("inf"))
        newest[write.key] = max(newest[write.key], *offsets, -1)
    return newest


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


def _late(stream: Stream, writes: Mapping[Stream, Sequence[Write]]) -> Iterator[Write]:
    """What was sent to an earlier life of the topic and never had an outcome: requests have the topic's name alone, and
    a broker may get to one after that name means the next life."""
    for other, sent in writes.items():
        if other.tp == stream.tp and other.life < stream.life:
            yield from (write for write in sent if write.outcome is Outcome.UNKNOWN)


def _of_readings(stream: Stream, polls: Sequence[Poll], log: FinalLog | None, excuses: Excuses) -> Iterator[Anomaly]:
    offsets = sorted(log.records) if log is not None and not log.is_compacted else []
    last: dict[tuple[str, int], tuple[int, float, bytes]] = {}
    for poll in polls:
        key = (poll.process, poll.reading)
        for offset, value in poll.records:
            before, before_s, value_before = last.get(key, (-1, poll.at_s, b""))
            last[key] = (offset, poll.at_s, value)
            # A client may have had it for long when a poll gave it: it may be gone by then.
            if before < 0 or value_before in excuses.gone or excuses.is_between(stream, before_s, poll.at_s):
                continue
            if offset <= before:
                yield Anomaly("nonmonotonic-poll", str(stream), f"{poll.process} got {offset} behind {before}")
            skipped = offsets[bisect_left(offsets, before + 1) : bisect_left(offsets, offset)]
            if skipped:
                text = f"{poll.process} got {offset} behind {before}, and passed over {skipped[:5]}"
                yield Anomaly("poll-skip", str(stream), text)


def _higher(one: tuple[float, float, int], other: tuple[float, float, int]) -> tuple[float, float, int]:
    return other if other[2] > one[2] else one


def _of_end_offsets(
    stream: Stream, polls: Sequence[Poll], ends: Sequence[EndOffset], excuses: Excuses
) -> Iterator[Anomaly]:
    """Of one process what it is told never goes back. Of two it may: one of them may not know of a new leader yet."""
    known: dict[str, list[tuple[float, float, int]]] = defaultdict(list)  # process → (told at, asked at, end offset)
    for end in ends:
        if not end.is_bound:
            known[end.process].append((end.ended_s, end.began_s, end.offset))
    for poll in polls:
        known[poll.process] += [(poll.at_s, poll.at_s, offset + 1) for offset, _ in poll.records[-1:]]
    for told in known.values():
        told.sort()
    highest = {process: list(accumulate(told, _higher)) for process, told in known.items()}
    for end in ends:
        count = bisect_left(known[end.process], (end.began_s,))
        _, since_s, before = highest[end.process][count - 1] if count else (0.0, 0.0, -1)
        if end.offset < before and not excuses.is_between(stream, since_s, end.ended_s):
            text = f"{end.process} was told {end.offset} at {end.ended_s:.3f} s, and {before} at {since_s:.3f} s"
            yield Anomaly("end-offset-regress", str(stream), text)


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


def _of_group_readings(history: History, logs: Mapping[Stream, FinalLog], excuses: Excuses) -> Iterator[Anomaly]:
    """Members commit what they got, and the next one goes on there. In a later life of a topic they may go on where
    they were in the one before; where a disaster took records, others may stand in their place. A deletion that
    was not answered may have moved them on, and be unknown to the next leader."""
    read: dict[tuple[str, Stream], set[int]] = defaultdict(set)
    for poll in history.polls:
        read[poll.group, poll.stream].update(offset for offset, _ in poll.records)
    committed: dict[tuple[str, Stream], int] = defaultdict(int)
    for commit in history.commits:
        if commit.outcome is Outcome.OK:
            key = commit.group, commit.stream
            committed[key] = max(committed[key], commit.offset)
    for (group, stream), end in committed.items():
        log = logs.get(stream)
        if log is None or stream.life > 1 or excuses.disasters_s.get(stream):
            continue
        start = max(log.start_offset, excuses.asked_starts.get(stream, 0))
        missed = [each for each in log.records if start <= each < end and each not in read[group, stream]]
        if missed:
            text = f"it has committed {end}, and nobody got what stands at {sorted(missed)[:5]}"
            yield Anomaly("passed-over", f"group {group}, {stream}", text)


def _of_commits(history: History, excuses: Excuses) -> Iterator[Anomaly]:
    """What is told is what some commit has set, or nothing: of a commit that no later one had replaced, each of which
    was asked for after the one before it was acknowledged. Commits name a topic and not its life: one of an earlier
    life counts where it may have come late, or where its deletion was heard of by no coordinator."""
    commits: dict[tuple[str, TopicPartition], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        commits[commit.group, commit.stream.tp].append(commit)
    for told in history.committed:
        sent = [
            each
            for each in commits[told.group, told.stream.tp]
            if each.stream.life <= told.stream.life and each.began_s < told.ended_s and each.outcome != Outcome.FAILED
        ]
        known_s = excuses.replaced_s(told.group, told.began_s, told.ended_s) - LOOK_INTERVAL_S
        settled = [each for each in sent if each.ended_s < known_s and _is_settled(each, told, excuses)]
        replaced_s = max((each.began_s for each in settled), default=-NEVER_S)
        possible = {each.offset for each in sent if each.outcome is Outcome.UNKNOWN or each.ended_s >= replaced_s}
        if told.offset in possible or (told.offset == NO_OFFSET and not settled):
            continue
        latest = max(settled, key=lambda each: each.began_s, default=None)
        after = (
            "and nobody committed that" if latest is None else f"after {latest.process} had {latest.offset} committed"
        )
        text = f"{told.process} was told {told.offset} at {told.ended_s:.3f} s, {after}"
        yield Anomaly("committed-offset-regress", f"group {told.group}, {told.stream}", text)


def _is_settled(commit: Commit, told: Committed, excuses: Excuses) -> bool:
    """It had been acknowledged when somebody asked, in the same life, and no disaster came since it was sent: the
    answer may have been on its way by then."""
    if commit.outcome is not Outcome.OK or commit.ended_s >= told.began_s or commit.stream != told.stream:
        return False
    return not excuses.is_group_hit(told.group, commit.began_s, told.ended_s)


def _of_stale_commits(history: History, excuses: Excuses) -> Iterator[Anomaly]:
    """Where the next generation has given a partition away, what the one before commits is refused. A client commits
    again under the generation that it is in by then, if it has kept the partition."""
    owned: dict[tuple[str, TopicPartition], list[Ownership]] = defaultdict(list)
    for ownership in history.ownerships:
        owned[ownership.group, ownership.tp].append(ownership)
    for commit in history.commits:
        if commit.outcome is not Outcome.OK or commit.generation == NO_GENERATION:
            continue
        later = [
            each
            for each in owned[commit.group, commit.stream.tp]
            if each.generation > commit.generation
            and each.began_s < commit.ended_s
            and not excuses.is_group_hit(commit.group, each.began_s - TOLD_LATE_S, commit.ended_s)
        ]
        if any(each.process == commit.process for each in later):
            continue
        for each in later:
            if each.began_s < commit.began_s and commit.ended_s < each.ended_s:
                text = f"{commit.process} committed {commit.offset} in generation {commit.generation} at "
                text += f"{commit.began_s:.3f} s; {each.process} had it in generation {each.generation}"
                yield Anomaly("stale-commit", f"group {commit.group}, {commit.stream}", text)
                break


def _of_owners(ownerships: Iterable[Ownership], excuses: Excuses) -> Iterator[Anomaly]:
    """A generation is there once, whatever the time; its number may come again where a disaster took the group."""
    given: dict[tuple[str, TopicPartition, int], Ownership] = {}
    for each in sorted(ownerships, key=lambda each: each.began_s):
        before = given.setdefault((each.group, each.tp, each.generation), each)
        if excuses.is_group_hit(each.group, before.began_s - TOLD_LATE_S, each.began_s):
            given[each.group, each.tp, each.generation] = each
        elif before.process != each.process:
            text = f"{before.process} and {each.process} in generation {each.generation}, at {each.began_s:.3f} s"
            yield Anomaly("two-owners", f"group {each.group}, {each.tp}", text)
