"""What Spark sees of a stream: one object on the driver for the life of the query, and one per task that only reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from strandline.runtime.client_environment import production_client_environment
from strandline.runtime.processes.stopwatch import now_s
from strandline.spark_connector.driver_log import tell
from strandline.spark_connector.errors import SourceError, warn
from strandline.spark_connector.options.stream_options import StreamOptions
from strandline.spark_connector.reading.failures import named_failures
from strandline.spark_connector.reading.ranges import RangePartition
from strandline.spark_connector.sentences import in_one_sentence

if TYPE_CHECKING:
    import pyarrow

    from strandline.spark_connector.streaming.query import StreamQuery

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2, which asks for the latest offset and for nothing else
    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = None

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]  # stands in for the one that is missing
        """Nobody asks for it."""


METADATA_MAX_AGE_MS = "1000"
"""New partitions and topics are found this soon, unless the user set metadata.max.age.ms."""


class StrandlineStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark
    """Offsets and their rules: offsets.py; the query itself: query.py."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self._query: StreamQuery | None = None
        self._open: list[Any] = []

    # --- On the driver ---

    @in_one_sentence()
    def initialOffset(self) -> dict[str, Any]:
        with named_failures():
            return self._driver().initial()

    def getDefaultReadLimit(self) -> Any:
        """One of the limits, for Spark's eyes: all of them are applied whenever Spark hands a limit on."""
        limits = self.options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    @in_one_sentence()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """`limit` ReadAllAvailable: Spark wants everything in one batch, whatever the options say."""
        is_limited = limit is not None and not isinstance(limit, ReadAllAvailable)
        with named_failures():
            return self._driver().latest(start, is_limited=is_limited)

    @in_one_sentence()
    def prepareForTriggerAvailableNow(self) -> None:
        with named_failures():
            self._driver().prepare_available_now()

    @in_one_sentence()
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._driver().newest()

    @in_one_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        began_s = now_s()
        with named_failures():
            driver = self._driver()
            planned = driver.plan(start, end)
        if self.options.source.log_reads and planned and driver.planned is not None:
            tell(driver.planned.line((now_s() - began_s) * 1000))
        return [RangePartition(each) for each in planned]

    @in_one_sentence()
    def commit(self, end: dict[str, Any]) -> None:
        self._driver().completed(end)

    def stop(self) -> None:
        while self._open:
            self._open.pop().close()
        self._query = None

    def _driver(self) -> StreamQuery:
        """Made when it is asked for first: tasks never do."""
        if self._query is None:
            from strandline.spark_connector.reading.cluster import ClusterClient
            from strandline.spark_connector.streaming.groups import GroupCommits
            from strandline.spark_connector.streaming.query import StreamQuery

            source = self.options.source
            fresh = {"metadata_max_age_ms": METADATA_MAX_AGE_MS, **source.client_settings}
            cluster = ClusterClient(dataclasses.replace(source, client_settings=fresh))
            self._open.append(cluster)
            group = None
            if self.options.commit_group is not None:
                group = GroupCommits(source, self.options.commit_group, warn)
                self._open.append(group)
            clock = production_client_environment().wall_clock
            self._query = StreamQuery(self.options, cluster, group, clock.now_ms, warn)
        return self._query

    # --- In a task ---

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return
        from strandline.spark_connector.reading.reader import read_range

        with in_one_sentence():
            yield from read_range(self.options.source, partition.wanted, warn)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark
    """In place of a reader that cannot be made: whatever Spark asks first is answered by the error. (Where making it
    fails, Spark 4.3 stops a reader that it does not have, and shows users the failure of that.)"""

    def __init__(self, error: SourceError) -> None:
        self._error = error

    @in_one_sentence()
    def _refuse(self, *_: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = prepareForTriggerAvailableNow = partitions = read = _refuse
