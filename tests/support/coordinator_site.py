"""A coordinator with its handlers and no broker around them: one shard, a log that takes everything, and no clock."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import structlog

from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.groups.effects import GroupSettings
from strandline.broker.groups.group import Group
from strandline.broker.groups.offsets import GroupOffsets
from strandline.broker.groups.shards import OFFSETS_TOPIC, Shard
from strandline.broker.handlers.group_offsets import OffsetHandlers
from strandline.broker.handlers.groups import GroupHandlers
from strandline.broker.replication.deadlines import Deadlines
from strandline.broker.steps import InSteps
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import Message
from strandline.runtime.config.reading import load_broker_config
from support.replica_site import Hand, in_hand

MAX_RECORD_BYTES = 100_000


class Appends:
    """`records`: what is in the log; `sizes`: how many each append brought. `code`: how the next appends end; `late`:
    who waits on after a time-out."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.sizes: list[int] = []
        self.code = ErrorCode.NONE
        self.late: list[Any] = []
        self._gathered: list[Any] = []

    def append(self, partition: object, records: Any, done: Any, late: Any = None) -> None:
        self.sizes.append(len(records))
        self._gathered.append((records, done, late))

    def write(self) -> None:
        while self._gathered:
            records, done, late = self._gathered.pop(0)
            if self.code is ErrorCode.NONE:
                self.records += records
            if self.code is ErrorCode.REQUEST_TIMED_OUT and late is not None:
                self.late.append(late)
            done(self.code)


class CoordinatorSite:
    """One topic, `t`, with all partitions. `now`: of the burst, seconds; `wall_ms`: since 1970."""

    def __init__(self) -> None:
        config = load_broker_config({"broker.id": "1", "log.dirs": "/logs", "zookeeper.connect": "zk:2181"})
        partition = SimpleNamespace(
            topic_partition=SimpleNamespace(topic=OFFSETS_TOPIC, partition=0),
            config=SimpleNamespace(max_message_bytes=MAX_RECORD_BYTES),
        )
        topics = {OFFSETS_TOPIC: SimpleNamespace(partitions={0: None})}
        replicas = SimpleNamespace(
            config=config,
            on_role_change=lambda heard: None,
            on_deletion=lambda heard: None,
            metadata=SimpleNamespace(
                topics=topics, version=1, partition=lambda topic, index: topic if topic == "t" else None
            ),
        )
        self.now, self.wall_ms = 1000.0, 10**12
        self.appends = Appends()
        burst = SimpleNamespace(now=lambda: self.now, wall_ms=lambda: self.wall_ms, end=lambda: None)
        self.deadlines = Deadlines()
        arguments: Any = (replicas, self.appends, burst, self.deadlines, random.Random(1), structlog.get_logger())
        self.coordinator = GroupCoordinator(*arguments)
        self.shard = Shard(cast(Any, partition))
        self.shard.groups = {}
        self.coordinator.shards[0] = self.shard
        self.groups = GroupHandlers(self.coordinator, cast(Any, replicas), lambda name, asked_by: None)
        self.offsets = OffsetHandlers(self.coordinator, cast(Any, replicas))

    @property
    def settings(self) -> GroupSettings:
        return self.coordinator.settings

    def add(self, group: Group) -> None:
        """As if it had been loaded."""
        assert self.shard.groups is not None
        self.shard.groups[group.group_id] = self.coordinator.coordinated(
            self.shard, group, GroupOffsets(group.group_id)
        )

    def send(self, handler: Any, message: Message) -> Hand:
        """To a handler that does all here and now; the answer may come later."""
        hand = Hand(message)
        assert handler(in_hand(hand)) is None, "it is done in steps"
        self.appends.write()
        return hand

    def ask(self, handler: Any, message: Message) -> Any:
        """The answer, which comes at once."""
        return self.send(handler, message).answer

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.deadlines.expire(self.now)
        self.appends.write()

    def ask_in_steps(self, handler: Any, message: Message) -> tuple[list[int], Any]:
        """What is done before others may run, as `steps` counts, and the answer, of a handler that is not done at
        once."""
        hand = Hand(message)
        remainder = handler(in_hand(hand))
        assert isinstance(remainder, InSteps) and not hand.answers
        counts = list(remainder._work)
        self.appends.write()
        (answer,) = hand.answers
        return counts, answer
