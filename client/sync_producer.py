"""The synchronous producer: records go into a mailbox, a task in the event loop takes them out in bursts.

Sending costs the calling thread a small object, and no lock. What waits in the mailbox and what the trio producer holds
are `buffer_memory` bytes at most, together; while that is full the caller waits (`max_block_ms`) or is refused
(`buffer_full`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, NoReturn, Unpack

import trio

from strandline.client.accumulator import EncodedBatch, EncodedBatches, Header, ToSend
from strandline.client.carried import told
from strandline.client.delivery import DeliveredBatch, DeliverySink, FailedBatch
from strandline.client.elsewhere import OF_CLIENTS, OF_PRODUCERS, answers_names_of_others
from strandline.client.errors import (
    BufferFull,
    ClientClosed,
    FlushTimedOut,
    RecordDropped,
    RequestTimedOut,
    SendsFailed,
)
from strandline.client.held_back import HeldBack, Mark
from strandline.client.options import ProducerOptions
from strandline.client.producer import TrioProducer
from strandline.client.record_checks import (
    Headers,
    Serializers,
    are_same,
    headers_of,
    partition_of,
    timestamp_of,
    topic_of,
)
from strandline.client.record_sizes import content_bytes, headers_bytes
from strandline.client.send_futures import Run, SendFuture, SendManyFuture, Where, send_future, waiting_bytes
from strandline.client.settings import EXIT_FLUSH_MS, ProducerSettings
from strandline.client.settings_help import shows_settings
from strandline.client.signals import News
from strandline.client.sync_client import GRACE_S, SyncClient
from strandline.protocol.types import TopicPartition
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.mistakes import warn
from strandline.runtime.processes.alarms import refuse_in_loop
from strandline.runtime.processes.mailbox import Mailbox
from strandline.runtime.processes.portal import CallTimedOut, ForkedPortal, PortalClosed, close_at_exit

MAILBOX_RECORDS = 10_000
"""Where so many records wait for the event loop, who sends waits for it, whatever `buffer_memory` is."""

FUTURE_BYTES = 200
"""What a record that is sent by itself takes until it is encoded, beside key and value: its future and their frames."""

LETTERS_PER_CHECKPOINT = 500
"""Single records taken without letting other tasks run: some 2 ms."""

RUN_RECORDS, RUN_BYTES = 2_000, 1_000_000
"""About the most that is accepted together."""

BURSTS = 8
"""What is taken out of the mailbox counts until all of it is accepted, though part of it counts as `buffer_memory` of
the trio producer by then; unless it is more than this part of that: then what is accepted is counted off bit by bit."""

WHERE = attrgetter("where")

Release = Callable[[int], None]

BUSY_S = 0.05
"""The least that who sends waits for the loop while memory is free, whatever `max_block_ms`."""

LEFT_SOMETHING = (FlushTimedOut, SendsFailed, ClientClosed, RequestTimedOut)
"""What closing may raise."""


@dataclass(frozen=True, slots=True)
class Letter:
    """Records on their way to the loop that are told of together."""

    topic: str
    records: Sequence[ToSend] | EncodedBatches
    sink: DeliverySink
    partition: int | None
    headers: Sequence[Header]
    timestamp_ms: int
    size_bytes: int

    where: ClassVar[None] = None
    """They are no part of a run."""


Mail = SendFuture | Letter | Mark


@answers_names_of_others(OF_CLIENTS, OF_PRODUCERS)
@shows_settings(ProducerSettings, ProducerOptions)
class Producer(SyncClient):
    """Sends records, for scripts and threads.

    with Producer("localhost:9092") as producer:
        producer.send("topic", b"value", key=b"key").result()
        producer.send_many("topic", [(b"key", b"value"), …])
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        environment: ClientEnvironment | None = None,
        on_batch: Callable[[DeliveredBatch | FailedBatch], None] | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> None:
        """`on_batch` is called in the event loop's thread for every settled batch; it must be quick and not raise."""
        super().__init__()

        async def make_and_serve() -> TrioProducer:
            client = TrioProducer(bootstrap_servers, environment=environment, on_batch=on_batch, **settings)
            self._mailbox = self._make_mailbox(client)
            self._held_back = HeldBack(
                partial(client._layout, partition=None),
                self._give_held,
                self._refuse_held,
                lambda: self._accepted.tell(),
            )
            self._portal.spawn(lambda: self._run(client))
            return client

        self._accepted_letters = 0
        self._taken: deque[tuple[Where | None, list[Mail]]] = deque()
        """What is out of the mailbox and not given to the producer yet, by runs."""
        self._where = Where("", 0, None, False, (), 0.0, FUTURE_BYTES)
        """Of the record sent last."""
        self._accepted = News()
        """Also of what was settled: there may be room."""
        self._has_ended = False
        """No letter will be accepted any more."""
        self._client = self._open(make_and_serve)
        self.settings = limits = self._client.settings
        self._serializers = Serializers(limits.key_serializer, limits.value_serializer)
        self._are_bytes = self._serializers == (None, None)
        self._max_block_s = limits.max_block_ms / 1000
        self._room_timeout_s = self._max_block_s if limits.buffer_full == "block" else max(self._max_block_s, BUSY_S)
        """How long who sends waits for room, where it does."""
        self._deadline_s = (limits.max_block_ms + limits.delivery_timeout_ms) / 1000 + GRACE_S
        self.now_ms = self._client.wall_clock.now_ms
        """The timestamp of a record that is sent now."""
        close_at_exit(self)  # last, as in `sync`

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Accept one record: key and value are bytes or None, unless there are serializers; headers a dict or pairs.

        Waits at most `max_block_ms` for room. Raises InvalidRecordValue (a TypeError), InvalidTopic, what a serializer
        raises, BufferFull, ClientClosed. What hinders the record later (an unknown topic, a record that is too large)
        is in the future; `flush` and `close` raise it if nobody asks that."""
        if not (self._are_bytes and type(value) is bytes and (key is None or type(key) is bytes)):
            key, value = self._serializers.key_and_value(key, value)
        stamp = self.now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        where = self._where
        if (
            where[1] != stamp
            or where[0] is not topic
            or where[2] is not partition
            or where[3] is (key is None)
            or ((headers or where[4]) and not are_same(headers, where[4]))
        ):
            where = self._where = Where(
                topic_of(topic),
                stamp,
                partition_of(partition),
                key is not None,
                own_headers := headers_of(headers),
                self._deadline_s,
                FUTURE_BYTES + headers_bytes(own_headers),
            )
        future = send_future(where, (key, value))
        size_bytes = where[6] + (len(value) if value else 0) + (len(key) if key else 0)
        try:  # as `_post`, with fewer calls
            if not self._mailbox.put(future, 1, size_bytes, self._room_timeout_s):
                self._refuse_for_want_of_room(future)
        except (ForkedPortal, PortalClosed) as error:
            self._raise_ended(error)
        return future

    def send_many(
        self,
        topic: str,
        records: Iterable[Sequence[Any]],
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> SendManyFuture:
        """Accept many (key, value) pairs, or many (key, value, headers, timestamp_ms), in order, with one crossing: the
        fast way. Lists of some thousand records are best; a list must not be changed afterwards. Raises as `send`, and
        nothing is accepted then."""
        topic_of(topic)
        listed = self._serializers.records(records if isinstance(records, list | tuple) else list(records))
        future = SendManyFuture(self._deadline_s, len(listed))
        stamp = self.now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        if listed:
            size_bytes = content_bytes(listed)
            self._post(Letter(topic, listed, future, partition_of(partition), (), stamp, size_bytes))
        return future

    def send_encoded(self, topic: str, batches: Sequence[EncodedBatch], partition: int | None = None) -> SendManyFuture:
        """See `TrioProducer.send_encoded`. InvalidRecordValue, BufferFull, ClientClosed."""
        encoded = EncodedBatches(batches)
        future = SendManyFuture(self._deadline_s, len(encoded))
        if batches:
            size_bytes = sum(len(batch.data) for batch in batches)
            self._post(Letter(topic_of(topic), encoded, future, partition_of(partition), (), -1, size_bytes))
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent before is settled, well or badly. FlushTimedOut after `timeout` seconds
        (default: as long as delivery can take). SendsFailed where something was not delivered and nobody has asked for
        its outcome."""
        limit_s = self._deadline_s if timeout is None else timeout
        self._call(self._flush, limit_s, timeout_s=limit_s + GRACE_S)
        self._raise_failures()

    def _raise_failures(self) -> None:
        """SendsFailed where something was not delivered and nobody has asked for its outcome."""
        self._client._raise_failures()

    async def _flush_in_loop(self, limit_s: float | None) -> None:
        """`flush` without SendsFailed, for who waits for it in the loop."""
        await self._flush(self._deadline_s if limit_s is None else limit_s)

    def close(self, timeout: float | None = None) -> None:
        """Flush for at most `timeout` seconds (default: as long as delivery can take), then stop; what is left fails.
        FlushTimedOut if something was left; SendsFailed as `flush`. Idempotent, never hangs. Where it is interrupted
        what is left fails, too, and the next `close` or the interpreter's end tells what was not delivered."""
        self._end(timeout)
        self._raise_failures()

    def _end(self, timeout: float | None) -> None:
        """`close` without SendsFailed."""
        if self._portal.is_foreign:
            self._closed = True
            return
        if self._closed:
            if not (self._has_ended or self._portal.is_current):  # its end was interrupted
                with suppress(PortalClosed, CallTimedOut):
                    self._portal.call(self._ended, timeout_s=GRACE_S)
            super().close()
            return
        refuse_in_loop()  # before anything is ended
        limit_s = self._deadline_s if timeout is None else timeout
        try:
            self._call(self._flush_and_close, limit_s, timeout_s=limit_s + GRACE_S)
        except FlushTimedOut as error:
            if (failures := self._client._take_failures()) is not None:
                raise FlushTimedOut(f"{error}; {failures}") from failures.cause
            raise
        except ClientClosed:
            if self._failure is not None:
                raise
            # Another thread has closed it meanwhile.
        finally:
            with suppress(PortalClosed, ForkedPortal):  # an interrupt may have kept the call from doing it
                self._portal.post(self._client.stop)
            self._refuse(self._mailbox.close())
            super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Close. After an error what was sent is flushed for `EXIT_FLUSH_MS` at most, and a note of the error says what
        was not delivered."""
        if error is None:
            self.close()
            return
        try:
            self.close(EXIT_FLUSH_MS / 1000)
        except LEFT_SOMETHING as besides:
            error.add_note(f"and closing the producer: {besides}")

    def _close_unasked(self) -> None:
        how = "the close of a Producer was interrupted" if self._closed else "a Producer was not closed"
        try:
            self.close(EXIT_FLUSH_MS / 1000)
        except LEFT_SOMETHING as error:
            warn(f"{how}: {error}")

    def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. UnknownTopic or what hindered it after `max_block_ms`."""
        return self._call(self._client.partitions_for, topic, timeout_s=self._max_block_s + GRACE_S)

    def waiting(self) -> dict[TopicPartition, Exception]:
        """See `TrioProducer.waiting`."""
        return self._now(self._client.waiting)

    metrics = told(TrioProducer.metrics)

    @property
    def delivered_records(self) -> int:
        """Records acknowledged so far."""
        return self._client.delivered_records

    @property
    def failed_records(self) -> int:
        """Records that were not delivered so far, whoever refused them or gave them up."""
        return self._client.failed_records

    # --- Letters ---

    def _make_mailbox(self, client: TrioProducer) -> Mailbox[Mail]:
        """Each is told where the other has to do with memory."""
        accumulator = client._accumulator
        mailbox: Mailbox[Mail] = Mailbox(
            self._portal,
            MAILBOX_RECORDS,
            client.settings.buffer_memory,
            accumulator,
            take_now=partial(self._take_now, client),
            waits_for_bytes=client.settings.buffer_full == "block",
            on_full=client._pump.wake,  # batches do not linger then
        )

        def on_settled() -> None:
            client._settled.tell()
            mailbox.tell_of_bytes()

        self._accepted = client._settled
        accumulator.on_settled = on_settled
        accumulator.is_awaited = lambda: mailbox.lacks_bytes
        return mailbox

    def _offer(self, letter: Letter, wait_s: float) -> bool:
        """Post it; False where there is no room for it within that time. ClientClosed."""
        try:
            return self._mailbox.put(letter, len(letter.records), letter.size_bytes, wait_s)
        except (ForkedPortal, PortalClosed) as error:
            self._raise_ended(error)

    def _refuse_for_want_of_room(self, letter: SendFuture | Letter) -> None:
        """What `buffer_full` says. BufferFull where nobody else is told."""
        if self.settings.buffer_full == "drop":
            text = "buffer_memory is full of records that wait for delivery; the record was dropped (buffer_full=drop)"
            with suppress(PortalClosed):
                self._portal.post(self._refuse, [letter], RecordDropped(text))
            return
        how_long = (
            f", and stayed so for {self._room_timeout_s * 1000:g} ms (max_block_ms)"
            if self.settings.buffer_full == "block"
            else " (buffer_full=raise)"
        )
        raise BufferFull(
            f"buffer_memory ({self.settings.buffer_memory} bytes) is full of records that wait for delivery{how_long}"
        )

    async def _room(self, size_bytes: int, limit_s: float) -> None:
        """In the loop: wait until there may be room for so many bytes, at most so long."""
        deadline = trio.current_time() + limit_s
        while not self._has_ended and not self._mailbox.fits(size_bytes) and not self._mailbox.is_hopeless(size_bytes):
            with nullcontext() if self._mailbox.has_bytes(size_bytes) else self._client._hurried():
                if not await self._accepted.wait_until(deadline):
                    return

    def _raise_ended(self, error: ForkedPortal | PortalClosed) -> NoReturn:
        """ClientClosed."""
        if isinstance(error, ForkedPortal):
            raise self._forked_error() from None
        if self._closed:
            raise ClientClosed("the producer is closed") from None
        raise self._ended_error() from self._failure

    def _post(self, letter: Letter) -> None:
        if not self._offer(letter, self._room_timeout_s):
            self._refuse_for_want_of_room(letter)

    async def _run(self, client: TrioProducer) -> None:
        """In the loop: the producer and the task that feeds it, until the producer ends."""

        async def feed_and_deliver() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._take_letters, client, nursery)
                # Served here, too: a failure is noted before another task finds the producer closed by it.
                await self._serve(client.run)
                nursery.cancel_scope.cancel()

        try:
            await self._serve(feed_and_deliver)
        finally:  # whoever is refused now finds the failure noted
            self._has_ended = True
            self._accepted.tell()
            left = [letter for _, letters in self._taken for letter in letters]
            self._taken.clear()
            self._refuse([*self._held_back.take_all(), *left, *self._mailbox.close()])

    def _take_now(self, client: TrioProducer, mail: Mail) -> bool:
        """A record that is alone goes to its broker at once: who sent it may wait for the outcome."""
        if not isinstance(mail, SendFuture) or self._held_back.has(mail.where.topic) or not client._send_now(mail):
            return False
        mail.pair = None
        return True

    async def _take_letters(self, client: TrioProducer, nursery: trio.Nursery) -> None:
        """Hand letters to the producer, in order."""
        held_back, mailbox = self._held_back, self._mailbox
        while True:
            letters = await mailbox.take_all()
            is_much = mailbox.held_bytes - held_back.kept_bytes > client.settings.buffer_memory // BURSTS
            release = mailbox.release if is_much else None
            self._taken.extend((where, list(run)) for where, run in groupby(letters, WHERE))
            self._accepted.tell()  # there is room again, whatever these have to wait for
            while self._taken:
                where, run = self._taken[0]
                topic = run[0].topic if isinstance(run[0], Letter) else where and where.topic
                if topic is not None and (held_back.has(topic) or not client._knows(topic)):
                    held = [run.pop(0)] if where is None else [*run]
                    if where is not None:
                        run.clear()
                    held_back.add(topic, where, held, waiting_bytes(where, held), nursery)
                else:
                    await self._take_some(client, where, run, release)
                if not run:
                    self._taken.popleft()
            mailbox.keep(held_back.kept_bytes)
            self._accepted.tell()

    async def _give_held(self, where: Where | None, letters: list[Any]) -> None:
        await self._take_some(self._client, where, letters, self._release_held)

    def _refuse_held(self, letters: list[Any], error: Exception) -> None:
        self._release_held(waiting_bytes(letters[0].where, letters))
        self._refuse(letters, error)

    def _release_held(self, size_bytes: int) -> None:
        self._held_back.kept_bytes -= size_bytes
        self._mailbox.release_kept(size_bytes)
        self._accepted.tell()  # who waits for room in the loop

    async def _take_some(
        self, client: TrioProducer, where: Where | None, letters: list[Any], release: Release | None
    ) -> None:
        """The first of them, or as many of a run as are accepted together. `release` is told of the bytes that they
        took, unless these are counted off otherwise."""
        if where is None:
            await self._take_letter(client, letters.pop(0), release)
            return
        run = Run(letters[:RUN_RECORDS])
        size_bytes = run.waiting_bytes if release else 0
        if size_bytes > RUN_BYTES:
            run = Run(letters[: max(1, len(run) * RUN_BYTES // size_bytes)])
            size_bytes = run.waiting_bytes
        del letters[: len(run)]
        try:
            await client._accept_run(where, run)
        finally:
            run.forget_records()
            if release:
                release(size_bytes)

    async def _take_letter(self, client: TrioProducer, letter: Mail, release: Release | None) -> None:
        """One that stands by itself."""
        if isinstance(letter, Mark):
            self._held_back.pass_mark(letter)
            self._accepted.tell()
            return
        assert isinstance(letter, Letter)
        topic, records, sink, stamp = letter.topic, letter.records, letter.sink, letter.timestamp_ms
        partition, headers = letter.partition, letter.headers
        if isinstance(records, EncodedBatches):
            await client._accept_encoded(topic, records, sink, partition)
        elif len(records) > 1 or not client._accept_now(topic, records[0], sink, partition, headers, stamp):
            await client._accept(topic, records, sink, partition=partition, headers=headers, timestamp_ms=stamp)
        else:
            self._accepted_letters += 1
            if self._accepted_letters % LETTERS_PER_CHECKPOINT == 0:
                await trio.lowlevel.checkpoint()
        if release:
            release(letter.size_bytes)

    def _refuse(self, letters: Iterable[Mail], reason: Exception | None = None) -> None:
        """Those that the producer was not given. Without a reason: it was closed before."""
        for letter in letters:
            error = reason or ClientClosed("the producer was closed before it took the record")
            if reason is None and self._failure is not None:
                error = self._ended_error()
                error.__cause__ = self._failure
            if isinstance(letter, SendFuture):
                letter.pair = None
                self._client._refuse(Run([letter]), error, 1)
            elif isinstance(letter, Letter):
                self._client._refuse(letter.sink, error, len(letter.records))

    async def _flush(self, limit_s: float) -> None:
        deadline = trio.current_time() + limit_s
        mark = Mark()
        if self._taken or not (self._held_back.is_empty and self._mailbox.is_empty):
            self._mailbox.put_here(mark)
        else:  # no time is needed, and there may be none
            mark.is_reached = not self._has_ended
        while not mark.is_reached:
            if self._has_ended:
                raise ClientClosed("the producer was closed before all records were accepted for delivery")
            # What was accepted does not linger while others wait for their topic.
            with self._client._hurried() if mark.waits_for else nullcontext():
                if not await self._accepted.wait_until(deadline):
                    raise FlushTimedOut(f"not all records were accepted for delivery within {limit_s:g} s")
        await self._client._all_settled(max(0.0, deadline - trio.current_time()) * 1000)

    async def _flush_and_close(self, limit_s: float) -> None:
        try:
            await self._flush(limit_s)
        finally:
            self._client.stop()
            await self._ended()

    async def _ended(self) -> None:
        """Wait until every record is settled that the producer was given, or was to be given."""
        while not self._has_ended:
            await self._accepted.wait_until(math.inf)
