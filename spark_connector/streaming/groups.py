"""Positions of a stream, committed to a consumer group for those who watch lag: nothing is ever read from there."""

from __future__ import annotations

from typing import Any

from strandline import Consumer
from strandline.client.errors import ClientError
from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.reading.reader import Warn
from strandline.spark_connector.streaming.offsets import Positions

COMMIT_TIMEOUT_MS = 5_000
"""A group that does not answer must not hold up the query."""


class GroupCommits:
    """Implements `query.Group`; to be closed."""

    def __init__(self, options: SourceOptions, group: str, warn: Warn) -> None:
        settings: dict[str, Any] = {"client_id": "strandline-spark", **options.client_settings}
        self._consumer = Consumer(
            **{**settings, "bootstrap_servers": options.bootstrap_servers, "group_id": group},
            enable_auto_commit=False,
        )
        self._group = group
        self._warn = warn
        self._committed: Positions = {}

    def commit(self, positions: Positions) -> None:
        if positions == self._committed or not positions:
            return
        try:
            self._consumer.commit(dict(positions), timeout_ms=COMMIT_TIMEOUT_MS)
            self._committed = dict(positions)
        except ClientError as error:
            self._warn(f"the query goes on, but its offsets were not committed to group {self._group!r}: {error}")

    def close(self) -> None:
        self._consumer.close()
