"""Rows as a sink has them, from records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.client.accumulator import ToSend
from strandline.spark_connector.writing.rows import RecordRows, Rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def record_rows(records: Sequence[ToSend]) -> RecordRows:
    """All pairs, or all with headers and timestamps."""
    keys, values = ([record[place] for record in records] for place in (0, 1))
    strings = pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    full = [record for record in records if len(record) == 4]
    if not full:
        return RecordRows(*strings, None, 7)
    assert len(full) == len(records)
    headers = [[{"key": name, "value": content} for name, content in record[2]] for record in full]
    return RecordRows(*strings, pa.array(headers, HEADERS), np.array([record[3] for record in full], np.int64))


def sink_rows(
    topics: Sequence[str] | str, records: Sequence[ToSend], partitions: Sequence[int | None] | None = None
) -> Rows:
    return Rows(
        topics if isinstance(topics, str) else pa.array(topics, pa.string()),
        None if partitions is None else pa.array(partitions, pa.int32()),
        record_rows(records),
    )
