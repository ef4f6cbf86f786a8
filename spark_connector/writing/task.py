"""What one task writes: Arrow batches in, acknowledged records out.

Nothing counts as written before all replicas in sync have it. Two Arrow batches may be on their way at a time, so
memory stays bounded and the network is busy while the next one is decoded.

At least once: the producer of a task is idempotent, so its own retries double nothing, but a task that Spark repeats
writes its rows again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from strandline import Producer
from strandline.client.errors import ClientError, FlushTimedOut
from strandline.spark_connector.errors import InvalidSinkColumn, WriteFailed
from strandline.spark_connector.options.sink_options import SinkOptions
from strandline.spark_connector.writing.columns import Rows, rows_of

BATCHES_UNDER_WAY = 2
DEFAULTS = {"client_id": "strandline-spark", "batch_size": "131072", "linger_ms": "5"}
"""A task writes as much as it can: larger batches than a program's are worth their wait."""


def write_rows(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> int:
    """How many rows were written. Raises WriteFailed, NullTopic, InvalidSinkColumn."""
    written = 0
    settings: dict[str, Any] = {**DEFAULTS, **options.producer_settings}
    under_way: deque[list[Any]] = deque()
    producer = Producer(options.bootstrap_servers, acks="all", **settings)
    try:
        for batch in batches:
            under_way.append(_send(producer, rows_of(batch, options)))
            written += batch.num_rows
            if len(under_way) > BATCHES_UNDER_WAY:
                _wait(under_way.popleft())
        for sent in under_way:
            _wait(sent)
    except ClientError as error:
        raise WriteFailed(f"{error}; rows that were acknowledged before stay in the topic") from error
    finally:
        with suppress(FlushTimedOut):  # what is left belongs to a task that fails anyhow, and says why
            producer.close(timeout=0.0 if producer.failed_records else None)
    return written


def _wait(sent: list[Any]) -> None:
    for future in sent:
        future.result()


def _send(producer: Producer, rows: Rows) -> list[Any]:
    """The futures of all rows. One crossing per topic and partition where nothing is said of single rows."""
    if rows.timestamps_ms is not None or rows.headers is not None:
        return _send_singly(producer, rows)
    groups: dict[tuple[str, int | None], list[tuple[bytes | None, bytes | None]]] = {}
    partitions = rows.partitions or [None] * len(rows.topics)
    for topic, partition, key, value in zip(rows.topics, partitions, rows.keys, rows.values, strict=True):
        groups.setdefault((topic, _checked(partition)), []).append((key, value))
    return [producer.send_many(topic, records, partition) for (topic, partition), records in groups.items()]


def _send_singly(producer: Producer, rows: Rows) -> list[Any]:
    sent = []
    for index, topic in enumerate(rows.topics):
        sent.append(
            producer.send(
                topic,
                rows.values[index],
                rows.keys[index],
                _checked(rows.partitions[index]) if rows.partitions is not None else None,
                rows.headers[index] if rows.headers is not None else (),
                rows.timestamps_ms[index] if rows.timestamps_ms is not None else None,
            )
        )
    return sent


def _checked(partition: int | None) -> int | None:
    if partition is not None and partition < 0:
        raise InvalidSinkColumn(f"partition {partition} is negative; null leaves the choice to the key")
    return partition
