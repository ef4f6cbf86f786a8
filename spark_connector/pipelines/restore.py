"""An archive back into a topic: the same keys, values, headers and timestamps, in the same order in each partition.

    summary = restore(spark, RestoreOptions("localhost:9092", "/data/clicks", "clicks-again"), PosixDisk())

The topic is created where there is none, with the partitions of the archive and without an end to its retention: what
is restored is old. Offsets begin at 0 and have no gaps, so they are those of the archive only where that had no gaps.
Timestamps that the brokers set (LogAppendTime) come back as timestamps of a producer.

Nothing is doubled, because nothing is written that is not known to follow. A topic that holds records is refused; with
`resume` each task first compares what the partition holds with the beginning of the archive, record by record, and goes
on behind it. While it writes, each record must get the offset that follows; else somebody else writes, and it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.protocol.types import TopicPartition
from strandline.runtime.disk import Disk
from strandline.spark_connector.errors import ArchiveDamaged, RestoreRefused
from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.pipelines.archive import read_files
from strandline.spark_connector.pipelines.folder import ArchiveFolder
from strandline.spark_connector.pipelines.manifest import Manifest
from strandline.spark_connector.pipelines.pictures import bars, figures, page, section, size_text, table
from strandline.spark_connector.reading.planning import Held, OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

RECORDS_PER_FLUSH = 10_000
BYTES_PER_FLUSH = 8 << 20
"""So much is under way before its offsets are checked."""

WRITER_SETTINGS: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": True,
    "compression_type": "lz4",
    "batch_size": 262_144,
    "max_request_size": 32 << 20,
    "buffer_memory": 64 << 20,
}
"""Records may be as large as they were in the archived topic; how large one may be is up to the brokers."""

FOR_OLD_RECORDS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
"""Of a topic that is created here: by the default retention the brokers would delete the records again at once."""

COLUMNS = ("key", "value", "headers", "timestamp", "offset", "partition")


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """`folder`: of the archive, absolute. `configs`: of the topic, where it is created; `writer_settings`: of our
    producer."""

    bootstrap_servers: str
    folder: str
    topic: str
    resume: bool = False
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    writer_settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """`verified` records were there already, `written` were added. `same_offsets`: each record has the offset that it
    had in the archived topic."""

    partition: int
    verified: int
    written: int
    data_bytes: int
    same_offsets: bool


@dataclass(frozen=True, slots=True)
class RestoreSummary:
    topic: str
    folder: str
    archived_topic: str
    created: bool
    partitions: tuple[RestoredPartition, ...]
    verified: int
    written: int
    data_bytes: int
    same_offsets: bool
    """Of all records."""


class Row(NamedTuple):
    """What a record is, wherever it stands."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def restore(
    spark: SparkSession,
    options: RestoreOptions,
    disk: Disk,
    *,
    on_step: Callable[[str], None] = lambda step: None,
    warn: Callable[[str], None] = lambda text: None,
) -> RestoreSummary:
    """Bring the whole archive into the topic. RestoreRefused, ArchiveDamaged, the errors of the client and of the
    disk; what a task raises comes as Spark's exception with the text in it."""
    from pyspark.sql.types import IntegerType, StructField

    folder = ArchiveFolder(options.folder, disk)
    on_step(f"checking {options.folder}")
    history = folder.manifests()
    if not history:
        raise RestoreRefused(f"{options.folder} holds no archive: no folder run=… is in it")
    for manifest in history:
        folder.check_files(manifest)
    archived = archived_records(history)
    created = _create_or_check(options, len(archived), warn)
    present = _present(options, sorted(archived))
    check_present(present, archived, options)
    on_step(f"restoring {sum(archived.values()):,} records")
    rows = (
        read_files(spark, folder.for_spark(), StructField("run", IntegerType()))
        .where(f"run <= {history[-1].run}")
        .select(*COLUMNS)
        .repartition(max(1, min(len(archived), spark.sparkContext.defaultParallelism * 4)), "partition")
        .sortWithinPartitions("partition", "offset")
    )
    task = RestoreTask(options, {partition: held.latest for partition, held in present.items()})
    done = {row.partition: row for row in rows.mapInArrow(task, TASK_SCHEMA).collect()}
    return _summary(options, history, archived, done, created)


def archived_records(history: list[Manifest]) -> dict[int, int]:
    """Partition → how many records all runs have of it, for every partition of the archived topic."""
    counts = dict.fromkeys(range(max(history[-1].offsets, default=-1) + 1), 0)
    for manifest in history:
        for file in manifest.files:
            counts[file.partition] += file.records
    return counts


