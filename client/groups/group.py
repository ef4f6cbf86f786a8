"""A consumer's side of its group: what a poll has to do before it hands out records, and what goes on meanwhile.

A poll (`TrioConsumer.poll`) begins with `begin_poll`, which commits what earlier polls gave when it is time, and asks
for `next_call` until there is none: callbacks of the program that are due now, which whoever polls runs, in its own
task or thread. Around them partitions come and go:

    revoked    1 everything that was handed out of them is committed, or the time for that is over
               2 on_revoked   3 they are no longer assigned   4 the next join waits for what it committed
    assigned   1 they are assigned, and the group is asked where to start   2 on_assigned
    lost       1 on_lost, or on_revoked where there is none   2 they are no longer assigned

Nothing else assigns or takes away a partition, so what a program does with records is never cut into.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from strandline.client.assignment import Assigned
from strandline.client.errors import ClientClosed, ClientError, SubscriptionConflict, UnknownTopic
from strandline.client.fetcher import start_by_policy
from strandline.client.groups.coordinator import Coordinator
from strandline.client.groups.member import Member
from strandline.client.groups.membership import Change, Membership, Told
from strandline.client.groups.offsets import (
    Commit,
    GivenOffsets,
    GroupOffsets,
    OffsetAndMetadata,
    Offsets,
    checked_offsets,
)
from strandline.client.groups.topics import SubscribedTopics
from strandline.client.links import Links
from strandline.client.lookup import BrokerCalls, is_retriable
from strandline.client.metadata import Metadata
from strandline.client.settings import ConsumerSettings
from strandline.client.signals import News
from strandline.protocol.messages import NO_GENERATION
from strandline.protocol.types import NO_OFFSET, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.mistakes import warn

OnPartitions = Callable[[list[TopicPartition]], Any]
"""It may be an async function, but of a synchronous `Consumer`."""

OnCommit = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], Any]


RUNNING: ContextVar[object] = ContextVar("RUNNING", default=None)
"""The `token` of the callback that this thread or task runs, or ran last."""


class Callbacks(NamedTuple):
    """What a program wants to be told."""

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group. `generation_id` −1, `member_id` empty: it is in none now."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


@dataclass(slots=True, eq=False)
class DueCall:
    """A callback that is due; whoever polls does `begin`, `run`, and `finish` whatever becomes of both. `deadline`: of
    the poll. Two threads that poll may both be handed the same one; only the first may begin."""

    group: Group
    run: Callable[[], Any]
    change: Change | None = None
    """What it tells, if not of a commit."""
    deadline: float = math.inf
    token: object = field(default_factory=object)

    def begin(self) -> None:
        """RuntimeError: another thread runs one, or has run this one."""
        self.group.begin_call(self)
        RUNNING.set(self.token)

    def finish(self) -> None:
        """Nothing, if it has not begun."""
        self.group.finish_call(self)


class Group:
    """See the module. `assigned`: what the consumer has; `assign` replaces it; `on_change`: polls look again."""

    def __init__(
        self,
        settings: ConsumerSettings,
        environment: ClientEnvironment,
        metadata: Metadata,
        links: Links,
        calls: BrokerCalls,
        *,
        assigned: Callable[[], Mapping[TopicPartition, Assigned]],
        assign: Callable[[Iterable[TopicPartition]], None],
        on_change: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._assigned = assigned
        self._assign = assign
        self._on_change = on_change
        self._coordinator = Coordinator(settings.group_id, links, metadata, calls)
        self._topics = SubscribedTopics(metadata, settings.request_timeout_ms / 1000)
        self._member = Member(settings, environment, self._coordinator, self._topics.layout, on_change)
        self._offsets = GroupOffsets(settings, environment, self._coordinator)
        self._membership: Membership | None = None
        self._scope = trio.CancelScope()
        """What the member's task serves in."""
        self._subscribed = News()
        self._callbacks = Callbacks()
        self._positions_wanted = trio.Event()
        self._told: deque[DueCall] = deque()
        """Of commits that ended."""
        self._last_commit: Commit | None = None
        self._settled: tuple[Change, Commit] | None = None
        """The commit before a revocation."""
        self._known: dict[TopicPartition, int] = {}
        """What is committed, or is about to be, as far as this consumer knows: no need to do so again."""
        self._auto_commit_at = 0.0
        self._auto_commit: Commit | None = None
        """The last one that a poll began: one at a time, or they pile up where the group is slow to answer."""
        self._calling: DueCall | None = None
        """What the program runs now."""
        self._called = News()
        """It has ended, or this consumer has left."""

    # --- subscription ------------------------------------------------------------------------------------------

    @property
    def has_subscribed(self) -> bool:
        return self._membership is not None

    @property
    def topics(self) -> list[str]:
        return [] if self._membership is None else sorted(self._membership.topics)

    @property
    def identity(self) -> GroupMetadata:
        instance = self._settings.group_instance_id or None
        if self._membership is None:
            return GroupMetadata(self._settings.group_id, NO_GENERATION, "", instance)
        member_id, generation = self._membership.identity
        return GroupMetadata(self._settings.group_id, generation, member_id, instance)

    def subscribe(self, names: Iterable[str], pattern: re.Pattern[str] | None, callbacks: Callbacks) -> None:
        """In place of what was subscribed to before. SubscriptionConflict while it leaves."""
        if self._membership is not None and self._membership.is_leaving:
            raise SubscriptionConflict("this consumer is about to unsubscribe; subscribe once that has ended")
        self._topics.subscribe(names, pattern)
        self._callbacks = callbacks
        topics = self._topics.names()
        if self._membership is not None:
            self._membership.subscribe(topics)
            self._member.look()
            return
        self._membership = self._offsets.membership = Membership(
            topics,
            is_cooperative=self._member.is_cooperative,
            heartbeat_interval_s=self._settings.heartbeat_interval_ms / 1000,
            max_poll_interval_s=self._settings.max_poll_interval_ms / 1000,
        )
        self._subscribed.tell()

    def look(self) -> None:
        """There is news of the cluster's layout."""
        self._partitions_counts()
        membership, member = self._membership, self._member
        if membership is None:
            return
        topics = self._topics.names()
        if topics != membership.topics:
            membership.subscribe(topics)
            member.look()
        if membership.is_leader and self._topics.counts(member.group_topics) != member.assigned_layout:
            membership.layout_changed()
            member.look()
        self._on_change()

    # --- polls -------------------------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        """What the last poll gave has been worked on. This one may last for as long as the program likes."""
        if self._membership is not None:
            self._membership.waits_in_poll()
            self._member.look()
        now = trio.current_time()
        is_answered = self._auto_commit is None or self._auto_commit.done.is_set()
        if self._settings.enable_auto_commit and now >= self._auto_commit_at and is_answered:
            self._auto_commit_at = now + self._settings.auto_commit_interval_ms / 1000
            self._auto_commit = self.commit_positions()

    def end_poll(self) -> None:
        """The program works on what it gave, or runs a callback."""
        if self._membership is not None:
            self._membership.polled(trio.current_time())
            self._member.look()

    async def next_call(self, deadline: float) -> DueCall | None:
        """What is to be run now; waits until `deadline` for what has to be committed first. Raises why it is not in the
        group, if that is for the program to mend. Nothing while another thread or task leaves: that runs it."""
        membership = self._membership
        if membership is not None and membership.is_leaving:
            return None
        if self._calling is not None:
            raise RuntimeError("two threads poll one consumer: a callback is run by the other one")
        call = await self._next_call(deadline)
        return None if membership is not None and membership.is_leaving else call  # that began meanwhile

    async def _next_call(self, deadline: float) -> DueCall | None:
        if self._told:
            return self._next_told(deadline)
        membership = self._membership
        if membership is None:
            return None
        change = membership.begin()
        if change is None:
            if not membership.is_leaving and (failure := membership.take_failure()) is not None:
                raise failure
            return None
        if change.what is Told.REVOKED and not await self._settle(change, deadline) and not membership.is_leaving:
            return None
        if change.what is Told.ASSIGNED:
            self._assign(membership.owned)
            self.find_positions()
        return DueCall(self, lambda: self._tell(change), change, deadline)

    def _next_told(self, deadline: float) -> DueCall:
        call = self._told[0]  # until it begins, which an interrupted poll never does
        call.deadline = deadline
        return call

    def refuse_within_callback(self) -> None:
        """RuntimeError in the thread or task that runs one: what it asks for would wait for it."""
        if (call := self._calling) is not None and call.token is RUNNING.get():
            raise RuntimeError("a callback cannot poll, unsubscribe or close its consumer")

    @property
    def is_settling(self) -> bool:
        """Partitions are about to be revoked: nothing more may be handed out."""
        return self._settled is not None or (self._membership is not None and self._membership.is_leaving)

    async def _settle(self, change: Change, deadline: float) -> bool:
        """Commit before these go. False: that is still under way at the deadline."""
        if self._settled is None or self._settled[0] != change:
            limit_ms = self._give_up_within_ms
            commit = self.commit_positions(limit_ms) if self._settings.enable_auto_commit else None
            commit = commit or self._last_commit
            if commit is None:
                return True
            self._settled = change, commit
        with trio.move_on_at(deadline):
            await self._settled[1].wait()
        return self._settled[1].done.is_set()

    @property
    def _give_up_within_ms(self) -> float:
        """The others wait while this member commits what it gives up."""
        return min(self._settings.default_api_timeout_ms, self._settings.max_poll_interval_ms / 2)

    def begin_call(self, call: DueCall) -> None:
        """See `DueCall.begin`."""
        membership = self._membership
        if call.change is None:
            is_over = call not in self._told
        else:
            is_over = membership is None or membership.in_hand is not call.change
        if self._calling is not None or is_over:
            raise RuntimeError("two threads poll one consumer: the callback that was due is run by the other one")
        self._calling = call
        if call.change is None:
            self._told.remove(call)

    def finish_call(self, call: DueCall) -> None:
        """See `DueCall.finish`."""
        if self._calling is call:
            self._calling = None
            self._called.tell()
            if call.change is not None and self._membership is not None:
                self._finish(self._membership, call.change)

    def _tell(self, change: Change) -> Any:
        callbacks, partitions = self._callbacks, list(change.partitions)
        callback = {
            Told.ASSIGNED: callbacks.on_assigned,
            Told.REVOKED: callbacks.on_revoked,
            Told.LOST: callbacks.on_lost or callbacks.on_revoked,
        }[change.what]
        return None if callback is None else callback(partitions)

    def _finish(self, membership: Membership, change: Change) -> None:
        self._settled = None
        membership.finish()
        if change.what is not Told.ASSIGNED:
            self._assign(membership.owned)
            for partition in change.partitions:
                self._known.pop(partition, None)
            if change.what is Told.REVOKED and self._is_committing:
                membership.commits(trio.current_time() + self._give_up_within_ms / 1000)
        self._member.look()

    # --- leaving -----------------------------------------------------------------------------------------------

    async def next_call_before_leaving(self, deadline: float, *, is_first: bool) -> DueCall | None:
        """As `next_call`, until all is given up, and committed if that succeeds in time; then it has left. A callback
        that a poll of another thread or task runs is waited for, and so is another one that has begun to leave."""
        membership = self._membership
        if is_first and membership is not None and membership.is_leaving:
            while self._membership is membership and await self._called.wait_until(deadline):
                pass
            return None
        while self._calling is not None:
            if not await self._called.wait_until(deadline) and self._calling is not None:
                raise RuntimeError("a callback that another thread or task runs does not end")
        if self._membership is not None:
            self._membership.leave()
        if (call := await self._next_call(deadline)) is not None:
            return call
        if self._settings.enable_auto_commit:
            self.commit_positions()
        if self._last_commit is not None:
            with trio.move_on_at(deadline):
                await self._last_commit.wait()
        if self._told:
            return self._next_told(deadline)
        await self.leave()
        return None

    async def give_up_leaving(self) -> None:
        """`next_call_before_leaving` was asked, and will not be again: a callback failed, or who asked was cancelled.
        Whoever is told of that must not be left with half a membership."""
        if self._membership is not None and self._membership.is_leaving and self._calling is None:
            self._assign(())
            await self.leave()

    async def leave(self) -> None:
        """At once; a good-bye is best effort. Nobody is told and nothing committed."""
        membership, self._membership = self._membership, None
        self._offsets.membership = None
        self._settled = None
        self._topics.end()
        self._scope.cancel()
        if membership is not None:
            with trio.CancelScope(shield=True):
                await self._member.leave(membership)
        self._called.tell()

    # --- offsets -----------------------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Behind what was handed out."""
        return {
            partition: OffsetAndMetadata(state.read_position, "", state.read_epoch)
            for partition, state in self._assigned().items()
            if state.read_position != NO_OFFSET
        }

    def commit_positions(self, timeout_ms: float | None = None) -> Commit | None:
        """Begin to, of those that moved and still exist as far as is known; None: none did, or they are lost."""
        if self._membership is not None and not self._membership.is_in_generation:
            return None
        counts = self._partitions_counts()
        moved = {
            key: at
            for key, at in self.positions().items()
            if self._known.get(key) != at.offset and key.partition < counts.get(key.topic, 0)
        }
        return self._submit(moved, timeout_ms, self._warn_of_failure) if moved else None

    def _partitions_counts(self) -> dict[str, int]:
        """Of the topics that it reads and that exist. Asked at all news of them: a topic that is missing for a moment
        still counts, if it was noticed before."""
        return self._topics.counts(dict.fromkeys(partition.topic for partition in self._assigned()))

    def _warn_of_failure(self, offsets: Offsets, error: Exception | None) -> None:
        """Nobody asked for that commit, so nobody waits for its error; Kafka's client also goes on, and logs it. Later
        polls commit again. A topic that the coordinator and the metadata do not know has been deleted."""
        view = self._metadata.view
        if isinstance(error, UnknownTopic) and any(view.partition(partition) is None for partition in offsets):
            return
        if error is not None and not isinstance(error, ClientClosed):
            warn(f"an automatic commit in group {self._settings.group_id!r} failed: {error}")

    def commit(self, given: GivenOffsets, timeout_ms: float | None = None, on_done: OnCommit | None = None) -> Commit:
        """Begin to. `on_done` is called by a later poll."""

        def tell(offsets: Offsets, error: Exception | None) -> None:
            if on_done is not None:
                self._told.append(DueCall(self, lambda: on_done(offsets, error)))

        return self._submit(self.positions() if given is None else checked_offsets(given), timeout_ms, tell)

    def _submit(self, offsets: Offsets, timeout_ms: float | None, tell: OnCommit) -> Commit:
        def ended(error: Exception | None) -> None:
            for key, at in offsets.items():
                if error is not None and self._known.get(key) == at.offset:
                    del self._known[key]
            tell(offsets, error)
            if self._membership is not None and not self._is_committing:
                self._membership.has_committed()
                self._member.look()
            self._on_change()

        # From now on: who goes back to what was committed before has to have that committed behind this.
        self._known.update({key: at.offset for key, at in offsets.items() if key in self._assigned()})
        limit_ms = self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._last_commit = self._offsets.submit(offsets, limit_ms, ended)
        return self._last_commit

    @property
    def _is_committing(self) -> bool:
        return self._last_commit is not None and not self._last_commit.done.is_set()

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._offsets.fetch(partitions, timeout_ms)

    def find_positions(self) -> None:
        """Of the partitions that want what is committed."""
        for key in [key for key in self._known if key not in self._assigned()]:
            del self._known[key]
        self._partitions_counts()
        self._positions_wanted.set()

    # --- tasks -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._offsets.run)
            nursery.start_soon(self._serve_member)
            nursery.start_soon(self._find_positions)

    async def close(self) -> None:
        """After `run`."""
        await self.leave()
        self._coordinator.close()

    async def _serve_member(self) -> None:
        while True:
            while self._membership is None:
                await self._subscribed.wait_until(math.inf)
            with trio.CancelScope() as self._scope:
                await self._member.serve(self._membership)

    async def _find_positions(self) -> None:
        while True:
            await self._positions_wanted.wait()
            self._positions_wanted = trio.Event()
            wanted = {
                partition: (state, state.generation)
                for partition, state in self._assigned().items()
                if state.wants_committed and state.error is None
            }
            if not wanted:
                continue
            try:
                await self._offsets.settle(wanted)
                found = await self._offsets.fetch(wanted, self._settings.default_api_timeout_ms)
            except ClientError as error:
                for state, _ in wanted.values():
                    state.last_error = error
                if is_retriable(error):
                    self._positions_wanted.set()
                    await trio.sleep(self._settings.retry_backoff_max_ms / 1000)
                    continue
                for state, generation in wanted.values():
                    if state.wants_committed and state.generation == generation:
                        state.error = error  # whoever raises it calls `find_positions` again
            else:
                for partition, (state, generation) in wanted.items():
                    if state.wants_committed and state.generation == generation:
                        self._start(state, found[partition])
            self._on_change()

    def _start(self, state: Assigned, committed: OffsetAndMetadata | None) -> None:
        if committed is None:
            start_by_policy(state, self._settings.auto_offset_reset, self._settings.group_id)
            return
        state.set_position(committed.offset, committed.leader_epoch)
        self._known[state.topic_partition] = committed.offset
