"""What `clients.py` has our clients do, and what others have to compare with: each function is one figure.

Rates are records per second, latencies the median of microseconds. Clients are made and closed outside of what is
timed, and a topic is known before.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice

import trio

from strandline import Consumer, Producer, TopicPartition
from strandline.client.aio import AioProducer
from strandline.client.connection import Connection
from strandline.client.producer import TrioProducer
from strandline.client.settings import parse_addresses
from strandline.protocol.messages import (
    ApiVersionsRequest,
    PartitionProduceData,
    ProduceRequest,
    Request,
    TopicProduceData,
)
from strandline.protocol.records import build_batch
from strandline.runtime.client_environment import production_client_environment
from strandline.runtime.processes.portal import Portal

LIST_RECORDS = 5_000
"""Of one `send_many`, and most of one poll."""
RECORD_BYTES = 100
TIMEOUT_MS = 30_000

VALUES = [b"%d" % number * (RECORD_BYTES // 4) for number in range(1000, 2000)]


# --- Rates ---


def send(bootstrap: str, topic: str, records: int) -> float:
    with Producer(bootstrap) as producer:
        producer.partitions_for(topic)
        values = list(islice(_values(), records))
        began = time.perf_counter()
        for value in values:
            producer.send(topic, value)
        producer.flush()
        return records / (time.perf_counter() - began)


def send_many(bootstrap: str, topic: str, records: int) -> float:
    lists = _lists(records)
    with Producer(bootstrap) as producer:
        producer.partitions_for(topic)
        began = time.perf_counter()
        for listed in lists:
            producer.send_many(topic, listed)
        producer.flush()
        return records / (time.perf_counter() - began)


def trio_send(bootstrap: str, topic: str, records: int) -> float:
    async def main() -> float:
        async with TrioProducer(bootstrap) as producer:
            await producer.partitions_for(topic)
            values = list(islice(_values(), records))
            began = time.perf_counter()
            for value in values:
                await producer.send(topic, value)
            await producer.flush()
            return records / (time.perf_counter() - began)

    return trio.run(main)


def aio_send(bootstrap: str, topic: str, records: int) -> float:
    async def main() -> float:
        async with AioProducer(bootstrap) as producer:
            await producer.partitions_for(topic)
            values = list(islice(_values(), records))
            began = time.perf_counter()
            for value in values:
                await producer.send(topic, value)
            await producer.flush()
            return records / (time.perf_counter() - began)

    return asyncio.run(main())


def poll(bootstrap: str, topic: str, records: int) -> float:
    with _reader(bootstrap, topic) as consumer:
        return _consume(
            lambda: sum(map(len, consumer.poll(TIMEOUT_MS, LIST_RECORDS).values())),
            records,
        )


def poll_columns(bootstrap: str, topic: str, records: int) -> float:
    with _reader(bootstrap, topic) as consumer:
        return _consume(lambda: sum(each.records_count for each in consumer.poll_columns(TIMEOUT_MS)), records)


def poll_columns_values(bootstrap: str, topic: str, records: int) -> float:
    """Each value made bytes of its own."""
    with _reader(bootstrap, topic) as consumer:
        return _consume(lambda: sum(len(list(each.values)) for each in consumer.poll_columns(TIMEOUT_MS)), records)


def fetch_batches(bootstrap: str, topic: str, records: int) -> float:
    """Not decoded, as many bytes: the most that the ways below could reach."""
    with _reader(bootstrap, topic) as consumer:
        positions: dict[int, int] = {}

        def take() -> int:
            taken = 0
            for batches in consumer.fetch_batches(TIMEOUT_MS):
                taken += batches.next_offset - positions.get(batches.partition, 0)
                positions[batches.partition] = batches.next_offset
            return taken

        return _consume(take, records)


def _reader(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)])
    return consumer


def _consume(take: Callable[[], int], records: int) -> float:
    """Until all came; the first call, which looks positions up, is not counted."""
    first = left = take()
    began = time.perf_counter()
    while left < records:
        taken = take()
        if not taken:
            raise RuntimeError(f"only {left} of {records} records came")
        left += taken
    return (records - first) / (time.perf_counter() - began)


# --- Latencies ---


def bare_produce(bootstrap: str, topic: str, times: int) -> float:
    """One record in a Produce request, over the same connection code, with nothing in front of it."""
    batch = build_batch([(0, None, VALUES[0])])
    part = TopicProduceData(topic, [PartitionProduceData(0, len(batch))])
    return _bare(bootstrap, ProduceRequest(-1, TIMEOUT_MS, [part]), (batch,), times)


def bare_produce_from_thread(bootstrap: str, topic: str, times: int) -> float:
    """The same, asked for by another thread than the event loop's: what a synchronous client cannot do without."""
    batch = build_batch([(0, None, VALUES[0])])
    part = TopicProduceData(topic, [PartitionProduceData(0, len(batch))])
    request = ProduceRequest(-1, TIMEOUT_MS, [part])
    network, address = production_client_environment().network, parse_addresses(bootstrap)[0]
    portal = Portal.acquire()
    connection = portal.call(Connection.open, network, address, timeout_s=TIMEOUT_MS / 1000)
    try:
        return _median_us(
            lambda: portal.call(connection.roundtrip, request, (batch,), timeout_s=TIMEOUT_MS / 1000), times
        )
    finally:
        portal.post(connection.close)
        portal.release()


