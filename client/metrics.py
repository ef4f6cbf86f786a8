"""What `metrics()` of the clients tells: plain numbers under Kafka's names, from counters that cost nothing per record.

Totals count from when the client was made; averages and maxima are of the last moments (`samples`). Times are in
milliseconds, sizes in bytes as they are sent (compressed).
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.client.accumulator import Accumulator
from strandline.client.assignment import Assigned
from strandline.client.links import Links
from strandline.client.lookup import BrokerCalls
from strandline.client.metadata import Metadata
from strandline.client.samples import Samples
from strandline.client.taking import Taking
from strandline.client.timed import RequestTimes
from strandline.protocol.types import NO_OFFSET, TopicPartition


def of_connections(links: Links, now: float) -> dict[str, float]:
    """What producers and consumers have alike, about the connections that carry records."""
    connections = links.connections()
    in_flight = sum(connection.in_flight for connection in connections)
    return _of_requests(len(connections), in_flight, links.times, links.metadata, now)


def of_calls(calls: BrokerCalls, metadata: Metadata, now: float) -> dict[str, float]:
    """The same of who asks brokers one question at a time."""
    return _of_requests(len(calls.connections()), calls.in_flight, calls.times, metadata, now)


def _of_requests(
    connections: int, in_flight: int, times: RequestTimes, metadata: Metadata, now: float
) -> dict[str, float]:
    heard_at = metadata.updated_at
    # It may have been heard since `now`, where another thread asks than the loop's.
    age_s = None if heard_at is None else max(0.0, now - heard_at)
    return {
        "connection-count": connections,
        "requests-in-flight": in_flight,
        "request-total": times.count,
        "request-latency-avg": times.seconds.average(now) * 1000,
        "request-latency-max": times.seconds.maximum(now) * 1000,
        "metadata-age": -1.0 if age_s is None else age_s * 1000,
    }


def of_throttling(kind: str, links: Links, now: float) -> dict[str, float]:
    """For how long brokers said that a quota holds this client, of all their answers: 0 where none does."""
    told = links.times.throttle_ms
    return {f"{kind}-throttle-time-avg": told.average(now), f"{kind}-throttle-time-max": told.maximum(now)}


def of_sending(accumulator: Accumulator, records_per_request: Samples, now: float) -> dict[str, float]:
    """What a producer has sent, and what waits."""
    memory = accumulator.settings.buffer_memory
    return {
        "record-send-total": accumulator.delivered_records,
        "record-error-total": accumulator.failed_records,
        "record-retry-total": accumulator.retried_records,
        "byte-total": accumulator.delivered_bytes,
        "batch-send-total": accumulator.delivered_batches,
        "batch-size-avg": accumulator.batch_sizes.average(now),
        "records-per-request-avg": records_per_request.average(now),
        "batches-waiting": len(accumulator.outstanding),
        "buffer-total-bytes": memory,
        "buffer-available-bytes": max(0, memory - accumulator.used_bytes - accumulator.waiting_bytes),
    }


def of_reading(
    assigned: Mapping[TopicPartition, Assigned], taking: Taking, fetched_bytes: int, now: float
) -> dict[str, float]:
    """What a consumer has got, and how far it is behind. Who takes nothing falls back all the same: the largest lag is
    that of the last moments and of now."""
    known = {
        partition: max(0, state.high_watermark - state.read_position)
        for partition, state in list(assigned.items())  # a copy: who scrapes may be another thread
        if state.read_position != NO_OFFSET and state.high_watermark != NO_OFFSET
    }
    return {
        "records-consumed-total": taking.handed_out_records,
        "bytes-consumed-total": fetched_bytes,
        "assigned-partitions": len(assigned),
        "records-lag-max": max(taking.lags.maximum(now), *known.values(), 0),
        **{f"records-lag.{partition}": lag for partition, lag in known.items()},
    }
