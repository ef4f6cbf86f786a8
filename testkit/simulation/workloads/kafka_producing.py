"""Producers of Kafka's dialect: acks 0, 1 or all, with sequence numbers or without, several batches in flight.

Each partition has a lane of its own: its batches are numbered in the order in which they are made, and each is sent
again, the very same bytes, until its outcome is known or its time is over. As with Kafka's producer none is sent again
before those in front of it are settled, and none is sent five ahead of one that is not: brokers know five batches of a
producer. A batch that is given up ends its lane's producer id, since what follows it would never be taken; what is in
flight behind it comes to its own end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import trio

from strandline.client.batch_failures import APPENDED_NOTHING
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.records.codec import build_batch
from strandline.protocol.types import NO_BROKER
from strandline.testkit.clock import common_time
from strandline.testkit.environment import VirtualWallClock
from strandline.testkit.simulation.history import Outcome, Stream, Write
from strandline.testkit.simulation.kafka_access import KafkaAccess, Unanswered
from strandline.testkit.simulation.workloads.producing import key_of
from strandline.testkit.simulation.world import TopicLife, World

IN_FLIGHT_MAX = 5
RECORDS_MAX = 5
DELIVERY_TIMEOUT_S = 8.0
RETRY_PAUSE_S = 0.1
PAUSES_BETWEEN_BATCHES = 5
"""A batch has several records, so there is one for so many of the pauses that there are between single records."""
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
PRODUCE_TIMEOUT = timedelta(milliseconds=1_500)
INIT_PRODUCER_ID_VERSIONS = (0, 1, 2, 4, 5)


class Style(NamedTuple):
    """How one producer works."""

    acks: int
    is_idempotent: bool
    version: int


@dataclass(eq=False)
class Numbering:
    """One producer id in one lane. is_over: a batch of it was given up."""

    producer_id: int
    epoch: int
    next_sequence: int = 0
    is_over: bool = False


@dataclass(eq=False)
class Batch:
    """numbering: None of a producer that is not idempotent. may_be_there: an attempt may have appended it."""

    number: int
    data: bytes
    writes: list[Write]
    numbering: Numbering | None
    may_be_there: bool = False
    sent_to: int = NO_BROKER
    why: list[str] = field(default_factory=list)


async def produce_by_kafka(world: World) -> None:
    """One producer for each topic, of a style that the seed draws."""
    async with trio.open_nursery() as nursery:
        for plan in world.options.topics:
            chance = world.chance(f"kafka producer of {plan.name}")
            is_idempotent = chance.random() < 0.5
            acks = -1 if is_idempotent else chance.choice((-1, 1, 0))
            lowest, highest = APIS[ApiKey.PRODUCE].kafka or (0, 0)
            style = Style(acks, is_idempotent, chance.randint(lowest, highest))
            nursery.start_soon(_Producer(world, plan.name, style, chance).run)


class _Producer:
    def __init__(self, world: World, topic: str, style: Style, chance: random.Random) -> None:
        self.world = world
        self.topic = topic
        self.name = f"kafka-producer-{topic}"
        self.style = style
        self.chance = chance
        self.sent = 0

    async def run(self) -> None:
        """Each life of the topic is produced to anew: nobody there knows the producer ids of the one before."""
        while not self.world.is_over:
            life = self.world.topics[self.topic]
            with KafkaAccess(self.world.cluster, self.topic) as access:
                async with trio.open_nursery() as nursery:
                    lanes = 0
                    while self.is_current(life):
                        for partition in range(lanes, life.partitions):
                            nursery.start_soon(_Lane(self, life, partition, access).run)
                        lanes = life.partitions
                        await trio.sleep(self.world.options.write_pause_s)
            await trio.sleep(RETRY_PAUSE_S)

    def is_current(self, life: TopicLife) -> bool:
        return not self.world.is_over and self.lives(life)

    def lives(self, life: TopicLife) -> bool:
        """Whether the topic's name means that life."""
        return life is self.world.topics[self.topic] and life.is_open


