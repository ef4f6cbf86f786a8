"""A cluster as exactly once sees it (`once.SinkCluster`), in memory, and attempts of tasks that take turns on it.

Each attempt is a thread of its own, but only one runs at a time: at every call of the cluster a seeded generator says
who goes on, and who dies. So a run is the same whenever its seed is.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.client.accumulator import ToSend
from strandline.client.errors import DeliveryTimeout, ProducerFenced, SequenceTaken
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.spark_connector.writing.claims import digest
from strandline.spark_connector.writing.identity import TaskIdentity
from strandline.spark_connector.writing.marks import Mark, from_committed, to_committed
from strandline.spark_connector.writing.once import FoundRows, FoundTasks, Written
from strandline.spark_connector.writing.rows import RecordRows

DAY_MS = 86_400_000


class Killed(BaseException):
    """The attempt is dead: nothing of it runs on."""


class Entry(NamedTuple):
    """One record of a log."""

    producer_id: int
    epoch: int
    sequence: int
    record: ToSend
    timestamp_ms: int = 0


@dataclass
class Log:
    """One partition. `start`: what stood below was deleted."""

    entries: list[Entry | None] = field(default_factory=list)
    """None: compaction took it."""
    start: int = 0
    states: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(epoch, next sequence) by producer id."""
    uncommitted: int = 0
    """So many of the last records are not below the high watermark yet."""

    @property
    def high_watermark(self) -> int:
        return len(self.entries) - self.uncommitted

    def append(self, producer_id: int, epoch: int, sequence: int, records: Sequence[ToSend], now_ms: int) -> None:
        """SequenceTaken, ProducerFenced."""
        known_epoch, expected = self.states.get(producer_id, (epoch, sequence))
        if epoch < known_epoch:
            raise ProducerFenced("a later epoch", outcome_unknown=False)
        if epoch > known_epoch:
            expected = 0
        if sequence != expected:
            raise SequenceTaken(f"{sequence} is not {expected}", outcome_unknown=False)
        self.entries += [
            Entry(producer_id, epoch, sequence + at, each, now_ms if self.uses_append_time else 0)
            for at, each in enumerate(records)
        ]
        self.states[producer_id] = epoch, sequence + len(records)

    uses_append_time: bool = False


class Topics:
    """What all attempts share."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.logs = {TopicPartition(topic, n): Log() for topic, count in partitions.items() for n in range(count)}
        self.ids: dict[str, TopicId] = {}
        self.marks: dict[str, dict[TopicPartition, Mark]] = {}
        self.now_ms = 1_000_000

    def records(self, topic: str) -> list[ToSend]:
        return [
            each.record for at, log in sorted(self.logs.items()) if at.topic == topic for each in log.entries if each
        ]


class Turns:
    """Who runs: one attempt at a time, chosen at every `pass_on`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._turn = threading.Condition()
        self._current: str | None = None
        self._alive: dict[str, float] = {}
        """By name: how likely it dies at a turn."""
        self._mistakes: list[BaseException] = []

    def run(self, attempts: Mapping[str, Callable[[], None]], mortality: Mapping[str, float]) -> None:
        """All of them, until each has ended."""
        self._alive = {name: mortality.get(name, 0.0) for name in attempts}
        threads = [threading.Thread(target=self._live, args=(name, attempt)) for name, attempt in attempts.items()]
        for thread in threads:
            thread.start()
        with self._turn:
            self._choose()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "an attempt hangs"
        if self._mistakes:
            raise self._mistakes[0]

    def pass_on(self, name: str) -> None:
        """Killed: it is over."""
        with self._turn:
            if self.random.random() < self._alive[name]:
                raise Killed
            self._choose()
            self._turn.wait_for(lambda: self._current == name)

    def _live(self, name: str, attempt: Callable[[], None]) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._current == name)
        try:
            attempt()
        except Killed:
            pass
        except BaseException as mistake:
            self._mistakes.append(mistake)
        finally:
            with self._turn:
                del self._alive[name]
                self._choose()

    def _choose(self) -> None:
        self._current = self.random.choice(sorted(self._alive)) if self._alive else None
        self._turn.notify_all()


class Delivery:
    """`once.Sent`: records on their way, in batches, of which none is told as delivered behind one that failed. Those
    that were under way with it may land all the same."""

    def __init__(self, cluster: MemorySink, at: TopicPartition, sequence: int, records: Sequence[ToSend]) -> None:
        self.delivered_records = 0
        self._cluster, self._at, self._sequence = cluster, at, sequence
        self._left = list(records)
        self._error: Exception | None = None

    def exception(self) -> Exception | None:
        while self._left and self._error is None:
            self._cluster.turn()
            self.land()
        return self._error

    def land(self) -> None:
        """One batch more arrives; its answer may be lost."""
        if self._error is not None or not self._left:
            return
        self._error = self._cluster.failures.get(self._at) or self._land_one()
        if self._error is not None:
            self._cluster.failures[self._at] = self._error
            self._land_more()

    def _land_one(self) -> Exception | None:
        try:
            count = self._append()
        except (SequenceTaken, ProducerFenced) as error:
            return error
        if self._cluster.turns.random.random() < self._cluster.answers_lost:
            return SequenceTaken("sent again, and the log had it", outcome_unknown=True)
        self.delivered_records += count
        self._cluster.proven.add(self._at)
        return None

    def _land_more(self) -> None:
        """Of what was under way with a batch that failed: nothing before a first acknowledgement."""
        while self._left and self._at in self._cluster.proven and self._cluster.turns.random.random() < 0.5:
            with suppress(SequenceTaken, ProducerFenced):
                self._append()

    def _append(self) -> int:
        """The next batch arrives; how many records it has."""
        cluster, identity, sequence = self._cluster, self._cluster.identity, self._sequence
        count = cluster.turns.random.randint(1, len(self._left))
        batch, self._left = self._left[:count], self._left[count:]
        self._sequence += count
        cluster.topics.logs[self._at].append(
            identity.producer_id, identity.epoch, sequence, batch, cluster.topics.now_ms
        )
        return count


