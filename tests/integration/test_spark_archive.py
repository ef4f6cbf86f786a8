"""A topic into Parquet and back, on real Spark and a real cluster: nothing twice, nothing lost, nothing altered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import Admin, Consumer, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.spark_connector.errors import ArchiveBusy, ArchiveDamaged, ArchiveMismatch, RestoreRefused
from strandline.spark_connector.pipelines.archive import UTC_DAY, ArchiveOptions, ArchiveSummary, archive
from strandline.spark_connector.pipelines.folder import MANIFEST, ArchiveFolder
from strandline.spark_connector.pipelines.restore import RestoreOptions, RestoreSummary, restore

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
FIRST_MS = 1_700_006_400_000 - 50
"""50 ms before midnight in UTC."""


class Killed(Exception):
    """What a kill is to a test: nothing is done after it."""


class DyingDisk(PosixDisk):
    """The process is killed when it is about to commit."""

    is_dead = False

    def rename(self, source: str, target: str) -> None:
        self.is_dead = True
        raise Killed

    def unlink(self, path: str) -> None:
        assert not self.is_dead or self._raise()
        super().unlink(path)

    def rmdir(self, path: str) -> None:
        assert not self.is_dead or self._raise()
        super().rmdir(path)

    def _raise(self) -> bool:
        raise Killed


@pytest.fixture
def send(spark_cluster: EmbeddedCluster) -> Callable[..., None]:
    """`send(topic, numbers)`: two partitions in turn; nulls, headers, and two days."""

    def build(topic: str, numbers: range) -> None:
        with Producer(bootstrap_servers=spark_cluster.bootstrap_servers) as producer:
            for number in numbers:
                producer.send(
                    topic,
                    None if number % 11 == 0 else b"\xff\x00%d" % number,
                    key=None if number % 7 == 0 else b"key %d" % number,
                    partition=number % 2,
                    headers=[("n", b"%d" % number), ("n", None), ("", b"")] if number % 5 == 0 else [],
                    timestamp_ms=FIRST_MS + number,
                )

    return build


@pytest.fixture
def admin(spark_cluster: EmbeddedCluster) -> Any:
    with Admin(bootstrap_servers=spark_cluster.bootstrap_servers) as client:
        yield client


@pytest.fixture
def archived(spark: Any, spark_cluster: EmbeddedCluster, tmp_path: Path) -> Callable[..., ArchiveSummary]:
    def run(topic: str, disk: Any = None, **options: Any) -> ArchiveSummary:
        asked = ArchiveOptions(spark_cluster.bootstrap_servers, topic, str(tmp_path / "archive"), **options)
        return archive(spark, asked, disk or PosixDisk())

    return run


@pytest.fixture
def restored(spark: Any, spark_cluster: EmbeddedCluster, tmp_path: Path) -> Callable[..., RestoreSummary]:
    def run(topic: str, **options: Any) -> RestoreSummary:
        asked = RestoreOptions(spark_cluster.bootstrap_servers, str(tmp_path / "archive"), topic, **options)
        return restore(spark, asked, PosixDisk())

    return run


Rows = dict[int, list[tuple[Any, ...]]]


def of_topic(cluster: EmbeddedCluster, topic: str, count: int) -> Rows:
    """partition → (offset, key, value, headers, timestamp), as a consumer gets them."""
    found: Rows = {}
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        while sum(map(len, found.values())) < count:
            for tp, records in consumer.poll(timeout_ms=10_000).items():
                found.setdefault(tp.partition, []).extend(
                    (each.offset, each.key, each.value, tuple(each.headers), each.timestamp_ms) for each in records
                )
    return found


def of_parquet(spark: Any, folder: Path) -> Rows:
    from pyspark.sql import functions as sql

    found: Rows = {}
    rows = spark.read.parquet(str(folder)).withColumn("ms", sql.unix_millis("timestamp")).orderBy("offset").collect()
    for row in rows:
        assert (row.topic, row.timestampType, str(row.day)) == (
            "kept",
            0,
            "2023-11-14" if row.ms < FIRST_MS + 50 else "2023-11-15",
        )
        headers = tuple((each.key, each.value) for each in row.headers or ())
        found.setdefault(row.partition, []).append((row.offset, row.key, row.value, headers, row.ms))
    return found


def test_an_archive_grows_by_what_is_new_and_comes_back_as_it_was(
    spark: Any,
    spark_cluster: EmbeddedCluster,
    admin: Admin,
    send: Callable[..., None],
    archived: Callable[..., ArchiveSummary],
    restored: Callable[..., RestoreSummary],
    tmp_path: Path,
) -> None:
    pandas = pytest.importorskip("pandas")
    admin.create_topic("kept", 2, 3)
    assert archived("kept").run is None
    send("kept", range(200))
    first = archived("kept")
    assert (first.run, first.records, first.missing) == (1, 200, ())
    assert [(each.start, each.end, each.records) for each in first.partitions] == [(0, 100, 100)] * 2
    assert archived("kept").run is None

    # A run that is killed when all is written but not committed leaves nothing that counts.
    send("kept", range(200, 300))
    with pytest.raises(Killed):
        archived("kept", DyingDisk())
    folder = tmp_path / "archive"
    assert list((folder / "_staging").rglob("*.parquet"))
    assert spark.read.parquet(str(folder)).count() == len(pandas.read_parquet(folder)) == 200
    second = archived("kept")
    assert (second.run, second.records, second.archived_records) == (2, 100, 300)
    assert not (folder / "_staging" / "run=00000002").exists() and not list((folder / "_staging").rglob("*.parquet"))

    whole = of_topic(spark_cluster, "kept", 300)
    assert of_parquet(spark, folder) == whole
    frame = pandas.read_parquet(folder)
    assert len(frame) == 300 and str(frame.timestamp.dt.tz) == "UTC"
    assert "2023-11-15, partition 1: 125 records" in (folder / "_overview.html").read_text()

    done = restored("again")
    assert (done.created, done.written, done.verified, done.same_offsets) == (True, 300, 0, True)
    assert of_topic(spark_cluster, "again", 300) == whole

    # A second restore does not double; a resumed one goes on where the topic ends, unless that is something else.
    with pytest.raises(RestoreRefused, match="again-0 is not empty"):
        restored("again")
    assert (restored("again", resume=True).written, of_topic(spark_cluster, "again", 300)) == (0, whole)
    admin.create_topic("begun", 2, 3, {"retention.ms": "-1"})
    send("begun", range(130))
    resumed = restored("begun", resume=True)
    assert (resumed.verified, resumed.written, resumed.created) == (130, 170, False)
    assert of_topic(spark_cluster, "begun", 300) == whole
    admin.create_topic("other", 2, 3, {"retention.ms": "-1"})
    send("other", range(2, 4))
    with pytest.raises(Exception, match=r"other-[01] holds something else at offset 0 than the archive"):
        restored("other", resume=True)

    next((folder / "run=00000002").rglob("*.parquet")).unlink()
    with pytest.raises(ArchiveDamaged, match="has no bytes, the manifest says"):
        restored("never")
    assert "never" not in admin.list_topics()


def test_days_that_python_has_not_are_archived_under_the_last_one_that_it_has(spark: Any) -> None:
    first_of_10000 = 253_402_300_800_000
    stamps = (-1, 0, first_of_10000 - 1, first_of_10000, 2**63 // 1000 - 1)
    rows = spark.createDataFrame([(stamp,) for stamp in stamps], "ms bigint")
    days = rows.selectExpr("ms", "timestamp_millis(ms) as timestamp").selectExpr("ms", f"{UTC_DAY} as day").collect()
    assert {row.ms: str(row.day) for row in days} == {
        -1: "1969-12-31",
        0: "1970-01-01",
        **dict.fromkeys(stamps[2:], "9999-12-31"),
    }


def test_gaps_new_partitions_and_topics_made_anew_are_told(
    spark: Any,
    spark_cluster: EmbeddedCluster,
    admin: Admin,
    send: Callable[..., None],
    archived: Callable[..., ArchiveSummary],
    restored: Callable[..., RestoreSummary],
    tmp_path: Path,
) -> None:
    admin.create_topic("changing", 2, 3)
    send("changing", range(20))
    archived("changing")
    send("changing", range(20, 40))
    admin.delete_records({TopicPartition("changing", 0): 15})
    with pytest.raises(ArchiveMismatch, match=r"Offsets \[10, 15\) of changing-0 were deleted before"):
        archived("changing")
    admin.create_partitions("changing", 3)
    with_gap = archived("changing", allow_missing=True)
    assert [(each.partition, each.start, each.end, each.records) for each in with_gap.partitions] == [
        (0, 15, 20, 5),
        (1, 10, 20, 10),
        (2, 0, 0, 0),
    ]
    folder = ArchiveFolder(str(tmp_path / "archive"), PosixDisk())
    assert folder.manifests()[-1].missing == with_gap.missing != ()
    done = restored("closed-up")
    assert [(each.written, each.same_offsets) for each in done.partitions] == [(15, False), (20, True), (0, True)]

    with folder.locked(), pytest.raises(ArchiveBusy):
        archived("changing")
    with pytest.raises(ArchiveMismatch, match="is the archive of topic 'changing'"):
        archived("closed-up")
    admin.delete_topic("changing")
    admin.create_topic("changing", 3, 3)
    with pytest.raises(ArchiveMismatch, match="deleted and created anew"):
        archived("changing")
    (tmp_path / "archive" / "run=00000001" / MANIFEST).unlink()
    with pytest.raises(ArchiveDamaged, match="cannot be read"):
        archived("changing")
