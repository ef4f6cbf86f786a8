"""The cluster as a read sees it, through the synchronous client.

One object serves one planning or one task and is closed with it: a consumer for offsets and records, and for patterns
an admin client that lists topics. Fetched chunks are handed on as they are, undecoded.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

from strandline import Admin, Consumer
from strandline.client.assignment import FetchedBatches
from strandline.client.errors import ClientError, LogTruncated, OffsetOutOfRange
from strandline.client.errors import UnknownTopic as NoSuchTopic
from strandline.client.settings import AdminSettings
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.spark_connector.errors import OffsetGone
from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.reading.planning import Held

UNKNOWN_AFTER_MS = 5_000
"""A topic that no broker has heard of by then does not exist: news of a new one travels in less than a second."""

FETCH_BYTES = 4 << 20
"""Of one partition at a time, unless the user says otherwise (kafka.max.partition.fetch.bytes): a task reads but one,
and each fetch has a price."""


class ClusterClient:
    """Implements `reader.Cluster`. All calls raise the client's errors, which name broker, cause and setting."""

    def __init__(self, options: SourceOptions) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap_servers": options.bootstrap_servers,
            "client_id": "strandline-spark",
            **options.client_settings,
        }
        self._consumer = Consumer(
            **{"max_partition_fetch_bytes": FETCH_BYTES, **self._settings, "auto_offset_reset": "none"}
        )
        self._assigned: TopicPartition | None = None
        self._next_offset = -1
        self._chunks: deque[FetchedBatches] = deque()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def topics(self) -> list[str]:
        known = {each.name for each in dataclasses.fields(AdminSettings)}
        with Admin(**{key: value for key, value in self._settings.items() if key in known}) as admin:
            return sorted(name for name, topic in admin.describe_topics().items() if not topic.is_internal)

    def partitions(self, topic: str) -> list[int]:
        try:
            return list(self._consumer.partitions_for_topic(topic, timeout_ms=UNKNOWN_AFTER_MS))
        except NoSuchTopic:
            return []
        except ClientError:  # no answer so far: now with the time that the user gave (kafka.default.api.timeout.ms)
            return list(self._consumer.partitions_for_topic(topic))

    def topic_id(self, topic: str) -> TopicId:
        try:
            found: TopicId = self._consumer.topic_id(topic, timeout_ms=UNKNOWN_AFTER_MS)
        except NoSuchTopic:
            return NO_TOPIC_ID
        return found

    def leaders(self, topic: str) -> dict[int, int]:
        """Tasks are only placed by it: what cannot be told does no harm."""
        try:
            return dict(self._consumer.leaders_for_topic(topic, timeout_ms=UNKNOWN_AFTER_MS))
        except ClientError:
            return {}

    def held(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Held]:
        """The log starts are asked for first: they only grow, so no partition seems to begin behind its end."""
        if not partitions:
            return {}
        earliest = self._consumer.beginning_offsets(partitions)
        latest = self._consumer.end_offsets(partitions)
        return {each: Held(earliest[each], max(earliest[each], latest[each])) for each in partitions}

    def offsets_at(self, timestamps_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = self._consumer.offsets_for_times(timestamps_ms)
        return {partition: None if at is None else at.offset for partition, at in found.items()}

    def fetch(self, partition: TopicPartition, offset: int, timeout_ms: int) -> memoryview:
        """One chunk that begins with the batch that holds `offset`; the client fetches ahead meanwhile."""
        if partition != self._assigned:
            self._consumer.assign([partition])
            self._assigned, self._next_offset = partition, -1
        if offset != self._next_offset:
            self._chunks.clear()
            self._consumer.seek(partition, offset)
        if not self._chunks:
            try:
                fetched = self._consumer.fetch_batches(timeout_ms=timeout_ms)
            except (OffsetOutOfRange, LogTruncated) as error:
                self._next_offset = -1
                raise OffsetGone(str(error)) from error
            self._chunks.extend(fetched)
        if not self._chunks:
            return memoryview(b"")
        chunk = self._chunks.popleft()
        self._next_offset = chunk.next_offset
        return chunk.records
