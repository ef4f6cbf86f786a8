"""A stream on the driver, over a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline.spark_connector.options.stream_options import parse_stream_options
from strandline.spark_connector.streaming.query import StreamQuery
from support.memory_source import T0, MemoryCluster
from support.stream_queries import OLD, T1


@pytest.fixture
def cluster() -> MemoryCluster:
    """Topic `t`: ten records in partition 0, four in partition 1."""
    cluster = MemoryCluster()
    cluster.topic_ids["t"] = OLD
    cluster.add(T0, 0, [b"x"] * 10)
    cluster.add(T1, 0, [b"x"] * 4)
    return cluster


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def streams(cluster: MemoryCluster, warnings: list[str]) -> Callable[..., StreamQuery]:
    """A query by its options alone, which say what it reads."""

    def build(**options: str) -> StreamQuery:
        return StreamQuery(
            parse_stream_options({"servers": "b:1"} | options), cluster, None, lambda: 0, warnings.append
        )

    return build


@pytest.fixture
def new_query(cluster: MemoryCluster, warnings: list[str]) -> Callable[..., StreamQuery]:
    def build(group: Any = None, now: Callable[[], int] = lambda: 0, **options: str) -> StreamQuery:
        given = parse_stream_options({"servers": "b:1", "subscribe": "t"} | options)
        return StreamQuery(given, cluster, group, now, warnings.append)

    return build
