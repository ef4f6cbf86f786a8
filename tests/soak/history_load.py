"""The clients of `make soak-history`: what each was told goes into a history.

Producers send unique values to all partitions of a topic at a bounded rate; one reader follows each topic from its
beginning; the members of a group share the topic whose records are promised to last, one of them comes and goes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import trio

from strandline.client import TrioConsumer, TrioProducer
from strandline.client.delivery import Delivery
from strandline.client.errors import ClientError, DeliveryFailed, LogTruncated, OffsetOutOfRange
from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.history import (
    Commit,
    Committed,
    History,
    Outcome,
    Ownership,
    Poll,
    Stream,
    Write,
)

GROUP = "followers"
BURST, PAUSE_S = 5, 0.02
"""Records that one producer sends to a partition before it goes on to the next one, and its pause after all of them."""
OUTSTANDING_MAX = 1_000
"""Of one producer in one partition: it sends no more there before it knows outcomes."""
OFFSETS_INTERVAL_S = 1.0
PATIENCE_S = 120
RETRY_S = 0.2
PRODUCER_SETTINGS = {
    "linger_ms": 5,
    "delivery_timeout_ms": 8_000,
    "request_timeout_ms": 3_000,
    "max_block_ms": 5_000,
    "metadata_max_age_ms": 5_000,
}
CONSUMER_SETTINGS = {"request_timeout_ms": 3_000, "metadata_max_age_ms": 5_000, "max_poll_records": 5_000}
GROUP_SETTINGS = {
    **CONSUMER_SETTINGS,
    "group_id": GROUP,
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    # Longer than nearly any fault, so that who lives is seldom let go; and for so long the others wait for one whose
    # good-bye was lost.
    "session_timeout_ms": 20_000,
}


def _stream(tp: TopicPartition) -> Stream:
    return Stream(tp, 1)


class HistoryLoad:
    """topics: name → (partitions, acks). The first one has the group."""

    def __init__(self, bootstrap_servers: str, topics: Mapping[str, tuple[int, int]], seed: int) -> None:
        self.history = History()
        self.outcomes: Counter[tuple[int, Outcome]] = Counter()
        """By acks: how many writes ended so."""
        self.findings: list[str] = []
        """What a consumer was told that it must never be told."""
        self._servers = bootstrap_servers
        self._topics = topics
        self._group_topic = next(iter(topics))
        self._random = random.Random(f"load {seed}")
        self._readings = count(1)
        self._next: dict[tuple[str, TopicPartition], int] = {}
        """Of each reader, and of the group: behind what it has got."""
        self._ends: dict[TopicPartition, int] = {}
        """Behind the last record that all in sync have acknowledged."""
        self._is_writing = True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All clients run meanwhile; once the body has ended nothing more is written, and what was written is read."""
        async with trio.open_nursery() as readers:
            for topic in self._topics:
                readers.start_soon(self._follow, topic)
            readers.start_soon(self._member, "member-1", False)
            readers.start_soon(self._member, "member-2", False)
            readers.start_soon(self._member, "member-3", True)
            async with trio.open_nursery() as writers:
                for topic, (_, acks) in self._topics.items():
                    for number in range(2 if acks == -1 else 1):
                        writers.start_soon(self._produce, f"p{number}", topic)
                yield
                self._is_writing = False
            with trio.move_on_after(PATIENCE_S) as waiting:
                while self.unread():
                    await trio.sleep(RETRY_S)
            if waiting.cancelled_caught:
                self.findings += [f"not read {PATIENCE_S} s after all had healed: {each}" for each in self.unread()]
            readers.cancel_scope.cancel()

    def unread(self) -> list[str]:
        """Which readers have not got all that was acknowledged."""
        lacking = []
        for tp, end in self._ends.items():
            for name in (f"reader of {tp.topic}", *((GROUP,) if tp.topic == self._group_topic else ())):
                if self._next.get((name, tp), 0) < end:
                    lacking.append(f"{name} is at {self._next.get((name, tp), 0)} of {end} in {tp}")
        return lacking

    @property
    def acked(self) -> int:
        """Records that all in sync have acknowledged."""
        return self.outcomes[-1, Outcome.OK]

    def _partitions_of(self, *topics: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in topics for number in range(self._topics[topic][0])]

    # --- producers --------------------------------------------------------------------------------------------------

    async def _produce(self, name: str, topic: str) -> None:
        partitions, acks = self._topics[topic]
        outstanding = Counter[int]()
        numbers = count()
        settings = {**PRODUCER_SETTINGS, "acks": acks, "enable_idempotence": acks == -1}
        async with TrioProducer(self._servers, client_id=name, **settings) as producer:
            while self._is_writing:
                for partition in range(partitions):
                    for _ in range(BURST if outstanding[partition] < OUTSTANDING_MAX else 0):
                        value = b"%s/%s/%d" % (topic.encode(), name.encode(), next(numbers))
                        stream = _stream(TopicPartition(topic, partition))
                        write = Write(name, stream, value, acks, trio.current_time(), may_repeat=acks != -1)
                        await self._send(producer, write, outstanding)
                await trio.sleep(PAUSE_S)
            while outstanding.total():
                await trio.sleep(PAUSE_S)

    async def _send(self, producer: TrioProducer, write: Write, outstanding: Counter[int]) -> None:
        self.history.writes.append(write)
        tp = write.stream.tp
        try:
            delivery = await producer.send(tp.topic, write.value, partition=tp.partition)
        except ClientError as error:
            self._settle(write, Outcome.FAILED, f"not accepted: {type(error).__name__}")
            return
        outstanding[tp.partition] += 1
        delivery.add_done_callback(partial(self._settled, write, outstanding))

    def _settled(self, write: Write, outstanding: Counter[int], delivery: Delivery) -> None:
        outstanding[write.stream.tp.partition] -= 1
        error = delivery.exception()
        if error is None:
            write.offset = delivery.result().offset
            self._settle(write, Outcome.OK)
            if write.acks == -1:
                tp = write.stream.tp
                self._ends[tp] = max(self._ends.get(tp, 0), write.offset + 1)
        else:
            is_unknown = isinstance(error, DeliveryFailed) and error.outcome_unknown
            self._settle(write, Outcome.UNKNOWN if is_unknown else Outcome.FAILED, f"{type(error).__name__}: {error}")

    def _settle(self, write: Write, outcome: Outcome, why: str = "") -> None:
        write.outcome, write.why, write.ended_s = outcome, why, trio.current_time()
        self.outcomes[write.acks, outcome] += 1

    # --- consumers --------------------------------------------------------------------------------------------------

    async def _follow(self, topic: str) -> None:
        """One reader, from the beginning on, for ever."""
        name = f"reader of {topic}"
        partitions = self._partitions_of(topic)
        async with TrioConsumer(
            self._servers, client_id=name, auto_offset_reset="none", **CONSUMER_SETTINGS
        ) as consumer:
            await consumer.assign(partitions)
            for tp in partitions:
                consumer.seek(tp, 0)
            readings = dict.fromkeys(partitions, next(self._readings))
            while True:
                await self.poll(consumer, name, name, readings)

    async def poll(
        self, consumer: TrioConsumer, name: str, group: str, readings: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Where the consumer goes on, in the partitions of which it got something."""
        try:
            found = await consumer.poll(timeout_ms=500)
        except (LogTruncated, OffsetOutOfRange) as error:
            self.findings.append(f"{name} is sent back: {error}")
            consumer.seek_to_beginning()
            return {}
        except ClientError:
            await trio.sleep(RETRY_S)
            return {}
        now_s = trio.current_time()
        positions = {}
        for tp, records in found.items():
            values = [(record.offset, record.value or b"") for record in records]
            if values:
                self.history.polls.append(Poll(name, _stream(tp), readings[tp], now_s, values, group))
                positions[tp] = values[-1][0] + 1
                self._next[group, tp] = max(self._next.get((group, tp), 0), positions[tp])
        return positions

    async def _member(self, name: str, comes_and_goes: bool) -> None:
        """Of the group, for ever; who comes and goes leaves it in order, again and again."""
        for life in count(1):
            member = _Member(self, f"{name}, life {life}" if comes_and_goes else name)
            stays_s = self._random.uniform(5, 15) if comes_and_goes else float("inf")
            await member.run(self._servers, [self._group_topic], trio.current_time() + stays_s)
            await trio.sleep(self._random.uniform(2, 8))

    async def read_committed(self, consumer: TrioConsumer, name: str, partitions: Sequence[TopicPartition]) -> None:
        """What the group's offsets are said to be."""
        began_s = trio.current_time()
        try:
            told = await consumer.committed(partitions)
        except ClientError:
            return
        ended_s = trio.current_time()
        for tp, found in told.items():
            offset = -1 if found is None else found.offset
            self.history.committed.append(Committed(name, GROUP, _stream(tp), offset, began_s, ended_s))

    async def commit(self, consumer: TrioConsumer, name: str, positions: Mapping[TopicPartition, int]) -> None:
        began_s = trio.current_time()
        generation = consumer.group_metadata.generation_id
        commits = [
            Commit(name, GROUP, _stream(tp), offset, began_s, generation=generation) for tp, offset in positions.items()
        ]
        self.history.commits += commits
        try:
            await consumer.commit(dict(positions))
        except ClientError:
            return  # whether they were committed nobody knows
        for each in commits:
            each.outcome, each.ended_s = Outcome.OK, trio.current_time()

    def next_reading(self) -> int:
        return next(self._readings)


class _Member:
    """One life of a member of the group."""

    def __init__(self, load: HistoryLoad, name: str) -> None:
        self.load, self.name = load, name
        self.owned: dict[TopicPartition, Ownership] = {}
        self.positions: dict[TopicPartition, int] = {}
        """What is to be committed: of the partitions that it has, and since it has them."""
        self.readings: dict[TopicPartition, int] = {}

    async def run(self, servers: str, topics: list[str], until_s: float) -> None:
        load = self.load
        async with TrioConsumer(servers, client_id=self.name, **GROUP_SETTINGS) as consumer:
            consumer.subscribe(
                topics,
                on_assigned=partial(self._assigned, consumer),
                on_revoked=self._revoked,
                on_lost=self._lost,
            )
            due_s = trio.current_time() + OFFSETS_INTERVAL_S
            while trio.current_time() < until_s:
                self.positions |= await load.poll(consumer, self.name, GROUP, self.readings)
                if trio.current_time() >= due_s and self.owned:
                    due_s = trio.current_time() + OFFSETS_INTERVAL_S
                    positions, self.positions = self.positions, {}
                    await load.commit(consumer, self.name, positions)
                    await load.read_committed(consumer, self.name, list(self.owned))

    def _assigned(self, consumer: TrioConsumer, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self.readings[tp] = self.load.next_reading()
            generation = consumer.group_metadata.generation_id
            self.owned[tp] = Ownership(self.name, GROUP, tp, generation, trio.current_time())
            self.load.history.ownerships.append(self.owned[tp])

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self.owned.pop(tp).ended_s = trio.current_time()
            self.positions.pop(tp, None)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        """Whoever has lost them hears of it later than the next owner; so when it lost them nobody can tell."""
        for tp in partitions:
            self.load.history.ownerships.remove(self.owned.pop(tp))
            self.positions.pop(tp, None)
