"""The synchronous producer: records go into a mailbox, a task in the event loop takes them out in bursts.

Sending costs the calling thread a lock and a small object; memory for records is the trio producer's `buffer_memory`,
and while that is full the mailbox fills and the caller waits (`max_block_ms`) or is refused (`buffer_full`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import trio

from strandline.client.accumulator import EncodedBatch, EncodedBatches, Header, ToSend
from strandline.client.delivery import (
    DeliveredBatch,
    DeliverySink,
    FailedBatch,
    RecordMetadata,
    RecordsSink,
    record_metadata,
)
from strandline.client.errors import (
    BufferFull,
    ClientClosed,
    FlushTimedOut,
    NotSettledYet,
    RecordDropped,
    RequestTimedOut,
)
from strandline.client.producer import TrioProducer
from strandline.client.signals import News
from strandline.client.sync_client import GRACE_S, SyncClient
from strandline.protocol.types import TopicPartition
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.processes.mailbox import Mailbox
from strandline.runtime.processes.outcomes import Outcome
from strandline.runtime.processes.portal import ForkedPortal, PortalClosed, close_at_exit

T = TypeVar("T")

MAILBOX_RECORDS = 10_000
"""Records that may wait for the event loop; `send_many` counts as so many."""

LETTERS_PER_CHECKPOINT = 500
"""Single records taken without letting other tasks run: some 2 ms."""

EXIT_FLUSH_MS = 5_000
"""How long a producer that nobody closed is flushed when the interpreter ends."""


class _Sent(Outcome[T]):
    """What becomes of records: a `concurrent.futures.Future`. `result` raises DeliveryFailed (DeliveryTimeout, …) where
    some were given up. It waits `timeout` seconds (default: as long as delivery can take), then NotSettledYet.
    Callbacks run in the event loop's thread: they must be quick, and not wait for a client."""

    _deadline_s: float

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why the records are not where they should be, None where they are. It waits as `result` does."""
        return super().exception(self._deadline_s if timeout is None else timeout)


class SendFuture(_Sent[RecordMetadata]):
    """What becomes of one record: where it stands."""

    def __init__(self, deadline_s: float, timestamp_ms: int) -> None:
        self._deadline_s = deadline_s
        self._timestamp_ms = timestamp_ms

    def delivered(self, batch: DeliveredBatch, first_index: int, count: int) -> None:
        self.settle(record_metadata(batch, first_index, self._timestamp_ms))

    def failed(self, error: Exception, count: int) -> None:
        self.settle(None, error)

    def _too_late(self, timeout: float | None) -> Exception:
        return NotSettledYet(f"the record's outcome is not known after {timeout:g} s; it is still on its way")


class SendManyFuture(RecordsSink, _Sent[list[DeliveredBatch]]):
    """What becomes of the records of one `send_many`: the batches that hold them, once all are settled; the first
    failure is raised."""

    def __init__(self, deadline_s: float, expected: int) -> None:
        self._deadline_s = deadline_s
        super().__init__(expected)

    def _settle(self) -> None:
        self.settle(self.batches, self.error)

    def _too_late(self, timeout: float | None) -> Exception:
        return NotSettledYet(f"{self.open_records} records are not settled after {timeout:g} s")


class _Mark:
    """Put into the mailbox by `flush`: what was sent before it was accepted once it is reached."""

    is_reached = False


class Letter(NamedTuple):
    """Records on their way to the loop, and who is told what becomes of them."""

    topic: str
    records: Sequence[ToSend] | EncodedBatches
    sink: DeliverySink
    partition: int | None
    headers: Sequence[Header]
    timestamp_ms: int


class Producer(SyncClient):
    """`TrioProducer` for scripts; settings as there.

    with Producer("localhost:9092") as producer:
        producer.send("topic", b"value", key=b"key").result()
        producer.send_many("topic", [(b"key", b"value"), …])
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        environment: ClientEnvironment | None = None,
        on_batch: Callable[[DeliveredBatch | FailedBatch], None] | None = None,
        **settings: Any,
    ) -> None:
        """`on_batch` is called in the event loop's thread for every settled batch; it must be quick and not raise."""
        super().__init__()

        async def make_and_serve() -> TrioProducer:
            client = TrioProducer(bootstrap_servers, environment=environment, on_batch=on_batch, **settings)
            self._mailbox: Mailbox[Letter | _Mark] = Mailbox(self._portal, MAILBOX_RECORDS)
            self._portal.spawn(lambda: self._run(client))
            return client

        self._accepted_letters = 0
        self._taken: deque[Letter | _Mark] = deque()
        """Letters out of the mailbox that the producer has not been given yet."""
        self._accepted = News()
        self._has_ended = False
        """No letter will be accepted any more."""
        self._client = self._open(make_and_serve)
        self.settings = limits = self._client.settings
        self._max_block_s = limits.max_block_ms / 1000
        self.room_timeout_s = self._max_block_s if limits.buffer_full == "block" else 0.0
        """How long who sends waits for room."""
        self._deadline_s = (limits.max_block_ms + limits.delivery_timeout_ms) / 1000 + GRACE_S
        self.now_ms = self._client.now_ms
        """The timestamp of a record that is sent now."""
        close_at_exit(self)  # last, as in `sync`

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Accept one record. Waits at most `max_block_ms` for room; what hinders it later (an unknown topic, a record
        that is too large) is in the future. BufferFull, ClientClosed."""
        stamp = self.now_ms() if timestamp_ms is None else timestamp_ms
        future = SendFuture(self._deadline_s, stamp)
        self._post(Letter(topic, ((key, value),), future, partition, headers, stamp))
        return future

    def send_many(
        self,
        topic: str,
        records: Iterable[ToSend],
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendManyFuture:
        """Accept many (key, value) pairs, or many (key, value, headers, timestamp_ms), in order, with one crossing: the
        fast way. Lists of some thousand records are best; a list must not be changed afterwards. BufferFull,
        ClientClosed."""
        listed = records if isinstance(records, list | tuple) else list(records)
        future = SendManyFuture(self._deadline_s, len(listed))
        if listed:
            stamp = self.now_ms() if timestamp_ms is None else timestamp_ms
            self._post(Letter(topic, listed, future, partition, (), stamp))
        return future

    send_batch = send_many

    def send_encoded(self, topic: str, batches: Sequence[EncodedBatch], partition: int | None = None) -> SendManyFuture:
        """See `TrioProducer.send_encoded`. InvalidRecordValue, BufferFull, ClientClosed."""
        encoded = EncodedBatches(batches)
        future = SendManyFuture(self._deadline_s, len(encoded))
        if batches:
            self._post(Letter(topic, encoded, future, partition, (), -1))
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent before is settled, well or badly. FlushTimedOut after `timeout` seconds
        (default: as long as delivery can take)."""
        limit_s = self._deadline_s if timeout is None else timeout
        self._call(self._flush, limit_s, timeout_s=limit_s + GRACE_S)

    async def flush_in_loop(self, limit_s: float | None) -> None:
        """`flush`, for who waits for it in the loop."""
        await self._flush(self._deadline_s if limit_s is None else limit_s)

    def close(self, timeout: float | None = None) -> None:
        """Flush for at most `timeout` seconds (default: as long as delivery can take), then stop; what is left fails.
        FlushTimedOut if something was left. Idempotent, never hangs."""
        if self._closed:
            return
        if self._portal.is_foreign:
            self._closed = True
            return
        limit_s = self._deadline_s if timeout is None else timeout
        try:
            self._call(self._flush_and_close, limit_s, timeout_s=limit_s + GRACE_S)
        finally:
            self._refuse(self._mailbox.close())
            super().close()

    def _close_unasked(self) -> None:
        with suppress(FlushTimedOut, ClientClosed, RequestTimedOut):
            self.close(EXIT_FLUSH_MS / 1000)

    def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. UnknownTopic or what hindered it after `max_block_ms`."""
        return self._call(self._client.partitions_for, topic, timeout_s=self._max_block_s + GRACE_S)

    def waiting(self) -> dict[TopicPartition, Exception]:
        """See `TrioProducer.waiting`."""
        return self._now(self._client.waiting)

    @property
    def delivered_records(self) -> int:
        """Records acknowledged so far."""
        return self._client.delivered_records

    @property
    def failed_records(self) -> int:
        """Accepted records that were given up so far."""
        return self._client.failed_records

    # --- Letters ---

    def offer(self, letter: Letter, wait_s: float) -> bool:
        """Post it; False where there is no room within that time. ClientClosed."""
        if self._closed:
            raise ClientClosed("the producer is closed")
        if self._portal.is_foreign:
            raise self.forked_error()
        try:
            return self._mailbox.put(letter, len(letter.records), wait_s)
        except ForkedPortal:
            raise self.forked_error() from None
        except PortalClosed:
            raise self.ended_error() from self.failure

    def refuse_for_want_of_room(self, letter: Letter) -> None:
        """What `buffer_full` says. BufferFull where nobody else is told."""
        if self.settings.buffer_full == "drop":
            text = "buffer_memory is full of records that wait for delivery; the record was dropped (buffer_full=drop)"
            letter.sink.failed(RecordDropped(text), len(letter.records))
            return
        raise BufferFull(
            f"buffer_memory is full of records that wait for delivery, and stayed so for "
            f"{self.room_timeout_s * 1000:g} ms (max_block_ms)"
        )

    async def room(self, size: int, limit_s: float) -> None:
        """In the loop: wait until there may be room for so many records, at most so long."""
        deadline = trio.current_time() + limit_s
        while not self._has_ended and not self._mailbox.fits(size):
            if not await self._accepted.wait_until(deadline):
                return

    def _post(self, letter: Letter) -> None:
        if not self.offer(letter, self.room_timeout_s):
            self.refuse_for_want_of_room(letter)

    async def _run(self, client: TrioProducer) -> None:
        """In the loop: the producer and the task that feeds it, until the producer ends."""

        async def feed_and_deliver() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_letters, client)
                # Served here, too: a failure is noted before another task finds the producer closed by it.
                await self._serve(client.run)
                nursery.cancel_scope.cancel()

        try:
            await self._serve(feed_and_deliver)
        finally:  # whoever is refused now finds the failure noted
            self._has_ended = True
            self._accepted.tell()
            self._refuse([*self._taken, *self._mailbox.close()])

    async def _take_letters(self, client: TrioProducer) -> None:
        """Hand letters to the producer, in order."""
        while True:
            letters = self._taken = deque(await self._mailbox.take_all())
            self._accepted.tell()  # there is room again, whatever these have to wait for
            while letters:
                letter = letters.popleft()
                if isinstance(letter, _Mark):
                    letter.is_reached = True
                    self._accepted.tell()
                    continue
                topic, records, sink, partition, headers, timestamp_ms = letter
                if isinstance(records, EncodedBatches):
                    await client.accept_encoded(topic, records, sink, partition)
                    self._accepted_letters += 1
                    continue
                if len(records) == 1 and client.accept_now(topic, records[0], sink, partition, headers, timestamp_ms):
                    self._accepted_letters += 1
                    if self._accepted_letters % LETTERS_PER_CHECKPOINT == 0:
                        await trio.lowlevel.checkpoint()
                    continue
                await client.accept(
                    topic, records, sink, partition=partition, headers=headers, timestamp_ms=timestamp_ms
                )
                self._accepted_letters += 1
            self._accepted.tell()

    def _refuse(self, letters: Iterable[Letter | _Mark]) -> None:
        for letter in letters:
            if isinstance(letter, _Mark):
                continue
            error = ClientClosed("the producer was closed before it took the record")
            if self.failure is not None:
                error = self.ended_error()
                error.__cause__ = self.failure
            letter.sink.failed(error, len(letter.records))

    async def _flush(self, limit_s: float) -> None:
        deadline = trio.current_time() + limit_s
        mark = _Mark()
        self._mailbox.put_here(mark)
        while not mark.is_reached:
            if self._has_ended:
                raise ClientClosed("the producer was closed before all records were accepted for delivery")
            if not await self._accepted.wait_until(deadline):
                raise FlushTimedOut(f"not all records were accepted for delivery within {limit_s:g} s")
        await self._client.flush(max(0.0, deadline - trio.current_time()) * 1000)

    async def _flush_and_close(self, limit_s: float) -> None:
        try:
            await self._flush(limit_s)
        finally:
            self._client.stop()
            await self._client.finished()
