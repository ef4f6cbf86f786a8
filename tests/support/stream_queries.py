"""Words of the tests of streams: two topics of one name, and offsets as Spark keeps them."""

from __future__ import annotations

import json
from typing import Any

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.streaming.query import StreamQuery

T1 = TopicPartition("t", 1)
OLD, NEW = b"1" * 16, b"2" * 16

Offset = dict[str, Any]


def positions(offset: Offset) -> dict[str, int]:
    return dict(offset["t"])


def planned(query: StreamQuery, start: Offset, end: Offset) -> dict[int, tuple[int, int]]:
    return {each.partition: (each.start, each.end) for each in query.plan(stored(start), stored(end))}


def stored(offset: Offset) -> Offset:
    """As it comes back from a checkpoint."""
    return json.loads(json.dumps(offset))
