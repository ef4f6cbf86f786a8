"""Where partitions end that others lead, for the lag of the groups that are coordinated here.

A scrape never waits: it says which partitions it would like to know of, and gets what was found last. A task asks their
leaders every `INTERVAL_S` about what a scrape has wanted to know within `INTEREST_S`; what is older than
`GOOD_FOR_S` is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import trio

from strandline.broker.replication.questions import Questions
from strandline.broker.replication.replicas import Replicas
from strandline.client.errors import ClientError
from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.messages import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.runtime.beats import next_beat
from strandline.runtime.network import Network

INTERVAL_S = 10.0
INTEREST_S = 180.0
GOOD_FOR_S = 60.0
MAX_PARTITIONS = 10_000
"""That are asked about."""
MAX_ASKED = 500
"""In one question; then others take their turn."""
TIMEOUT_S = 5.0
"""For one leader, all its questions: who does not answer keeps nobody waiting."""

AskLeader = Callable[[int, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
"""(who leads, partitions) → where they end, of those that it tells. Raises nothing."""


class EndOffsets:
    """See the module."""

    def __init__(self, replicas: Replicas, ask_leader: AskLeader) -> None:
        self._replicas = replicas
        self._ask_leader = ask_leader
        self._found: dict[TopicPartition, tuple[int, float]] = {}
        """Where it ended, and when that was."""
        self._wanted: dict[TopicPartition, float] = {}
        """When a scrape wanted to know last."""
        self._came = trio.lowlevel.ParkingLot()

    def of(self, topic_partition: TopicPartition) -> int | None:
        """Its high watermark; None: not known (yet)."""
        partition = self._replicas.partitions.get(topic_partition)
        if partition is not None and partition.leadership is not None:
            return partition.high_watermark
        now_s = trio.current_time()
        if topic_partition in self._wanted or len(self._wanted) < MAX_PARTITIONS:
            self._wanted[topic_partition] = now_s
        self._came.unpark_all()
        end, found_s = self._found.get(topic_partition, (0, -math.inf))
        return end if now_s - found_s < GOOD_FOR_S else None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while not self._wanted:
                await self._came.park()
            await self._look()
            await next_beat(INTERVAL_S)

    async def _look(self) -> None:
        now_s = trio.current_time()
        self._wanted = {tp: wanted_s for tp, wanted_s in self._wanted.items() if now_s - wanted_s < INTEREST_S}
        self._found = {tp: found for tp, found in self._found.items() if tp in self._wanted}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in self._wanted:
            known = self._replicas.metadata.partition(*tp)
            if known is not None and known.leader not in (NO_BROKER, self._replicas.broker_id):
                by_leader.setdefault(known.leader, []).append(tp)
        async with trio.open_nursery() as nursery:
            for leader in sorted(by_leader):
                nursery.start_soon(self._ask, leader, by_leader[leader])

    async def _ask(self, leader: int, partitions: Sequence[TopicPartition]) -> None:
        with trio.move_on_after(TIMEOUT_S):
            for start in range(0, len(partitions), MAX_ASKED):
                some = partitions[start : start + MAX_ASKED]
                now_s = trio.current_time()
                ends = await self._ask_leader(leader, some)
                if not ends:
                    return
                self._found.update((tp, (end, now_s)) for tp, end in ends.items())


class EndQuestions:
    """`AskLeader` by ListOffsets."""

    def __init__(self, replicas: Replicas, network: Network) -> None:
        self._questions = Questions(replicas, network)

    async def ask_leader(self, leader: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """See `AskLeader`. A leader that is silent, or that leads no more, is asked again anyway."""
        try:
            response = await self._questions.ask(leader, _question(partitions))
        except (ClientError, RemoteProtocolError):
            return {}
        assert isinstance(response, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): partition.offset
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE and partition.offset >= 0
        }


def _question(partitions: Iterable[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, partition in partitions:
        asked = topics.setdefault(topic, ListOffsetsTopic(topic, []))
        asked.partitions.append(ListOffsetsPartition(partition, LATEST_TIMESTAMP))
    return ListOffsetsRequest(list(topics.values()))
