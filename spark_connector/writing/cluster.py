"""The cluster as one attempt of a task sees it, through the synchronous clients. Nothing is decided here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from strandline import Admin, Consumer, Producer
from strandline.client import KnownProducer, ProducerIdentity
from strandline.client.errors import AnsweredError, ClientError, FlushTimedOut, SendsFailed
from strandline.client.errors import UnknownTopic as NoSuchTopic
from strandline.client.send_futures import SendManyFuture
from strandline.client.settings import AdminSettings, ConsumerSettings
from strandline.protocol.messages import ConfigResource
from strandline.protocol.records.batch import scan
from strandline.protocol.records.of_producer import records_of_producer
from strandline.protocol.types import TopicId, TopicPartition
from strandline.runtime.client_environment import production_client_environment
from strandline.runtime.clock import pause
from strandline.spark_connector.errors import WriteFailed
from strandline.spark_connector.options.sink_options import SinkOptions
from strandline.spark_connector.writing.claims import digest
from strandline.spark_connector.writing.identity import TaskIdentity
from strandline.spark_connector.writing.limits import TopicLimits
from strandline.spark_connector.writing.marks import KEPT_MS, Mark, from_committed, to_committed
from strandline.spark_connector.writing.once import UNKNOWN_PAUSES, FoundRows, FoundTasks, Written
from strandline.spark_connector.writing.rows import RecordRows, send
from strandline.spark_connector.writing.stretch import Stretch

PAUSE_S = 0.1
FETCH_BYTES = 4 << 20
APPEND_TIME = 1
DELETION_MS = 5_000
DEFAULT_REMEMBERED_MS = 86_400_000

PRODUCER_DEFAULTS = {"client_id": "strandline-spark", "batch_size": "524288", "linger_ms": "5"}
"""A task writes as much as it can: larger batches than a program's are worth their wait."""


