"""Streaming queries over faults, with real processes: the driver killed in the middle of a micro-batch, brokers killed
and topics grown under a running query. Every record arrives exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import Admin
from strandline.cli.cluster import EmbeddedCluster
from support import copies, spark_job
from support.spark_faults import Faults

pytestmark = pytest.mark.spark

PATIENCE_S = 180


def test_a_driver_that_is_killed_in_a_batch_neither_loses_nor_doubles_a_record(
    spark: Any, spark_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """Of a stream into files, which are Spark's own: it is the source that is put to the proof."""
    bootstrap, topic = spark_cluster.bootstrap_servers, "killed-in-a-batch"
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, 3, 3, copies.KEPT)
    copies.write(bootstrap, topic, range(600), "zstd")
    faults = Faults(tmp_path / "faults")
    arguments = ("stream", bootstrap, topic, str(tmp_path / "written"), str(tmp_path / "checkpoint"))
    for point, times in (("after initial", 1), ("after plan", 2)):
        faults.arm(point, times, "jvm")
        killed = spark_job.run(faults, *arguments)
        assert killed.returncode and faults.has_struck, killed.stderr[-4_000:]
        copies.write(bootstrap, topic, range(600, 900) if point == "after plan" else range(0), "gzip")
    ended = spark_job.run(faults, *arguments)
    assert ended.returncode == 0, ended.stderr[-4_000:]
    found = copies.contents(spark.read.parquet(str(tmp_path / "written")).collect())
    assert copies.unlike(found, copies.expected(range(900))) == ""


def test_brokers_are_killed_and_the_topic_grows_under_a_running_query(
    spark: Any, new_cluster: Callable[..., EmbeddedCluster], tmp_path: Path
) -> None:
    cluster = new_cluster(3)
    cluster.start()
    bootstrap = cluster.bootstrap_servers
    with Admin(bootstrap) as admin:
        admin.create_topic("growing", 2, 3, copies.KEPT)
    reader = spark.readStream.format("strandline").option("servers", bootstrap).option("includeHeaders", "true")
    frame = reader.option("startingOffsets", "earliest").load("growing")
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "written"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        parts = [range(first, first + 2_000) for first in range(0, 8_000, 2_000)]
        copies.write(bootstrap, "growing", parts[0])
        query.processAllAvailable()
        for broker_id, part in zip((1, 2, 3), parts[1:], strict=True):
            writing = threading.Thread(target=copies.write, args=(bootstrap, "growing", part, "lz4"))
            writing.start()
            if broker_id == 2:
                with Admin(bootstrap) as admin:
                    admin.create_partitions("growing", 5)
            cluster.kill_broker(broker_id)
            writing.join(PATIENCE_S)
            assert not writing.is_alive(), "two brokers of three take what is written"
            query.processAllAvailable()
            cluster.start_broker(broker_id)
        wanted = copies.expected(range(8_000))
        while (found := copies.contents(spark.read.parquet(str(tmp_path / "written")).collect())).total() < 8_000:
            assert query.isActive, query.exception()
            query.processAllAvailable()  # the new partitions are found within a second or two
    finally:
        query.stop()
    assert copies.unlike(found, wanted) == ""
    assert {row.partition for row in spark.read.parquet(str(tmp_path / "written")).select("partition").collect()} == {
        *range(5)
    }
