"""The clients for asyncio programs: `AsyncProducer`, `AsyncConsumer`, `AsyncAdmin`.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("topic", b"value", key=b"key")
        print((await delivery).offset)

They are the trio clients, run by the synchronous fronts' background thread: methods, settings and errors are those of
`TrioProducer`, `TrioConsumer` and `TrioAdmin`. What is awaited there is awaited here, and what is plain there is plain
here; so what those classes gain these have. A client belongs to the asyncio loop in which it was made.

A call whose task is cancelled is cancelled in the background thread, too. One that had succeeded by then returns, and
the task is cancelled at its next await: a `poll` loses no records to a timeout.

Callbacks, of a consumer and of a delivery (an `asyncio.Future`), are called in the program's loop: those of a consumer,
functions or async functions, by the task that polls, unsubscribes or ends the block, which goes on when they return.
They may await what they like of the consumer, but for these calls.

To make a client, and what is plain here (`seek`, `assignment`, …), blocks the loop for one crossing into the background
thread. That never waits for the loop.
"""

from __future__ import annotations

import inspect
from abc import update_abstractmethods
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from strandline.client.admin import TrioAdmin
from strandline.client.consumer import TrioConsumer
from strandline.client.delivery import DeliveredBatch, RecordMetadata, RecordsSink, record_metadata
from strandline.client.errors import ClientClosed
from strandline.client.polling import Polling
from strandline.client.record_checks import Headers, headers_of, partition_of, timestamp_of, topic_of
from strandline.client.settings import ProducerSettings
from strandline.client.sync import Admin, Consumer
from strandline.client.sync_client import SyncClient
from strandline.client.sync_producer import Letter, Producer
from strandline.client.unread_failures import Unread
from strandline.protocol.types import TopicPartition
from strandline.runtime.processes.asyncio_loop import AsyncioLoop, Future

T = TypeVar("T")
F = TypeVar("F", bound=SyncClient)

_OF_TRIO_ONLY = {"close", "finished", "run", "stop"}
"""What somebody else calls for the trio clients' sake."""