def known_to(kind: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the user set for a producer that the other client knows, too."""
    known = {each.name for each in dataclasses.fields(kind)}
    return {name: value for name, value in settings.items() if name in known}


class SinkClusterClient:
    """Implements `once.SinkCluster`; to be closed. All calls raise the client's errors."""

    def __init__(self, options: SinkOptions, identity: TaskIdentity, *, has_timestamps: bool) -> None:
        self._servers = options.bootstrap_servers
        self._settings: dict[str, Any] = {**PRODUCER_DEFAULTS, **options.producer_settings}
        self._identity = identity
        self._has_timestamps = has_timestamps
        self._admin = Admin(self._servers, **known_to(AdminSettings, self._settings))
        self._consumer = Consumer(
            self._servers,
            **known_to(ConsumerSettings, self._settings),
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        self._limits = TopicLimits(self._admin)
        self._producer: Producer | None = None
        self._remembered_ms: int | None = None
        self._clock = production_client_environment().wall_clock

    def close(self) -> None:
        self.close_producer()
        self._consumer.close()
        self._admin.close()

    # --- What stands ---

    def partitions_count(self, topic: str) -> int:
        """As brokers see it now. One that they do not know is asked for by a producer, for whom they may create it."""
        with suppress(AnsweredError):  # the producer waits until it is otherwise, or says the same
            if count := len(self._admin.describe_topics([topic])[topic].partitions):
                return count
        with Producer(self._servers, acks="all", **self._settings) as producer:
            return len(producer.partitions_for(topic))

    def topic_id(self, topic: str) -> TopicId | None:
        """Also the controller is asked, where it lives: it knows which topics there are."""
        try:
            found: TopicId = self._admin.describe_topics([topic])[topic].topic_id
        except NoSuchTopic:
            return None
        return found

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict(self._consumer.end_offsets(list(partitions)))

    def marks(self, partitions: Sequence[TopicPartition] | None) -> Mapping[TopicPartition, Mark]:
        committed = self._admin.list_group_offsets(self._identity.group, partitions)
        try:
            return {at: from_committed(each) for at, each in committed.items()}
        except ValueError as error:
            raise WriteFailed(
                f"the consumer group {self._identity.group!r} was used by somebody else: {error}; delete it with "
                "'strandline groups delete' if no write is under way"
            ) from None

    def set_marks(self, marks: Mapping[TopicPartition, Mark]) -> None:
        offsets = {at: to_committed(mark) for at, mark in marks.items()}
        results = self._admin.alter_group_offsets(self._identity.group, offsets, retention_time_ms=KEPT_MS)
        for error in results.values():
            if error is not None:
                raise error

    def delete_marks(self) -> None:
        """All of the scope, which nobody repeats any more. What hinders that does no harm."""
        with suppress(ClientError):
            self._admin.delete_groups([self._identity.group], timeout_ms=DELETION_MS)

    def written(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Written | None]:
        known: dict[TopicPartition, Written | None] = {}
        for at, producers in self._producers(partitions, [self._identity.producer_id]).items():
            states = [Written(each.epoch, each.last_sequence, each.last_offset) for each in producers]
            known[at] = states[0] if states else None
        return known

    def tasks_known(self, partitions: Sequence[TopicPartition]) -> set[int]:
        found: set[int] = set()
        for producers in self._producers(partitions, None).values():
            found |= self._tasks((each.producer_id, each.epoch) for each in producers)
        return found

    def _producers(
        self, partitions: Sequence[TopicPartition], producer_ids: list[int] | None
    ) -> dict[TopicPartition, list[KnownProducer]]:
        """Brokers hear of a topic that was just created one after the other: who says that there is none is asked
        again."""
        for pauses_left in reversed(range(UNKNOWN_PAUSES)):
            found: dict[TopicPartition, list[KnownProducer]] = {}
            errors = []
            for at, producers in self._admin.describe_producers(partitions, producer_ids).items():
                if isinstance(producers, ClientError):
                    errors.append(producers)
                else:
                    found[at] = producers
            if not errors:
                break
            if pauses_left == 0 or not all(isinstance(error, NoSuchTopic) for error in errors):
                raise errors[0]
            self.pause()
        return found

    def _tasks(self, producers: Iterable[tuple[int, int]]) -> set[int]:
        """Those of the identity's write."""
        tasks = {
            self._identity.task_of(producer_id) for producer_id, epoch in producers if epoch == self._identity.epoch
        }
        return {task for task in tasks if task is not None}

    def remembered_ms(self) -> int:
        """The shortest of all brokers. They are asked once: that is a question to each."""
        if self._remembered_ms is None:
            self._remembered_ms = min(self._all_remembered_ms())
        return self._remembered_ms

    def _all_remembered_ms(self) -> list[int]:
        found = [DEFAULT_REMEMBERED_MS]
        for broker_id in self._admin.describe_cluster().brokers:
            for key in self._admin.describe_configs(ConfigResource.BROKER, str(broker_id)):
                if key.name == "producer.id.expiration.ms" and key.value is not None:
                    found.append(int(key.value))
        return found

    def read_back(self, partition: TopicPartition, start: int, end: int, first_sequence: int) -> FoundRows | None:
        stretch = Stretch(self._consumer, partition, start, end)
        identity, digests, count, is_whole, has_own_times = self._identity, bytearray(), 0, True, True
        for records in stretch:
            for sequence, record in records_of_producer(records, identity.producer_id, identity.epoch):
                if sequence < first_sequence or record.offset >= end:
                    continue
                is_own_time = record.timestamp_type != APPEND_TIME
                has_own_times = has_own_times and is_own_time
                is_whole = is_whole and sequence == first_sequence + count
                stamp = record.timestamp_ms if self._has_timestamps and is_own_time else None
                digests += digest(record.key, record.value, record.headers, stamp)
                count += 1
        if not stretch.is_readable:
            return None
        return FoundRows(count, digests, is_whole, has_own_times, stretch.log_start, stretch.has_gaps)

    def tasks_in_log(self, partition: TopicPartition, start: int, end: int) -> FoundTasks | None:
        stretch = Stretch(self._consumer, partition, start, end)
        tasks: set[int] = set()
        for records in stretch:
            tasks |= self._tasks((header.producer_id, header.producer_epoch) for _, header in scan(records))
        return FoundTasks(tasks, stretch.log_start, stretch.has_gaps) if stretch.is_readable else None

    # --- Writing ---

    def open_producer(self, next_sequence: Mapping[TopicPartition, int]) -> None:
        assert self._producer is None, "one at a time"
        identity = ProducerIdentity(self._identity.producer_id, self._identity.epoch, dict(next_sequence))
        self._producer = Producer(self._servers, acks="all", identity=identity, **self._settings)

    def send(self, partition: TopicPartition, rows: RecordRows) -> SendManyFuture:
        assert self._producer is not None, "it is opened first"
        return send(self._producer, partition, rows, self._limits.of(partition.topic))

    def close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(FlushTimedOut, SendsFailed):  # who is under way knows it by its future
                producer.close(timeout=0.0)

    # --- Time ---

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def pause(self) -> None:
        pause(PAUSE_S)
