"""What a group has committed: asked for, and committed in the order of the calls, with repetitions.

Retriable is what a coordinator says that loads, moves or is out of reach, and a rebalance under way: whoever still has
its partitions when that is over commits under the new generation. Where the group has given them away the commit
fails, with `CommitFailed`. Source: Kafka's ConsumerCoordinator, KIP-447, KIP-320 (leader epochs).
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from strandline.client.errors import (
    ClientClosed,
    ClientError,
    CommitFailed,
    RequestTimedOut,
    UnknownTopic,
    error_for,
)
from strandline.client.given import given_int, given_partition
from strandline.client.groups.coordinator import Coordinator
from strandline.client.groups.membership import NOBODY, Identity, Membership, Phase
from strandline.client.lookup import is_retriable
from strandline.client.metadata import backoff_ms
from strandline.client.request_bounds import ALL_ASKED, in_parts, of
from strandline.client.settings import ConsumerSettings
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from strandline.protocol.types import NO_EPOCH, NO_OFFSET, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment

UNKNOWN_FOR_S = 2.0
"""So long a partition is repeated that the coordinator does not know: it may have just started, or the topic may be
new. After that it counts as deleted, so that nothing waits for it."""

STALE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


class OffsetAndMetadata(NamedTuple):
    """`offset`: of the next record to be read. `leader_epoch`: that of the record before it, −1 unknown."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH


Offsets = Mapping[TopicPartition, OffsetAndMetadata]

GivenOffsets = Mapping[TopicPartition, OffsetAndMetadata | int] | None
"""As a program gives them; None: of everything that was handed out."""


