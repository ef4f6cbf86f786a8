"""Each row once, however often its task is tried: a retry, a speculative copy, a batch repeated by a restarted query.

A task writes under an identity of its own (`identity`), and the sequence of a record is its number among those that the
task sends to the partition. A leader takes only the next number; so of several attempts one writes each of them, and
the others are told (`SequenceTaken`). An attempt that finds itself not the first one reads from the log what the
identity has written, from the mark of this write on (`marks`), and

  1 begins each topic: sets the marks, or finds those of an attempt before it and reads back what that wrote (`_begin`),
  2 leaves out rows that are found there (`Claims`), and sends the others under the next numbers (`write`),
  3 where a number was taken, reads back what came since, and goes on as in 2 with what has no answer (`_resolve`),
  4 in the end has come by everything that it found, or the rows are not those of the first time (`finish`).

What makes that safe:
* A row's partition depends on its content and on the mark only (`placing`), so two attempts that live at the same time
  meet at the partition's numbers wherever they could write the same row.
* Nothing follows a record that failed, so what is acknowledged of a chunk is its beginning.
* Rows are told from one another by content, not by order, and equal ones are counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from strandline.client.accumulator import ToSend
from strandline.client.errors import ClientError, ProducerFenced, SequenceTaken
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.spark_connector.errors import (
    RowsChanged,
    SourceError,
    SupersededWrite,
    WriteFailed,
    WrittenRowsGone,
)
from strandline.spark_connector.writing.claims import Claims, digest
from strandline.spark_connector.writing.identity import TaskIdentity
from strandline.spark_connector.writing.marks import Mark
from strandline.spark_connector.writing.patience import PATIENCE_MS, Patience, Pauses
from strandline.spark_connector.writing.placing import Room
from strandline.spark_connector.writing.rows import RecordRows

UNKNOWN_PAUSES = 50
"""A topic that no broker has heard of by then does not exist, or is marked without its id."""

CHUNKS_UNDER_WAY = 2
"""Of some megabytes each: memory stays bounded, and the network is busy while the next one is encoded."""

REACH = 10_000
"""Offsets that are looked at first where rows do not stand behind the mark."""

NO_MARKS: Mapping[TopicPartition, Mark] = MappingProxyType({})

NOT_SURE = "; set exactlyOnce to false to write all of them again, and accept that some may stand twice"


class Written(NamedTuple):
    """Of one partition and identity, as its leader knows it now: the sequence and the offset of the last record."""

    epoch: int
    last_sequence: int
    last_offset: int


class FoundRows(NamedTuple):
    """What was read back: one digest for each record, one behind the other. `is_whole`: their numbers begin with the
    first that was asked for, and none is missing between them. `has_own_times`: the records have the timestamps that
    their rows gave them. `log_start`: what stood below was deleted, whoever wrote it. `has_gaps`: compaction took
    records from the part that was read, whoever wrote them."""

    rows_count: int
    digests: bytearray
    is_whole: bool
    has_own_times: bool
    log_start: int
    has_gaps: bool


class FoundTasks(NamedTuple):
    """Who wrote, by the log: tasks of the identity's write. `log_start`, `has_gaps`: as in `FoundRows`."""

    tasks: set[int]
    log_start: int
    has_gaps: bool


class Sent(Protocol):
    """Some records on their way to one partition (`SendManyFuture`)."""

    delivered_records: int

    def exception(self) -> BaseException | None:
        """None once all are acknowledged, else the first failure; waits until each is settled."""


