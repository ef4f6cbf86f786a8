"""A cluster made of dictionaries, and a session that hands out clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strandline.cli.main import run
from strandline.cli.session import Session
from strandline.client import columns
from strandline.client.admin import RecoveredPartition
from strandline.client.assignment import FetchedBatches
from strandline.client.columns import FetchedColumns
from strandline.client.errors import (
    ClientClosed,
    ClientError,
    FlushTimedOut,
    GroupNotEmpty,
    InvalidRecordValue,
    InvalidTopicSettings,
    NoBrokerReachable,
    NotAssigned,
    RecordTooLarge,
    UnknownGroup,
    UnknownTopic,
)
from strandline.client.groups.administration import GroupListing, GroupOffset, GroupSummary, GroupView
from strandline.client.metadata import ClusterView, PartitionView, TopicView
from strandline.client.record_sizes import batch_bytes
from strandline.client.replicas.reading import ReplicaOffsets
from strandline.client.settings import ProducerSettings
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.records import assign_offset, build_batch, scan
from strandline.protocol.types import TopicPartition
from unit.cli.fake_configs import FakeConfigAdmin
from unit.cli.fake_futures import Acked, FakeMany, LateFuture
from unit.cli.fake_moves import MovingReplicas
from unit.cli.fake_quotas import FakeQuotaAdmin
from unit.cli.fake_replicas import FakeReplicaAdmin

TOPIC_ID = bytes(range(16))
LEADER_EPOCH = 5
NOW_MS = 1_700_000_060_000


def unknown(topic: str) -> UnknownTopic:
    return UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}: UNKNOWN_TOPIC_OR_PARTITION")


def unknown_group(name: str) -> UnknownGroup:
    return UnknownGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} does not exist")


class FakeRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = b""
    headers: Sequence[tuple[str, bytes | None]] = ()


class TimedOffset(NamedTuple):
    offset: int
    timestamp_ms: int


@dataclass
class FakeCluster:
    """What the fake clients read and write; `records` may have gaps in their offsets."""

    records: dict[TopicPartition, list[FakeRecord]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    topics: dict[str, TopicView] = field(default_factory=dict)
    produced: list[tuple[str, bytes | None, bytes | None, int | None, tuple[Any, ...]]] = field(default_factory=list)
    stamps: list[int | None] = field(default_factory=list)
    """The timestamps of what was produced."""
    sent_at_once: list[int] = field(default_factory=list)
    """How many records each call had that had many."""
    creates_topics: bool = True
    partitions_count: int = 3
    """What a producer is told of every topic."""
    fail_after: int | None = None
    failure: Exception = field(default_factory=lambda: BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    settings: dict[str, Any] = field(default_factory=dict)
    bootstrap: str = ""
    folders: dict[str, str | None] = field(default_factory=lambda: {"strandline-data": "127.0.0.1:19092"})
    """Data folder → the address of the cluster there; None: it is down."""
    max_record_bytes: int = 100
    """A producer takes no longer ones."""
    is_readable: bool = False
    """What is sent one by one can be read."""
    refused_value: bytes | None = None
    """Such a record is not even accepted by a producer."""
    late: bool = False
    """Futures are settled after the sending."""
    late_futures: list[Any] = field(default_factory=list)
    waiting: list[dict[TopicPartition, Exception]] = field(default_factory=list)
    """What clients say that they wait for, one after the other; then nothing. Until then no record is settled."""
    when_settled: Callable[[], None] = lambda: None
    when_all_waited: Callable[[], None] = lambda: None
    polls: int = 0
    before_poll: Callable[[], None] = lambda: None
    recovered: dict[TopicPartition, RecoveredPartition | Exception] = field(default_factory=dict)
    interrupt_at_poll: int | None = None
    groups: dict[str, GroupView] = field(default_factory=dict)
    committed: dict[str, dict[TopicPartition, GroupOffset]] = field(default_factory=dict)
    is_reachable: bool = True
    unheard: dict[int, ClientError] = field(default_factory=dict)
    """Brokers that do not say which groups they have."""
    unanswered: dict[TopicPartition | str, ClientError] = field(default_factory=dict)
    """Partitions whose leader does not say where they end, groups whose offsets cannot be read, and "configs"."""
    moves: MovingReplicas = field(default_factory=MovingReplicas)
    replica_ends: ReplicaOffsets = field(default_factory=dict)

    def fill(self, topic: str, partition: int, values: Iterable[bytes], **fields: Any) -> None:
        log = self.records.setdefault(TopicPartition(topic, partition), [])
        for value in values:
            log.append(FakeRecord(topic, partition, len(log), value=value, **fields))

    def end(self, partition: TopicPartition) -> int:
        log = self.records.get(partition, [])
        return self.ends.get(partition, log[-1].offset + 1 if log else 0)

    def add_topic(self, name: str, partitions: dict[int, PartitionView]) -> None:
        self.topics[name] = TopicView(name, TOPIC_ID, partitions)


class FakeClient:
    """What all fake clients have."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def waiting(self) -> dict[TopicPartition, Exception]:
        if self.cluster.waiting:
            return self.cluster.waiting.pop(0)
        self.cluster.when_all_waited()
        self.cluster.when_all_waited = lambda: None
        return {}


