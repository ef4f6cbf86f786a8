"""A topic into Parquet files, partitioned by the UTC day of the timestamps; incremental, each record exactly once.

    summary = archive(spark, ArchiveOptions("localhost:9092", "clicks", "/data/clicks"), PosixDisk())
    spark.read.parquet("/data/clicks").where("day = '2026-11-24'")

A run reads from where the newest manifest ends up to the high watermarks, writes into a folder that readers pass over,
reads that back to count, and commits with one rename (folder.py). What can fail fails before: then nothing of the run
counts, and the next run begins at the same offsets. The columns are those of the source, headers included, and `run`
and `day` from the names of the folders.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.runtime.disk import Disk
from strandline.spark_connector.errors import ArchiveDamaged, ArchiveMismatch, UnknownTopic
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.pipelines.folder import STAGING, ArchiveFolder
from strandline.spark_connector.pipelines.manifest import ArchivedFile, Manifest, Missing, NextRun, Offsets, next_run
from strandline.spark_connector.pipelines.pictures import bars, figures, page, section, size_text, table
from strandline.spark_connector.pipelines.settings import session_settings
from strandline.spark_connector.reading.planning import Held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

RECORDS_PER_TASK = 1_000_000
"""A longer range is read by several tasks, each of which writes files of its own."""

LAST_DAY = (date.max - date(1970, 1, 1)).days
UTC_DAY = f"date_from_unix_date(cast(least(floor(unix_millis(timestamp) / 86400000), {LAST_DAY}) as int))"
"""Of the timestamp, whatever the time zone of the session. A year of more than four digits goes under the last day of
9999: its own name would not sort, and Python has no such date."""

_RECORD_BYTES = (
    "coalesce(octet_length(key), 0L) + coalesce(octet_length(value), 0L) + coalesce(aggregate(headers, 0L, "
    "(sum, each) -> sum + octet_length(each.key) + coalesce(octet_length(each.value), 0) + 20), 0L)"
)
"""Key, value and headers, each of which takes some bytes beside its own key and value."""

_PARQUET = {
    # Spark's default is INT96, which other readers take for a time without a zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Timestamps before 1900 are written as they are.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """`folder` is an absolute path; `source_options`: more options of the source, such as kafka.request.timeout.ms."""

    bootstrap_servers: str
    topic: str
    folder: str
    allow_missing: bool = False
    """Offsets that are gone before they were archived are noted in the manifest; else they are an error."""
    source_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    partition: int
    start: int
    end: int
    records: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """What a run did. `run` None: there was nothing new, and nothing was written. `overview`: the page about the whole
    archive."""

    topic: str
    topic_id: str
    folder: str
    run: int | None
    partitions: tuple[ArchivedPartition, ...]
    missing: tuple[Missing, ...]
    files: int
    size_bytes: int
    records: int
    archived_records: int
    """Of all runs."""
    overview: str | None


def archive(
    spark: SparkSession,
    options: ArchiveOptions,
    disk: Disk,
    *,
    on_step: Callable[[str], None] = lambda step: None,
    warn: Callable[[str], None] = lambda text: None,
) -> ArchiveSummary:
    """Archive what is new; `on_step` is told what is done now. ArchiveBusy, ArchiveMismatch, ArchiveDamaged, the errors
    of the source and of the disk."""
    folder = ArchiveFolder(options.folder, disk)
    with folder.locked():
        history = folder.manifests()
        folder.remove_leftovers()
        on_step(f"looking at topic {options.topic}")
        topic_id, held = _topic_now(options)
        planned = next_run(
            history[-1] if history else None,
            options.topic,
            topic_id,
            held,
            allow_missing=options.allow_missing,
            warn=warn,
        )
        if planned.is_empty:
            return _summary(options, topic_id, planned, None, history, None)
        staged = f"{folder.run_name(planned.run)}-{spark.sparkContext.applicationId}"
        try:
            files: tuple[ArchivedFile, ...] = ()
            if planned.wanted:
                on_step(f"archiving {sum(each.end - each.start for each in planned.wanted.values()):,} offsets")
                _write(spark, options, planned.wanted, folder.for_spark(STAGING, staged))
                on_step("reading back")
                files = _written(spark, planned, folder.for_spark(STAGING, staged))
            if _topic_now(options)[0] != topic_id:
                raise ArchiveMismatch(f"Topic {options.topic!r} was deleted and created anew while it was archived")
            manifest = Manifest(planned.run, options.topic, topic_id, planned.offsets, planned.missing, files)
            on_step("committing")
            folder.commit(staged, manifest)
        except Exception:
            folder.remove_leftovers()
            raise
        history.append(manifest)
        overview = folder.write_overview(archive_page(history))
        return _summary(options, topic_id, planned, manifest, history, overview)


def _topic_now(options: ArchiveOptions) -> tuple[str, dict[int, Held]]:
    """The topic's id and what its partitions hold. UnknownTopic, the client's errors."""
    from strandline.spark_connector.reading.cluster import ClusterClient

    parsed = parse_options({**options.source_options, "servers": options.bootstrap_servers, "subscribe": options.topic})
    with ClusterClient(parsed) as cluster:
        numbers = cluster.partitions(options.topic)
        # Before the offsets: those of a topic that is created anew in between must not pass for the old one's.
        topic_id = cluster.topic_id(options.topic)
        if not numbers or topic_id == NO_TOPIC_ID:
            raise UnknownTopic(
                f"Topic {options.topic!r} does not exist; check the spelling ('strandline topics --list')"
            )
        held = cluster.held([TopicPartition(options.topic, number) for number in sorted(numbers)])
    return topic_id.hex(), {each.partition: found for each, found in held.items()}


# --- Spark -----------------------------------------------------------------------------------------------------


def _write(spark: SparkSession, options: ArchiveOptions, wanted: Mapping[int, Offsets], target: str) -> None:
    """The offsets of these partitions, a file per task and day."""
    from pyspark.sql import functions as sql

    def of_each(side: int) -> str:
        return json.dumps({options.topic: {str(partition): offsets[side] for partition, offsets in wanted.items()}})

    rows = (
        spark.read.format("strandline")
        .options(**options.source_options)
        .option("servers", options.bootstrap_servers)
        .option("assign", json.dumps({options.topic: list(wanted)}))
        .option("startingOffsets", of_each(0))
        .option("endingOffsets", of_each(1))
        .option("failOnDataLoss", "true")
        .option("maxRecordsPerPartition", str(RECORDS_PER_TASK))
        .option("includeHeaders", "true")
        .option("logReads", "false")
        .load()
    )
    with session_settings(spark, _PARQUET):
        (
            rows.withColumn("day", sql.expr(UTC_DAY))
            .sortWithinPartitions("day", "partition", "offset")
            .write.option("compression", "zstd")
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .partitionBy("day")
            .parquet(target)
        )


def _written(spark: SparkSession, planned: NextRun, target: str) -> tuple[ArchivedFile, ...]:
    """Each file that Spark wrote, from reading it. ArchiveDamaged if it holds what was not asked for."""
    from pyspark.sql import functions as sql

    size = sql.coalesce(sql.length("key"), sql.lit(0)) + sql.coalesce(sql.length("value"), sql.lit(0))
    found = (
        read_files(spark, target)
        .groupBy("_metadata.file_path", "_metadata.file_size", sql.col("day").cast("string").alias("day"), "partition")
        .agg(
            sql.count("*").alias("records"),
            sql.sum(size).alias("data_bytes"),
            sql.min("offset").alias("first"),
            sql.max("offset").alias("last"),
            sql.max(sql.expr(_RECORD_BYTES)).alias("largest"),
        )
        .collect()
    )
    files = [
        ArchivedFile(
            path="/".join(row.file_path.split("/")[-2:]),
            size_bytes=row.file_size,
            day=row.day,
            partition=row.partition,
            records=row.records,
            data_bytes=row.data_bytes,
            first_offset=row.first,
            last_offset=row.last,
            largest_record_bytes=row.largest,
        )
        for row in found
    ]
    for file in files:
        start, end = planned.offsets[file.partition]
        if not start <= file.first_offset <= file.last_offset < end:
            raise ArchiveDamaged(f"{file.path} holds offsets outside of [{start}, {end}); nothing was committed")
    return tuple(sorted(files, key=lambda file: (file.partition, file.first_offset, file.day)))


def read_files(spark: SparkSession, folder: str, *also: StructField) -> DataFrame:
    """The records below a folder with `day` and what else the names of its folders say; none where no file is."""
    from pyspark.sql.types import DateType, StructField, StructType

    from strandline.spark_connector.source import fixed_schema

    named = [*also, StructField("day", DateType())]
    rows: DataFrame = spark.read.schema(StructType([*fixed_schema(include_headers=True).fields, *named])).parquet(
        folder
    )
    return rows


# --- What came of it -------------------------------------------------------------------------------------------


def _summary(
    options: ArchiveOptions,
    topic_id: str,
    planned: NextRun,
    manifest: Manifest | None,
    history: list[Manifest],
    overview: str | None,
) -> ArchiveSummary:
    files = manifest.files if manifest is not None else ()
    partitions = []
    for partition, (start, end) in planned.offsets.items():
        own = [file for file in files if file.partition == partition]
        records, data_bytes = sum(file.records for file in own), sum(file.data_bytes for file in own)
        partitions.append(ArchivedPartition(partition, start, end, records, data_bytes))
    return ArchiveSummary(
        topic=options.topic,
        topic_id=topic_id,
        folder=options.folder,
        run=None if manifest is None else manifest.run,
        partitions=tuple(partitions),
        missing=planned.missing,
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        records=sum(file.records for file in files),
        archived_records=sum(each.records for each in history),
        overview=overview,
    )


def archive_page(history: list[Manifest]) -> str:
    """Records and bytes per day and partition, over all runs (at least one)."""
    files = [file for manifest in history for file in manifest.files]
    days = sorted({file.day for file in files})
    place = {day: number for number, day in enumerate(days)}
    records: dict[str, list[float]] = {}
    data_bytes: dict[str, list[float]] = {}
    per_partition: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for file in sorted(files, key=lambda file: file.partition):
        name = f"partition {file.partition}"
        records.setdefault(name, [0.0] * len(days))[place[file.day]] += file.records
        data_bytes.setdefault(name, [0.0] * len(days))[place[file.day]] += file.data_bytes
        for number, value in enumerate((file.records, file.data_bytes, file.size_bytes)):
            per_partition[file.partition][number] += value
    first, last = history[0], history[-1]
    missing = [each for manifest in history for each in manifest.missing]
    partitions = [
        [
            str(partition),
            str(min(each.offsets[partition].start for each in history if partition in each.offsets)),
            str(offsets.end),
            f"{per_partition[partition][0]:,}",
            size_text(per_partition[partition][1]),
            size_text(per_partition[partition][2]),
        ]
        for partition, offsets in sorted(last.offsets.items())
    ]
    columns = ("partition", "from offset", "to (without)", "records", "data", "Parquet")
    gone = [[str(each.partition), str(each.start), str(each.end)] for each in missing]
    sections: list[Any] = [
        figures(
            [
                ("records", f"{sum(file.records for file in files):,}"),
                ("keys and values", size_text(sum(file.data_bytes for file in files))),
                ("Parquet", size_text(sum(file.size_bytes for file in files))),
                ("days", str(len(days))),
                ("runs", str(len(history))),
            ]
        ),
        section("Records per day", bars(days, records, unit="records")),
        section("Bytes of keys and values per day", bars(days, data_bytes, unit="", shown=size_text)),
        section("Partitions", table(columns, partitions, columns)),
    ]
    if gone:
        names = ("partition", "from offset", "to (without)")
        sections.append(section("Deleted before they were archived", table(names, gone, names)))
    return page(f"Archive of {first.topic}", sections, subtitle=f"Topic id {first.topic_id}; days in UTC")
