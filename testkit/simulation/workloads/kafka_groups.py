"""A group whose members speak Kafka's dialect, each in versions of its own.

A member joins, and the leader among them assigns; it goes on where the group has committed, reads what it was given,
commits, and leaves, vanishes or joins again. What a coordinator refuses it obeys as Kafka's clients do: it looks for
the coordinator, joins again under its member id, or as a new member. L5 holds for it as for the other groups.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import trio

from strandline.client.groups.assignors import assign_ranges
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from strandline.protocol.errors import ErrorCode, error_code
from strandline.protocol.messages import NO_GENERATION
from strandline.protocol.types import NO_OFFSET, TopicPartition
from strandline.testkit.clock import common_time
from strandline.testkit.simulation.history import Commit, Committed, Outcome, Ownership
from strandline.testkit.simulation.kafka_access import REQUEST_TIMEOUT_S, KafkaAccess, Unanswered
from strandline.testkit.simulation.workloads.group_member import Group
from strandline.testkit.simulation.workloads.groups import TOO_LONG_S, see_to_the_end
from strandline.testkit.simulation.workloads.kafka_consuming import draw_style
from strandline.testkit.simulation.workloads.kafka_reader import KafkaReader, Readings
from strandline.testkit.simulation.world import World

SESSION_TIMEOUT = timedelta(seconds=6)
REBALANCE_TIMEOUT = timedelta(seconds=6)
JOIN_TIMEOUT_S = REBALANCE_TIMEOUT.total_seconds() + REQUEST_TIMEOUT_S
PAUSE_S = 1.0
"""Between two heartbeats."""
RETRY_PAUSE_S = 0.3
VERSION_MAX = 9
"""Of all that it asks, as far as there is one."""
NOT_THERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Another broker is asked, or the same one later; the membership stands."""
DOINGS = {"read on": 50, "commit": 40, "join again": 3, "do not poll": 1, "leave": 3, "vanish": 2}
"""What a member does between two heartbeats, and how often among the others."""


async def read_in_kafka_groups(world: World) -> None:
    members = world.chance("kafka groups").choice((2, 3))
    group = Group("kafka", (world.options.topics[0].name,), members, "range")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(see_to_the_end, world, group)
        for seat in range(1, members + 1):
            nursery.start_soon(_take_seat, world, group, f"kafka-member-{seat}")


async def _take_seat(world: World, group: Group, seat: str) -> None:
    """One member after the other."""
    chance = world.chance(seat)
    lives = 0
    while not group.is_done.is_set():
        lives += 1
        with KafkaAccess(world.cluster, group.topics[0]) as access:
            await _KafkaMember(world, group, f"{seat}.{lives}", chance, access).live()
        with trio.move_on_after(chance.uniform(0, 4)):
            await group.is_done.wait()