class FakeProducer(FakeClient):
    settings = ProducerSettings(bootstrap_servers="", max_request_size=100)
    failed_records = 0

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: Any = None,
        partition: Any = None,
        headers: Any = (),
        timestamp_ms: int | None = None,
    ) -> Any:
        if value is not None and value == self.cluster.refused_value:
            raise InvalidRecordValue("it is no record")
        if self.cluster.late:
            return self.send_late(topic, value)
        future: Future[Acked] = Future()
        count = len(self.cluster.produced)
        if self.cluster.fail_after is not None and count >= self.cluster.fail_after:
            future.set_exception(self.cluster.failure)
        elif batch_bytes((key, value), headers) > self.cluster.max_record_bytes:
            future.set_exception(RecordTooLarge("too large"))
        else:
            self.cluster.produced.append((topic, key, value, partition, tuple(headers)))
            self.cluster.stamps.append(timestamp_ms)
            if self.cluster.is_readable:
                self.cluster.fill(topic, partition or 0, [value], key=key)
            future.set_result(Acked(topic, partition or 0, count, 1_700_000_000_000))
        return future

    def send_many(self, topic: str, records: Sequence[Any], partition: int | None = None) -> FakeMany:
        for place, record in enumerate(records):
            if record[1] is not None and record[1] == self.cluster.refused_value:
                raise InvalidRecordValue(f"record {place}: it is no record")
        self.cluster.sent_at_once.append(len(records))
        rest = [(*record[2:], (), None)[:2] if len(record) == 4 else ((), None) for record in records]
        return FakeMany(
            [
                self.send(topic, record[1], record[0], partition, headers, stamp)
                for record, (headers, stamp) in zip(records, rest, strict=True)
            ]
        )

    def now_ms(self) -> int:
        return NOW_MS

    def send_late(self, topic: str, value: bytes | None) -> Future[Acked]:
        offset = len(self.cluster.late_futures)

        def settle() -> None:
            if value == b"lost":
                future.set_exception(ClientClosed("closed"))
            else:
                future.set_result(Acked(topic, 0, offset, 1_700_000_000_000))
            self.cluster.when_settled()

        future = LateFuture(self.cluster, settle)
        self.cluster.late_futures.append(future)
        return future

    def partitions_for(self, topic: str) -> list[int]:
        if topic not in self.cluster.topics:
            if not self.cluster.creates_topics:
                raise unknown(topic)
            parts = {number: PartitionView(1, 0, (1, 2), (1, 2)) for number in range(self.cluster.partitions_count)}
            self.cluster.add_topic(topic, parts)
        return list(range(self.cluster.partitions_count))

    def flush(self, timeout: float | None = None) -> None:
        if self.cluster.waiting:
            raise FlushTimedOut("not yet")

    def close(self, timeout: float | None = None) -> None:
        self.cluster.settings["closed_within_s"] = timeout
        for future in self.cluster.late_futures:
            if not future.done():
                future.settle()


