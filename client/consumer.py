"""The consumer, trio-native and low level: partitions are assigned, positions are the program's business.

    async with TrioConsumer("localhost:9092", auto_offset_reset="earliest") as consumer:
        await consumer.assign([TopicPartition("topic", 0)])
        for records in (await consumer.poll(timeout_ms=1000)).values(): ...

Rules: nothing at or above the high watermark is ever handed out; leader changes and lost connections are followed
without the program's help; what it must decide about (no valid position, a truncated log, damaged records) is raised by
`poll`. Fetching is in `fetcher`, finding positions in `positions`, one partition's state in `assignment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import trio

from strandline.client.assignment import Assigned, ConsumerRecord, FetchedBatches
from strandline.client.errors import (
    ClientClosed,
    LeaderNotAvailable,
    LogTruncated,
    NotAssigned,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
)
from strandline.client.fetcher import RESET_TIMESTAMPS, Fetcher
from strandline.client.links import Links
from strandline.client.lookup import BrokerCalls, FoundOffset, OffsetLookup
from strandline.client.metadata import Metadata, TopicView
from strandline.client.positions import Positions
from strandline.client.service import Service
from strandline.client.settings import ConsumerSettings, from_mapping
from strandline.client.signals import News, Pump
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from strandline.protocol.types import NO_BROKER, NO_OFFSET, TopicId, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment, production_client_environment

T = TypeVar("T")


class TrioConsumer(Service):
    """Settings: `ConsumerSettings`, as keyword arguments. One task at a time may poll.

    Either used as an async context manager, or its `run` is started in a nursery of one's own.
    """

    def __init__(
        self, bootstrap_servers: str, *, environment: ClientEnvironment | None = None, **settings: Any
    ) -> None:
        super().__init__()
        self.settings = from_mapping(ConsumerSettings, {"bootstrap_servers": bootstrap_servers, **settings})
        environment = environment or production_client_environment()
        self._pump = Pump()
        self._news = News()
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._first = 0
        self._metadata = Metadata(self.settings, environment, on_change=self._pump.wake)
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

    # --- What to read ---

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions from now on, and no others; those that stay keep their position, new ones start where
        `auto_offset_reset` says unless `seek` comes first. UnknownTopic or what hindered it after
        `default_api_timeout_ms`."""
        wanted = [TopicPartition(*item) for item in partitions]
        for topic in dict.fromkeys(item.topic for item in wanted):
            layout = await self._layout(topic)
            for item in wanted:
                if item.topic == topic and item.partition not in layout.partitions:
                    raise UnknownTopic(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        f"topic {topic!r} has no partition {item.partition}, only {len(layout.partitions)} of them",
                    )
        before = self._assigned
        self._assigned = {}
        for item in wanted:
            self._assigned[item] = before.get(item) or self._fresh(item)
        for item, state in before.items():
            if item not in self._assigned:
                state.refetch()  # an answer that is still under way is dropped
        self._fetcher.assigned = self._positions.assigned = self._assigned
        self._pump.wake()

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._assigned)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`. NotAssigned; ValueError for a negative one."""
        if offset < 0:
            raise ValueError(f"offset {offset} of {TopicPartition(*partition)} is negative; use seek_to_beginning")
        self._state(partition).set_position(offset)
        self._pump.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset (of all assigned partitions if none is given)."""
        self._seek_to(EARLIEST_TIMESTAMP, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the high watermark (of all assigned partitions if none is given)."""
        self._seek_to(LATEST_TIMESTAMP, partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until `resume`; their positions stay."""
        for item in partitions:
            self._state(item).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for item in partitions:
            self._state(item).paused = False
            self._state(item).hurried = True
        self._pump.wake()
        self._news.tell()

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The next offset that `poll` hands out. The last cause if it cannot be found in time."""
        state = self._state(partition)
        deadline = trio.current_time() + self._limit_ms(timeout_ms) / 1000
        while state.position == NO_OFFSET:
            self._raise_error(state)
            if not await self._wait_for_news(deadline) and state.position == NO_OFFSET:
                known = self._metadata.view.partition(state.topic_partition)
                if known is None or known.leader == NO_BROKER:
                    raise self._metadata.view.no_leader(state.topic_partition)
                raise state.last_error or LeaderNotAvailable(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"the position of {state.topic_partition} could not be looked up"
                )
        return state.position

    def high_watermark(self, partition: TopicPartition) -> int:
        """As of the last fetch, −1 before it; never goes back."""
        return self._state(partition).high_watermark

    def waiting(self) -> dict[TopicPartition, Exception]:
        """The assigned partitions of which nothing can come now, and why: nobody leads them, the leader is out of reach
        or refuses. `poll` is patient with all of that, for as long as the program is. Paused ones are left out."""
        now = trio.current_time()
        wanted = [state for state in self._assigned.values() if not state.paused and not state.has_records]
        hindered = {state.topic_partition: self._fetcher.hindrance(state, now) for state in wanted}
        return {topic_partition: why for topic_partition, why in hindered.items() if why is not None}

    # --- Reading ---

    async def poll(
        self, *, max_records: int | None = None, timeout_ms: float = 0
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records, as soon as there are any; {} after `timeout_ms`. At most `max_records` (default:
        `max_poll_records`), partitions taking turns.

        Errors, once nothing else is left to hand out: OffsetOutOfRange, LogTruncated (both until a seek),
        CorruptRecords, AnsweredError.
        """
        limit = self.settings.max_poll_records if max_records is None else max_records
        return await self._when_any(partial(self._take, limit), timeout_ms)

    async def fetch_batches(self, *, timeout_ms: float = 0) -> list[FetchedBatches]:
        """As `poll`, but whole record batches, not decoded: everything that is buffered, one item per fetch and
        partition. Positions move behind them; CRCs are left to whoever decodes."""
        return await self._when_any(self._take_batches, timeout_ms)

    # --- Offsets and layout ---

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each. The last cause if a leader does not answer in time."""
        found = await self._find(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout_ms)
        return {key: item.offset for key, item in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermark of each: the offset after the last record that can be read."""
        found = await self._find(dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms)
        return {key: item.offset for key, item in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record of each partition with at least that timestamp; None where there is none."""
        if any(timestamp < 0 for timestamp in timestamps_ms.values()):
            raise ValueError("timestamps are milliseconds since 1970, not negative; use beginning_offsets, end_offsets")
        found = await self._find(timestamps_ms, timeout_ms)
        return {key: item if item.offset >= 0 else None for key, item in found.items()}

    async def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> list[int]:
        """The topic's partitions. UnknownTopic or what hindered it after `timeout_ms`."""
        return sorted((await self._layout(topic, timeout_ms)).partitions)

    async def topic_id(self, topic: str, timeout_ms: float | None = None) -> TopicId:
        """Which of the topics that had this name it is, as far as this client knows now; zeros where the cluster gives
        no ids. UnknownTopic or what hindered it after `timeout_ms`."""
        return (await self._layout(topic, timeout_ms)).topic_id

    # --- Tasks ---

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch until `close` or cancelled."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._metadata.run)
                    nursery.start_soon(self._links.run)
                    nursery.start_soon(self._positions.run)
                    task_status.started()
                    await self._pump.run(self._fetcher.pump)
        finally:
            self.close()

    def close(self) -> None:
        """Stop; a waiting `poll` ends with ClientClosed. Idempotent."""
        self.stop()
        self._calls.close()
        self._news.tell()

    def _on_positions_found(self) -> None:
        self._pump.wake()
        self._news.tell()

    # --- Parts ---

    def _fresh(self, partition: TopicPartition) -> Assigned:
        state = Assigned(partition)
        timestamp = RESET_TIMESTAMPS.get(self.settings.auto_offset_reset)
        if timestamp is not None:
            state.ask_reset(timestamp)
        else:
            state.error = OffsetOutOfRange(
                f"{partition} has no position and auto_offset_reset is none; seek first", NO_OFFSET
            )
            state.out_of_range = True
        return state

    def _state(self, partition: TopicPartition) -> Assigned:
        state = self._assigned.get(TopicPartition(*partition))
        if state is None:
            raise NotAssigned(f"{TopicPartition(*partition)} is not assigned to this consumer; call assign first")
        return state

    def _seek_to(self, timestamp: int, partitions: Iterable[TopicPartition]) -> None:
        for item in list(partitions) or list(self._assigned):
            self._state(item).ask_reset(timestamp)
        self._positions.want()
        self._pump.wake()

    def _take(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Records that are here, beginning with another partition each time."""
        states = list(self._assigned.values())
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        left = limit
        self._first = (self._first + 1) % max(1, len(states))
        for state in states[self._first :] + states[: self._first]:
            if left <= 0:
                break
            if state.paused:
                continue
            if state.has_records:
                try:
                    records = state.take_records(left, self.settings.check_crcs)
                except Exception:
                    if taken:
                        continue  # met again by the next poll
                    raise
                if records:
                    taken[state.topic_partition] = records
                    left -= len(records)
                else:
                    self._pump.wake()  # compaction left batches without records: there is room for the next fetch
            self._fetcher.reset_when_drained(state)
        return taken

    def _take_batches(self) -> list[FetchedBatches]:
        taken: list[FetchedBatches] = []
        for state in self._assigned.values():
            while not state.paused and (batches := state.take_batches()) is not None:
                taken.append(batches)
            self._fetcher.reset_when_drained(state)
        return taken

    async def _when_any(self, take: Callable[[], T], timeout_ms: float) -> T:
        """What `take` has as soon as it has anything, or nothing after that time. Raises what `poll` says."""
        deadline = trio.current_time() + timeout_ms / 1000
        await trio.lowlevel.checkpoint()
        while not (taken := take()):
            self._raise_errors()
            if not await self._wait_for_news(deadline):
                return taken
        self._pump.wake()
        return taken

    def _raise_errors(self) -> None:
        if self._closed:
            raise ClientClosed("the consumer is closed")
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
        raise error

    async def _wait_for_news(self, deadline: float) -> bool:
        if self._closed:
            raise ClientClosed("the consumer is closed")
        return await self._news.wait_until(deadline)

    def _limit_ms(self, timeout_ms: float | None) -> float:
        return self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def _layout(self, topic: str, timeout_ms: float | None = None) -> TopicView:
        if self._closed:
            raise ClientClosed("the consumer is closed")
        limit_ms = self._limit_ms(timeout_ms)
        return await self._metadata.topic(topic, timeout_ms=limit_ms, setting="default_api_timeout_ms")

    async def _find(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        limit_ms = self._limit_ms(timeout_ms)
        wanted = {TopicPartition(*key): value for key, value in timestamps.items()}
        started = trio.current_time()
        for topic in dict.fromkeys(key.topic for key in wanted):
            await self._layout(topic, limit_ms)
        spent_ms = (trio.current_time() - started) * 1000
        with trio.move_on_after(limit_ms / 1000):
            return await self._lookup.until_found(wanted, max(1.0, limit_ms - spent_ms))
        raise RequestTimedOut(
            f"no offsets of {', '.join(map(str, wanted))} within {limit_ms:g} ms (default_api_timeout_ms)"
        )
