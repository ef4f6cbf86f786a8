"""The producer, trio-native: takes records, batches them per partition, delivers them in order.

    async with TrioProducer("localhost:9092", acks="all") as producer:
        delivery = await producer.send("topic", b"value", key=b"key")
        print((await delivery).offset)

Rules: order is kept per partition, also over retries; sending waits only for memory and for the topic's layout, both
bounded by `max_block_ms`; every accepted record is settled within `delivery_timeout_ms`. Memory and batches are in
`accumulator`, decisions in `sender`.

With acks=all (the default) the producer is idempotent (`enable_idempotence`; rules in `numbering`): each accepted
record stands in the log at most once, in the order of sending, however often it was sent, whoever led and whatever
became of answers; exactly once where its delivery succeeds. Where it fails, `outcome_unknown` tells whether the record
may be there, as without idempotence. A record is given up rather than doubled: where one before it is lost for good,
after its timeout say, and the leader refuses what followed, that fails, too, if it may be in the log. All this holds
for one producer object: what a program sends again by itself is another record, unless it gives the producer its
identity (`ProducerIdentity`): then records sent again under the same numbers are refused (SequenceTaken).

Otherwise a batch whose answer was lost is sent again and may stand twice: `retried` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Unpack

import trio

from strandline.client import metrics
from strandline.client.accumulator import (
    Accumulator,
    EncodedBatch,
    EncodedBatches,
    Header,
    PartitionQueue,
    RefusedRecord,
    ToSend,
)
from strandline.client.delivery import (
    DeliveredBatch,
    Delivery,
    DeliverySink,
    FailedBatch,
    ManyDelivery,
)
from strandline.client.errors import (
    BufferFull,
    ClientClosed,
    ClientError,
    FlushTimedOut,
    RecordDropped,
    RecordTooLarge,
    SendsFailed,
    UnknownTopic,
)
from strandline.client.keyless import KeylessPartitions
from strandline.client.links import Links
from strandline.client.metadata import Metadata, TopicView
from strandline.client.options import ProducerOptions
from strandline.client.partitioner import by_partition, checked, partition_for_key
from strandline.client.record_checks import (
    Headers,
    Serializers,
    headers_of,
    partition_of,
    timestamp_of,
    topic_of,
)
from strandline.client.run_acceptance import RunAcceptance, refusal
from strandline.client.sender import Sender
from strandline.client.settings import EXIT_FLUSH_MS, ProducerSettings, from_mapping
from strandline.client.settings_help import shows_settings
from strandline.client.signals import News, Pump
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.runtime.client_environment import ClientEnvironment, production_client_environment
from strandline.runtime.exception_groups import first_cause

RECORDS_PER_CHUNK = 2_000
"""Records taken without letting other tasks run: some 3 ms."""


@shows_settings(ProducerSettings, ProducerOptions)
class TrioProducer(RunAcceptance):
    """Sends records, for trio programs. `on_batch` is told of every settled batch.

    Either used as an async context manager, or its `run` is started in a nursery of one's own.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        environment: ClientEnvironment | None = None,
        on_batch: Callable[[DeliveredBatch | FailedBatch], None] | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> None:
        super().__init__()
        self.settings = from_mapping(ProducerSettings, {"bootstrap_servers": bootstrap_servers, **settings})
        self._serializers = Serializers(self.settings.key_serializer, self.settings.value_serializer)
        self._environment = environment or production_client_environment()
        self.wall_clock = self._environment.wall_clock
        """Stamps records that have no timestamp of their own."""
        self._pump = Pump()
        self._settled = News()
        self._finished = trio.Event()
        self._failure: Exception | None = None
        """What ended `run` although nobody closed or cancelled it."""
        self._metadata = Metadata(
            self.settings,
            self._environment,
            on_change=self._pump.wake,
            allow_auto_topic_creation=self.settings.allow_auto_create_topics,
        )
        links = Links(self.settings, self._environment, self._metadata, self._pump.wake)
        self._links = links
        self._accumulator = Accumulator(self.settings, on_batch, on_settled=self._settled.tell)
        self._metadata.held_topics = self._accumulator.topics
        self._sender = Sender(self.settings, self._accumulator, self._metadata, links, self._pump.wake)
        self._partition_for_key = checked(self.settings.partitioner) if self.settings.partitioner else partition_for_key
        self._keyless = KeylessPartitions(self._accumulator, links, self._environment.random)
        self._since_checkpoint = 0

    # --- Sending ---

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Accept one record; the delivery tells what becomes of it. Key and value are bytes or None, unless there are
        serializers; headers a dict or pairs.

        Errors, nothing accepted: InvalidRecordValue (a TypeError), InvalidTopic, what a serializer raises; BufferFull
        and UnknownTopic or what else hindered it after `max_block_ms`, RecordTooLarge, ClientClosed.
        """
        topic_of(topic)
        pair = self._serializers.key_and_value(key, value)
        own_headers = headers_of(headers)
        stamp = self.now_ms() if timestamp_ms is None else timestamp_of(timestamp_ms)
        delivery = Delivery(stamp)
        await self._checkpoint(1)  # before: who is cancelled has sent nothing
        if self._accept_now(topic, pair, delivery, partition_of(partition), own_headers, stamp):
            return delivery
        try:
            error = await self._accept(
                topic, [pair], delivery, partition=partition, headers=own_headers, timestamp_ms=stamp
            )
        except trio.Cancelled:
            delivery.exception()  # it counts as read: whoever cancels has sent nothing, and knows that
            raise
        if error is not None and not isinstance(error, RecordDropped):
            delivery.exception()  # it counts as read: it is raised here
            raise error
        return delivery

    async def send_many(
        self,
        topic: str,
        records: Iterable[Sequence[Any]],
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ManyDelivery:
        """Accept many (key, value) pairs, or many (key, value, headers, timestamp_ms), in order; one delivery settles
        for all of them, batch by batch. A record that is not accepted counts as failed there. Nothing is accepted after
        InvalidRecordValue (a TypeError), InvalidTopic and what a serializer raises."""
        topic_of(topic)
        listed = self._serializers.records(records if isinstance(records, list | tuple) else list(records))
        stamp = None if timestamp_ms is None else timestamp_of(timestamp_ms)
        delivery = ManyDelivery(len(listed))
        await self._accept(topic, listed, delivery, partition=partition_of(partition), timestamp_ms=stamp)
        return delivery

    async def send_encoded(
        self, topic: str, batches: Sequence[EncodedBatch], *, partition: int | None = None
    ) -> ManyDelivery:
        """As `send_many`, of batches that are built already, all for one partition; None: each for one that has a
        leader, in no order. For who can do that for many records at once. They are given away: the producer writes its
        numbers into them. InvalidRecordValue."""
        encoded = EncodedBatches(batches)
        delivery = ManyDelivery(len(encoded))
        await self._accept_encoded(topic, encoded, delivery, partition)
        return delivery

    def _accept_now(
        self,
        topic: str,
        record: ToSend,
        sink: DeliverySink,
        partition: int | None,
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> bool:
        """The short way for one record: it joins the batch that is open for its partition, or opens one. False, and it
        was not accepted, if anything is unusual: then `_accept` knows what to do or say."""
        try:
            layout = self._metadata.view.topics.get(topic)
            if layout is None or not layout.partitions or self._closed:
                return False
            key = record[0]
            is_keyless = partition is None and key is None
            queue: PartitionQueue | None
            if is_keyless:
                queue = self._keyless.current(layout)
            else:
                if partition is None:
                    assert key is not None
                    partition = self._partition_for_key(key, len(layout.partitions))
                # The tuple is equal to the key, and made faster.
                queue = self._accumulator.queues.get((topic, partition))  # type: ignore[call-overload]
                if queue is None:
                    return False
            if queue.add(timestamp_ms, record, sink, headers):
                return True
            if is_keyless and queue.builder is not None:
                queue = self._keyless.after_full(layout, queue)
                self._pump.wake()
                if queue.add(timestamp_ms, record, sink, headers):
                    return True
            if not self._accumulator.open_batch(queue, record, headers, trio.current_time()):
                return False
            self._pump.wake()
            return queue.add(timestamp_ms, record, sink, headers)
        except Exception:  # whatever is wrong with the record, or with the program's partitioner
            return False

    async def _accept(
        self,
        topic: str,
        records: Sequence[ToSend],
        sink: DeliverySink,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Exception | None:
        """What `send` and `send_many` are made of: `sink` is told of every record, also of those not accepted. The
        last error that kept a record out is returned."""
        stamp = self.now_ms() if timestamp_ms is None else timestamp_ms
        left = len(records)
        refused: Exception | None = None
        try:
            layout = await self._layout(topic, partition=partition)
            for begin in range(0, len(records), RECORDS_PER_CHUNK):
                chunk = records[begin : begin + RECORDS_PER_CHUNK] if left > RECORDS_PER_CHUNK or begin else records
                await self._checkpoint(len(chunk))
                groups = by_partition(chunk, partition, len(layout.partitions), self._partition_for_key)
                for number, group in groups.items():
                    is_keyless = number is None
                    queue = (
                        self._keyless.current(layout)
                        if number is None
                        else self._accumulator.queue(TopicPartition(topic, number))
                    )
                    start = 0
                    while (stop := queue.extend(stamp, group, start, sink, headers)) < len(group):
                        left -= stop - start
                        start = stop
                        if is_keyless and queue.builder is not None:
                            queue = self._keyless.after_full(layout, queue)
                            self._pump.wake()
                            if queue.builder is not None:
                                continue  # another one's batch, which may have room
                        try:
                            await self._take_in(partial(self._accumulator.open_batch, queue, group[start], headers))
                        except RecordTooLarge as error:
                            refused = error
                            self._refuse(sink, error, 1)
                            start, left = start + 1, left - 1
                    left -= stop - start
        except ClientError as error:
            refused = error
        except RefusedRecord as error:
            left -= error.index - start
            refused = refusal(topic, error.__cause__)
        except Exception as error:
            refused = refusal(topic, error)
        except BaseException as error:
            self._refuse(sink, self._reason(error), left)
            raise
        if left and refused is not None:
            self._refuse(sink, refused, left)
        return refused

    async def _accept_encoded(
        self, topic: str, encoded: EncodedBatches, sink: DeliverySink, partition: int | None
    ) -> None:
        """What `send_encoded` is made of: `sink` is told of every record, also of those not accepted."""
        left = len(encoded)
        try:
            layout = await self._layout(topic, partition=partition)
            for batch in encoded.batches:
                await self._checkpoint(batch.records_count)
                queue = (
                    self._keyless.current(layout)
                    if partition is None
                    else self._accumulator.queue(TopicPartition(topic, partition))
                )
                await self._take_in(partial(self._accumulator.add_encoded, queue, batch, sink))
                left -= batch.records_count
        except ClientError as error:
            self._refuse(sink, error, left)
        except BaseException as error:
            self._refuse(sink, self._reason(error), left)
            raise

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything accepted before is settled, well or badly; batches no longer linger meanwhile.
        FlushTimedOut after `timeout_ms` (default: delivery_timeout_ms). SendsFailed where something was not delivered
        and nobody has asked for its outcome."""
        await self._all_settled(timeout_ms)
        self._raise_failures()

    def _raise_failures(self) -> None:
        """SendsFailed where something was not delivered and nobody has asked for its outcome."""
        if (failures := self._take_failures()) is not None:
            raise failures

    def _take_failures(self) -> SendsFailed | None:
        """What `raise_failures` would raise; it counts as told."""
        return self._accumulator.unread.take()

    @contextmanager
    def _hurried(self) -> Iterator[None]:
        """Meanwhile batches do not linger."""
        self._sender.hurry += 1
        self._pump.wake()
        try:
            yield
        finally:
            self._sender.hurry -= 1

    async def _all_settled(self, timeout_ms: float | None = None) -> None:
        """As `flush`, of which nothing is raised but FlushTimedOut."""
        limit_ms = self.settings.delivery_timeout_ms + 1_000 if timeout_ms is None else timeout_ms
        number = self._accumulator.next_number()
        deadline = trio.current_time() + limit_ms / 1000
        with self._hurried():
            while not self._accumulator.all_settled_before(number):
                in_time = await self._settled.wait_until(deadline)
                if not in_time and not self._accumulator.all_settled_before(number):
                    raise FlushTimedOut(
                        f"{len(self._accumulator.outstanding)} batches are still under way after {limit_ms:g} ms; "
                        f"last cause: {self._sender.last_cause()}"
                    )

    async def close(self, timeout_ms: float | None = None) -> None:
        """Flush for at most `timeout_ms` (default: delivery_timeout_ms), then stop; what is left fails with
        DeliveryTimeout, as it does after `stop`. Idempotent, never hangs. FlushTimedOut if something was left;
        SendsFailed as `flush`."""
        if self._closed:
            return
        self._closed = True
        try:
            await self.flush(timeout_ms)
        finally:
            self.stop()

    async def finished(self) -> None:
        """Wait until `run` has ended and every record is settled."""
        await self._finished.wait()

    def now_ms(self) -> int:
        """The timestamp of a record that is sent now."""
        return self.wall_clock.now_ms()

    async def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. UnknownTopic or what else hindered it after `max_block_ms`."""
        return sorted((await self._layout(topic)).partitions)

    def waiting(self) -> dict[TopicPartition, Exception]:
        """The partitions whose records cannot be delivered now, and why: nobody leads them, the leader is out of reach
        or refuses. They are sent again until `delivery_timeout_ms` is over."""
        return self._sender.waiting(trio.current_time())

    def metrics(self) -> dict[str, float]:
        """Numbers about this producer, under Kafka's names, as of now.

        Totals: record-send-total (acknowledged), record-error-total (given up), record-retry-total (acknowledged after
        more than one attempt), byte-total (of acknowledged batches, compressed), batch-send-total, request-total.
        Of the last 30 to 60 s: batch-size-avg (bytes), records-per-request-avg, request-latency-avg and
        request-latency-max (ms), produce-throttle-time-avg and produce-throttle-time-max (ms that answers say a quota
        holds this client). Now: batches-waiting (not settled), buffer-total-bytes, buffer-available-bytes,
        connection-count, requests-in-flight, metadata-age (ms; −1: never heard, or closed). batch-send-total and
        batches-waiting are our own names.
        """
        now = self._now_s()
        return {
            **metrics.of_sending(self._accumulator, self._sender.records_per_request, now),
            **metrics.of_connections(self._links, now),
            **metrics.of_throttling("produce", self._links, now),
        }

    @property
    def delivered_records(self) -> int:
        """Records acknowledged so far."""
        return self._accumulator.delivered_records

    @property
    def failed_records(self) -> int:
        """Records that were not delivered so far, whoever refused them or gave them up."""
        return self._accumulator.failed_records

    # --- Tasks ---

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until `close`; when cancelled, what is left fails."""
        try:
            with self._serving():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._metadata.run)
                    nursery.start_soon(self._links.run)
                    task_status.started()
                    await self._pump.run(self._sender.pump)
        except* Exception as failures:
            self._failure = first_cause(failures)
            raise
        finally:
            self._closed = True
            try:
                self._sender.give_up_everything(str(self._closed_error("the producer was closed")))
            finally:
                self._finished.set()

    async def _end_block(self, error: BaseException | None) -> None:
        """After an error what was sent is flushed for `EXIT_FLUSH_MS` at most, unless the block was cancelled, and a
        note of the error says what was not delivered."""
        try:
            await self.close(None if error is None else EXIT_FLUSH_MS)
        except (FlushTimedOut, SendsFailed) as besides:
            if error is None:
                raise
            error.add_note(f"and closing the producer: {besides}")
        finally:
            self.stop()

    # --- Accepting ---

    def _closed_error(self, text: str) -> ClientClosed:
        if self._failure is None:
            return ClientClosed(text)
        error = ClientClosed(f"{text}: {self._failure!r} ended the producer")
        error.__cause__ = self._failure
        return error

    def _knows(self, topic: str) -> bool:
        """Accepting records for it waits for no metadata; or nobody accepts anything any more."""
        known = self._metadata.view.topics.get(topic)
        return self._closed or (known is not None and bool(known.partitions))

    async def _layout(self, topic: str, since: float | None = None, partition: int | None = None) -> TopicView:
        if self._closed:
            raise self._closed_error("the producer is closed")
        known = self._metadata.view.topics.get(topic)
        if known is None or not known.partitions:
            await self._raise_unless_running()
            limit_ms = self.settings.max_block_ms
            known = await self._metadata.topic(topic, timeout_ms=limit_ms, setting="max_block_ms", since=since)
        if partition is not None and partition not in known.partitions:
            raise UnknownTopic(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {partition}, only {len(known.partitions)} of them",
            )
        return known

    async def _take_in(self, take: Callable[[float], bool]) -> None:
        """`take(now)`, which says whether there was memory for it, and waiting for that if the policy says so."""
        if self._finished.is_set():  # nobody would send it, nor say so
            raise self._closed_error("the producer is closed")
        if take(trio.current_time()):
            self._pump.wake()
            return
        policy = self.settings.buffer_full
        text = f"buffer_memory ({self.settings.buffer_memory} bytes) is full of records that wait for delivery"
        if policy == "drop":
            raise RecordDropped(f"{text}; the record was dropped (buffer_full=drop)")
        if policy == "raise":
            raise BufferFull(f"{text} (buffer_full=raise)")
        deadline = trio.current_time() + self.settings.max_block_ms / 1000
        with self._hurried():
            while trio.current_time() < deadline:
                await self._settled.wait_until(deadline)
                if self._closed:
                    raise self._closed_error("the producer was closed while a record waited for buffer_memory")
                if take(trio.current_time()):
                    self._pump.wake()
                    return
        raise BufferFull(
            f"{text} for {self.settings.max_block_ms:g} ms (max_block_ms); last cause: {self._sender.last_cause()}"
        )

    async def _checkpoint(self, records_count: int) -> None:
        self._since_checkpoint += records_count
        if self._since_checkpoint >= RECORDS_PER_CHUNK // 4:
            self._since_checkpoint = 0
            await trio.lowlevel.checkpoint()
