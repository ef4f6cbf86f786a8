"""The consumer, trio-native: its partitions are those that it is assigned, or those that its group gives it.

    async with TrioConsumer("localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for records in (await consumer.poll(timeout_ms=1000)).values(): ...

Rules: nothing at or above the high watermark is ever handed out; leader changes and lost connections are followed
without the program's help; what it must decide about (no valid position, a truncated log, damaged records) is raised by
`poll` (in `polling`). Fetching is in `fetcher`, finding positions in `positions`, one partition's state in
`assignment`, groups in `groups/group`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, Unpack

import trio

from strandline.client import metrics
from strandline.client.assignment import Assigned, FetchedBatches
from strandline.client.bootstrap import Reaching
from strandline.client.errors import (
    LeaderNotAvailable,
    LogTruncated,
    NoGroup,
    NotAssigned,
    OffsetOutOfRange,
    SubscriptionConflict,
)
from strandline.client.fetcher import Fetcher, start_by_policy
from strandline.client.given import given_int, given_partition
from strandline.client.groups.group import Callbacks, DueCall, Group, GroupMetadata, OnCommit, OnPartitions
from strandline.client.groups.offsets import GivenOffsets, OffsetAndMetadata
from strandline.client.groups.topics import compiled
from strandline.client.inquiries import Inquiries
from strandline.client.links import Links
from strandline.client.loans import Reader
from strandline.client.lookup import BrokerCalls, OffsetLookup
from strandline.client.metadata import Metadata
from strandline.client.options import ConsumerOptions
from strandline.client.polling import Polling
from strandline.client.positions import Positions
from strandline.client.record import ConsumerRecord, Loan
from strandline.client.service import Service
from strandline.client.settings import ConsumerSettings, from_mapping
from strandline.client.settings_help import shows_settings
from strandline.client.signals import News, Pump
from strandline.client.taking import Taking
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from strandline.protocol.types import NO_BROKER, NO_OFFSET, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment, production_client_environment

if TYPE_CHECKING:
    from strandline.client.columns import FetchedColumns

T = TypeVar("T")


@shows_settings(ConsumerSettings, ConsumerOptions)
class TrioConsumer(Service, Polling, Inquiries):
    """Reads records, for trio programs. One task at a time may poll.

    Either used as an async context manager, or its `run` is started in a nursery of one's own.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        environment: ClientEnvironment | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__()
        self.settings = from_mapping(ConsumerSettings, {"bootstrap_servers": bootstrap_servers, **settings})
        environment = environment or production_client_environment()
        self._pump = Pump()
        self._news = News()
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._reader = Reader(self.settings)
        self._metadata = Metadata(self.settings, environment, on_change=self._on_layout)
        self._links = Links(self.settings, environment, self._metadata, self._pump.wake)
        self._calls = BrokerCalls(self._links)
        self._lookup = OffsetLookup(self.settings, environment, self._metadata, self._calls)
        self._positions = Positions(self.settings, environment, self._metadata, self._lookup, self._on_positions_found)
        self._fetcher = Fetcher(
            self.settings,
            self._metadata,
            self._links,
            wake=self._pump.wake,
            on_news=self._news.tell,
            on_positions=self._positions.want,
        )
        self._taking = Taking(self.settings, self._fetcher, self._pump.wake)
        self._group: Group | None = None
        if self.settings.group_id:
            self._group = Group(
                self.settings,
                environment,
                self._metadata,
                self._links,
                self._calls,
                assigned=lambda: self._assigned,
                assign=self._set_assigned,
                on_change=self._on_positions_found,
            )

    # --- What to read ---

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions from now on, and no others; those that stay keep their position, new ones start where
        its group has committed (if there is a group), or `auto_offset_reset` says, unless `seek` comes first. Nobody is
        asked: a topic or partition that does not exist `poll` and `position` tell. SubscriptionConflict after
        `subscribe`, InvalidTopic."""
        if self._group is not None and self._group.has_subscribed:
            raise SubscriptionConflict("this consumer's partitions are given by its group; unsubscribe before assign")
        wanted = [given_partition(item) for item in partitions]
        await self._raise_unless_running()
        self._metadata.expect(item.topic for item in wanted)
        if self._group is not None and self.settings.enable_auto_commit:
            self._group.commit_positions()
        self._set_assigned(wanted)
        if self._group is not None:
            self._group.find_positions()

    def _set_assigned(self, wanted: Iterable[TopicPartition]) -> None:
        before = self._assigned
        self._assigned = {}
        for item in wanted:
            self._assigned[item] = before.get(item) or self._fresh(item)
        for item, state in before.items():
            if item not in self._assigned:
                state.end_loan()
                state.refetch()  # an answer that is still under way is dropped
        self._fetcher.assigned = self._positions.assigned = self._assigned
        self._pump.wake()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it reads now."""
        return list(self._assigned)

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Read what the group gives this consumer of these topics, or of those whose whole name matches `pattern`; in
        place of what was subscribed to before. Polls join the group, keep this consumer in it, and call the callbacks
        (functions or async functions of a list of partitions):

        `on_assigned` ends each rebalance, also without a new partition. `on_revoked`: these go to others once it
        returns; it may commit. `on_lost`: they may have gone to others already (without it: on_revoked).

        NoGroup without a `group_id`, SubscriptionConflict after `assign` and during `unsubscribe`, InvalidTopic,
        ValueError.
        """
        if isinstance(topics, re.Pattern):
            names, pattern = [], topics
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe takes topics, or a pattern; to end it there is unsubscribe")
        group = self._group_for("subscribe")
        if self._assigned and not group.has_subscribed:
            raise SubscriptionConflict("this consumer's partitions are assigned; assign([]) before subscribe")
        self._raise_if_closed()
        group.subscribe(
            names, None if pattern is None else compiled(pattern), Callbacks(on_assigned, on_revoked, on_lost)
        )

    @property
    def subscription(self) -> list[str]:
        """The topics, those that match the pattern as far as this consumer knows."""
        return [] if self._group is None else self._group.topics

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. NotAssigned; ValueError for a negative one."""
        state = self._state(partition)
        if (offset := given_int(offset, f"the offset in {state.topic_partition}")) < 0:
            raise ValueError(f"offset {offset} of {state.topic_partition} is negative; use seek_to_beginning")
        state.end_loan()
        state.set_position(offset)
        self._pump.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset (of all assigned partitions if none is given). NotAssigned."""
        self._seek_to(EARLIEST_TIMESTAMP, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the high watermark (of all assigned partitions if none is given). NotAssigned."""
        self._seek_to(LATEST_TIMESTAMP, partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until `resume`; their positions stay. NotAssigned."""
        for item in partitions:
            self._state(item).paused = True
            self._state(item).take_back()

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again, from their position on. NotAssigned."""
        for item in partitions:
            self._state(item).paused = False
            self._state(item).hurried = True
        self._pump.wake()
        self._news.tell()

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The next offset that `poll`, or a loop over the consumer, hands out. UnknownTopic, NoBrokerReachable and the
        like as from `poll`; the last cause if it cannot be found in time."""
        state = self._state(partition)
        deadline = trio.current_time() + self._limit_ms(timeout_ms) / 1000
        reaching = self._metadata.reaching()
        while state.position == NO_OFFSET:
            self._raise_error(state)
            if not await self._wait_for_news(reaching, deadline) and state.position == NO_OFFSET:
                known = self._metadata.view.partition(state.topic_partition)
                if known is None or known.leader == NO_BROKER:
                    raise self._metadata.view.no_leader(state.topic_partition)
                raise state.last_error or LeaderNotAvailable(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"the position of {state.topic_partition} could not be looked up"
                )
        return state.read_position

    def high_watermark(self, partition: TopicPartition) -> int:
        """The offset behind the last record that can be read, as of the last fetch, −1 before it; never goes back.
        NotAssigned."""
        return self._state(partition).high_watermark

    def waiting(self) -> dict[TopicPartition, Exception]:
        """The assigned partitions of which nothing can come now, and why: nobody leads them, the leader is out of reach
        or refuses. `poll` is patient with all of that, for as long as the program is. Paused ones are left out."""
        now = trio.current_time()
        wanted = [state for state in self._assigned.values() if not state.paused and not state.has_records]
        hindered = {state.topic_partition: self._fetcher.hindrance(state, now) for state in wanted}
        return {topic_partition: why for topic_partition, why in hindered.items() if why is not None}

    def metrics(self) -> dict[str, float]:
        """Numbers about this consumer, under Kafka's names, as of now.

        Totals: records-consumed-total (not those of `fetch_batches`), bytes-consumed-total (fetched, compressed),
        request-total.
        Now: records-lag.TOPIC-PARTITION (records up to the high watermark of the last fetch), assigned-partitions,
        connection-count, requests-in-flight, metadata-age (ms; −1: never heard, or closed). Of the last 30 to 60 s:
        records-lag-max (whenever records were handed out, and now), request-latency-avg and request-latency-max (ms; a
        fetch waits for records for `fetch_max_wait_ms`), fetch-throttle-time-avg and fetch-throttle-time-max (ms that
        answers say a quota holds this client).
        """
        now = self._now_s()
        return {
            **metrics.of_reading(self._assigned, self._taking, self._fetcher.fetched_bytes, now),
            **metrics.of_connections(self._links, now),
            **metrics.of_throttling("fetch", self._links, now),
        }

    # --- Reading ---

    async def _poll_step(
        self, max_records: int | None, *, timeout_ms: float, after: DueCall | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]] | DueCall:
        limit = self.settings.max_poll_records if max_records is None else max_records
        return await self._when_any(partial(self._taking.records, limit), {}, self._deadline(timeout_ms, after))

    async def _fetch_step(self, *, timeout_ms: float, after: DueCall | None = None) -> list[FetchedBatches] | DueCall:
        return await self._when_any(self._taking.batches, [], self._deadline(timeout_ms, after))

    async def _lend_step(self, *, timeout_ms: float, after: DueCall | None = None) -> list[Loan] | DueCall:
        return await self._when_any(self._taking.loans, [], self._deadline(timeout_ms, after))

    async def _touch_step(self, *, timeout_ms: float, after: DueCall | None = None) -> bool | DueCall:
        deadline = self._deadline(timeout_ms, after)
        return await self._when_any(lambda: True, False, deadline, ends_loans=False)

    async def _columns_step(self, *, timeout_ms: float, after: DueCall | None = None) -> list[FetchedColumns] | DueCall:
        return await self._when_any(self._taking.columns, [], self._deadline(timeout_ms, after))

    async def _leave_step(self, *, timeout_ms: float | None, after: DueCall | None = None) -> DueCall | None:
        call = None
        for state in self._assigned.values():
            state.take_back()  # a loop in another thread would hand out what is not committed any more
        if self._group is not None:
            deadline = self._deadline(self._limit_ms(timeout_ms), after)
            call = await self._group.next_call_before_leaving(deadline, is_first=after is None)
        if call is None:
            self._set_assigned(())
        return call

    async def _give_up_leaving(self) -> None:
        if self._group is not None:
            await self._group.give_up_leaving()

    def _give_back(self, taken: object) -> None:
        """Nobody got what a step has had: later polls hand it out again, and nothing of it is committed before."""
        self._taking.give_back(taken)
        self._pump.wake()

    def _is_next(self, partition: TopicPartition, offset: int) -> bool:
        state = self._assigned.get(partition)
        return state is not None and not state.paused and state.read_position == offset

    def _finish_call(self, call: DueCall) -> None:
        call.finish()

    def _refuse_within_callback(self) -> None:
        if self._group is not None:
            self._group.refuse_within_callback()

    def _deadline(self, timeout_ms: float, after: DueCall | None) -> float:
        return trio.current_time() + timeout_ms / 1000 if after is None else after.deadline

    # --- The group's offsets ---

    async def commit(
        self,
        offsets: GivenOffsets = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Have the group remember these positions: the offsets of the next records to read (default: behind all that
        was handed out). CommitFailed where the group has given the partitions to others, NoGroup, the last cause after
        `timeout_ms`."""
        group = self._group_for("commit")
        await self._raise_unless_running()
        commit = group.commit(offsets, self._limit_ms(timeout_ms))
        await commit.wait()
        if commit.error is not None:
            raise commit.error

    def commit_nowait(self, offsets: GivenOffsets = None, on_done: OnCommit | None = None) -> None:
        """As `commit`, without waiting; commits are carried out in the order of the calls. A later poll, or
        `unsubscribe`, calls `on_done(offsets, error or None)`."""
        self._group_for("commit_nowait").commit(offsets, on_done=on_done)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None for nothing. NoGroup, the last cause after `timeout_ms` (default:
        `default_api_timeout_ms`)."""
        wanted = [given_partition(item) for item in partitions]
        await self._raise_unless_running()
        return await self._group_for("committed").committed(wanted, self._limit_ms(timeout_ms))

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group. NoGroup."""
        return self._group_for("group_metadata").identity

    # --- Tasks ---

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch until `close` or cancelled."""
        try:
            with self._serving():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._metadata.run)
                    nursery.start_soon(self._links.run)
                    nursery.start_soon(self._positions.run)
                    if self._group is not None:
                        nursery.start_soon(self._group.run)
                    task_status.started()
                    await self._pump.run(self._fetcher.pump)
        finally:
            if self._group is not None:
                await self._group.close()
            self.close()

    async def _end_block(self, error: BaseException | None) -> None:
        """By an error: what the last poll gave may not have been worked on, so it is not committed."""
        try:
            if error is None and not self._closed:
                await self.unsubscribe()
        finally:
            self.close()

    def close(self) -> None:
        """Stop, and leave the group without committing anything; a waiting `poll` ends with ClientClosed. Idempotent.
        The end of an `async with` block does `unsubscribe` before."""
        self.stop()
        self._calls.close()
        self._news.tell()

    def _on_layout(self) -> None:
        self._pump.wake()
        if not self._metadata.bootstrap.was_reached:
            self._news.tell()
        if self._group is not None:
            self._group.look()

    def _on_positions_found(self) -> None:
        self._pump.wake()
        self._news.tell()

    # --- Parts ---

    def _group_for(self, what: str) -> Group:
        if self._group is None:
            instead = ", or give the partitions to assign" if what == "subscribe" else ""
            raise NoGroup(f"{what} takes a group: set group_id{instead}")
        return self._group

    def _fresh(self, partition: TopicPartition) -> Assigned:
        state = Assigned(partition)
        if self._group is None:
            start_by_policy(state, self.settings.auto_offset_reset)
        else:
            state.ask_group()
        return state

    def _state(self, partition: TopicPartition) -> Assigned:
        partition = given_partition(partition)
        state = self._assigned.get(partition)
        if state is None:
            raise NotAssigned(f"{partition} is not assigned to this consumer; call assign first")
        return state

    def _seek_to(self, timestamp: int, partitions: Iterable[TopicPartition]) -> None:
        for item in list(partitions) or list(self._assigned):
            state = self._state(item)
            state.end_loan()
            state.ask_reset(timestamp)
        self._positions.want()
        self._pump.wake()

    async def _when_any(
        self, take: Callable[[], T], nothing: T, deadline: float, *, ends_loans: bool = True
    ) -> T | DueCall:
        """What `take` has as soon as it has anything, or nothing after that time; before, what is to be called. Raises
        what `poll` says."""
        group = self._group
        await trio.lowlevel.checkpoint()
        if ends_loans:
            for state in self._assigned.values():
                state.take_back()
        if group is not None:
            group.begin_poll()
        try:
            return await self._next(take, nothing, deadline)
        finally:
            if group is not None:
                group.end_poll()

    async def _next(self, take: Callable[[], T], nothing: T, deadline: float) -> T | DueCall:
        group, reaching = self._group, self._metadata.reaching()
        while True:
            if group is not None and (call := await group.next_call(deadline)) is not None:
                return call
            if (group is None or not group.is_settling) and (taken := take()):
                self._pump.wake()
                return taken
            self._raise_errors()
            if not await self._wait_for_news(reaching, deadline):
                return nothing

    def _raise_errors(self) -> None:
        self._raise_if_closed()
        for state in self._assigned.values():
            if not state.paused:
                self._raise_error(state)

    def _raise_error(self, state: Assigned) -> None:
        error = state.error
        if error is None:
            return
        if not isinstance(error, OffsetOutOfRange | LogTruncated):
            state.error = None  # fetching goes on: it may have been repaired
            self._pump.wake()
            if self._group is not None and state.wants_committed:
                self._group.find_positions()
        raise error

    async def _wait_for_news(self, reaching: Reaching, deadline: float) -> bool:
        await self._raise_unless_running()
        await self._news.wait_until(reaching.wait_until(trio.current_time(), deadline))
        reaching.check(trio.current_time(), deadline)
        return trio.current_time() < deadline