def checked_offsets(given: Mapping[TopicPartition, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """ValueError for a negative one."""
    offsets = {
        given_partition(partition): at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at)
        for partition, at in given.items()
    }
    for partition, at in offsets.items():
        offset = given_int(at.offset, f"the offset of {partition}")
        if offset < 0:
            raise ValueError(f"offset {offset} of {partition} is negative")
        offsets[partition] = at._replace(offset=offset)
    return offsets


@dataclass(slots=True, eq=False)
class Commit:
    """One that was asked for. `error` counts once it is `done`."""

    offsets: Offsets
    deadline: float
    identity: Identity | None
    """Of whoever asked; None: of a member that is in no generation, not even as nobody."""
    on_done: Callable[[Exception | None], None]
    done: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = None

    def end(self, error: Exception | None) -> None:
        """The first time counts."""
        if not self.done.is_set():
            self.error = error
            self.done.set()
            self.on_done(error)

    async def wait(self) -> None:
        """Until it is done, at its deadline whatever it still waits behind."""
        with trio.move_on_at(self.deadline):
            await self.done.wait()
        self.end(RequestTimedOut("the commit did not get its turn, or no answer, in the time given to it"))


class GroupOffsets:
    """Of one group. `run` is the task that commits."""

    def __init__(self, settings: ConsumerSettings, environment: ClientEnvironment, coordinator: Coordinator) -> None:
        self.membership: Membership | None = None
        """As what it commits; None: as nobody, which a group without members allows."""
        self._settings = settings
        self._environment = environment
        self._coordinator = coordinator
        self._waiting: deque[Commit] = deque()
        self._numbers = itertools.count()
        self._wanted = trio.Event()
        self._is_over = False

    # --- committed ---------------------------------------------------------------------------------------------

    async def fetch(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed, None for nothing. The last cause after `timeout_ms`."""
        wanted = list(dict.fromkeys(partitions))
        deadline = trio.current_time() + timeout_ms / 1000
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for part in in_parts(wanted):
            found.update(await self._fetch(part, deadline))
        return found

    async def _fetch(
        self, wanted: list[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in wanted:
            by_topic.setdefault(topic, []).append(partition)
        group_id = self._settings.group_id
        topics = [OffsetFetchRequestTopic(name, numbers) for name, numbers in by_topic.items()]
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self._coordinator.ask(
                    OffsetFetchRequest(group_id, topics, require_stable=True),
                    OffsetFetchResponse,
                    timeout_ms=self._request_ms(deadline),
                )
                return self._fetched(answer, wanted)
            except ClientError as error:
                await self._wait_or_raise(error, attempt, deadline)

    def _fetched(
        self, answer: OffsetFetchResponse, wanted: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        what = f"asking what group {self._settings.group_id!r} has committed"
        if answer.error_code:
            self._coordinator.heard(answer.error_code)
            raise error_for(answer.error_code, what)
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(wanted)
        for topic in answer.topics:
            for part in topic.partitions:
                key = TopicPartition(topic.name, part.partition_index)
                if part.error_code:
                    raise error_for(part.error_code, f"{what}{of(key)}")
                if key in found and part.committed_offset != NO_OFFSET:
                    found[key] = OffsetAndMetadata(
                        part.committed_offset, part.metadata or "", part.committed_leader_epoch
                    )
        return found

    # --- commit ------------------------------------------------------------------------------------------------

    def submit(
        self, offsets: Offsets, timeout_ms: float, on_done: Callable[[Exception | None], None] = lambda error: None
    ) -> Commit:
        """Commit these after those that were given before. Returns at once."""
        membership = self.membership
        identity: Identity | None = NOBODY if membership is None else membership.identity
        if membership is not None and not membership.is_in_generation:
            identity = None
        commit = Commit(offsets, trio.current_time() + timeout_ms / 1000, identity, on_done)
        if self._is_over:
            commit.end(ClientClosed("the consumer is closed"))
        else:
            self._waiting.append(commit)
            self._wanted.set()
        return commit

    async def settle(self, partitions: Collection[TopicPartition]) -> None:
        """Until what was to be committed of these is, or is not, which each commit has its time for."""
        for commit in [commit for commit in self._waiting if not commit.offsets.keys().isdisjoint(partitions)]:
            await commit.wait()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                while not self._waiting:
                    await self._wanted.wait()
                    self._wanted = trio.Event()
                commit, error = self._waiting[0], None
                try:
                    for part in in_parts(() if commit.done.is_set() else commit.offsets.items()):
                        error = await self._commit(dict(part), commit) or error
                except ClientError as failure:
                    error = failure
                self._waiting.popleft().end(error)
        finally:
            self._is_over = True
            while self._waiting:
                self._waiting.popleft().end(ClientClosed("the consumer was closed before the commit was answered"))

    async def _commit(self, offsets: Offsets, commit: Commit) -> ClientError | None:
        """Until each is committed, or refused for good: one of these refusals. Raises what hinders all of them once
        that is certain or the time is over."""
        attempt = 0
        unknown_until = math.inf
        refusal: ClientError | None = None
        while True:
            attempt += 1
            identity = self._identity_for(offsets, commit)
            try:
                answer = await self._coordinator.ask(
                    self._request(offsets, identity),
                    OffsetCommitResponse,
                    timeout_ms=self._request_ms(commit.deadline),
                )
                left: dict[TopicPartition, OffsetAndMetadata] = {}
                for partition, cause in self._refused(answer, offsets, identity).items():
                    now = trio.current_time()
                    if isinstance(cause, UnknownTopic):
                        unknown_until = min(unknown_until, now + UNKNOWN_FOR_S)
                    if is_retriable(cause) and not (isinstance(cause, UnknownTopic) and now >= unknown_until):
                        left[partition], hindrance = offsets[partition], cause
                    else:
                        refusal = cause
                if not left:
                    return refusal
                offsets = left
                raise hindrance
            except ClientError as error:
                await self._wait_or_raise(error, attempt, commit.deadline)

    def _identity_for(self, offsets: Offsets, commit: Commit) -> Identity:
        """The group may have gone on since the call. CommitFailed: without these partitions, or without this member. A
        group that is empty would take it for nobody, which may commit: over what an operator has reset meanwhile."""
        if commit.identity is None:
            raise self._let_go()
        if self.membership is None:
            return commit.identity
        if not self.membership.is_in_generation:
            raise self._let_go()
        if self.membership.identity == commit.identity:
            return commit.identity
        if self.membership.identity.member_id != commit.identity.member_id or any(
            partition not in self.membership.owned for partition in offsets
        ):
            raise CommitFailed(
                f"group {self._settings.group_id!r} has rebalanced, and the partitions that were to be committed are "
                f"not this consumer's any more: their records come again, to their next owner"
            )
        return self.membership.identity

    def _request(self, offsets: Offsets, identity: Identity) -> OffsetCommitRequest:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), position in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(partition, position.offset, position.leader_epoch, position.metadata)
            )
        instance = self._settings.group_instance_id or None
        return OffsetCommitRequest(
            self._settings.group_id,
            [OffsetCommitRequestTopic(name, parts) for name, parts in topics.items()],
            identity.generation,
            identity.member_id,
            None if identity == NOBODY else instance,
            commit_number=next(self._numbers),
        )

    def _refused(
        self, answer: OffsetCommitResponse, offsets: Offsets, identity: Identity
    ) -> dict[TopicPartition, ClientError]:
        """What is not committed, and why. Raises what the answer says about the member, or all that was asked."""
        codes = {
            TopicPartition(topic.name, part.partition_index): part.error_code
            for topic in answer.topics
            for part in topic.partitions
        }
        for code in codes.values():
            self._coordinator.heard(code)
            if code in STALE:
                raise self._stale(code, identity)
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                raise _Rebalancing(
                    f"group {self._settings.group_id!r} is rebalancing; commit again after the next poll"
                )

        def why(partition: TopicPartition, code: int) -> ClientError:
            what = f"committing{of(partition)} in group {self._settings.group_id!r}"
            return error_for(code, what, detail=answer.error_message)

        if codes.get(ALL_ASKED):
            raise why(ALL_ASKED, codes[ALL_ASKED])
        said = {partition: codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR) for partition in offsets}
        return {partition: why(partition, code) for partition, code in said.items() if code}

    def _stale(self, code: int, identity: Identity) -> ClientError:
        """The coordinator does not take `identity` for a member of this generation."""
        membership, group = self.membership, self._settings.group_id
        if membership is None:
            return CommitFailed(
                f"group {group!r} has members: who assigns its partitions by itself cannot commit in it; subscribe, or "
                f"use another group_id",
                ErrorCode(code),
            )
        if code == ErrorCode.ILLEGAL_GENERATION and (
            membership.identity != identity or membership.phase in (Phase.JOINING, Phase.SYNCING)
        ):
            return _Rebalancing(f"group {group!r} is rebalancing; commit again after the next poll")
        if membership.identity == identity and membership.phase is Phase.IN:
            membership.refused(code)  # no need to wait for the next heartbeat
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return error_for(code, f"committing in group {group!r}")
        return self._let_go(ErrorCode(code))

    def _let_go(self, code: ErrorCode | None = None) -> CommitFailed:
        said = "" if code is None else f" ({code.name})"
        return CommitFailed(
            f"this consumer is not in group {self._settings.group_id!r} now{said}: it has not joined yet, or the group "
            f"has let it go and given its partitions to others, and their records come again, to their next owner. It "
            f"joins with its next poll. Poll more often, or with fewer max_poll_records, or raise max_poll_interval_ms "
            f"or session_timeout_ms",
            code,
        )

    # --- attempts ----------------------------------------------------------------------------------------------

    def _request_ms(self, deadline: float) -> float:
        left_ms = (deadline - trio.current_time()) * 1000
        return max(1.0, min(self._settings.request_timeout_ms, left_ms))

    async def _wait_or_raise(self, error: ClientError, attempt: int, deadline: float) -> None:
        """Before the next attempt, if that is of use and in time."""
        wait_s = backoff_ms(self._settings, attempt, self._environment) / 1000
        if not is_retriable(error) or self._coordinator.is_cluster_out_of_reach:
            raise error
        if trio.current_time() + wait_s >= deadline:
            raise error
        await trio.sleep(wait_s)


class _Rebalancing(RequestTimedOut):
    """It has not ended in time."""