class _Lane:
    """What one producer sends to one partition of one life of the topic."""

    def __init__(self, producer: _Producer, life: TopicLife, partition: int, access: KafkaAccess) -> None:
        self._producer = producer
        self._style = producer.style
        self._life = life
        self._stream: Stream = life.stream(partition)
        self._access = access
        self._numbering: Numbering | None = None
        self._batches = 0
        self._unsettled: list[Batch] = []
        """In the order in which they were made."""

    async def run(self) -> None:
        pause_s = PAUSES_BETWEEN_BATCHES * self._producer.world.options.write_pause_s
        async with trio.open_nursery() as nursery:
            while self._is_current():
                if self._style.is_idempotent and (self._numbering is None or self._numbering.is_over):
                    if not self._unsettled:
                        self._numbering = await self._new_numbering()
                elif not self._unsettled or self._batches - self._unsettled[0].number < IN_FLIGHT_MAX:
                    self._unsettled.append(self._make())
                    nursery.start_soon(self._deliver, self._unsettled[-1])
                await trio.sleep(pause_s)

    def _is_current(self) -> bool:
        return self._producer.is_current(self._life)

    async def _new_numbering(self) -> Numbering | None:
        """None: it has to be asked for again."""
        world, chance = self._producer.world, self._producer.chance
        broker_id = chance.choice(list(world.cluster.nodes))
        version = chance.choice(INIT_PRODUCER_ID_VERSIONS)
        try:
            answer = await self._access.ask(
                broker_id, ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=timedelta(0)
            )
        except Unanswered:
            return None
        return None if answer.error_code else Numbering(answer.producer_id, answer.producer_epoch)

    def _make(self) -> Batch:
        producer, numbering = self._producer, self._numbering
        now_s = common_time()
        writes = []
        for _ in range(producer.chance.randint(1, RECORDS_MAX)):
            producer.sent += 1
            value = f"{producer.topic}/{self._life.life}/{producer.name}/{producer.sent}".encode()
            key = key_of(producer.sent)
            writes.append(Write(producer.name, self._stream, value, self._style.acks, now_s, key=key))
        producer.world.history.writes += writes
        numbers = None
        if numbering is not None:
            numbers = (numbering.producer_id, numbering.epoch, numbering.next_sequence)
            numbering.next_sequence += len(writes)
        timestamp_ms = VirtualWallClock().now_ms()  # an old one would be over its topic's retention
        records = [(timestamp_ms, write.key, write.value) for write in writes]
        self._batches += 1
        return Batch(
            self._batches - 1, build_batch(records, producer.chance.choice(CODECS), numbers), writes, numbering
        )

    async def _deliver(self, batch: Batch) -> None:
        try:
            base_offset = await self._settle(batch)
            for index, write in enumerate(batch.writes):
                if base_offset is not None:
                    write.outcome, write.offset = Outcome.OK, base_offset + index if base_offset >= 0 else -1
                else:
                    write.outcome = Outcome.UNKNOWN if batch.may_be_there else Outcome.FAILED
                write.why = ", ".join(batch.why[-3:])
                write.told_by = batch.sent_to
            if base_offset is None and batch.numbering is not None:
                batch.numbering.is_over = True
        finally:
            self._unsettled.remove(batch)
            for write in batch.writes:
                write.ended_s = common_time()

    async def _settle(self, batch: Batch) -> int | None:
        """The base offset, −1 where it is not told; None: it was given up."""
        deadline_s = common_time() + DELIVERY_TIMEOUT_S
        while common_time() < deadline_s and self._is_current():
            if batch.may_be_there and batch.numbering is None:
                for write in batch.writes:
                    write.may_repeat = True
            if batch.why and self._unsettled[0] is not batch:
                await trio.sleep(RETRY_PAUSE_S)
                continue
            code, base_offset = await self._attempt(batch)
            batch.why.append("not sent" if code is None else code.name)
            if not self._producer.lives(self._life):  # the answer may be of the next life
                batch.may_be_there = True
                break
            if code is ErrorCode.NONE:
                return base_offset
            if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                if not batch.may_be_there:
                    text = f"{batch.writes[0].value!r} was sent for the first time"
                    self._producer.world.violated(f"false-repetition: {self._stream}: {text}")
                return -1
            batch.may_be_there |= code is not None and code not in APPENDED_NOTHING
            is_early = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # one before it is still to come
            if code is not None and (self._style.acks == 0 or not (code.retriable or is_early)):
                break
            await trio.sleep(RETRY_PAUSE_S)
            if not is_early:
                await self._access.refresh()
        return None

    async def _attempt(self, batch: Batch) -> tuple[ErrorCode | None, int]:
        """What is told, and the base offset. None: it could not be sent."""
        tp, version = self._stream.tp, self._style.version
        leader = self._access.leader(tp)
        if leader is None or leader.broker_id == NO_BROKER:
            await self._access.refresh()
            return None, -1
        partition = {"index": tp.partition, "records": batch.data}
        fields: dict[str, Any] = {
            "acks": self._style.acks,
            "timeout": PRODUCE_TIMEOUT,
            "topic_data": [{"name": tp.topic, "partition_data": [partition]}],
        }
        batch.sent_to = leader.broker_id
        try:
            if self._style.acks == 0:
                await self._access.tell(leader.broker_id, ApiKey.PRODUCE, version, **fields)
                return ErrorCode.NETWORK_EXCEPTION, -1
            answer = await self._access.ask(leader.broker_id, ApiKey.PRODUCE, version, **fields)
        except Unanswered as error:
            return (ErrorCode.NETWORK_EXCEPTION if error.was_sent else None), -1
        [part] = answer.responses[0].partition_responses
        return error_code(part.error_code), part.base_offset