class SinkCluster(Pauses, Protocol):
    """What exactly once needs of a cluster; `SinkClusterClient` in cluster.py is the real one. Raises ClientError."""

    def partitions_count(self, topic: str) -> int:
        """How many the topic has; it is created where the cluster does that by itself."""

    def topic_id(self, topic: str) -> TopicId | None:
        """NO_TOPIC_ID where it is not known; None: there is no such topic."""

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermarks."""

    def marks(self, partitions: Sequence[TopicPartition] | None) -> Mapping[TopicPartition, Mark]:
        """Those that stand of these partitions; None: all of the identity's scope. Raises WriteFailed for what is no
        mark."""

    def set_marks(self, marks: Mapping[TopicPartition, Mark]) -> None:
        """They stand when this returns, whatever broker fails then."""

    def written(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Written | None]:
        """What leaders know of the identity; None: nothing, or nothing any more."""

    def remembered_ms(self) -> int:
        """How long leaders remember who is idle (producer.id.expiration.ms)."""

    def read_back(self, partition: TopicPartition, start: int, end: int, first_sequence: int) -> FoundRows | None:
        """The identity's records with sequences from the first on in [start, end), by `digest`. None: that cannot be
        read now, since `end` is not committed yet, or records were deleted meanwhile."""

    def tasks_known(self, partitions: Sequence[TopicPartition]) -> set[int]:
        """Which tasks of the identity's write wrote there, as far as leaders know."""

    def tasks_in_log(self, partition: TopicPartition, start: int, end: int) -> FoundTasks | None:
        """The same of [start, end), by the log. None: as in `read_back`."""

    def open_producer(self, next_sequence: Mapping[TopicPartition, int]) -> None:
        """Records that are sent from now on get these numbers."""

    def send(self, partition: TopicPartition, rows: RecordRows) -> Sent:
        """Under the identity."""

    def close_producer(self) -> None:
        """What is under way is given up."""


@dataclass(slots=True)
class _Chunk:
    partition: TopicPartition
    rows: RecordRows
    sent: Sent


