"""What the README tells users of Spark to type works as it stands there: read, stream, write, start again, archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline import Admin, Consumer, Producer, TopicPartition
from strandline.cli.cluster import EmbeddedCluster
from support.readme import block, blocks, run, shell

pytestmark = pytest.mark.spark


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    found = []
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            found += [record.value for records in consumer.poll(timeout_ms=1_000).values() for record in records]
    return sorted(found)


def test_the_chapter_on_spark_works_as_it_is_written(
    spark_cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = spark_cluster.bootstrap_servers
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topic("clicks", 3, 3)
        for number in range(30):
            producer.send("clicks", b"click %d" % number, key=b"ann" if number % 3 else b"bob")
    program = block("From Spark", "python").replace("localhost:9092", bootstrap)
    said = run([sys.executable, "-c", program + program], tmp_path)
    assert "only showing top 20 rows" in said
    assert values(bootstrap, "clicks-copy") == sorted(b"click %d" % number for number in range(30))
    assert values(bootstrap, "hourly-counts") == [b"10", b"20"], "though it was written four times"
    assert values(bootstrap, "counts") == [b"10", b"10", b"20", b"20"], "these were two writes"

    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("STRANDLINE_DATA", str(spark_cluster.data_dir))
    for line in block("From Spark", "").replace("/logs/", f"{spark_cluster.data_dir}/").splitlines():
        if line.startswith("strandline "):
            shell(line.partition("  #")[0].strip(), tmp_path)
    assert {"audit.html", "history.html"} < {each.name for each in tmp_path.iterdir()}
    assert values(bootstrap, "clicks-again") == values(bootstrap, "clicks")


def test_the_script_runs_by_its_interpreter_alone_in_an_environment_that_was_not_activated(
    spark_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    bootstrap = spark_cluster.bootstrap_servers
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topic("job-clicks", 1, 3)
        producer.send("job-clicks", b"login", key=b"ann")
    program = blocks("From Spark", "python")[0].replace("localhost:9092", bootstrap)
    script = tmp_path / "job.py"
    script.write_text(program.replace('"clicks"', '"job-clicks"'))
    unset = ("VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "PYTHONPATH", "SPARK_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**environment, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ann|" in done.stdout.replace(" ", "") and "login" in done.stdout