def fetched_batches(
    partition: TopicPartition, position: int, end: int, records: Sequence[FakeRecord]
) -> FetchedBatches:
    """As a leader has them, each record in a batch of its own: there may be gaps between them."""
    batches = []
    for each in records:
        headers = [(name, value) for name, value in each.headers]
        batch = bytearray(build_batch([(each.timestamp_ms, each.key, each.value, headers)]))
        assign_offset(batch, each.offset, LEADER_EPOCH)
        batches.append(batch)
    return FetchedBatches(*partition, position, end, end, 0, memoryview(b"".join(batches)))


def columns_of_batches(fetched: FetchedBatches) -> FetchedColumns:
    """The same as columns."""
    found = columns.decode(fetched.records, list(scan(fetched.records)), True)
    partition = TopicPartition(fetched.topic, fetched.partition)
    return columns.columns_of(partition, found.records, fetched.position, fetched.high_watermark)


class FakeConsumer(FakeClient):
    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.polls_without_topic = 0
        self.on_assigned: Callable[[list[TopicPartition]], None] | None = None
        """Due in the next poll."""

    def partitions_for_topic(self, topic: str, timeout_ms: float) -> list[int]:
        found = [each.partition for each in self.cluster.records if each.topic == topic]
        if not found:
            raise unknown(topic)
        return found

    def beginning_offsets(
        self, partitions: list[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return {each: self.cluster.records[each][0].offset if self.cluster.records[each] else 0 for each in partitions}

    def end_offsets(
        self, partitions: list[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        for each in partitions:
            if each in self.cluster.unanswered:
                raise self.cluster.unanswered[each]
        return {each: self.cluster.end(each) for each in partitions}

    def offsets_for_times(
        self, asked: dict[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, TimedOffset | None]:
        found = {}
        for partition, moment in asked.items():
            late = [each for each in self.cluster.records[partition] if each.timestamp_ms >= moment]
            found[partition] = TimedOffset(late[0].offset, late[0].timestamp_ms) if late else None
        return found

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions = {each: self.positions.get(each, self.cluster.end(each)) for each in partitions}

    def seek_to_beginning(self, partition: TopicPartition) -> None:
        self.positions[partition] = 0

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def pause(self, partition: TopicPartition) -> None:
        self.paused.add(partition)

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        if partition not in self.positions:
            raise NotAssigned(f"{partition} is not assigned")
        self.positions[partition] = self._within_log(partition, self.positions[partition])
        return self.positions[partition]

    def topic_id(self, topic: str, timeout_ms: float) -> bytes:
        known = self.cluster.topics.get(topic)
        return TOPIC_ID if known is None else known.topic_id

    def _within_log(self, partition: TopicPartition, position: int) -> int:
        """Where it goes on by the reset policy, should the log not have this place any more."""
        if partition not in self.cluster.records:
            return position  # nobody says
        log = self.cluster.records[partition]
        end = self.cluster.end(partition)
        beginning = log[0].offset if log else end
        if beginning <= position <= end:
            return position
        return {"earliest": beginning, "latest": end}[self.cluster.settings["auto_offset_reset"]]

    def subscribe(
        self, topics: Sequence[str] = (), *, pattern: Any = None, on_assigned: Any, on_revoked: Any, on_lost: Any
    ) -> None:
        self.cluster.settings["subscribed"] = pattern or topics
        is_meant = pattern.fullmatch if pattern else topics.__contains__
        meant = [each for each in self.cluster.records if is_meant(each.topic)]
        self.positions = {each: at.offset if at else 0 for each, at in self.committed(meant).items()}
        self.on_assigned = on_assigned

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, GroupOffset | None]:
        known = self.cluster.committed.get(self.cluster.settings["group_id"], {})
        return {each: known.get(each) for each in partitions}

    def commit(self, offsets: dict[TopicPartition, int], timeout_ms: float) -> None:
        self.cluster.committed.setdefault(self.cluster.settings["group_id"], {}).update(
            {partition: GroupOffset(offset) for partition, offset in offsets.items()}
        )

    def commit_nowait(self, offsets: dict[TopicPartition, int], on_done: Callable[..., None]) -> None:
        self.commit(offsets, 0)
        on_done(offsets, None)

    def poll(self, timeout_ms: int, max_records: int | None = None) -> dict[TopicPartition, list[FakeRecord]]:
        polled = {}
        left = max_records
        for partition, (position, records) in self._taken().items():
            if left is not None and left < len(records):
                records = records[:left]
                self.positions[partition] = records[-1].offset + 1 if records else position
            if records:
                polled[partition] = records
            left = None if left is None else left - len(records)
        return polled

    def fetch_batches(self, timeout_ms: int) -> list[FetchedBatches]:
        return [
            fetched_batches(partition, position, self.positions[partition], records)
            for partition, (position, records) in self._taken().items()
            if records
        ]

    def poll_columns(self, timeout_ms: int) -> list[FetchedColumns]:
        return [columns_of_batches(each) for each in self.fetch_batches(timeout_ms)]

    def _taken(self) -> dict[TopicPartition, tuple[int, list[FakeRecord]]]:
        """Partition → where it stood, and the records from there on."""
        self.cluster.polls += 1
        if self.cluster.polls == self.cluster.interrupt_at_poll:
            raise KeyboardInterrupt
        self.cluster.before_poll()
        if self.on_assigned is not None:
            on_assigned, self.on_assigned = self.on_assigned, None
            on_assigned(list(self.positions))
        self._raise_gone()
        taken = {}
        for partition, before in self.positions.items():
            if partition in self.paused:
                continue
            position = self._within_log(partition, before)
            log = self.cluster.records.get(partition, [])
            taken[partition] = position, [each for each in log if each.offset >= position]
            self.positions[partition] = max(position, self.cluster.end(partition))
        return taken

    def _raise_gone(self) -> None:
        """As a consumer does now and then once its topic has gone for long."""
        self.polls_without_topic += any(each not in self.cluster.records for each in self.positions)
        if self.polls_without_topic and self.polls_without_topic % 20 == 0:
            self.polls_without_topic += 1
            raise unknown(next(each.topic for each in self.positions if each not in self.cluster.records))


class FakeAdmin(FakeClient, FakeConfigAdmin, FakeReplicaAdmin, FakeQuotaAdmin):
    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str],
        *,
        assignments: dict[int, tuple[int, ...]] | None,
        validate_only: bool,
    ) -> None:
        if name in self.cluster.topics:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS)
        self.cluster.settings["created"] = (name, partitions, replication_factor, configs)
        self.cluster.settings["assigned"] = assignments
        if not validate_only:
            self.cluster.add_topic(name, {})

    def create_partitions(
        self, name: str, count: int, *, assignments: tuple[tuple[int, ...], ...] | None, validate_only: bool
    ) -> None:
        if name not in self.cluster.topics:
            raise unknown(name)
        if count <= len(self.cluster.topics[name].partitions):
            raise InvalidTopicSettings(ErrorCode.INVALID_PARTITIONS, f"topic {name!r}: INVALID_PARTITIONS")
        self.cluster.settings["enlarged"] = (name, count)
        self.cluster.settings["assigned"] = assignments
        self.cluster.settings["validate_only"] = validate_only

    def delete_topic(self, name: str) -> None:
        if self.cluster.topics.pop(name, None) is None:
            raise unknown(name)

    def recover(self, partition: TopicPartition, *, accept_loss: bool) -> RecoveredPartition:
        self.cluster.settings.setdefault("recovered", []).append((partition, accept_loss))
        found = self.cluster.recovered[partition]
        if isinstance(found, Exception):
            raise found
        return found

    def delete_records(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        results: dict[TopicPartition, Any] = {}
        for tp, offset in offsets.items():
            known = self.cluster.topics.get(tp.topic)
            if known is None or tp.partition not in known.partitions:
                results[tp] = unknown(tp.topic)
            else:
                results[tp] = self.cluster.end(tp) if offset == -1 else offset
        self.cluster.settings["deleted"] = dict(offsets)
        return results

    def list_groups(self, states: Sequence[str] = (), *, timeout_ms: float | None = None) -> GroupListing:
        found = [each for each in self.cluster.groups.values() if not states or each.state in states]
        return GroupListing(
            [GroupSummary(each.group_id, each.state, each.protocol_type) for each in found], self.cluster.unheard
        )

    def describe_groups(self, names: Sequence[str]) -> dict[str, GroupView | ClientError]:
        return {name: self.cluster.groups.get(name) or unknown_group(name) for name in names}

    def list_group_offsets(self, name: str) -> dict[TopicPartition, GroupOffset]:
        if name in self.cluster.unanswered:
            raise self.cluster.unanswered[name]
        return self.cluster.committed.get(name, {})

    def list_offsets_of_groups(
        self, names: Sequence[str], *, timeout_ms: float
    ) -> dict[str, dict[TopicPartition, GroupOffset] | ClientError]:
        return {name: self.cluster.unanswered.get(name) or self.cluster.committed.get(name, {}) for name in names}

    def alter_group_offsets(self, name: str, offsets: dict[TopicPartition, GroupOffset]) -> dict[TopicPartition, None]:
        self.cluster.settings["reset"] = (name, {tp: each.offset for tp, each in offsets.items()})
        return dict.fromkeys(offsets)

    def delete_group_offsets(self, name: str, partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
        self.cluster.settings["forgotten"] = (name, partitions)
        busy = GroupNotEmpty(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, f"group {name!r} subscribes to it")
        return dict.fromkeys(partitions, busy if self.cluster.groups[name].members else None)

    def delete_groups(self, names: Sequence[str]) -> dict[str, ClientError | None]:
        return {name: None if self.cluster.groups.pop(name, None) else unknown_group(name) for name in names}

    def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterView:
        if not self.cluster.is_reachable:
            raise NoBrokerReachable("no broker answers")
        return self.cluster.moves.view()

    def read_replica(self, *_: object, **__: object) -> Any:
        raise ClientError("no replica can be read")

    def list_topics(self) -> list[str]:
        return list(self.cluster.topics)

    def describe_topics(
        self, names: list[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicView]:
        for name in names or ():
            if name not in self.cluster.topics:
                raise unknown(name)
        return {name: self.cluster.topics[name] for name in names or self.cluster.topics}


class FakeSession(Session):
    """A session of a fake cluster: time stands still but for what is slept, and a step whenever it is asked for."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.clock = 0.0
        self.step_s = 0.1
        self.runs = 0
        self.admins = 0
        """How many were made."""

    def _made(self, kind: type[FakeClient], bootstrap_servers: str, settings: dict[str, Any]) -> Any:
        self.cluster.bootstrap = bootstrap_servers
        self.cluster.settings.update(settings)
        return kind(self.cluster)

    def producer(self, bootstrap_servers: str, **settings: Any) -> Any:
        return self._made(FakeProducer, bootstrap_servers, settings)

    def consumer(self, bootstrap_servers: str, **settings: Any) -> Any:
        return self._made(FakeConsumer, bootstrap_servers, settings)

    def admin(self, bootstrap_servers: str, **settings: Any) -> Any:
        self.admins += 1
        return self._made(FakeAdmin, bootstrap_servers, settings)

    def running_bootstrap(self, data_dir: Path) -> str | None:
        return self.cluster.folders.get(str(data_dir))

    def running_zookeeper(self, data_dir: Path) -> str | None:
        return None

    def has_cluster(self, data_dir: Path) -> bool:
        return str(data_dir) in self.cluster.folders

    def run_id(self) -> int:
        self.runs += 1
        return self.runs

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        self.clock += self.step_s
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Runs command lines against the fake cluster."""

    def __init__(self, cluster: FakeCluster, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.session = FakeSession(cluster)
        self._capture = capfdbinary
        self._monkeypatch = monkeypatch

    def __call__(self, *args: str) -> Ran:
        self._capture.readouterr()
        code = run(list(args), session=self.session)
        out, err = self._capture.readouterr()
        return Ran(code, out.decode("utf-8", "surrogateescape"), err.decode())


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def shell(cluster: FakeCluster, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.delenv("STRANDLINE_BOOTSTRAP", raising=False)
    monkeypatch.delenv("STRANDLINE_DATA", raising=False)
    monkeypatch.delenv("STRANDLINE_DEBUG", raising=False)
    return Shell(cluster, capfdbinary, monkeypatch)