class MemorySink:
    """Of one attempt."""

    def __init__(
        self, topics: Topics, turns: Turns, name: str, identity: TaskIdentity, answers_lost: float = 0
    ) -> None:
        self.topics, self.turns, self.name, self.identity = topics, turns, name, identity
        self.answers_lost = answers_lost
        self.has_timestamps = False
        self.failures: dict[TopicPartition, Exception] = {}
        self.proven: set[TopicPartition] = set()
        """Where the producer that is open has an acknowledgement."""
        self._next: dict[TopicPartition, int] | None = None
        self._under_way: list[Delivery] = []
        self.calls: list[str] = []

    def turn(self) -> None:
        self.turns.pass_on(self.name)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        self.turn()

    def partitions_count(self, topic: str) -> int:
        self._called("partitions_count")
        if not any(at.topic == topic for at in self.topics.logs):
            self.topics.logs[TopicPartition(topic, 0)] = Log()
        return sum(at.topic == topic for at in self.topics.logs)

    def topic_id(self, topic: str) -> TopicId | None:
        if not any(at.topic == topic for at in self.topics.logs):
            return None
        return self.topics.ids.get(topic, NO_TOPIC_ID)

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._called("ends")
        return {at: self.topics.logs[at].high_watermark for at in partitions}

    def marks(self, partitions: Sequence[TopicPartition] | None) -> Mapping[TopicPartition, Mark]:
        self._called("marks")
        marks = self.topics.marks.get(self.identity.group, {})
        wanted = marks if partitions is None else [at for at in partitions if at in marks]
        return {at: from_committed(to_committed(marks[at])) for at in wanted}

    def set_marks(self, marks: Mapping[TopicPartition, Mark]) -> None:
        self._called("set_marks")
        self.topics.marks.setdefault(self.identity.group, {}).update(marks)

    def written(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Written | None]:
        self._called("written")
        return {at: self._written(self.topics.logs[at]) for at in partitions}

    def _written(self, log: Log) -> Written | None:
        if (state := log.states.get(self.identity.producer_id)) is None:
            return None
        epoch, following = state
        offsets = [at for at, each in enumerate(log.entries) if each and each[:2] == (self.identity.producer_id, epoch)]
        return Written(epoch, following - 1, offsets[-1] if offsets else -1)

    def tasks_known(self, partitions: Sequence[TopicPartition]) -> set[int]:
        states = ((each, epoch) for at in partitions for each, (epoch, _) in self.topics.logs[at].states.items())
        return self._tasks(states)

    def tasks_in_log(self, partition: TopicPartition, start: int, end: int) -> FoundTasks | None:
        log = self.topics.logs[partition]
        begin = max(start, log.start)
        held = [each for each in log.entries[begin:end] if each is not None]
        return FoundTasks(self._tasks(each[:2] for each in held), log.start, len(held) < end - begin)

    def _tasks(self, producers: Iterable[tuple[int, int]]) -> set[int]:
        tasks = {self.identity.task_of(each) for each, epoch in producers if epoch == self.identity.epoch}
        return tasks - {None}

    def remembered_ms(self) -> int:
        return DAY_MS

    def read_back(self, partition: TopicPartition, start: int, end: int, first_sequence: int) -> FoundRows | None:
        self._called("read_back")
        log = self.topics.logs[partition]
        if end > log.high_watermark:
            log.uncommitted = 0
            return None
        held = [each for each in log.entries[max(start, log.start) : end] if each is not None]
        found = [
            each
            for each in held
            if each[:2] == (self.identity.producer_id, self.identity.epoch) and each.sequence >= first_sequence
        ]
        digests = bytearray()
        for each in found:
            key, value, headers, stamp = each.record if len(each.record) == 4 else (*each.record, (), None)
            counts = self.has_timestamps and not log.uses_append_time
            digests += digest(key, value, headers, stamp if counts else None)
        is_whole = [each.sequence for each in found] == list(range(first_sequence, first_sequence + len(found)))
        has_gaps = len(held) < end - max(start, log.start)
        return FoundRows(len(found), digests, is_whole, not log.uses_append_time, log.start, has_gaps)

    def open_producer(self, next_sequence: Mapping[TopicPartition, int]) -> None:
        assert self._next is None
        self._next, self.failures, self.proven, self._under_way = dict(next_sequence), {}, set(), []

    def send(self, partition: TopicPartition, rows: RecordRows) -> Delivery:
        self._called("send")
        sequence = self._next.get(partition, 0)
        self._next[partition] = sequence + len(rows)
        self._under_way.append(Delivery(self, partition, sequence, rows.records()))
        return self._under_way[-1]

    def close_producer(self) -> None:
        """What is under way may still arrive."""
        for delivery in self._under_way:
            while self.turns.random.random() < 0.5 and delivery._left and delivery._error is None:
                delivery.land()
            self.failures.setdefault(delivery._at, DeliveryTimeout("closed", outcome_unknown=True))
        self._next = None

    def now_ms(self) -> int:
        return self.topics.now_ms

    def pause(self) -> None:
        self.topics.now_ms += 100
        self.turn()