def check_present(present: Mapping[int, Held], archived: Mapping[int, int], options: RestoreOptions) -> None:
    """RestoreRefused unless the topic is empty, or resume is asked for and it may be the beginning of the archive."""
    for partition, held in sorted(present.items()):
        name = f"{options.topic}-{partition}"
        if held.latest and not options.resume:
            raise RestoreRefused(
                f"{name} is not empty: it ends at offset {held.latest}. To go on with a restore that was interrupted, "
                "resume it (--resume); else restore into another topic"
            )
        if held.earliest:
            raise RestoreRefused(
                f"{name} begins at offset {held.earliest}: its first records were deleted, so it cannot "
                "be compared with the archive; restore into another topic"
            )
        if held.latest > archived[partition]:
            raise RestoreRefused(
                f"{name} holds {held.latest} records, the archive only {archived[partition]} of it; restore "
                "into another topic"
            )


# --- The topic -------------------------------------------------------------------------------------------------


def _create_or_check(options: RestoreOptions, partitions: int, warn: Callable[[str], None]) -> bool:
    """True: created. RestoreRefused for a topic that cannot take the archive as it is; the client's errors."""
    from strandline import Admin
    from strandline.protocol.messages import ConfigResource

    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        if options.topic not in admin.list_topics():
            configs = {**FOR_OLD_RECORDS, **options.configs}
            admin.create_topic(options.topic, partitions, options.replication_factor, configs)
            return True
        found = len(admin.describe_topics([options.topic])[options.topic].partitions)
        configured = {each.name: each.value for each in admin.describe_configs(ConfigResource.TOPIC, options.topic)}
    if found != partitions:
        raise RestoreRefused(
            f"Topic {options.topic!r} has {found} partitions, the archive {partitions}; restore into another topic"
        )
    if configured.get("message.timestamp.type") == "LogAppendTime":
        raise RestoreRefused(
            f"Topic {options.topic!r} replaces all timestamps (message.timestamp.type=LogAppendTime): change that, or "
            "restore into another topic"
        )
    for name in ("retention.ms", "retention.bytes"):
        if (configured.get(name) or "-1") != "-1":
            warn(f"topic {options.topic!r} has {name}={configured[name]}: the brokers may delete what is restored")
    if "compact" in (configured.get("cleanup.policy") or ""):
        warn(f"topic {options.topic!r} is compacted: an interrupted restore may not be able to resume")
    return False


def _present(options: RestoreOptions, partitions: list[int]) -> dict[int, Held]:
    from strandline.spark_connector.reading.cluster import ClusterClient

    with ClusterClient(_source_options(options)) as cluster:
        held = cluster.held([TopicPartition(options.topic, partition) for partition in partitions])
    return {each.partition: found for each, found in held.items()}


def _source_options(options: RestoreOptions) -> SourceOptions:
    return parse_options({"servers": options.bootstrap_servers, "subscribe": options.topic, "includeHeaders": "true"})


# --- A task ----------------------------------------------------------------------------------------------------

TASK_SCHEMA = "partition int, verified bigint, written bigint, data_bytes bigint"


class RestoreTask:
    """Runs on executors: some partitions one after another, each in order. `present`: partition → offset up to which
    its records are compared."""

    def __init__(self, options: RestoreOptions, present: Mapping[int, int]) -> None:
        self.options = options
        self.present = dict(present)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from strandline import Producer

        options = self.options
        servers = {"bootstrap_servers": options.bootstrap_servers, "client_id": "strandline-restore"}
        with Producer(**{**servers, **WRITER_SETTINGS, **options.writer_settings}) as producer:
            for partition, numbered in groupby(_rows(batches), key=lambda each: each[0]):
                writer = PartitionWriter(producer, TopicPartition(options.topic, partition))
                present = self._present(partition)
                verified, written = append_rest(writer.partition, (row for _, row in numbered), present, writer.append)
                answer = {
                    "partition": pa.array([partition], pa.int32()),
                    "verified": pa.array([verified], pa.int64()),
                    "written": pa.array([written], pa.int64()),
                    "data_bytes": pa.array([writer.data_bytes], pa.int64()),
                }
                yield pa.RecordBatch.from_pydict(answer)

    def _present(self, partition: int) -> Iterator[Row]:
        """What the partition holds, from offset 0 on. RestoreRefused where offsets are left out."""
        from strandline.spark_connector.reading.reader import read_range

        end = self.present.get(partition, 0)
        if not end:
            return
        wanted = OffsetRange(self.options.topic, partition, 0, end)
        expected = 0
        for batch in read_range(_source_options(self.options), wanted, print):
            for offset, row in zip(batch["offset"].to_pylist(), rows_of(batch), strict=True):
                if offset != expected:
                    break
                expected += 1
                yield row
        if expected != end:
            raise RestoreRefused(
                f"{self.options.topic}-{partition} holds no record at offset {expected}: it was compacted, or written "
                "by somebody else; restore into another topic"
            )


