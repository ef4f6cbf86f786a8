"""The clients for asyncio programs: `AioProducer`, `AioConsumer`, `AioAdmin`.

    async with AioProducer("localhost:9092") as producer:
        delivery = await producer.send("topic", b"value", key=b"key")
        print((await delivery).offset)

`strandline.aio` has them for programs. They are the trio clients, run by the synchronous fronts' background thread:
methods, settings and errors are those of `TrioProducer`, `TrioConsumer` and `TrioAdmin`. What is awaited there is
awaited here, and what is plain there is plain here. A client belongs to the asyncio loop in which it was made.

A call whose task is cancelled is cancelled in the background thread, too. One that had succeeded by then returns, and
the task is cancelled at its next await: a `poll` loses no records to a timeout.

Callbacks, of a consumer and of a delivery (an `asyncio.Future`), are called in the program's loop: those of a consumer,
functions or async functions, by the task that polls, unsubscribes or ends the block, which goes on when they return.
They may await what they like of the consumer, but for these calls.

To make a client, and what is plain here (`seek`, `assignment`, …), blocks the loop for one crossing into the background
thread. That never waits for the loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar, Unpack

from strandline.client.admin import TrioAdmin
from strandline.client.carried import awaited, plain, told
from strandline.client.consumer import TrioConsumer
from strandline.client.delivery import DeliveredBatch, RecordMetadata, RecordsSink, record_metadata
from strandline.client.elsewhere import OF_ADMINS, OF_CLIENTS, OF_CONSUMERS, OF_PRODUCERS, answers_names_of_others
from strandline.client.errors import ClientClosed
from strandline.client.groups.group import DueCall, GroupMetadata
from strandline.client.options import AdminOptions, ConsumerOptions, ProducerOptions
from strandline.client.polling import Polling
from strandline.client.producer import TrioProducer
from strandline.client.record_checks import Headers, headers_of, partition_of, timestamp_of, topic_of
from strandline.client.record_sizes import content_bytes, headers_bytes
from strandline.client.settings import EXIT_FLUSH_MS, AdminSettings, ConsumerSettings, ProducerSettings
from strandline.client.settings_help import shows_settings
from strandline.client.sync import Admin, Consumer
from strandline.client.sync_client import SyncClient
from strandline.client.sync_producer import FUTURE_BYTES, LEFT_SOMETHING, Letter, Producer
from strandline.client.unread_failures import Tally, Unread
from strandline.protocol.types import TopicPartition
from strandline.runtime.processes.asyncio_loop import AsyncioLoop, Future
from strandline.runtime.processes.portal import ForkedPortal, PortalClosed

T = TypeVar("T")
F = TypeVar("F", bound=SyncClient)


class _AioClient(Generic[F]):
    """What the three share: a synchronous front, and the way to what it fronts."""

    def __init__(self, make_front: Callable[[], F]) -> None:
        self._loop = AsyncioLoop()
        self._front = make_front()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Whatever ended the block."""
        await self.close()

    async def close(self) -> None:
        """Stop, which waits for nobody; idempotent."""
        await self._loop.in_thread(self._front.close)

    async def _cross(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Await it in the other loop."""
        crossing = self._front._begin(partial(function, *args, **options))
        with self._front._explained():
            return await self._loop.result_of(crossing)

    def _now(self, function: Callable[[], T]) -> T:
        """Call it in the other loop, and wait for that."""
        return self._front._now(function)

    @property
    def _client(self) -> Any:
        """What the methods are carried over from."""
        front: Any = self._front
        return front._client


@answers_names_of_others(OF_CLIENTS, OF_PRODUCERS)
@shows_settings(ProducerSettings, ProducerOptions)
class AioProducer(_AioClient[Producer]):
    """Sends records, for asyncio programs. A delivery is an `asyncio.Future`."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ProducerOptions]) -> None:
        super().__init__(lambda: Producer(bootstrap_servers, **settings))

    @property
    def settings(self) -> ProducerSettings:
        """As they count, defaults filled in."""
        return self._front.settings

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Accept one record, as `TrioProducer.send` takes it; `await` of what is returned tells where it stands, or
        raises DeliveryFailed (DeliveryTimeout) or what else hindered it. Waits at most `max_block_ms` for room:
        BufferFull, ClientClosed. Nothing is accepted where that is cancelled."""
        topic_of(topic)
        pair = self._front._serializers.key_and_value(key, value)
        delivery: Future[RecordMetadata] = self._loop.future()
        stamp = self._front.now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        sink = _RecordSink(self._loop, delivery, stamp)
        own_headers = headers_of(headers)
        size_bytes = FUTURE_BYTES + sum(map(len, filter(None, pair))) + headers_bytes(own_headers)
        await self._post(Letter(topic, (pair,), sink, partition_of(partition), own_headers, stamp, size_bytes))
        return delivery

    async def send_many(
        self,
        topic: str,
        records: Iterable[Sequence[Any]],
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Future[list[DeliveredBatch]]:
        """Accept many (key, value) pairs, in order; one delivery settles for all of them, as that of `TrioProducer`."""
        topic_of(topic)
        listed = self._front._serializers.records(records if isinstance(records, list | tuple) else list(records))
        delivery: Future[list[DeliveredBatch]] = self._loop.future()
        sink = _RecordsSink(self._loop, delivery, len(listed))
        stamp = self._front.now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        if listed:
            size_bytes = content_bytes(listed)
            await self._post(Letter(topic, listed, sink, partition_of(partition), (), stamp, size_bytes))
        return delivery

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything accepted before is settled, well or badly; batches no longer linger meanwhile.
        FlushTimedOut after `timeout_ms` (default: as long as delivery can take)."""
        await self._cross(self._front._flush_in_loop, None if timeout_ms is None else timeout_ms / 1000)
        self._front._raise_failures()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Flush for at most `timeout_ms` (default: as long as delivery can take), then stop; what is left fails.
        FlushTimedOut if something was left; SendsFailed as `flush`. Idempotent. Where it is cancelled it stops at once,
        and what is left fails."""
        end = partial(self._front._end, None if timeout_ms is None else timeout_ms / 1000)
        await self._loop.in_thread(end, on_cancel=self._give_up)  # else `asyncio.run` would wait for that thread
        self._front._raise_failures()

    async def __aexit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        """After an error what was sent is flushed for `EXIT_FLUSH_MS` at most, as in threads, and a note of the error
        says what was not delivered."""
        error = raised[0] if raised else None
        if not isinstance(error, BaseException):
            await self.close()
            return
        try:
            await self.close(EXIT_FLUSH_MS)
        except LEFT_SOMETHING as besides:
            error.add_note(f"and closing the producer: {besides}")

    async def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. UnknownTopic or what else hindered it after `max_block_ms`."""
        return await self._cross(self._front._client.partitions_for, topic)

    def waiting(self) -> dict[TopicPartition, Exception]:
        """The partitions whose records cannot be delivered now, and why; see `TrioProducer.waiting`."""
        return self._front.waiting()

    metrics = told(TrioProducer.metrics)

    @property
    def delivered_records(self) -> int:
        """Records acknowledged so far."""
        return self._front.delivered_records

    @property
    def failed_records(self) -> int:
        """Accepted records that were given up so far."""
        return self._front.failed_records

    def _give_up(self) -> None:
        with suppress(PortalClosed, ForkedPortal):
            self._front._portal.post(self._front._client.stop)

    async def _post(self, letter: Letter) -> None:
        deadline = self._loop.time() + self._front._room_timeout_s
        while not self._front._offer(letter, 0.0):
            left_s = deadline - self._loop.time()
            if left_s <= 0 or self._front._mailbox.is_hopeless(letter.size_bytes):
                self._front._refuse_for_want_of_room(letter)
                return
            await self._cross(self._front._room, letter.size_bytes, left_s)


class _RecordSink:
    """Has what becomes of one record told in its loop."""

    __slots__ = ("_delivery", "_error", "_loop", "_timestamp_ms")

    def __init__(self, loop: AsyncioLoop, delivery: Future[RecordMetadata], timestamp_ms: int) -> None:
        self._loop = loop
        self._delivery = delivery
        self._timestamp_ms = timestamp_ms
        self._error: Exception | None = None

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int, start: int) -> None:
        self._loop.settle(self._delivery, record_metadata(batch, first_index, self._timestamp_ms), None)

    def failed(self, error: Exception, count: int, start: int) -> None:
        self._error = error
        self._loop.settle(self._delivery, None, error)

    def count_as_told(self, count: int, start: int) -> None:
        self._loop.count_as_told(self._delivery)

    def take_unread(self) -> Unread:
        if not self._loop.is_unread(self._delivery):
            return Unread(0, None)
        self._loop.count_as_told(self._delivery)
        return Unread(1, self._error)

    def move_unread(self, tally: Tally) -> None:
        tally.add(self.take_unread())

    def has_unread(self) -> bool:
        return self._loop.may_be_unread(self._delivery)


