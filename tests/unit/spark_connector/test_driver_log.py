"""What the driver's log says of each batch that is planned."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.driver_log import LOGGER, MOST_TOPICS, PlannedBatch, planned_batch
from strandline.spark_connector.options.stream_options import parse_stream_options
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.source import StrandlineDataSource, fixed_schema
from strandline.spark_connector.streaming.query import StreamQuery
from strandline.spark_connector.streaming.stream_reader import StrandlineStreamReader
from support.memory_source import T0, MemoryCluster
from support.stream_queries import T1


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def reader(query: StreamQuery, **options: str) -> StrandlineStreamReader:
    made = StrandlineStreamReader(parse_stream_options({"servers": "b:1", "subscribe": "t"} | options))
    made._query = query
    return made


def test_a_batch_of_a_stream_tells_what_it_reads_and_what_is_left(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    query = new_query(startingOffsets="earliest", maxOffsetsPerTrigger="7", maxRecordsPerPartition="3")
    stream = reader(query)
    start = stream.initialOffset()
    first = query.latest(start, is_limited=True)
    cluster.add(T1, 4, [b"x"] * 6)  # what comes meanwhile is behind the batch, too
    assert len(stream.partitions(start, first)) == 3
    [line] = lines(caplog)
    assert line.startswith("planned a batch of 7 offsets of 2 partitions in 3 tasks within ")
    assert line.endswith("ms; then behind the latest offsets: t 13")
    assert stream.partitions(first, first) == [] and len(lines(caplog)) == 1, "nothing to read is not told"
    last = query.latest(first, is_limited=False)
    stream.partitions(first, last)
    assert lines(caplog)[-1].endswith("then behind the latest offsets: t 0")


def test_it_tells_bytes_where_the_size_of_records_is_known(
    new_query: Callable[..., StreamQuery], cluster: MemoryCluster
) -> None:
    query = new_query(startingOffsets="earliest", maxBytesPerTrigger="100000")
    start = query.initial()
    query.plan(start, query.latest(start, is_limited=True))
    in_log = sum(len(batch) for batches in cluster.batches.values() for batch in batches)
    assert query.planned == PlannedBatch(2, 2, 14, {"t": 0}, in_log)
    assert f", about {in_log} bytes; then behind" in query.planned.line(1.2)


def test_only_partitions_of_the_batch_have_to_be_measured() -> None:
    ranges = [OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 5, 10), OffsetRange("u", 1, 3, 4)]
    known = {T0: 10.0, T1: 3.0}
    assert planned_batch(ranges, {}, known).size_bytes is None
    assert planned_batch(ranges[:2], {}, known).size_bytes == 100
    assert planned_batch(ranges).line(0) == "planned a read of 11 offsets of 2 partitions in 3 tasks within 0 ms"


def test_topics_that_are_furthest_behind_are_named_first_and_not_all_of_many() -> None:
    left = {TopicPartition(f"t{number:02}", part): number for number in range(MOST_TOPICS + 2) for part in (0, 1)}
    line = planned_batch([OffsetRange("t00", 0, 0, 1)], left).line(3)
    assert "then behind the latest offsets: t11 22, t10 20, " in line
    assert line.endswith("t02 4, and 2 more topics") and "1 offset of 1 partition in 1 task" in line


@pytest.mark.parametrize("said", [True, False])
def test_a_batch_read_is_told_unless_that_is_switched_off(
    said: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "strandline.spark_connector.reading.reader.plan_ranges", lambda *_: [OffsetRange("t", 0, 2, 12)]
    )
    options: dict[str, Any] = {"servers": "b:1", "subscribe": "t", "logReads": str(said).lower()}
    StrandlineDataSource(CaseInsensitiveDict(options)).reader(fixed_schema(include_headers=False)).partitions()
    assert [line.partition(" within")[0] for line in lines(caplog)] == (
        ["planned a read of 10 offsets of 1 partition in 1 task"] if said else []
    )


def test_a_stream_is_silent_where_that_is_switched_off(
    new_query: Callable[..., StreamQuery], caplog: pytest.LogCaptureFixture
) -> None:
    query = new_query(startingOffsets="earliest")
    stream = reader(query, logReads="false")
    start = stream.initialOffset()
    assert stream.partitions(start, query.latest(start, is_limited=False))
    assert lines(caplog) == []


def test_lines_go_to_standard_error_once_where_nobody_set_up_logging() -> None:
    program = "from strandline.spark_connector.driver_log import tell; tell('one'); tell('two')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    assert [line[18:] for line in ran.stderr.splitlines()] == [f"INFO {LOGGER}: one", f"INFO {LOGGER}: two"]
    assert logging.getLogger(LOGGER).handlers == [], "this process has logging of its own"