class OnceWriter:
    """One attempt of one task."""

    def __init__(self, cluster: SinkCluster, identity: TaskIdentity, run: str, *, has_timestamps: bool) -> None:
        """run: names this run of the query, which a restart does not go on with. has_timestamps: the rows say when they
        are from; otherwise that is the time of writing, and does not count."""
        self._cluster = cluster
        self._identity = identity
        self._run = run
        self._has_timestamps = has_timestamps
        self._rooms: dict[str, Room] = {}
        """Of the topics that were begun."""
        self._starts: dict[TopicPartition, int] = {}
        """Where reading back begins."""
        self._next: dict[TopicPartition, int] = {}
        """Sequences below are accounted for: acknowledged, or read back."""
        self._claims: dict[TopicPartition, Claims] = {}
        self._under_way: deque[list[_Chunk]] = deque()
        self._is_open = False
        self._append_times: set[TopicPartition] = set()
        """Where the topic has put its own timestamps."""
        self._refusals = Patience(cluster)
        """Of numbers that are refused though nothing new is found."""
        self.found_rows = 0
        """Left out, because they stood in the log."""
        self.is_repeated = False
        """The version was begun by another run of the query, with a topic of this task's or with any other."""

    @property
    def topics(self) -> list[str]:
        return sorted(self._rooms)

    def room_of(self, topic: str) -> Room:
        """Where the topic's rows are to be placed. Raises as `write`, and RowsChanged."""
        if topic not in self._rooms:
            self._begin(topic)
        return self._rooms[topic]

    def write(self, placed: Mapping[TopicPartition, RecordRows]) -> None:
        """Rows of topics that were begun. Raises WriteFailed, SupersededWrite, WrittenRowsGone."""
        self._send(placed.items())
        while len(self._under_way) > CHUNKS_UNDER_WAY:
            self._settle()

    def finish(self) -> None:
        """Everything is acknowledged when this returns. Raises as `write`, and RowsChanged."""
        while self._under_way:
            self._settle()
        left = {partition: claims.left for partition, claims in self._claims.items() if claims.left}
        if left:
            partition, count = next(iter(sorted(left.items())))
            raise RowsChanged(
                f"an earlier attempt of task {self._identity.task} wrote {count} rows to {partition} that this one "
                "does not have: the query was changed, its rows are divided otherwise, or they differ from time to "
                "time (random numbers, the time of day). What was written stays. Put back the query and the number of "
                f"tasks (spark.sql.shuffle.partitions, minPartitions, …) that the write began with{NOT_SURE}"
            )

    # --- 1: topics ---

    def _begin(self, topic: str) -> None:
        cluster, version = self._cluster, self._identity.version
        patience = Patience(cluster)
        while True:
            count = cluster.partitions_count(topic)
            topic_id = self._id_of(topic)
            partitions = [TopicPartition(topic, number) for number in range(count)]
            ends = cluster.ends(partitions)  # before the marks: see there
            begun = self._marks_of_version(topic, topic_id, partitions)
            placed_among = _placed_among(topic, begun.values(), count)
            if placed_among <= count:
                break
            patience.wait(unchanged(f"topic {topic!r} has {count} partitions, and had {placed_among} before"))
        now_ms = cluster.now_ms()
        fresh = {
            at: Mark(version, ends[at], placed_among, now_ms, topic_id, self._run)
            for at in partitions
            if at not in begun
        }
        if fresh:
            cluster.set_marks(fresh)
        for at in partitions:
            self._starts[at] = begun[at].end_offset if at in begun else ends[at]
            self._next[at] = 0
            self._claims[at] = Claims()
        self._catch_up([at for at in partitions if at in begun], begun)
        self._rooms[topic] = Room(count, placed_among)
        if self._is_open and any(self._next[at] for at in partitions):
            while self._under_way:
                self._settle()
            self._close_producer()  # the next one knows the numbers of this topic, too

    def _id_of(self, topic: str) -> TopicId:
        """Of a topic that has partitions. Brokers hear of one that was just created one after the other: who says that
        there is none is asked again."""
        for _ in range(UNKNOWN_PAUSES):
            topic_id = self._cluster.topic_id(topic)
            if topic_id is not None:
                return topic_id
            self._cluster.pause()
        return NO_TOPIC_ID

    def _marks_of_version(
        self, topic: str, topic_id: TopicId, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Mark]:
        version = self._identity.version
        # Those of all topics where it is the first: rows that went elsewhere the last time are noticed by these alone.
        found = self._cluster.marks(partitions if self._rooms else None)
        marks = {at: mark for at in partitions if (mark := found.get(at)) is not None and mark.is_of(topic_id)}
        latest = max((mark.version for mark in marks.values()), default=version)
        if latest > version:
            raise SupersededWrite(
                f"{self._identity.group!r} has begun version {latest} with topic {topic!r}, so {version} is over: this "
                f"is a task that was given up, or a checkpoint that was put back to an earlier state{NOT_SURE}"
            )
        others = (mark for mark in found.values() if mark.version == version and mark.run != self._run)
        self.is_repeated = self.is_repeated or any(others)
        return {at: mark for at, mark in marks.items() if mark.version == version}

    def _close_producer(self) -> None:
        self._cluster.close_producer()
        self._is_open = False

    # --- 2: rows ---

    def _send(self, placed: Iterable[tuple[TopicPartition, RecordRows]]) -> None:
        chunks = []
        for partition, rows in placed:
            left = self._not_found(partition, rows)
            if not len(left):
                continue
            if not self._is_open:
                self._cluster.open_producer(self._next)
                self._is_open = True
            chunks.append(_Chunk(partition, left, self._cluster.send(partition, left)))
        if chunks:
            self._under_way.append(chunks)

    def _not_found(self, partition: TopicPartition, rows: RecordRows) -> RecordRows:
        claims = self._claims[partition]
        if not claims.left:
            return rows
        has_own_times = self._has_timestamps and partition not in self._append_times
        is_taken = claims.take([digest_of(record, has_own_times) for record in rows.records()])
        self.found_rows += int(is_taken.sum())
        return rows.at(np.flatnonzero(~is_taken))

    # --- 3: acknowledgements ---

    def _settle(self) -> None:
        """The oldest chunks are acknowledged, or it is found out which of their rows the log has."""
        for chunk in self._under_way[0]:
            error = chunk.sent.exception()
            if isinstance(error, SequenceTaken):
                self._resolve()
                return
            if error is not None:
                raise self._failure(error)
        for chunk in self._under_way.popleft():
            self._next[chunk.partition] += len(chunk.rows)
        self._refusals.end()

    def _failure(self, error: BaseException) -> Exception:
        if isinstance(error, ProducerFenced):
            return SupersededWrite(f"{error}: a later version of this write has begun{NOT_SURE}")
        if isinstance(error, ClientError):
            return WriteFailed(f"{error}; rows that were acknowledged before stay in the topic")
        raise error

    def _resolve(self) -> None:
        chunks = [chunk for together in self._under_way for chunk in together]
        self._under_way.clear()
        unsettled: list[tuple[TopicPartition, RecordRows]] = []
        for chunk in chunks:
            error = chunk.sent.exception()
            if error is not None and not isinstance(error, SequenceTaken):
                raise self._failure(error)
            delivered = chunk.sent.delivered_records
            self._next[chunk.partition] += delivered
            if delivered < len(chunk.rows):
                unsettled.append((chunk.partition, chunk.rows.part(delivered, len(chunk.rows))))
        self._close_producer()
        before = dict(self._next)
        self._catch_up(sorted({partition for partition, _ in unsettled}))
        if self._next == before:
            self._refusals.wait(
                unchanged(
                    f"numbers of {unsettled[0][0]} are refused as taken, though nothing new of task "
                    f"{self._identity.task} stands there"
                )
            )
        else:
            self._refusals.end()
        self._send(unsettled)

    # --- What the log has ---

    def _catch_up(self, partitions: Sequence[TopicPartition], begun: Mapping[TopicPartition, Mark] = NO_MARKS) -> None:
        """Read back what stands behind the numbers that are accounted for. `begun`: with the marks of an attempt before
        this one, of which leaders may know nothing any more."""
        left, patience = list(partitions), Patience(self._cluster)
        while left:
            known = self._cluster.written(left)
            hindered = {at: why for at in left if (why := self._hindrance(at, known[at], begun.get(at), patience))}
            left = list(hindered)
            if left:
                patience.wait(hindered[left[0]])

    def _hindrance(
        self, at: TopicPartition, known: Written | None, mark: Mark | None, patience: Patience
    ) -> SourceError | None:
        """Take up what the leader knows; or why that cannot be done yet."""
        epoch, first = self._identity.epoch, self._next[at]
        if known is not None and known.epoch > epoch:
            raise SupersededWrite(f"a later version of this write has written to {at}{NOT_SURE}")
        if known is None and not first and mark is not None and may_be_forgotten(self._cluster, mark):
            return self._take_up(at, self._cluster.ends([at])[at], None, patience)
        behind = 0 if known is None or known.epoch < epoch else known.last_sequence + 1
        if behind < first:
            return unchanged(f"{at} lacks {first - behind} rows of task {self._identity.task} that it has acknowledged")
        if known is None or behind == first:
            return None
        return self._take_up(at, known.last_offset + 1, behind - first, patience)

    def _take_up(self, at: TopicPartition, end: int, expected: int | None, patience: Patience) -> SourceError | None:
        """`expected`: how many there must be; None: leaders do not know any more, the log has to tell.

        Where there are fewer, the mark may stand behind them (a coordinator that was deposed did not show the one that
        stood, or a task that was given up long ago has set it back), so they are looked for further back; or who told
        that they are there leads no more."""
        start = self._starts[at]
        found = self._cluster.read_back(at, start, end, self._next[at])
        if found is None:
            return unchanged(f"offsets up to {end} of {at} cannot be read")
        if expected is None:
            is_sure = found.is_whole and not found.has_gaps and (found.rows_count > 0 or found.log_start <= start)
        else:
            is_sure = found.is_whole and found.rows_count == expected
        if not is_sure:
            gone = WrittenRowsGone(
                f"task {self._identity.task} has written rows to {at} from offset {start} on, of which only "
                f"{found.rows_count} are left: retention, compaction or 'strandline delete-records' took others, so "
                f"nobody can tell which rows are missing{NOT_SURE}"
            )
            if expected is None or found.log_start > start:
                raise gone
            self._starts[at] = max(found.log_start, min(start, end - max(REACH, 2 * (end - start))))
            if self._starts[at] < start:
                patience.end()
            return gone
        if found.rows_count:
            self._claims[at].add(found.digests)
            self._next[at] += found.rows_count
            if not found.has_own_times:
                self._append_times.add(at)
        return None


