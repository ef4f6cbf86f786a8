"""An archive back into a topic: the same keys, values, headers and timestamps, in the same order in each partition.

    summary = restore(spark, RestoreOptions("localhost:9092", "/data/clicks", "clicks-again"), PosixDisk())

The topic is created where there is none, with the partitions of the archive and without an end to its retention: what
is restored is old. Offsets begin at 0 and have no gaps, so they are those of the archive only where that had no gaps.
Timestamps that the brokers set (LogAppendTime) come back as timestamps of a producer.

Nothing is doubled, because nothing is written that is not known to follow (`restore_task`). A topic that holds records
is refused; with `resume` what a partition holds is compared with the beginning of the archive, record by record, and
the restore goes on behind it. So does each attempt of a task, whatever the one before it had written. Each record must
get the offset that follows; else somebody else writes, and the restore stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.protocol.types import TopicId, TopicPartition
from strandline.runtime.disk import Disk
from strandline.spark_connector.errors import ArchiveDamaged, RestoreRefused
from strandline.spark_connector.pipelines.archive import read_files
from strandline.spark_connector.pipelines.folder import ArchiveFolder
from strandline.spark_connector.pipelines.manifest import Manifest
from strandline.spark_connector.pipelines.pictures import bars, figures, page, section, size_text, table
from strandline.spark_connector.pipelines.restore_task import TASK_SCHEMA, RestoreTask, producer_id_of, source_options
from strandline.spark_connector.reading.planning import Held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITER_SETTINGS: Mapping[str, Any] = {
    "client_id": "strandline-restore",
    "acks": "all",
    "compression_type": "lz4",
    "batch_size": 262_144,
    "max_request_size": 32 << 20,
    "buffer_memory": 64 << 20,
}
"""Where the user says nothing else; the last three follow the topic and its records (`writer_settings`)."""

MAX_MESSAGE_BYTES = "max.message.bytes"
USUAL_MAX_MESSAGE_BYTES = 1_048_588
"""What brokers allow if nobody says otherwise."""

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
    folder = ArchiveFolder(options.folder, disk)
    on_step(f"checking {options.folder}")
    history = folder.manifests()
    if not history:
        raise RestoreRefused(f"{options.folder} holds no archive: no folder run=… is in it")
    for manifest in history:
        folder.check_files(manifest)
    archived = archived_records(history)
    bytes_needed = bytes_needed_for(history)
    created, max_message_bytes = _create_or_check(options, len(archived), bytes_needed, warn)
    topic_id, present = _present(options, sorted(archived))
    check_present(present, archived, options)
    on_step(f"restoring {sum(archived.values()):,} records")
    rows = (
        _records(spark, folder, history)
        .select(*COLUMNS)
        .repartition(max(1, min(len(archived), spark.sparkContext.defaultParallelism * 4)), "partition")
        .sortWithinPartitions("partition", "offset")
    )
    found = {partition: held.latest for partition, held in present.items()}
    task = RestoreTask(
        options.bootstrap_servers,
        options.topic,
        producer_id_of(options.topic, topic_id),
        writer_settings(options.writer_settings, max_message_bytes, bytes_needed),
        found,
    )
    done = {row.partition: row for row in rows.mapInArrow(task, TASK_SCHEMA).collect()}
    summary = _summary(options, history, archived, found, done, created)
    check_whole(_present(options, sorted(archived))[1], archived, options)
    return summary


def writer_settings(asked: Mapping[str, Any], max_message_bytes: int, bytes_needed: int) -> dict[str, Any]:
    """Of the producer: `asked`, and what fits the topic and the archive's largest record."""
    settings = {**WRITER_SETTINGS, **asked}
    if "batch_size" not in asked:  # before compression, which makes some records larger
        settings["batch_size"] = min(WRITER_SETTINGS["batch_size"], max_message_bytes * 99 // 100)
    if "max_request_size" not in asked:
        settings["max_request_size"] = max(WRITER_SETTINGS["max_request_size"], 2 * bytes_needed)
    if "buffer_memory" not in asked:
        settings["buffer_memory"] = max(WRITER_SETTINGS["buffer_memory"], 2 * int(settings["max_request_size"]))
    return settings


def _records(spark: SparkSession, folder: ArchiveFolder, history: list[Manifest]) -> DataFrame:
    """Of the runs that were committed when we looked."""
    from pyspark.sql.types import IntegerType, StructField

    return read_files(spark, folder.for_spark(), StructField("run", IntegerType())).where(f"run <= {history[-1].run}")


def bytes_needed_for(history: list[Manifest]) -> int:
    """By the archive's largest record, as a batch of its own: more than it takes, compressed or not."""
    largest = max((file.largest_record_bytes for manifest in history for file in manifest.files), default=0)
    return largest + largest // 100 + 1_024


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


def check_whole(present: Mapping[int, Held], archived: Mapping[int, int], options: RestoreOptions) -> None:
    """RestoreRefused where the topic holds more than was restored, once that is done."""
    for partition, held in sorted(present.items()):
        if held.latest > archived[partition]:
            raise RestoreRefused(
                f"{options.topic}-{partition} holds {held.latest} records, and the archive {archived[partition]} of "
                "it: somebody else wrote to the topic meanwhile. Delete it, and restore again while nobody writes"
            )


# --- The topic -------------------------------------------------------------------------------------------------


def _create_or_check(
    options: RestoreOptions, partitions: int, bytes_needed: int, warn: Callable[[str], None]
) -> tuple[bool, int]:
    """Whether it was created, and how large its batches may be. RestoreRefused for a topic that cannot take the archive
    as it is; the client's errors."""
    from strandline import Admin
    from strandline.protocol.messages import ConfigResource

    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        if options.topic not in admin.list_topics():
            configs = topic_configs(options.configs, bytes_needed)
            _warn_of_size(options.topic, configs[MAX_MESSAGE_BYTES], bytes_needed, warn)
            admin.create_topic(options.topic, partitions, options.replication_factor, configs)
            return True, int(configs[MAX_MESSAGE_BYTES])
        found = len(admin.describe_topics([options.topic])[options.topic].partitions)
        configured = {each.name: each.value for each in admin.describe_configs(ConfigResource.TOPIC, options.topic)}
    check_topic(options, found, partitions, configured, bytes_needed, warn)
    return False, int(configured.get(MAX_MESSAGE_BYTES) or USUAL_MAX_MESSAGE_BYTES)


def topic_configs(asked: Mapping[str, str], bytes_needed: int) -> dict[str, str]:
    """Of a topic that is created: it takes the archive's largest record, unless `asked` says otherwise."""
    return {**FOR_OLD_RECORDS, MAX_MESSAGE_BYTES: str(max(USUAL_MAX_MESSAGE_BYTES, bytes_needed)), **asked}


def check_topic(
    options: RestoreOptions,
    found: int,
    partitions: int,
    configured: Mapping[str, str | None],
    bytes_needed: int,
    warn: Callable[[str], None],
) -> None:
    """`found`: partitions that the topic has, `partitions`: that the archive has. RestoreRefused."""
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
    _warn_of_size(options.topic, configured.get(MAX_MESSAGE_BYTES), bytes_needed, warn)


def _warn_of_size(topic: str, max_message_bytes: str | None, bytes_needed: int, warn: Callable[[str], None]) -> None:
    """It is no error: a record that compresses well needs less."""
    if max_message_bytes is not None and int(max_message_bytes) < bytes_needed:
        warn(
            f"topic {topic!r} has {MAX_MESSAGE_BYTES}={max_message_bytes}, and the archive has a record that may need "
            f"{bytes_needed}: if it is refused, raise that ('strandline configs alter --topic {topic} --add "
            f"{MAX_MESSAGE_BYTES}={bytes_needed}') and resume (--resume)"
        )


def _present(options: RestoreOptions, partitions: list[int]) -> tuple[TopicId, dict[int, Held]]:
    from strandline.spark_connector.reading.cluster import ClusterClient

    with ClusterClient(source_options(options.bootstrap_servers, options.topic)) as cluster:
        topic_id = cluster.topic_id(options.topic)
        held = cluster.held([TopicPartition(options.topic, partition) for partition in partitions])
    return topic_id, {each.partition: found for each, found in held.items()}


# --- What came of it -------------------------------------------------------------------------------------------


def _summary(
    options: RestoreOptions,
    history: list[Manifest],
    archived: Mapping[int, int],
    found: Mapping[int, int],
    done: Mapping[int, Any],
    created: bool,
) -> RestoreSummary:
    """What was not there when we looked was written, by whatever attempt. ArchiveDamaged where the files held other
    than the manifests say."""
    partitions = []
    for partition, records in sorted(archived.items()):
        row = done.get(partition)
        settled, data_bytes = (row.records, row.data_bytes) if row is not None else (0, 0)
        if settled != records:
            raise ArchiveDamaged(
                f"{options.folder} had {settled} records of partition {partition}, its manifests say "
                f"{records}; delete topic {options.topic!r}, and take the archive from a backup"
            )
        last = max(
            (file.last_offset for each in history for file in each.files if file.partition == partition), default=-1
        )
        verified = found.get(partition, 0)
        partitions.append(RestoredPartition(partition, verified, records - verified, data_bytes, last + 1 == records))
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
