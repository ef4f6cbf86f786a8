"""Looking into replicas: the bytes of a log, its records, whether two logs agree, what was promised to clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from strandline.client.consumer import TrioConsumer
from strandline.client.delivery import Delivery
from strandline.client.errors import ClientError
from strandline.client.producer import TrioProducer
from strandline.protocol.records import InvalidBatch, Record, decode_records, scan
from strandline.protocol.types import TopicPartition
from strandline.storage.log.log import Log
from strandline.testkit.disk import MemoryDisk


def log_bytes(
    log: Log, end_offset: int | None = None, start_offset: int | None = None, max_read_bytes: int = 2**30
) -> bytes:
    """The record batches of a log that lie wholly below `end_offset` (the log's end), as they stand in its files; from
    the log start on, or from the batch that has `start_offset`."""
    parts: list[bytes] = []
    offset = log.log_start_offset if start_offset is None else start_offset
    end = log.log_end_offset if end_offset is None else end_offset
    while offset < end and (region := log.read(offset, max_read_bytes, end)) is not None:
        part = region.file.pread(region.length, region.position)
        assert len(part) == region.length, "the file is shorter than the log says"
        parts.append(part)
        offset = max(header.next_offset for _, header in scan(memoryview(part)))
    return b"".join(parts)


def records_on(disk: MemoryDisk, tp: TopicPartition, log_dir: str = "/data") -> dict[int, bytes | None]:
    """offset → value of what stands on a disk, whether a broker runs on it or not; up to the first damage."""
    return {record.offset: record.value for _, record in epochs_and_records_on(disk, tp, log_dir)}


def epochs_and_records_on(disk: MemoryDisk, tp: TopicPartition, log_dir: str = "/data") -> Iterator[tuple[int, Record]]:
    """As `records_on`, with the leader epoch of each."""
    folder = f"{log_dir}/{tp.topic}-{tp.partition}"
    names = disk.listdir(folder) if disk.is_dir(folder) else []
    for name in sorted(name for name in names if name.endswith(".log")):
        content = memoryview(disk.read(f"{folder}/{name}"))
        try:
            for at, header in scan(content):
                for record in decode_records(content[at : at + header.size_bytes]):
                    yield header.partition_leader_epoch, record
        except InvalidBatch:
            break


def log_records(log: Log, end_offset: int | None = None) -> list[Record]:
    return decode_records(memoryview(log_bytes(log, end_offset)))


def values(log: Log, end_offset: int | None = None) -> list[bytes | None]:
    """The values of a log's records, in order."""
    return [record.value for record in log_records(log, end_offset)]


def epochs(log: Log) -> list[int]:
    """The leader epoch of each record batch."""
    return [header.partition_leader_epoch for _, header in scan(memoryview(log_bytes(log)))]


def assert_same_below(logs: Mapping[int, Log], end_offset: int) -> None:
    """All replicas (by broker id) have the same bytes below `end_offset` (log matching, invariant 4)."""
    images = {broker_id: log_bytes(log, end_offset) for broker_id, log in logs.items()}
    first = next(iter(images))
    for broker_id, image in images.items():
        assert image == images[first], (
            f"logs of brokers {first} and {broker_id} differ below {end_offset}: "
            f"{values(logs[first], end_offset)} and {values(logs[broker_id], end_offset)}"
        )


@dataclass
class Ledger:
    """What clients were promised: produce through it, then compare with what is read back."""

    acked: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    """offset → value, of every record that was acknowledged."""
    unknown: list[bytes] = field(default_factory=list)
    """Values whose outcome nobody told: they may be there or not."""

    async def produce(
        self, producer: TrioProducer, tp: TopicPartition, items: Iterable[bytes], *, one_by_one: bool = False
    ) -> None:
        """Send values (unique ones), wait for the outcome of each. `one_by_one`: each in a batch of its own."""
        deliveries = []
        for value in items:
            delivery = await producer.send(tp.topic, value, partition=tp.partition)
            if one_by_one:
                await self._settle(tp, value, delivery)
            else:
                deliveries.append((value, delivery))
        for value, delivery in deliveries:
            await self._settle(tp, value, delivery)

    async def _settle(self, tp: TopicPartition, value: bytes, delivery: Delivery) -> None:
        try:
            found = await delivery
        except ClientError:
            self.unknown.append(value)
            return
        acked = self.acked.setdefault(tp, {})
        assert found.offset not in acked, f"offset {found.offset} of {tp} was given out twice"
        acked[found.offset] = value

    def assert_kept(self, tp: TopicPartition, found: Mapping[int, bytes | None]) -> None:
        """Every acknowledged record is at its offset, unaltered (1)."""
        for offset, value in self.acked.get(tp, {}).items():
            assert found.get(offset) == value, f"{tp}: acked {value!r} at {offset}, there is {found.get(offset)!r}"


async def read_all(
    consumer: TrioConsumer, tp: TopicPartition, *, timeout_ms: float = 30_000
) -> dict[int, bytes | None]:
    """offset → value of everything below the high watermark."""
    await consumer.assign([tp])
    end = (await consumer.end_offsets([tp]))[tp]
    consumer.seek_to_beginning(tp)
    found: dict[int, bytes | None] = {}
    while not found or max(found) < end - 1:
        if end == 0:
            break
        batch = await consumer.poll(timeout_ms=timeout_ms)
        assert batch, f"{tp}: nothing came for {timeout_ms} ms; read {len(found)} records of {end}"
        for record in batch.get(tp, []):
            assert record.offset not in found, f"{tp}: offset {record.offset} came twice"
            found[record.offset] = record.value
    return found