class PartitionWriter:
    """Appends to one partition, and makes sure of every offset."""

    def __init__(self, producer: Any, partition: TopicPartition) -> None:
        self._producer = producer
        self.partition = partition
        self.data_bytes = 0

    def append(self, rows: list[Row], first_offset: int) -> None:
        """All of them, from this offset on. RestoreRefused if they stand elsewhere, DeliveryFailed."""
        topic, number = self.partition
        send = self._producer.send
        sent = [
            send(topic, row.value, key=row.key, partition=number, headers=row.headers, timestamp_ms=row.timestamp_ms)
            for row in rows
        ]
        for expected, future in enumerate(sent, first_offset):
            if (offset := future.result().offset) != expected:
                raise RestoreRefused(
                    f"A record of {self.partition} was to get offset {expected} and got {offset}: somebody else writes "
                    "to the topic. Delete it, and restore again while nobody writes"
                )
        self.data_bytes += sum(_size(row) for row in rows)


def append_rest(
    partition: TopicPartition,
    archived: Iterable[Row],
    present: Iterable[Row],
    append: Callable[[list[Row], int], None],
) -> tuple[int, int]:
    """Compare `present` with the beginning of `archived`, then append the rest; (verified, written). RestoreRefused
    where they differ."""
    rest = iter(archived)
    verified = 0
    for there in present:
        if next(rest, None) != there:
            raise RestoreRefused(
                f"{partition} holds something else at offset {verified} than the archive; restore into another topic"
            )
        verified += 1
    written, chunk, size = 0, [], 0
    for row in rest:
        chunk.append(row)
        size += _size(row)
        if len(chunk) == RECORDS_PER_FLUSH or size >= BYTES_PER_FLUSH:
            append(chunk, verified + written)
            written, chunk, size = written + len(chunk), [], 0
    if chunk:
        append(chunk, verified + written)
    return verified, written + len(chunk)


def _size(row: Row) -> int:
    return len(row.key or b"") + len(row.value or b"")


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Row]]:
    """(partition, row), in order."""
    for batch in batches:
        yield from zip(batch["partition"].to_pylist(), rows_of(batch), strict=True)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """The records of a batch that has the columns of the source."""
    import pyarrow as pa

    columns = (
        batch["key"].to_pylist(),
        batch["value"].to_pylist(),
        batch["headers"].to_pylist(),
        batch["timestamp"].cast(pa.int64()).to_pylist(),
    )
    for key, value, headers, timestamp_us in zip(*columns, strict=True):
        listed = tuple((each["key"], each["value"]) for each in headers or ())
        yield Row(key, value, listed, timestamp_us // 1000)


# --- What came of it -------------------------------------------------------------------------------------------


def _summary(
    options: RestoreOptions,
    history: list[Manifest],
    archived: Mapping[int, int],
    done: Mapping[int, Any],
    created: bool,
) -> RestoreSummary:
    """ArchiveDamaged where the files held other than the manifests say."""
    partitions = []
    for partition, records in sorted(archived.items()):
        row = done.get(partition)
        verified, written, data_bytes = (row.verified, row.written, row.data_bytes) if row is not None else (0, 0, 0)
        if verified + written != records:
            raise ArchiveDamaged(
                f"{options.folder} had {verified + written} records of partition {partition}, its manifests say "
                f"{records}; delete topic {options.topic!r}, and take the archive from a backup"
            )
        last = max(
            (file.last_offset for each in history for file in each.files if file.partition == partition), default=-1
        )
        partitions.append(RestoredPartition(partition, verified, written, data_bytes, last + 1 == records))
    return RestoreSummary(
        topic=options.topic,
        folder=options.folder,
        archived_topic=history[0].topic,
        created=created,
        partitions=tuple(partitions),
        verified=sum(each.verified for each in partitions),
        written=sum(each.written for each in partitions),
        data_bytes=sum(each.data_bytes for each in partitions),
        same_offsets=all(each.same_offsets for each in partitions),
    )


def restore_page(summary: RestoreSummary) -> str:
    """Records written and found per partition."""
    names = [str(each.partition) for each in summary.partitions]
    series = {
        "written": [float(each.written) for each in summary.partitions],
        "found there": [float(each.verified) for each in summary.partitions],
    }
    columns = ("partition", "written", "found there", "bytes written")
    rows = [
        [str(each.partition), f"{each.written:,}", f"{each.verified:,}", size_text(each.data_bytes)]
        for each in summary.partitions
    ]
    offsets = (
        "Offsets are those of the archived topic"
        if summary.same_offsets
        else ("Offsets differ from those of the archived topic, which had gaps; the order is the same")
    )
    headline = figures(
        [
            ("records written", f"{summary.written:,}"),
            ("found there", f"{summary.verified:,}"),
            ("keys and values written", size_text(summary.data_bytes)),
        ]
    )
    return page(
        f"Restore of {summary.archived_topic} into {summary.topic}",
        [
            headline,
            section("Records per partition", bars(names, series, unit="records"), note=f"{offsets}."),
            section("Partitions", table(columns, rows, columns)),
        ],
        subtitle=f"From {summary.folder}",
    )