class _RecordsSink(RecordsSink):
    """Likewise, of many."""

    def __init__(self, loop: AsyncioLoop, delivery: Future[list[DeliveredBatch]], expected: int) -> None:
        self._loop = loop
        self._delivery = delivery
        super().__init__(expected)

    def _settle(self) -> None:
        self._loop.settle(self._delivery, self.batches, self.error)

    def take_unread(self) -> Unread:
        if not self._loop.is_unread(self._delivery):
            return Unread(0, None)
        self._loop.count_as_told(self._delivery)
        return Unread(self.failed_records, self.error)

    def move_unread(self, tally: Tally) -> None:
        tally.add(self.take_unread())

    def has_unread(self) -> bool:
        return self._loop.may_be_unread(self._delivery)


@answers_names_of_others(OF_CLIENTS, OF_CONSUMERS)
@shows_settings(ConsumerSettings, ConsumerOptions)
class AioConsumer(_AioClient[Consumer], Polling):
    """Reads records, for asyncio programs. One task at a time may poll, and callbacks are called in it."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[ConsumerOptions]) -> None:
        super().__init__(lambda: Consumer(bootstrap_servers, **settings))
        self._reader = self._front._reader

    assign = awaited(TrioConsumer.assign)
    subscribe = plain(TrioConsumer.subscribe)
    seek = plain(TrioConsumer.seek)
    seek_to_beginning = plain(TrioConsumer.seek_to_beginning)
    seek_to_end = plain(TrioConsumer.seek_to_end)
    pause = plain(TrioConsumer.pause)
    resume = plain(TrioConsumer.resume)
    position = awaited(TrioConsumer.position)
    high_watermark = plain(TrioConsumer.high_watermark)
    waiting = plain(TrioConsumer.waiting)
    metrics = told(TrioConsumer.metrics)
    commit = awaited(TrioConsumer.commit)
    commit_nowait = plain(TrioConsumer.commit_nowait)
    committed = awaited(TrioConsumer.committed)
    beginning_offsets = awaited(TrioConsumer.beginning_offsets)
    end_offsets = awaited(TrioConsumer.end_offsets)
    offsets_for_times = awaited(TrioConsumer.offsets_for_times)
    partitions_for_topic = awaited(TrioConsumer.partitions_for_topic)
    topic_id = awaited(TrioConsumer.topic_id)
    leaders_for_topic = awaited(TrioConsumer.leaders_for_topic)

    _poll_step = awaited(TrioConsumer._poll_step)
    _fetch_step = awaited(TrioConsumer._fetch_step)
    _columns_step = awaited(TrioConsumer._columns_step)
    _lend_step = awaited(TrioConsumer._lend_step)
    _touch_step = awaited(TrioConsumer._touch_step)
    _give_back = plain(TrioConsumer._give_back)
    _is_next = plain(TrioConsumer._is_next)
    _leave_step = awaited(TrioConsumer._leave_step)
    _give_up_leaving = awaited(TrioConsumer._give_up_leaving)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it reads now."""
        return self._front.assignment

    @property
    def subscription(self) -> list[str]:
        """The topics that are subscribed to, or match the pattern as far as this consumer knows."""
        return self._front.subscription

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group. NoGroup."""
        return self._front.group_metadata

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error what the last poll gave is not committed: it may not have been worked on."""
        if kind is None:
            await self.close()
        else:
            await self._loop.in_thread(self._front._stop)

    async def close(self) -> None:
        """`unsubscribe`, which ends within `default_api_timeout_ms`, then stop; idempotent."""
        try:
            if self._front._can_leave:
                with suppress(ClientClosed):  # by another task, meanwhile
                    await self.unsubscribe()
        finally:
            await self._loop.in_thread(self._front._stop)

    def _now_s(self) -> float:
        return self._loop.time()

    def _finish_call(self, call: DueCall) -> None:
        self._now(call.finish)

    def _refuse_within_callback(self) -> None:
        self._client._refuse_within_callback()


