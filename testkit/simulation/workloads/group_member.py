"""One member of a group, from its joining to its end: what it is given and told goes into the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

import trio

from strandline.client import TrioConsumer
from strandline.client.errors import ClientError
from strandline.protocol.messages import NO_GENERATION
from strandline.protocol.types import NO_OFFSET, TopicPartition
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import Commit, Committed, Outcome, Ownership, Poll, Stream
from strandline.testkit.simulation.workloads.producing import life_of
from strandline.testkit.simulation.world import World

ASK_TIMEOUT_MS = 3_000
POLL_TIMEOUT_MS = 500
PAUSE_AFTER_AN_ERROR_S = 0.2
POLLS_WHILE_CUT_OFF = 20
"""None of them has anything after the first."""


@dataclass(eq=False)
class Group:
    """One group of a run. strategy: by which its members assign. acknowledged: where it goes on in each partition, by
    the last commit that was."""

    name: str
    topics: tuple[str, ...]
    members: int
    strategy: str
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    is_done: trio.Event = field(default_factory=trio.Event)
    """It has caught up, or had its time: its members end."""


class Member:
    """See the module. Once it has been ended it knows of no partition any more."""

    def __init__(self, world: World, group: Group, name: str, consumer: TrioConsumer) -> None:
        self.name = name
        self._world = world
        self._group = group
        self._consumer = consumer
        self._owned: dict[TopicPartition, Ownership] = {}
        self._readings: dict[TopicPartition, int] = {}
        self._lives: dict[TopicPartition, int] = {}
        """Of the topic, in which its position was found at the earliest."""
        self._reading = 0

    # --- coming and going ----------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        self._consumer.subscribe(
            self._group.topics, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
        )

    async def rejoin(self) -> None:
        """It leaves in order, and joins as a new member."""
        await self._consumer.unsubscribe()
        self.subscribe()

    async def be_cut_off(self) -> None:
        """Its machine reaches nobody for longer than a session lasts, and it does not know: what it commits then is
        that of a member that is none any more."""
        network, machine = self._world.cluster.network, self.name.rpartition(".")[0]
        network.isolate(machine)
        for _ in range(POLLS_WHILE_CUT_OFF):
            await self.poll()
        network.heal(machine)
        await self.commit()

    def ended(self) -> None:
        """It is gone, in order or not."""
        self._lost(list(self._owned))

    def _assigned(self, new: list[TopicPartition]) -> None:
        generation = self._consumer.group_metadata.generation_id
        self._lost(list(self._owned))
        for tp in self._consumer.assignment if generation != NO_GENERATION else ():
            self._owned[tp] = Ownership(self.name, self._group.name, tp, generation, common_time())
            self._world.history.ownerships.append(self._owned[tp])
        for tp in new:
            self._begin_reading(tp)

    async def _revoked(self, gone: list[TopicPartition]) -> None:
        await self.commit(gone)
        self._lost(gone)

    def _lost(self, gone: Iterable[TopicPartition]) -> None:
        for tp in gone:
            if tp in self._owned:
                self._owned.pop(tp).ended_s = common_time()

    def _begin_reading(self, tp: TopicPartition) -> None:
        self._reading += 1
        self._readings[tp] = self._reading
        self._lives[tp] = self._world.topics[tp.topic].life

    # --- reading -------------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        try:
            found = await self._consumer.poll(timeout_ms=POLL_TIMEOUT_MS)
        except ClientError:
            await trio.sleep(PAUSE_AFTER_AN_ERROR_S)
            return
        now_s = common_time()
        for tp, records in found.items():
            values = [(record.offset, record.value or b"") for record in records]
            # What was fetched before its topic was deleted may be handed out when there is a new one of that name.
            for life, of_life in groupby(values, key=lambda each: life_of(each[1])):
                self._lives[tp] = life
                stream = Stream(tp, life)
                poll = Poll(self.name, stream, self._readings[tp], now_s, list(of_life), self._group.name)
                self._world.history.polls.append(poll)

    async def seek_to_committed(self) -> None:
        """It goes back to where the group would go on without it."""
        committed = await self.committed()
        for tp in self._consumer.assignment:
            if tp in committed:
                if committed[tp] == NO_OFFSET:
                    self._consumer.seek_to_beginning(tp)
                else:
                    self._consumer.seek(tp, committed[tp])
                self._begin_reading(tp)

    # --- commits -------------------------------------------------------------------------------------------------

    async def commit(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Of these, or of all that it has: where it is."""
        offsets = await self._positions(self._consumer.assignment if partitions is None else partitions)
        commits = self._note(offsets)
        try:
            await self._consumer.commit(offsets, timeout_ms=ASK_TIMEOUT_MS)
        except ClientError:
            return
        self._acknowledged(commits)

    async def commit_nowait(self) -> None:
        offsets = await self._positions(self._consumer.assignment)
        commits = self._note(offsets)

        def done(_: object, error: Exception | None) -> None:
            if error is None:
                self._acknowledged(commits)

        self._consumer.commit_nowait(offsets, on_done=done)

    async def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = {}
        for tp in partitions:
            try:
                found[tp] = await self._consumer.position(tp, timeout_ms=0)
            except ClientError:
                continue  # it does not know yet where to begin, or has lost the partition meanwhile
        return found

    def _note(self, offsets: dict[TopicPartition, int]) -> list[Commit]:
        generation, now_s = self._consumer.group_metadata.generation_id, common_time()
        commits = [
            Commit(self.name, self._group.name, Stream(tp, self._lives[tp]), offset, now_s, generation=generation)
            for tp, offset in offsets.items()
        ]
        self._world.history.commits += commits
        return commits

    def _acknowledged(self, commits: list[Commit]) -> None:
        for commit in commits:
            commit.outcome, commit.ended_s = Outcome.OK, common_time()
            self._group.acknowledged[commit.stream.tp] = commit.offset

    async def committed(self) -> dict[TopicPartition, int]:
        """What the group has committed, −1 for nothing; {} where nobody says it."""
        lives = [self._world.topics[topic] for topic in self._group.topics]
        streams = [stream for life in lives if life.is_open for stream in life.streams]
        began_s = common_time()
        try:
            answers = await self._consumer.committed([stream.tp for stream in streams], timeout_ms=ASK_TIMEOUT_MS)
        except ClientError:
            return {}
        found = {}
        for stream in streams:
            life = self._world.topics[stream.tp.topic]
            if life.is_open and life.life == stream.life:
                answer = answers[stream.tp]
                found[stream.tp] = NO_OFFSET if answer is None else answer.offset
                told = Committed(self.name, self._group.name, stream, found[stream.tp], began_s, ended_s=common_time())
                self._world.history.committed.append(told)
        return found
