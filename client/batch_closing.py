"""Closing open batches when it is time to send them. The rule is in `lingering`; this finds out what it asks for."""

from __future__ import annotations

import math

from strandline.client.accumulator import Accumulator, PartitionQueue
from strandline.client.lingering import ADAPTIVE_LINGER_MS
from strandline.client.links import Links
from strandline.client.metadata import Metadata
from strandline.client.settings import ProducerSettings
from strandline.protocol.types import NO_BROKER


class BatchClosing:
    """What the sender asks at each turn. Times are those of the event loop, in seconds."""

    def __init__(self, settings: ProducerSettings, accumulator: Accumulator, metadata: Metadata, links: Links) -> None:
        linger_ms = ADAPTIVE_LINGER_MS if settings.linger_ms is None else settings.linger_ms
        self._linger_s = linger_ms / 1000
        self._adapts = settings.linger_ms is None and settings.acks != 0
        self._accumulator = accumulator
        self._metadata = metadata
        self._links = links

    def close_if_due(self, queue: PartitionQueue, now: float, *, is_hurried: bool) -> float:
        """Close the open batch if it has waited for all its time; otherwise when that will be, as far as
        `close_gathered` does not say so."""
        if queue.builder is None:
            return math.inf
        due = queue.opened_at + self._linger_s
        if due <= now or is_hurried:
            self._accumulator.close_batch(queue)
            return math.inf
        return math.inf if self._adapts else due

    def close_gathered(self, sendable: dict[int, list[PartitionQueue]], now: float) -> float:
        """Close the open batches that need not wait any longer, and add them to what can be sent, by leader; when to
        look again at others."""
        next_time = math.inf
        if not self._adapts:
            return next_time
        first: dict[int, list[PartitionQueue]] = {}
        for queue in self._accumulator.active.values():
            if queue.builder is None:
                continue
            due = queue.opened_at + self._linger_s
            partition = self._metadata.view.partition(queue.topic_partition)
            if partition is not None and partition.leader != NO_BROKER:
                is_first = not (queue.in_flight or queue.ready or partition.leader in sendable)
                is_first = is_first and self._is_idle(partition.leader)
                look = queue.gathering.look(queue.builder.records_count, now, is_first=is_first)
                if look is None:
                    self._accumulator.close_batch(queue)
                    first.setdefault(partition.leader, []).append(queue)
                    continue
                due = min(due, look)
            next_time = min(next_time, due)
        sendable.update(first)
        return next_time

    def _is_idle(self, broker_id: int) -> bool:
        """It has nothing to answer. One that is not connected yet is connected to."""
        connection = self._links.to(broker_id).want()
        return connection is not None and not (connection.sending or connection.in_flight)