@answers_names_of_others(OF_CLIENTS, OF_ADMINS)
@shows_settings(AdminSettings, AdminOptions)
class AioAdmin(_AioClient[Admin]):
    """Topics, groups and the cluster, for asyncio programs."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **settings: Unpack[AdminOptions]) -> None:
        super().__init__(lambda: Admin(bootstrap_servers, **settings))

    metrics = told(TrioAdmin.metrics)
    was_reached = told(TrioAdmin.was_reached)
    create_topic = awaited(TrioAdmin.create_topic)
    create_topics = awaited(TrioAdmin.create_topics)
    delete_topic = awaited(TrioAdmin.delete_topic)
    delete_topics = awaited(TrioAdmin.delete_topics)
    create_partitions = awaited(TrioAdmin.create_partitions)
    describe_configs = awaited(TrioAdmin.describe_configs)
    describe_topic_configs = awaited(TrioAdmin.describe_topic_configs)
    alter_configs = awaited(TrioAdmin.alter_configs)
    describe_quotas = awaited(TrioAdmin.describe_quotas)
    alter_quotas = awaited(TrioAdmin.alter_quotas)
    recover = awaited(TrioAdmin.recover)
    delete_records = awaited(TrioAdmin.delete_records)
    describe_producers = awaited(TrioAdmin.describe_producers)
    replica_offsets = awaited(TrioAdmin.replica_offsets)
    read_replica = awaited(TrioAdmin.read_replica)
    alter_partition_reassignments = awaited(TrioAdmin.alter_partition_reassignments)
    list_partition_reassignments = awaited(TrioAdmin.list_partition_reassignments)
    elect_leaders = awaited(TrioAdmin.elect_leaders)
    describe_log_dirs = awaited(TrioAdmin.describe_log_dirs)
    list_topics = awaited(TrioAdmin.list_topics)
    describe_topics = awaited(TrioAdmin.describe_topics)
    describe_cluster = awaited(TrioAdmin.describe_cluster)
    list_groups = awaited(TrioAdmin.list_groups)
    describe_groups = awaited(TrioAdmin.describe_groups)
    delete_groups = awaited(TrioAdmin.delete_groups)
    remove_members = awaited(TrioAdmin.remove_members)
    list_group_offsets = awaited(TrioAdmin.list_group_offsets)
    list_offsets_of_groups = awaited(TrioAdmin.list_offsets_of_groups)
    alter_group_offsets = awaited(TrioAdmin.alter_group_offsets)
    delete_group_offsets = awaited(TrioAdmin.delete_group_offsets)