class _KafkaMember:
    """See the module. access: to coordinators."""

    def __init__(self, world: World, group: Group, name: str, chance: random.Random, access: KafkaAccess) -> None:
        self._world = world
        self._group = group
        self._topic = group.topics[0]
        self._name = name
        self._chance = chance
        self._access = access
        self._leaders = KafkaAccess(world.cluster, self._topic)
        """What is known of who leads outlasts each assignment."""
        self._version = chance.randint(0, VERSION_MAX)
        self._readings = Readings(world, name, draw_style(chance), group.is_done.is_set, group.name)
        self._coordinator: int | None = None
        self._asked = chance.randrange(world.options.brokers)
        """Brokers that were asked for the coordinator, each in its turn."""
        self._member_id = ""
        self._generation = NO_GENERATION
        self._assigned_partitions: int | None = None
        """How many its assignment was made for; None: another member leads."""
        self._has_ended = False

    async def live(self) -> None:
        """Until it leaves or vanishes, or its group has caught up."""
        while not self._has_ended and not self._group.is_done.is_set():
            given = await self._join()
            if given is None:
                await trio.sleep(RETRY_PAUSE_S)
            else:
                await self._belong(given)

    # --- membership --------------------------------------------------------------------------------------------------

    async def _join(self) -> list[int] | None:
        """The partitions that it is given. None: it is to try again."""
        fields: dict[str, Any] = {"group_id": self._group.name, "member_id": self._member_id}
        if self._version_of(ApiKey.JOIN_GROUP) >= 1:
            fields["rebalance_timeout"] = REBALANCE_TIMEOUT
        protocols = [{"name": self._group.strategy, "metadata": encode_subscription(Subscription([self._topic]), 1)}]
        joined = await self._ask(
            ApiKey.JOIN_GROUP,
            JOIN_TIMEOUT_S,
            session_timeout=SESSION_TIMEOUT,
            protocol_type="consumer",
            protocols=protocols,
            **fields,
        )
        if joined is None or joined.error_code:
            if joined is not None and error_code(joined.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
            return None
        self._member_id, self._generation = joined.member_id, joined.generation_id
        leads = joined.leader == joined.member_id
        self._assigned_partitions = self._world.topics[self._topic].partitions if leads else None
        named = {"protocol_type": "consumer", "protocol_name": self._group.strategy}
        synced = await self._ask(
            ApiKey.SYNC_GROUP,
            JOIN_TIMEOUT_S,
            **self._identity(),
            **(named if self._version_of(ApiKey.SYNC_GROUP) >= 5 else {}),
            assignments=self._assignments(joined.members) if leads else [],
        )
        if synced is None or synced.error_code:
            return None
        self._world.sometimes["kafka member: joined"] += 1
        return [tp.partition for tp in decode_assignment(synced.assignment).partitions]

    def _assignments(self, members: Sequence[Any]) -> list[dict[str, Any]]:
        said = {each.member_id: decode_subscription(each.metadata) for each in members}
        given = assign_ranges(said, {self._topic: self._assigned_partitions or 0})
        return [{"member_id": each, "assignment": encode_assignment(Assignment(of), 1)} for each, of in given.items()]

    async def _belong(self, given: Sequence[int]) -> None:
        """For as long as that assignment holds."""
        name, generation, now_s = self._group.name, self._generation, common_time()
        owned = [Ownership(self._name, name, TopicPartition(self._topic, each), generation, now_s) for each in given]
        self._world.history.ownerships += owned
        with self._leaders:
            async with trio.open_nursery() as nursery:
                await self._attend(nursery, given)
                nursery.cancel_scope.cancel()
        for each in owned:
            each.ended_s = common_time()

    async def _attend(self, nursery: trio.Nursery, given: Sequence[int]) -> None:
        """Read and commit, heartbeat by heartbeat, until the membership, the generation or the member ends."""
        life, reader = self._world.topics[self._topic], None
        while not self._group.is_done.is_set():
            if reader is None and (starts := await self._committed(given)) is not None:
                reader = KafkaReader(self._readings, life, self._leaders, starts)
                nursery.start_soon(reader.run)
            doing = "commit" if self._world.is_over else self._chance.choices([*DOINGS], [*DOINGS.values()])[0]
            self._world.sometimes[f"kafka member: {doing}"] += 1
            if doing == "vanish":
                self._has_ended = True
                return
            if doing == "do not poll":
                await trio.sleep(TOO_LONG_S)
            grew = self._assigned_partitions is not None and life.partitions != self._assigned_partitions
            is_over = doing in ("leave", "join again") or grew
            code = ErrorCode.NONE if is_over else await self._heartbeat()
            if reader is not None and (doing == "commit" or is_over or code is ErrorCode.REBALANCE_IN_PROGRESS):
                await self._commit(reader)
            if doing == "leave":
                self._has_ended = True
                await self._leave()
            if is_over or (code and code not in NOT_THERE):
                return
            await trio.sleep(PAUSE_S)

    async def _heartbeat(self) -> ErrorCode:
        answer = await self._ask(ApiKey.HEARTBEAT, **self._identity())
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is None else error_code(answer.error_code)

    async def _leave(self) -> None:
        member: dict[str, Any] = {"member_id": self._member_id}
        if self._version_of(ApiKey.LEAVE_GROUP) >= 3:
            member = {"members": [member]}
        await self._ask(ApiKey.LEAVE_GROUP, group_id=self._group.name, **member)

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def _committed(self, given: Sequence[int]) -> Mapping[int, int | None] | None:
        """Where the group has committed in each partition, None for nothing. None: nobody says it."""
        topics = [{"name": self._topic, "partition_indexes": tuple(given)}]
        began_s, name = common_time(), self._group.name
        if not given:
            return {}
        if self._version_of(ApiKey.OFFSET_FETCH) >= 8:
            answer = await self._ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": name, "topics": topics}])
            answer = None if answer is None else answer.groups[0]
        else:
            answer = await self._ask(ApiKey.OFFSET_FETCH, group_id=name, topics=topics)
        parts = answer.topics[0].partitions if answer is not None and answer.topics else ()
        if not parts or any(part.error_code for part in parts):
            self._coordinator = None
            return None
        life = self._world.topics[self._topic]
        for part in parts:
            stream = life.stream(part.partition_index)
            told = Committed(self._name, name, stream, part.committed_offset, began_s, common_time())
            self._world.history.committed.append(told)
        return {
            part.partition_index: None if part.committed_offset == NO_OFFSET else part.committed_offset
            for part in parts
        }

    async def _commit(self, reader: KafkaReader) -> None:
        """Where it is, in all that it has."""
        positions = {each.stream: each.offset for each in reader.positions.values() if each.offset is not None}
        if not positions:
            return
        name, generation, now_s = self._group.name, self._generation, common_time()
        commits = {
            stream.tp.partition: Commit(self._name, name, stream, offset, now_s, generation=generation)
            for stream, offset in positions.items()
        }
        self._world.history.commits += commits.values()
        partitions = [{"partition_index": n, "committed_offset": each.offset} for n, each in commits.items()]
        answer = await self._ask(
            ApiKey.OFFSET_COMMIT,
            group_id=name,
            generation_id_or_member_epoch=generation,
            member_id=self._member_id,
            topics=[{"name": self._topic, "partitions": partitions}],
        )
        for part in answer.topics[0].partitions if answer is not None else ():
            if not part.error_code:
                commit = commits[part.partition_index]
                commit.outcome, commit.ended_s = Outcome.OK, common_time()
                self._group.acknowledged[commit.stream.tp] = commit.offset

    # --- the coordinator ---------------------------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        """Of the member, in requests that name its generation."""
        return {"group_id": self._group.name, "generation_id": self._generation, "member_id": self._member_id}

    def _version_of(self, key: ApiKey) -> int:
        lowest, highest = APIS[key].kafka or (0, 0)
        return max(lowest, min(self._version, highest))

    async def _ask(self, key: ApiKey, timeout_s: float = REQUEST_TIMEOUT_S, /, **fields: Any) -> Any | None:
        """The coordinator's answer; None: there is none. What it says of the membership is remembered."""
        if self._coordinator is None and not await self._find():
            return None
        assert self._coordinator is not None
        try:
            answer = await self._access.ask(self._coordinator, key, self._version_of(key), timeout_s, **fields)
        except Unanswered:
            self._coordinator = None
            return None
        told: int = getattr(answer, "error_code", 0)
        code = error_code(told)
        if code in NOT_THERE:
            self._coordinator = None
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        return answer

    async def _find(self) -> bool:
        """Whether one broker knows who coordinates."""
        version, name = self._version_of(ApiKey.FIND_COORDINATOR), self._group.name
        asked: dict[str, Any] = {"coordinator_keys": (name,)} if version >= 4 else {"key": name}
        brokers = list(self._world.cluster.nodes)
        self._asked += 1
        try:
            answer = await self._access.ask(
                brokers[self._asked % len(brokers)], ApiKey.FIND_COORDINATOR, version, **asked
            )
        except Unanswered:
            return False
        found = answer.coordinators[0] if version >= 4 else answer
        if found.error_code:
            await trio.sleep(RETRY_PAUSE_S)
            return False
        self._coordinator = found.node_id
        return True