class _AsyncClient(Generic[F]):
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
        """Stop; idempotent."""
        await self._loop.in_thread(self._front.close)

    async def _cross(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Await it in the other loop."""
        crossing = self._front.begin(partial(function, *args, **options))
        with self._front.explained():
            return await self._loop.result_of(crossing)


class AsyncProducer(_AsyncClient[Producer]):
    """`TrioProducer` for asyncio programs; settings as there. A delivery is an `asyncio.Future`."""

    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        super().__init__(lambda: Producer(bootstrap_servers, **settings))

    @property
    def settings(self) -> ProducerSettings:
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
        pair = self._front.serializers.key_and_value(key, value)
        delivery: Future[RecordMetadata] = self._loop.future()
        stamp = self._front.now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        sink = _RecordSink(self._loop, delivery, stamp)
        await self._post(Letter(topic, (pair,), sink, partition_of(partition), headers_of(headers), stamp))
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
        listed = self._front.serializers.records(records if isinstance(records, list | tuple) else list(records))
        delivery: Future[list[DeliveredBatch]] = self._loop.future()
        sink = _RecordsSink(self._loop, delivery, len(listed))
        stamp = self._front.now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        if listed:
            await self._post(Letter(topic, listed, sink, partition_of(partition), (), stamp))
        return delivery

    async def flush(self, timeout_ms: float | None = None) -> None:
        """See `TrioProducer.flush`."""
        await self._cross(self._front.flush_in_loop, None if timeout_ms is None else timeout_ms / 1000)
        self._front.raise_failures()

    async def close(self, timeout_ms: float | None = None) -> None:
        """See `TrioProducer.close`. Where that is cancelled it goes on in the background."""
        await self._loop.in_thread(partial(self._front.end, None if timeout_ms is None else timeout_ms / 1000))
        self._front.raise_failures()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error nothing is waited for, as in trio: what is left fails with it."""
        try:
            await self.close(None if kind is None else 0.0)
        except Exception:
            if kind is None:
                raise

    async def partitions_for(self, topic: str) -> list[int]:
        """See `TrioProducer.partitions_for`."""
        return await self._cross(self._front._client.partitions_for, topic)

    def waiting(self) -> dict[TopicPartition, Exception]:
        """See `TrioProducer.waiting`."""
        return self._front.waiting()

    @property
    def delivered_records(self) -> int:
        """Records acknowledged so far."""
        return self._front.delivered_records

    @property
    def failed_records(self) -> int:
        """Accepted records that were given up so far."""
        return self._front.failed_records

    async def _post(self, letter: Letter) -> None:
        deadline = self._loop.time() + self._front.room_timeout_s
        while not self._front.offer(letter, len(letter.records), 0.0):
            left_s = deadline - self._loop.time()
            if left_s <= 0:
                self._front.refuse_for_want_of_room(letter)
                return
            await self._cross(self._front.room, len(letter.records), left_s)


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

    def unread_failures(self) -> Unread:
        return Unread(1, self._error) if self._loop.is_unread(self._delivery) else Unread(0, None)


class _RecordsSink(RecordsSink):
    """Likewise, of many."""

    def __init__(self, loop: AsyncioLoop, delivery: Future[list[DeliveredBatch]], expected: int) -> None:
        self._loop = loop
        self._delivery = delivery
        super().__init__(expected)

    def _settle(self) -> None:
        self._loop.settle(self._delivery, self.batches, self.error)

    def unread_failures(self) -> Unread:
        return Unread(self.failed_records, self.error) if self._loop.is_unread(self._delivery) else Unread(0, None)


if TYPE_CHECKING:

    class AsyncConsumer(TrioConsumer):
        """For who reads types: the methods of `TrioConsumer`, to be awaited in asyncio."""

        async def close(self) -> None: ...  # type: ignore[override]

    class AsyncAdmin(TrioAdmin):
        """Likewise."""

        async def close(self) -> None: ...  # type: ignore[override]

else:

    def _carried_over(trio_class):
        """A class decorator: the public methods and properties of the trio client, and what else the class lacks."""

        def awaited(method):
            @wraps(method)
            async def call(self, *args, **options):
                return await self._cross(method, self._front._client, *args, **options)

            return call

        def plain(method):
            @wraps(method)
            def call(self, *args, **options):
                return self._front._now(partial(method, self._front._client, *args, **options))

            return call

        def carry_over(cls):
            lacking = getattr(cls, "__abstractmethods__", ())
            for name, member in inspect.getmembers_static(trio_class):
                is_own = name.startswith("_") or name in _OF_TRIO_ONLY or hasattr(cls, name)
                if is_own and name not in lacking:
                    continue
                if inspect.iscoroutinefunction(member):
                    setattr(cls, name, awaited(member))
                elif inspect.isfunction(member):
                    setattr(cls, name, plain(member))
                elif isinstance(member, property):
                    setattr(cls, name, property(plain(member.fget)))
            return update_abstractmethods(cls)

        return carry_over

    @_carried_over(TrioConsumer)
    class AsyncConsumer(_AsyncClient[Consumer], Polling):
        """`TrioConsumer` for asyncio programs; settings as there. One task at a time may poll, and callbacks are called
        in it."""

        def __init__(self, bootstrap_servers, **settings):
            super().__init__(lambda: Consumer(bootstrap_servers, **settings))

        async def __aexit__(self, kind, *_):
            """After an error what the last poll gave is not committed: it may not have been worked on."""
            if kind is None:
                await self.close()
            else:
                await self._loop.in_thread(self._front.stop)

        async def close(self):
            """`unsubscribe`, then stop; idempotent."""
            try:
                if self._front.can_leave:
                    with suppress(ClientClosed):  # by another task, meanwhile
                        await self.unsubscribe()
            finally:
                await self._loop.in_thread(self._front.stop)

        def _finish_call(self, call):
            self._front._now(call.finish)

    @_carried_over(TrioAdmin)
    class AsyncAdmin(_AsyncClient[Admin]):
        """`TrioAdmin` for asyncio programs; settings as there."""

        def __init__(self, bootstrap_servers, **settings):
            super().__init__(lambda: Admin(bootstrap_servers, **settings))
