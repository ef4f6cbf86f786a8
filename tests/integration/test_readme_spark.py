"""What the README tells users of Spark to type works as it stands there: read, stream, write, start again, archive."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from strandline import Admin, Consumer, Producer, TopicPartition
from strandline.cli.cluster import EmbeddedCluster
from support.readme import block, run, shell

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
