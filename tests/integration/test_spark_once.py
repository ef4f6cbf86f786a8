"""Exactly once on a real cluster: workers, executors and drivers of Spark die between write and commit. `make
spark-soak` has every point of `sink_faults`, here are some."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Admin, Consumer, Producer, TopicPartition
from strandline.cli.cluster import EmbeddedCluster
from support.sink_faults import CASES, Faults
from support.sink_job import ROWS, VALUES

pytestmark = pytest.mark.spark

PATIENCE_S = 400
PARTITIONS = 3
NUMBERS = itertools.count()
TESTS = Path(__file__).parents[1]


@pytest.fixture
def topic(spark_cluster: EmbeddedCluster) -> Iterator[str]:
    name = f"once-{next(NUMBERS)}"
    with Admin(spark_cluster.bootstrap_servers) as admin:
        admin.create_topic(name, PARTITIONS, 3)
        yield name
        admin.delete_topic(name)


def job(faults: Faults, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of `support.sink_job`, to its end."""
    others = faults.environment()
    environment = {**os.environ, **others, "PYTHONPATH": f"{TESTS}:{others['PYTHONPATH']}"}
    command = [sys.executable, "-m", "support.sink_job", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


def read(bootstrap: str, topic: str) -> Counter[bytes | None]:
    """All values, with how often each stands."""
    found: Counter[bytes | None] = Counter()
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for records in consumer.poll(timeout_ms=1_000).values():
                found.update(record.value for record in records)
    return found


def test_workers_and_executors_that_die_leave_each_row_once(
    spark_cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    """At each point, and with a second copy of a task that waits."""
    faults = Faults(tmp_path / "faults")
    ended = job(faults, "batches", spark_cluster.bootstrap_servers, topic, str(faults.folder), "short")
    assert ended.returncode == 0, ended.stderr[-4_000:]
    cases = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    assert [tuple(each["case"]) for each in cases if each["has_struck"]] == list(CASES["short"])
    expected = {b"%d:%d" % (case, value): ROWS // VALUES for case in range(len(cases)) for value in range(VALUES)}
    assert read(spark_cluster.bootstrap_servers, topic) == expected


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
    killed = job(faults, *arguments)
    assert killed.returncode != 0 and faults.has_struck, killed.stderr[-4_000:]
    assert sum(read(bootstrap, topic).values()) < 900, "it was killed before it had written everything"
    restarted = job(faults, *arguments)
    assert restarted.returncode == 0, restarted.stderr[-4_000:]
    assert read(bootstrap, topic) == {b"%d" % number: 3 for number in range(300)}
