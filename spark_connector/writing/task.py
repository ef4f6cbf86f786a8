"""What one task writes: Arrow batches in, acknowledged records out. Nothing counts as written before all replicas in
sync have it.

By default each row is written once, however often the task is tried (`once`). With exactlyOnce=false a task that is
tried again writes all its rows again, as Spark's Kafka sink does it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from strandline import Admin, Producer
from strandline.client.errors import ClientError, FlushTimedOut, SendsFailed
from strandline.client.send_futures import SendManyFuture
from strandline.client.settings import AdminSettings
from strandline.runtime.client_environment import production_client_environment
from strandline.spark_connector.errors import WriteFailed
from strandline.spark_connector.options.sink_options import SinkOptions
from strandline.spark_connector.writing.cluster import PRODUCER_DEFAULTS, SinkClusterClient, known_to
from strandline.spark_connector.writing.columns import rows_of
from strandline.spark_connector.writing.identity import TaskIdentity
from strandline.spark_connector.writing.limits import TopicLimits
from strandline.spark_connector.writing.once import CHUNKS_UNDER_WAY, OnceWriter
from strandline.spark_connector.writing.placing import Room, placed
from strandline.spark_connector.writing.rows import send

PIECE_BYTES = 8 << 20


@dataclass
class TaskReport(WriterCommitMessage):  # type: ignore[misc]  # pyspark has no types
    """What one task says when everything is acknowledged. `found_rows`: of all rows, those that an earlier attempt had
    written. `is_repeated`: an earlier run of the query had begun this write, with whatever topic; a task without rows
    has not looked. `identity` None: the rows were written whatever stood there."""

    rows: int
    identity: TaskIdentity | None = None
    found_rows: int = 0
    topics: tuple[str, ...] = ()
    is_repeated: bool = False


def write_once(batches: Iterable[pa.RecordBatch], options: SinkOptions, identity: TaskIdentity, run: str) -> TaskReport:
    """Raises WriteFailed, NullTopic, InvalidSinkColumn, SupersededWrite, RowsChanged, WrittenRowsGone."""
    clock = production_client_environment().wall_clock
    rows_count = 0
    source = iter(batches)
    first = next(source, None)
    if first is None:
        return TaskReport(0, identity)
    has_timestamps = "timestamp" in first.schema.names
    batches = chain([first], source)
    del first  # it has up to some megabytes, and the task may run for long
    try:
        with closing(SinkClusterClient(options, identity, has_timestamps=has_timestamps)) as cluster:
            writer = OnceWriter(cluster, identity, run, has_timestamps=has_timestamps)
            for batch in pieces(batches):
                writer.write(placed(rows_of(batch, options, clock.now_ms()), writer.room_of))
                rows_count += batch.num_rows
            writer.finish()
    except ClientError as error:
        raise _failure(error) from error
    return TaskReport(rows_count, identity, writer.found_rows, tuple(writer.topics), writer.is_repeated)


def write_again(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> TaskReport:
    """Whatever was written before. Raises WriteFailed, NullTopic, InvalidSinkColumn."""
    clock = production_client_environment().wall_clock
    rows_count = 0
    settings: dict[str, Any] = {**PRODUCER_DEFAULTS, **options.producer_settings}
    under_way: deque[list[SendManyFuture]] = deque()
    producer = Producer(options.bootstrap_servers, acks="all", **settings)

    def room_of(topic: str) -> Room:
        count = len(producer.partitions_for(topic))
        return Room(count, placed_among=count)

    try:
        with closing(Admin(options.bootstrap_servers, **known_to(AdminSettings, settings))) as admin:
            limits = TopicLimits(admin)
            for batch in pieces(batches):
                rows = rows_of(batch, options, clock.now_ms())
                groups = placed(rows, room_of, keyless_are_placed=False)
                under_way.append([send(producer, at, own, limits.of(at.topic)) for at, own in groups.items()])
                rows_count += batch.num_rows
                if len(under_way) > CHUNKS_UNDER_WAY:
                    _wait(under_way.popleft())
            for sent in under_way:
                _wait(sent)
    except ClientError as error:
        raise _failure(error) from error
    finally:
        with suppress(FlushTimedOut, SendsFailed):  # what is left belongs to a task that fails anyhow, and says why
            producer.close(timeout=0.0 if producer.failed_records else None)
    return TaskReport(rows_count)


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of at most some PIECE_BYTES, not copied: Spark counts rows, and what is under way is kept until all replicas in
    sync have it."""
    for batch in batches:
        rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _wait(sent: list[SendManyFuture]) -> None:
    for future in sent:
        future.result()


def _failure(error: ClientError) -> WriteFailed:
    return WriteFailed(f"{error}; rows that were acknowledged before stay in the topic")