def bare_api_versions(bootstrap: str, topic: str, times: int) -> float:
    """The shortest request that there is."""
    return _bare(bootstrap, ApiVersionsRequest(), (), times)


def _bare(bootstrap: str, request: Request, attachments: tuple[bytes, ...], times: int) -> float:
    async def main() -> float:
        network, address = production_client_environment().network, parse_addresses(bootstrap)[0]
        connection = await Connection.open(network, address)
        took: list[float] = []
        for _ in range(times):
            began = time.perf_counter()
            await connection.roundtrip(request, attachments)
            took.append(time.perf_counter() - began)
        connection.close()
        return statistics.median(took) * 1e6

    return trio.run(main)


def send_and_wait(bootstrap: str, topic: str, times: int, linger_ms: float | None) -> float:
    with Producer(bootstrap, linger_ms=linger_ms) as producer:
        producer.send(topic, VALUES[0], partition=0).result()
        return _median_us(lambda: producer.send(topic, VALUES[0], partition=0).result(), times)


def trio_send_and_wait(bootstrap: str, topic: str, times: int, linger_ms: float | None) -> float:
    async def main() -> float:
        took: list[float] = []
        async with TrioProducer(bootstrap, linger_ms=linger_ms) as producer:
            for _ in range(times + 1):
                began = time.perf_counter()
                await (await producer.send(topic, VALUES[0], partition=0))
                took.append(time.perf_counter() - began)
        return statistics.median(took) * 1e6

    return trio.run(main)


def aio_send_and_wait(bootstrap: str, topic: str, times: int, linger_ms: float | None) -> float:
    async def main() -> float:
        took: list[float] = []
        async with AioProducer(bootstrap, linger_ms=linger_ms) as producer:
            for _ in range(times + 1):
                began = time.perf_counter()
                await (await producer.send(topic, VALUES[0], partition=0))
                took.append(time.perf_counter() - began)
        return statistics.median(took) * 1e6

    return asyncio.run(main())


def _median_us(step: Callable[[], object], times: int) -> float:
    took: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def _values() -> Iterator[bytes]:
    while True:
        yield from VALUES


def _lists(records: int) -> list[list[tuple[bytes | None, bytes | None]]]:
    values = _values()
    return [
        [(None, value) for value in islice(values, min(LIST_RECORDS, records - begin))]
        for begin in range(0, records, LIST_RECORDS)
    ]
