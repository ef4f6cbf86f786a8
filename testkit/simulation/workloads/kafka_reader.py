"""How a consumer of Kafka's dialect reads partitions of one topic.

As Kafka's consumers do, one task for each broker fetches what that broker leads, with or without a session (KIP-227);
a position is validated by OffsetForLeaderEpoch before it is used with a new leader epoch (KIP-320); and an answer
counts only while the partition still stands where it was asked for, with the same leader. Up to where leaders say that
a partition is committed is noted, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import trio

from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.kafka.fetch import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_IDS
from strandline.protocol.messages import EARLIEST_TIMESTAMP
from strandline.protocol.records import InvalidBatch, decode_records, scan
from strandline.protocol.types import NO_BROKER, NO_EPOCH
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import EndOffset, Poll, Stream
from strandline.testkit.simulation.kafka_access import KafkaAccess, Leader, Unanswered
from strandline.testkit.simulation.workloads.kafka_sessions import FetchSession, Wanted
from strandline.testkit.simulation.world import TopicLife, World

MAX_WAIT = timedelta(milliseconds=1_000)
"""A beat later, and back, it is still within the time that a request has."""
PAUSE_S = 1.0
LIST_OFFSETS_VERSION = 7
EPOCH_VERSION = 4
FIRST_WITH_SESSIONS = 7
FIRST_WITH_EPOCHS = 9
FIRST_WITHOUT_REPLICA_ID = 15


class Style(NamedTuple):
    """How one consumer works. tells_fetched_epoch: leaders look for a divergence themselves, as for a follower."""

    version: int
    has_sessions: bool
    tells_fetched_epoch: bool
    min_bytes: int
    partition_max_bytes: int


@dataclass(eq=False)
class Position:
    """Where the reading of one partition stands. offset: None: where the partition begins. epoch: of the record before
    it. validated_epoch: of the leader that knows the position. refused: what was out of range, and which leader said
    so."""

    stream: Stream
    reading: int
    offset: int | None = None
    epoch: int = NO_EPOCH
    validated_epoch: int = NO_EPOCH
    refused: tuple[int, Leader] | None = None


@dataclass(eq=False)
class Readings:
    """Of one consumer, which has a name and a style, and may read for a group. is_over: it reads no more. last: the
    number of the last one."""

    world: World
    name: str
    style: Style
    is_over: Callable[[], bool]
    group: str = ""
    last: int = 0

    def next(self) -> int:
        self.last += 1
        return self.last


class KafkaReader:
    """Of one life of the topic: all of its partitions, also those that come later, or (starts) some of them, from an
    offset on or from their beginning."""

    def __init__(
        self,
        readings: Readings,
        life: TopicLife,
        access: KafkaAccess,
        starts: Mapping[int, int | None] | None = None,
    ) -> None:
        self._readings = readings
        self._world = readings.world
        self._style = readings.style
        self._life = life
        self._access = access
        self._has_all = starts is None
        self.positions = {
            partition: Position(life.stream(partition), readings.next(), offset)
            for partition, offset in (starts or {}).items()
        }
        self._is_outdated = True
        """Somebody was told that another broker may lead."""

    async def run(self) -> None:
        """Until that life of the topic is over, or it reads no more."""
        async with trio.open_nursery() as nursery:
            for broker_id in self._world.cluster.nodes:
                nursery.start_soon(self._fetch_from, broker_id)
            while self._is_current():
                for stream in self._life.streams[len(self.positions) :] if self._has_all else ():
                    self.positions[stream.tp.partition] = Position(stream, self._readings.next())
                if self._is_outdated or any(self._leader(each) is None for each in self.positions.values()):
                    self._is_outdated = False
                    await self._access.refresh()
                await trio.sleep(PAUSE_S)

    def _is_current(self) -> bool:
        life = self._life
        return not self._readings.is_over() and life is self._world.topics[life.name] and life.is_open

    def _leader(self, position: Position) -> Leader | None:
        leader = self._access.leader(position.stream.tp)
        return None if leader is None or leader.broker_id == NO_BROKER else leader

    def _note_end(self, position: Position, offset: int, began_s: float, *, is_bound: bool = False) -> None:
        """What a leader whose epoch was asked for said of the end."""
        end = EndOffset(self._readings.name, position.stream, offset, began_s, common_time(), is_bound)
        self._world.history.end_offsets.append(end)

    def _move(self, position: Position, offset: int | None) -> None:
        """Another reading begins there."""
        position.reading = self._readings.next()
        position.offset, position.epoch = offset, NO_EPOCH

    # --- one broker -------------------------------------------------------------------------------------------------

    async def _fetch_from(self, broker_id: int) -> None:
        session = FetchSession(self._style.has_sessions)
        while self._is_current():
            leaders: dict[int, Leader] = {}
            for partition, position in list(self.positions.items()):
                leader = self._leader(position)
                if leader is not None and leader.broker_id == broker_id and await self._is_ready(position, leader):
                    leaders[partition] = leader
            if not leaders or not await self._fetch(broker_id, session, leaders):
                await trio.sleep(PAUSE_S)

    async def _is_ready(self, position: Position, leader: Leader) -> bool:
        """Whether its leader knows of the position; it is asked where that is not known."""
        try:
            if position.offset is None:
                await self._begin(position, leader)
            elif position.validated_epoch != leader.epoch:
                await self._validate(position, leader)
        except Unanswered:
            self._is_outdated = True
        return position.offset is not None and position.validated_epoch == leader.epoch

    async def _begin(self, position: Position, leader: Leader) -> None:
        part = await self._ask_one(
            position,
            leader,
            ApiKey.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            {"name": self._life.name},
            {"partition_index": position.stream.tp.partition, "timestamp": EARLIEST_TIMESTAMP},
        )
        if part is None:
            return
        if position.refused is not None and self._is_fenced:
            refused, refused_by = position.refused
            if part.offset <= refused and refused_by == leader:
                # The start of one leader's log does not go back: so what was refused lay behind the end. The next
                # leader may not have heard of a deletion that nobody was told is done.
                self._note_end(position, refused - 1, common_time(), is_bound=True)
        position.offset, position.refused, position.validated_epoch = part.offset, None, leader.epoch

    @property
    def _is_fenced(self) -> bool:
        """Whether it says in its fetches whom it takes for the leader."""
        return self._style.version >= FIRST_WITH_EPOCHS

    async def _validate(self, position: Position, leader: Leader) -> None:
        """Truncation detection (KIP-320): does what was read still stand in the leader's log?"""
        assert position.offset is not None
        if position.epoch == NO_EPOCH:
            position.validated_epoch = leader.epoch
            return
        began_s = common_time()
        part = await self._ask_one(
            position,
            leader,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            EPOCH_VERSION,
            {"topic": self._life.name},
            {"partition": position.stream.tp.partition, "leader_epoch": position.epoch},
        )
        if part is None:
            return
        self._world.sometimes["kafka: positions validated"] += 1
        if part.end_offset < position.offset:
            self._truncated(position, part.end_offset, began_s)
        position.validated_epoch = leader.epoch

    def _truncated(self, position: Position, end_offset: int, began_s: float) -> None:
        """end_offset: −1: the leader has nothing of that epoch, or before it."""
        self._world.sometimes["kafka: truncations told"] += 1
        self._note_end(position, end_offset, began_s)
        self._move(position, end_offset if end_offset >= 0 else None)

    async def _ask_one(
        self, position: Position, leader: Leader, api_key: ApiKey, version: int, topic: Any, partition: Any
    ) -> Any | None:
        """What the leader says of one partition. None: it refuses, or is not the leader any more."""
        partition["current_leader_epoch"] = leader.epoch
        asked = [{**topic, "partitions": [partition]}]
        answer = await self._access.ask(leader.broker_id, api_key, version, replica_id=-1, topics=asked)
        [part] = answer.topics[0].partitions
        self._is_outdated |= bool(part.error_code)
        is_current = self._is_current() and self._leader(position) == leader
        return part if is_current and not part.error_code else None

    # --- fetches ----------------------------------------------------------------------------------------------------

    async def _fetch(self, broker_id: int, session: FetchSession, leaders: dict[int, Leader]) -> bool:
        """Whether it was answered without an error."""
        wanted = {partition: self._wanted(self.positions[partition], leader) for partition, leader in leaders.items()}
        step = session.next_step(wanted)
        version, began_s = self._style.version, common_time()
        by_id = version >= FIRST_WITH_TOPIC_IDS
        name: dict[str, Any] = {"topic_id": self._access.topic_id} if by_id else {"topic": self._life.name}
        named = [self._as_asked(partition, each) for partition, each in step.named.items()]
        fields: dict[str, Any] = {"max_wait": MAX_WAIT, "min_bytes": self._style.min_bytes, "max_bytes": 1_000_000}
        fields["topics"] = [{**name, "partitions": named}] if named else []
        if version < FIRST_WITHOUT_REPLICA_ID:
            fields["replica_id"] = -1
        if version >= FIRST_WITH_SESSIONS:
            fields |= {"session_id": step.session_id, "session_epoch": step.epoch}
            fields["forgotten_topics_data"] = [{**name, "partitions": step.forgotten}] if step.forgotten else []
        try:
            answer = await self._access.ask(broker_id, ApiKey.FETCH, version, **fields)
        except Unanswered:
            session.failed()
            self._is_outdated = True
            return False
        code = error_code(getattr(answer, "error_code", 0))
        if code:
            session.failed(code)
            return False
        session.answered(getattr(answer, "session_id", 0))
        if step.epoch > 0:
            self._world.sometimes["kafka: incremental fetches"] += 1
        codes = {
            self._take(part, wanted[part.partition_index], leaders[part.partition_index], began_s)
            for topic in answer.responses
            for part in topic.partitions
        }
        return codes <= {ErrorCode.NONE}

    def _wanted(self, position: Position, leader: Leader) -> Wanted:
        assert position.offset is not None
        tells = self._style.tells_fetched_epoch and self._style.version >= FIRST_FLEXIBLE
        return Wanted(position.offset, leader.epoch, position.epoch if tells else NO_EPOCH)

    def _as_asked(self, partition: int, wanted: Wanted) -> dict[str, Any]:
        asked = {
            "partition": partition,
            "fetch_offset": wanted.offset,
            "partition_max_bytes": self._style.partition_max_bytes,
        }
        if self._is_fenced:
            asked["current_leader_epoch"] = wanted.leader_epoch
        if self._style.version >= FIRST_FLEXIBLE:
            asked["last_fetched_epoch"] = wanted.fetched_epoch
        return asked

    def _take(self, part: Any, wanted: Wanted, leader: Leader, began_s: float) -> ErrorCode:
        """One partition of an answer, unless it has moved meanwhile."""
        position, code = self.positions[part.partition_index], error_code(part.error_code)
        if not self._is_current() or self._leader(position) != leader or position.offset != wanted.offset:
            return code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            position.refused = wanted.offset, leader
            self._move(position, None)
        elif code:
            self._is_outdated = True
        elif wanted.fetched_epoch != NO_EPOCH and part.diverging_epoch.end_offset >= 0:
            self._truncated(position, part.diverging_epoch.end_offset, began_s)
        else:
            if self._is_fenced and not part.records:
                # With records a leader may tell less than its predecessor did: it has begun, and sends what it knows to
                # be committed. Who is at the end is told that it is not known yet.
                self._note_end(position, part.high_watermark, began_s)
            return self._read(position, memoryview(part.records or b""))
        return code

    def _read(self, position: Position, batches: memoryview) -> ErrorCode:
        offset = position.offset
        assert offset is not None
        try:
            found = [(each.offset, each.value or b"") for each in decode_records(batches) if each.offset >= offset]
        except InvalidBatch:
            self._world.sometimes["kafka: damaged records refused"] += 1
            return ErrorCode.CORRUPT_MESSAGE
        for _, header in scan(batches):
            position.offset, position.epoch = header.next_offset, header.partition_leader_epoch
        if found:
            readings, stream = self._readings, position.stream
            poll = Poll(readings.name, stream, position.reading, common_time(), found, readings.group)
            self._world.history.polls.append(poll)
        return ErrorCode.NONE
