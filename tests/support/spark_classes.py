"""Make an archive of Spark's classes as a Java has loaded them: what starts Spark then takes two thirds of the
processor's time. Without it the tests run as well, only longer.

    PYTHONPATH=tests python -m support.spark_classes

Idempotent: it is made anew when Spark or the Java is newer. `java_options` has the tests use it.
"""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

from strandline import Admin, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.java import find_java
from support.spark import SHORT_LIVED_JAVA, spark_session

ARCHIVE = Path(__file__).parents[2] / ".cache/spark.jsa"
_QUIET = "-Xlog:cds*=off"


def java_options() -> str:
    """Of a Spark that ends soon. A Java that has no use for the archive says nothing and does without."""
    return f"{SHORT_LIVED_JAVA} -XX:SharedArchiveFile={ARCHIVE} {_QUIET}" if is_fresh() else SHORT_LIVED_JAVA


def is_fresh() -> bool:
    made_of = (Path(find_spec("pyspark").origin).parent / "jars", find_java().command.resolve())
    return ARCHIVE.exists() and ARCHIVE.stat().st_mtime > max(each.stat().st_mtime for each in made_of)


def make() -> None:
    """It takes the place of the old one once it is whole."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        new = Path(folder) / ARCHIVE.name
        os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED_JAVA} -XX:ArchiveClassesAtExit={new} {_QUIET}"
        with EmbeddedCluster(Path(folder) / "cluster", 1) as cluster:
            _run_spark(cluster.bootstrap_servers, Path(folder))
        if new.exists():  # a Java that has no archive of its own classes writes none
            new.replace(ARCHIVE)


def _run_spark(servers: str, folder: Path) -> None:
    """What most tests do: read a topic, count, write one, and copy one as a stream."""
    with Admin(servers) as admin, Producer(servers) as producer:
        for topic in ("from", "counted", "copied"):
            admin.create_topic(topic, 2, 1)
        producer.send("from", b"login", key=b"ann")
    with spark_session(folder / "spark", spark__ui__showConsoleProgress="false") as spark:
        java = spark.sparkContext._gateway.proc
        rows = spark.read.format("strandline").option("servers", servers).load("from")
        rows.collect()
        counts = rows.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
        counts.write.format("strandline").options(servers=servers, topic="counted").mode("append").save()
        stream = spark.readStream.format("strandline").options(servers=servers, startingOffsets="earliest").load("from")
        writer = stream.select("key", "value").writeStream.format("strandline").options(servers=servers, topic="copied")
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()
    java.stdin.close()  # which it takes as its end, and writes the archive
    java.wait(600)


if __name__ == "__main__":
    if not is_fresh():
        make()
