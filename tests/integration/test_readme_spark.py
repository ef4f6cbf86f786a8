"""What the README tells users of Spark to type works as it stands there: read, stream, write, start again, archive."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strandline import Admin, Consumer, Producer, TopicPartition
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.java import spark_java_home
from support.readme import block, blocks, rows, run, shell

pytestmark = pytest.mark.spark

BIN = Path(sys.executable).parent


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


PLAIN = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
read = spark.{read}.format("strandline").option("servers", "{servers}").option("startingOffsets", "earliest")
rows = read.load("job-clicks").selectExpr("cast(key as string)", "cast(value as string)")
{then}
"""
STREAM = """
copy = rows.writeStream.format("strandline").option("servers", "{servers}").option("topic", "job-copy")
copy.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture
def run_outside(spark_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Runs a program, by the path of its interpreter, where the environment was not activated and no variable says
    where Spark or an interpreter is, on a topic with one click."""
    bootstrap = spark_cluster.bootstrap_servers
    unset = ("VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "PYTHONPATH", "SPARK_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset}

    def run_it(program: str, by: str = sys.executable, *, works: bool = True, **variables: str) -> str:
        """What it prints, without blanks, or the end of what it says of its failure."""
        (tmp_path / "job.py").write_text(
            program.replace("localhost:9092", bootstrap).replace('"clicks"', '"job-clicks"')
        )
        done = subprocess.run(
            [by, "job.py"],
            cwd=tmp_path,
            env={**environment, "PATH": "/usr/bin:/bin", **variables},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert (done.returncode == 0) == works, done.stderr
        return done.stdout.replace(" ", "") if works else done.stderr

    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        for topic in ("job-clicks", "job-copy"):
            admin.create_topic(topic, 1, 3)
        producer.send("job-clicks", b"login", key=b"ann")
        producer.flush()
        yield run_it
        for topic in ("job-clicks", "job-copy"):
            admin.delete_topic(topic)


def test_the_script_runs_by_its_interpreter_alone_in_an_environment_that_was_not_activated(
    run_outside: Callable[..., str],
) -> None:
    assert "ann|login" in run_outside(blocks("From Spark", "python")[0])


def test_a_script_that_never_heard_of_strandline_reads_a_topic_there(
    run_outside: Callable[..., str], spark_cluster: EmbeddedCluster
) -> None:
    program = PLAIN.format(read="read", servers=spark_cluster.bootstrap_servers, then="rows.show()")
    assert "ann|login" in run_outside(program, JAVA_HOME=str(spark_java_home()))


def test_a_stream_of_such_a_script_reads_and_writes_there(
    run_outside: Callable[..., str], spark_cluster: EmbeddedCluster
) -> None:
    bootstrap = spark_cluster.bootstrap_servers
    program = PLAIN.format(read="readStream", servers=bootstrap, then=STREAM.format(servers=bootstrap))
    run_outside(program, JAVA_HOME=str(spark_java_home()))
    assert values(bootstrap, "job-copy") == [b"login"]


def test_spark_submit_needs_what_the_readme_says_there(
    run_outside: Callable[..., str], spark_cluster: EmbeddedCluster
) -> None:
    program = PLAIN.format(read="read", servers=spark_cluster.bootstrap_servers, then="rows.show()")
    told = {what: remedy for what, remedy, *_ in rows("From Spark")}
    command = told["`spark-submit`, the `pyspark` shell"].strip("`").replace("/path/.venv/bin", str(BIN))
    variable, submit, script = command.split()
    name, interpreter = variable.split("=")
    assert script == "job.py"
    java = {"JAVA_HOME": str(spark_java_home())}
    assert "ann|login" in run_outside(program, submit, **java, **{name: interpreter})
    for words, by, variables in (
        ("`Could not find valid SPARK_HOME`", submit, {}),
        ("`DATA_SOURCE_NOT_FOUND`", sys.executable, {name: "python3"}),
    ):
        assert words in told
        assert words.strip("`") in run_outside(program, by, works=False, **java, **variables)
