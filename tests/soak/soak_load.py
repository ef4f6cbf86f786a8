"""The load of the soak, at a bounded rate, with every outcome written down: two producers and one who keeps reading.

`numbers` is kept by size: every value is unique and is read by the tail reader, so that also what retention takes is
compared with what was acknowledged. `latest` is compacted: few keys, each written again and again, sometimes deleted.
Neither catches up what it could not send while the cluster stalled: the rate stays what the bounds rest on.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import trio

from strandline.client import TrioConsumer, TrioProducer
from strandline.client.delivery import Delivery
from strandline.client.errors import ClientError, DeliveryFailed, OffsetOutOfRange
from strandline.protocol.types import TopicPartition
from strandline.testkit.verification import Outcomes, make_value, read_value
from support.lasting import KeyHistory, Reading, keyed_value, padded, read_keyed_value, unpadded
from support.pace import Pace

NUMBERS, LATEST = "numbers", "latest"
PARTITIONS: Mapping[str, int] = {NUMBERS: 3, LATEST: 2}
BUFFER_BYTES = 4 * 2**20
"""What a producer may hold back, and send at once when the cluster is there again."""
SETTINGS = {
    "acks": "all",
    "linger_ms": 5,
    "delivery_timeout_ms": 120_000,
    "max_block_ms": 120_000,
    "buffer_memory": BUFFER_BYTES,
}
TICK_S = 0.02


@dataclass(frozen=True, slots=True)
class Rates:
    """Per partition."""

    numbers_bytes_per_s: int = 400_000
    numbers_record_bytes: int = 4_000
    latest_bytes_per_s: int = 100_000
    latest_record_bytes: int = 500
    keys: int = 1_000
    tombstone_share: float = 0.05

    def of(self, topic: str) -> int:
        """Bytes per second and partition."""
        return self.numbers_bytes_per_s if topic == NUMBERS else self.latest_bytes_per_s


class Load:
    """`run` until `stop`, then everything is settled. What happened is in the public members."""

    def __init__(self, bootstrap_servers: str, rates: Rates, seed: int) -> None:
        self.outcomes = {partition: Outcomes() for partition in range(PARTITIONS[NUMBERS])}
        self.histories = {
            partition: [KeyHistory() for _ in range(rates.keys)] for partition in range(PARTITIONS[LATEST])
        }
        self.readings = {partition: Reading() for partition in range(PARTITIONS[NUMBERS])}
        self.errors: list[str] = []
        """Of records that were given up."""
        self.expired_under_reader = 0
        self.read_of_latest = 0
        self._bootstrap_servers = bootstrap_servers
        self._rates = rates
        self._random = random.Random(seed)
        self._stopping = False

    @property
    def acked_numbers(self) -> int:
        return sum(len(outcomes.acked) for outcomes in self.outcomes.values())

    @property
    def acked_latest(self) -> int:
        return sum(history.acked for histories in self.histories.values() for history in histories)

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        """PromiseBroken from the reader."""
        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as senders:
                nursery.start_soon(self._keep_reading)
                senders.start_soon(self._send_numbers)
                senders.start_soon(self._send_latest)
            nursery.cancel_scope.cancel()

    # --- sending ------------------------------------------------------------------------------------------------

    async def _send_numbers(self) -> None:
        size_bytes = self._rates.numbers_record_bytes
        async with TrioProducer(self._bootstrap_servers, **SETTINGS) as producer:
            pace, number = Pace(self._rates.numbers_bytes_per_s / size_bytes), 0
            while not self._stopping:
                for _ in range(pace.due()):
                    for partition in self.outcomes:
                        await self._send_number(producer, partition, number, size_bytes)
                    number += 1
                await trio.sleep(TICK_S)
            await producer.flush()

    async def _send_number(self, producer: TrioProducer, partition: int, number: int, size_bytes: int) -> None:
        outcomes = self.outcomes[partition]

        def settled(delivery: Delivery) -> None:
            error = delivery.exception()
            if error is None:
                metadata = delivery.result()
                outcomes.acked[number] = metadata.offset
                if metadata.retried:
                    outcomes.retried.add(number)
            elif isinstance(error, DeliveryFailed) and error.outcome_unknown:
                outcomes.unknown.add(number)
                self.errors.append(str(error))
            else:
                outcomes.failed.add(number)
                self.errors.append(str(error))

        value = padded(make_value(partition, number), size_bytes)
        try:
            (await producer.send(NUMBERS, value, partition=partition)).add_done_callback(settled)
        except ClientError as error:  # not accepted: nothing was sent
            outcomes.failed.add(number)
            self.errors.append(str(error))

    async def _send_latest(self) -> None:
        rates = self._rates
        async with TrioProducer(self._bootstrap_servers, **SETTINGS) as producer:
            pace = Pace(rates.latest_bytes_per_s / rates.latest_record_bytes)
            while not self._stopping:
                for _ in range(pace.due()):
                    for partition, histories in self.histories.items():
                        key = self._random.randrange(rates.keys)
                        if not histories[key].is_outstanding and not histories[key].open_ended:
                            await self._send_key(producer, partition, key, histories[key])
                await trio.sleep(TICK_S)
            await producer.flush()

    async def _send_key(self, producer: TrioProducer, partition: int, key: int, history: KeyHistory) -> None:
        number = history.sent = history.sent + 1
        value = None
        if self._random.random() < self._rates.tombstone_share:
            history.tombstones.add(number)
        else:
            value = padded(keyed_value(partition, key, number), self._rates.latest_record_bytes)
        history.is_outstanding = True

        def settled(delivery: Delivery) -> None:
            history.is_outstanding = False
            error = delivery.exception()
            if error is None:
                history.acked = number
                if delivery.result().retried:
                    history.repeated.add(number)
                return
            history.open_ended = isinstance(error, DeliveryFailed) and error.outcome_unknown
            self.errors.append(str(error))

        try:
            (await producer.send(LATEST, value, key=b"%d" % key, partition=partition)).add_done_callback(settled)
        except ClientError as error:
            history.is_outstanding = False
            self.errors.append(str(error))

    # --- reading ------------------------------------------------------------------------------------------------

    async def _keep_reading(self) -> None:
        everything = [TopicPartition(topic, number) for topic, count in PARTITIONS.items() for number in range(count)]
        last_offset = dict.fromkeys(range(PARTITIONS[LATEST]), -1)
        async with TrioConsumer(self._bootstrap_servers, auto_offset_reset="none") as consumer:
            await consumer.assign(everything)
            for tp in everything:
                consumer.seek(tp, 0)
            while True:
                try:
                    polled = await consumer.poll(timeout_ms=1000)
                except OffsetOutOfRange:
                    await self._skip_expired(consumer)
                    continue
                for tp, records in polled.items():
                    for record in records:
                        if tp.topic == NUMBERS:
                            assert record.value is not None
                            _, number = read_value(unpadded(record.value))
                            self.readings[tp.partition].note(record.offset, number)
                        else:
                            assert record.offset > last_offset[tp.partition], f"{tp}: offsets went back"
                            last_offset[tp.partition] = record.offset
                            if record.value is not None:
                                read_keyed_value(unpadded(record.value))
                            self.read_of_latest += 1

    async def _skip_expired(self, consumer: TrioConsumer) -> None:
        """Retention overtook the reader: it says so, the reader goes on where the log begins."""
        expired = [TopicPartition(NUMBERS, partition) for partition in self.readings]
        for tp, begin in (await consumer.beginning_offsets(expired)).items():
            reading = self.readings[tp.partition]
            if begin > reading.next_offset:
                self.expired_under_reader += begin - reading.next_offset
                reading.skip_to(begin)
                consumer.seek(tp, begin)


async def read_all(bootstrap_servers: str, topic: str) -> dict[int, list[tuple[int, bytes | None, bytes | None]]]:
    """partition → (offset, key, value) of every committed record."""
    wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS[topic])]
    found: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {tp.partition: [] for tp in wanted}
    async with TrioConsumer(bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await consumer.assign(wanted)
        ends = await consumer.end_offsets(wanted)
        while any([await consumer.position(tp) < ends[tp] for tp in wanted]):
            for tp, records in (await consumer.poll(timeout_ms=1000)).items():
                found[tp.partition] += [(record.offset, record.key, record.value) for record in records]
    return found
