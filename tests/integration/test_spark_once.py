"""Exactly once on a real cluster: workers, executors and drivers of Spark die between write and commit. `make
spark-soak` has every point of `spark_faults`, here are some."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Admin, Producer
from strandline.cli.cluster import EmbeddedCluster
from support import copies, spark_job
from support.spark_faults import CASES, Faults

pytestmark = pytest.mark.spark

PARTITIONS = 3
NUMBERS = itertools.count()


@pytest.fixture
def topic(spark_cluster: EmbeddedCluster) -> Iterator[str]:
    name = f"once-{next(NUMBERS)}"
    with Admin(spark_cluster.bootstrap_servers) as admin:
        admin.create_topic(name, PARTITIONS, 3)
        yield name
        admin.delete_topic(name)


def test_workers_and_executors_that_die_leave_each_row_once(
    spark_cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    """At each point, and with a second copy of a task that waits."""
    faults = Faults(tmp_path / "faults")
    ended = spark_job.run(faults, "batches", spark_cluster.bootstrap_servers, topic, str(faults.folder), "short")
    assert ended.returncode == 0, ended.stderr[-4_000:]
    cases = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert [tuple(each["case"]) for each in cases if each["has_struck"]] == list(CASES["short"])
    assert copies.values(spark_cluster.bootstrap_servers, topic) == spark_job.expected_of_batches("short")


@pytest.mark.parametrize(("point", "times"), [("after send", 5), ("after finish", 3), ("before check_division", 2)])
def test_a_driver_that_dies_is_started_again_and_leaves_each_row_once(
    spark_cluster: EmbeddedCluster, topic: str, tmp_path: Path, point: str, times: int
) -> None:
    bootstrap, source = spark_cluster.bootstrap_servers, f"{topic}-from"
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topic(source, PARTITIONS, 3)
        for number in range(900):
            producer.send(source, b"%d" % (number % 300), partition=number % PARTITIONS)
    faults = Faults(tmp_path / "faults")
    faults.arm(point, times, "jvm")
    arguments = ("stream", bootstrap, source, topic, str(tmp_path / "checkpoint"))
    killed = spark_job.run(faults, *arguments)
    assert killed.returncode != 0 and faults.has_struck, killed.stderr[-4_000:]
    assert sum(copies.values(bootstrap, topic).values()) < 900, "it was killed before it had written everything"
    restarted = spark_job.run(faults, *arguments)
    assert restarted.returncode == 0, restarted.stderr[-4_000:]
    assert copies.values(bootstrap, topic) == {b"%d" % number: 3 for number in range(300)}