def _placed_among(topic: str, begun: Collection[Mark], partitions_count: int) -> int:
    """All attempts place rows as the first one did. RowsChanged: two tasks were the first."""
    counts = sorted({mark.partitions_count for mark in begun}) or [partitions_count]
    if len(counts) > 1:
        raise RowsChanged(
            f"topic {topic!r} grew from {counts[0]} to {counts[-1]} partitions while this write began, and some of its "
            f"tasks have placed their rows among fewer partitions than others{NOT_SURE}"
        )
    return counts[0]


def may_be_forgotten(cluster: SinkCluster, mark: Mark) -> bool:
    """Whether leaders may have forgotten who wrote from there on. Half the time, since clocks differ."""
    return cluster.now_ms() - mark.started_ms > cluster.remembered_ms() // 2


def unchanged(why: str) -> WriteFailed:
    return WriteFailed(
        f"{why}; that has not changed for {PATIENCE_MS // 1000} s. Look at the topic with 'strandline topics "
        "--describe', and repeat the query"
    )


def digest_of(record: ToSend, has_own_times: bool) -> bytes:
    """Of a row; what is read back is digested likewise."""
    if len(record) == 2:
        return digest(record[0], record[1], ())
    return digest(record[0], record[1], record[2], record[3] if has_own_times else None)
