"""From batches to brokers: decides what is sent when, and what an answer or its absence means for each batch.

`pump` is a plain function, called whenever something changed and when the time it returned has come; it
  1 gives up what is past its delivery timeout,
  2 closes open batches that waited long enough (`batch_closing`: linger, a flush, no memory left),
  3 sends per leader what is ready, at most one group per partition (invariant 18; more where batches are numbered, see
    `numbering`) and a few requests per broker.

What is known after an error decides what callers are told: an error in `APPENDED_NOTHING` leaves the log as it was;
after any other one, or none, the batch may stand in the log (invariant 15), and a batch sent again without numbers is
marked `retried`. One that is too large for its topic is split (`batch_splitting`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate

import trio

from strandline.client.accumulator import Accumulator, Batch, PartitionQueue
from strandline.client.batch_closing import BatchClosing
from strandline.client.batch_failures import APPENDED_NOTHING, failed, given_up_with, is_known, taken, too_late
from strandline.client.batch_splitting import can_be_split, halves
from strandline.client.errors import (
    BrokerMisbehaved,
    DeliveryFailed,
    ProducerFenced,
    error_for,
    no_answer,
)
from strandline.client.links import Link, Links
from strandline.client.metadata import SILENT_AFTER_S, Metadata, backoff_ms
from strandline.client.numbering import (
    FORGOTTEN_AFTER_S,
    MAX_IN_FLIGHT,
    NUMBERS_REFUSED,
    AskedIdentity,
    Numbering,
)
from strandline.client.pipelined import PipelinedConnection
from strandline.client.request_bounds import ALL_ASKED, MAX_ASKED
from strandline.client.samples import Samples
from strandline.client.settings import ProducerSettings
from strandline.client.takeovers import takeover_wait_ms
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    Message,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.protocol.types import NO_BROKER, NO_OFFSET, NO_TOPIC_ID, TopicPartition
from strandline.runtime.disk import Buffer

Group = tuple[PartitionQueue, list[Batch]]


class Sender:
    """One per producer. Everything runs in the event loop's thread, nothing here waits."""

    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: Accumulator,
        metadata: Metadata,
        links: Links,
        wake: Callable[[], None],
    ) -> None:
        self.hurry = 0
        """While above 0 (a flush, or a task waits for memory) batches do not linger."""
        self.records_per_request = Samples()
        self._settings = settings
        self._accumulator = accumulator
        self._metadata = metadata
        self._links = links
        self._wake = wake
        self._closing = BatchClosing(settings, accumulator, metadata, links)
        self._identity = AskedIdentity(settings, links.environment, wake)
        self._fenced: ProducerFenced | None = None
        """A later epoch of the given identity writes: nothing more is sent."""

    def pump(self, now: float) -> float:
        """Do what can be done now; the time at which there is more to do if nothing happens before."""
        next_time = math.inf
        is_hurried = self.hurry > 0 or self._accumulator.is_awaited()
        sendable: dict[int, list[PartitionQueue]] = {}
        for queue in list(self._accumulator.active.values()):
            self._expire(queue, now)
            self._end_if_over(queue)
            due = self._closing.close_if_due(queue, now, is_hurried=is_hurried)
            next_time = min(next_time, due, self._next_expiry(queue))
            if queue.is_empty:
                del self._accumulator.active[queue.topic_partition]
                continue
            if queue.in_flight:
                next_time = min(next_time, self._watch(queue, now))
            if not _has_next(queue):
                continue
            if queue.retry_at > now:
                next_time = min(next_time, queue.retry_at)
                continue
            partition = self._metadata.view.partition(queue.topic_partition)
            if partition is None or partition.leader == NO_BROKER:
                self._metadata.request_update()
            elif not queue.in_flight or partition.leader == queue.sent_to:
                sendable.setdefault(partition.leader, []).append(queue)
        next_time = min(next_time, self._closing.close_gathered(sendable, now))
        for leader, queues in sendable.items():
            link = self._links.to(leader)
            numbered = [queue for queue in queues if self._has_numbers(queue)]
            if len(numbered) < len(queues) and (connection := link.want()) is not None:
                next_time = min(next_time, self._identity.ask(connection, now))
            self._send_to(link, [queue for queue in numbered if queue.ready], now)
            next_time = min(next_time, now + SILENT_AFTER_S)
        return next_time

    def give_up_everything(self, why: str) -> None:
        """The producer closes: settle what is left."""
        _settle_all(self._last_settlements(why))

    def _last_settlements(self, why: str) -> Iterator[Callable[[], None]]:
        queues = list(self._accumulator.active.values())
        for queue in queues:
            if queue.builder is not None:
                yield partial(self._accumulator.close_batch, queue)  # its batch is ready only after that
        self._accumulator.active.clear()
        for queue in queues:
            for batch in queue.in_flight:
                batch.maybe_appended = True
            left = [*queue.in_flight, *queue.ready]
            queue.in_flight = []
            queue.ready.clear()
            for batch in left:
                yield partial(self._accumulator.give_up, batch, too_late(batch, why, self._cause(batch)))

    # --- 1 and 2: time ---

    def _expire(self, queue: PartitionQueue, now: float) -> None:
        for batch in queue.in_flight:
            if batch.deadline <= now and not batch.done:
                batch.maybe_appended = True
                self._give_up(queue, batch, too_late(batch, self._timeout_reason(), self._cause(batch)))
        while queue.ready and queue.ready[0].deadline <= now:
            batch = queue.ready[0]
            self._give_up(queue, batch, too_late(batch, self._timeout_reason(), self._cause(batch)))
            del queue.ready[0]

    def _over(self, queue: PartitionQueue) -> DeliveryFailed | None:
        """Why nothing more is sent with given numbers."""
        if queue.numbering is None or not queue.numbering.is_given:
            return None
        return self._fenced or queue.numbering.failure

    def _end_if_over(self, queue: PartitionQueue) -> None:
        if (why := self._over(queue)) is None:
            return
        if queue.builder is not None:
            self._accumulator.close_batch(queue)
        left = list(queue.ready)
        queue.ready.clear()
        _settle_all(partial(self._accumulator.give_up, batch, given_up_with(why, batch)) for batch in left)

    def _give_up(self, queue: PartitionQueue, batch: Batch, failure: DeliveryFailed) -> None:
        """Before its time, so that nothing may follow it with given numbers."""
        if queue.numbering is not None and queue.numbering.is_given:
            queue.numbering.note_failure(failure)
            if isinstance(failure, ProducerFenced):
                self._fenced = self._fenced or failure
        self._accumulator.give_up(batch, failure)

    def _next_expiry(self, queue: PartitionQueue) -> float:
        first_open = next((batch.deadline for batch in queue.in_flight if not batch.done), math.inf)
        return min(first_open, queue.ready[0].deadline if queue.ready else math.inf)

    # --- 3: sending ---

    def _has_numbers(self, queue: PartitionQueue) -> bool:
        """Whether the queue's next batch has numbers, or can be given some, or needs none. What is left of former
        numbers is given up where it may be in the log."""
        numbering, producer_id = queue.numbering, self._identity.producer_id
        if numbering is None or not numbering.is_void:
            return True
        if producer_id is None:
            return False
        if not numbering.begin(producer_id):
            self._identity.renew(producer_id)
            return False
        text = "a batch before it was lost, and under a new number it might stand twice"
        _settle_all(
            partial(self._accumulator.give_up, batch, failed(batch, batch.last_error or text))
            for batch in queue.take_back_numbers()
        )
        return True

    def _send_to(self, link: Link, queues: Sequence[PartitionQueue], now: float) -> None:
        """As many requests as the broker may have, each with one group per partition."""
        connection = link.want()
        left = deque(queues)
        while left and connection is not None and self._may_send(connection):
            groups: list[Group] = []
            room = self._settings.max_request_size
            while left and len(groups) < MAX_ASKED and (not groups or room >= len(left[0].ready[0].data)):
                queue = left.popleft()
                if not queue.in_flight:
                    if queue.numbering is not None and now - queue.sent_at > FORGOTTEN_AFTER_S:
                        queue.numbering.is_proven = False
                    queue.sent_at, queue.sent_to = now, link.broker_id
                group = queue.take(room)
                room -= sum(len(batch.data) for batch in group)
                groups.append((queue, group))
            self._submit(link, connection, groups)
            left.extend(queue for queue, _ in groups if _has_next(queue) and queue.retry_at <= now)

    def _watch(self, queue: PartitionQueue, now: float) -> float:
        """The group under way is answered late: if another broker leads by now, the old one's answer can only be an
        error. When to look again."""
        due = queue.sent_at + SILENT_AFTER_S
        if now < due:
            return due
        self._metadata.request_update()
        partition = self._metadata.view.partition(queue.topic_partition)
        if partition is not None and partition.leader not in (NO_BROKER, queue.sent_to):
            self._links.to(queue.sent_to).drop(f"no answer, and broker {partition.leader} leads now")
        return now + 1.0

    def _may_send(self, connection: PipelinedConnection) -> bool:
        if connection.closed or connection.sending:
            return False
        return connection.in_flight < self._settings.max_in_flight_requests_per_connection

    def _submit(self, link: Link, connection: PipelinedConnection, groups: list[Group]) -> None:
        topics: dict[str, list[PartitionProduceData]] = {}
        in_order: dict[str, list[Buffer]] = {}
        for queue, group in groups:
            topic, partition = queue.topic_partition
            size = sum(len(batch.data) for batch in group)
            topics.setdefault(topic, []).append(PartitionProduceData(partition, size))
            in_order.setdefault(topic, []).extend(batch.data for batch in group)
            for batch in group:
                batch.attempts += 1
        known = self._metadata.view.topics
        request = ProduceRequest(
            self._settings.acks,
            int(self._settings.request_timeout_ms),
            [
                TopicProduceData(name, parts, known[name].topic_id if name in known else NO_TOPIC_ID)
                for name, parts in topics.items()
            ],
        )
        attachments = [data for parts in in_order.values() for data in parts]
        on_answer = None if self._settings.acks == 0 else self._answer_handler(link, groups)
        records = sum(batch.records_count for _, group in groups for batch in group)
        try:
            # The broker may use all of request_timeout_ms for its followers; its answer then needs a moment, too.
            connection.submit(request, attachments, self._settings.request_timeout_ms + 1_000, on_answer)
        except Exception as error:
            for queue, group in groups:
                for batch in group:
                    batch.attempts -= 1
                self._failed(queue, group, error, sent=False)
            return
        now = trio.current_time()
        self.records_per_request.add(records, now)
        if on_answer is None:
            for queue, group in groups:
                queue.landed(group, now)
                _settle_all(partial(self._accumulator.deliver, batch, -1, -1, now) for batch in group)
            self._wake()

    def _answer_handler(self, link: Link, groups: list[Group]) -> Callable[[Message | Exception, memoryview], None]:
        def on_answer(answer: Message | Exception, _: memoryview) -> None:
            try:
                if isinstance(answer, ProduceResponse):
                    self._answered(link, groups, answer)
                else:
                    assert isinstance(answer, Exception)
                    for queue, group in groups:
                        self._failed(queue, group, answer, sent=True)
            finally:
                active = self._accumulator.active
                for queue, _group in groups:
                    if queue.is_empty:
                        active.pop(queue.topic_partition, None)
                if active:  # a turn for nothing would keep back who waits for this answer
                    self._wake()

        return on_answer

    # --- Answers ---

    def _answered(self, link: Link, groups: list[Group], answer: ProduceResponse) -> None:
        by_partition: dict[tuple[str, int], PartitionProduceResponse] = {
            (topic.name, part.index): part for topic in answer.responses for part in topic.partition_responses
        }
        if (refusal := by_partition.get(ALL_ASKED)) is not None and refusal.error_code == ErrorCode.NONE:
            refusal = None
        who = link.connection.name if link.connection is not None else f"broker {link.broker_id}"
        for queue, group in groups:
            part = by_partition.get(queue.topic_partition, refusal)
            if part is None or (part.error_code == ErrorCode.NONE and part.base_offset < 0):
                missing = BrokerMisbehaved(f"{who} did not say what became of the records for {queue.topic_partition}")
                self._failed(queue, group, missing, sent=True)
            elif (where := taken(queue, group[0], part)) is not None:
                code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                error = error_for(code, f"producing to {queue.topic_partition}", who, where)
                self._failed(queue, group, error, sent=not is_known(part))
            elif part.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._delivered(queue, group, NO_OFFSET, -1)
            elif part.error_code != ErrorCode.NONE:
                if part.current_leader_id != NO_BROKER:
                    self._metadata.hint_leader(queue.topic_partition, part.current_leader_id, part.current_leader_epoch)
                error = error_for(part.error_code, f"producing to {queue.topic_partition}", who, part.error_message)
                wait_ms = math.inf
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    known, epoch = self._metadata.view.partition(queue.topic_partition), part.current_leader_epoch
                    attempt, retries = max(1, group[0].attempts), self._settings.retries
                    wait_ms = takeover_wait_ms(known, link.broker_id, epoch, attempt=attempt, retries=retries)
                self._failed(queue, group, error, sent=error.code not in APPENDED_NOTHING, wait_ms=wait_ms)
            else:
                self._delivered(queue, group, part.base_offset, part.log_append_time_ms)

    def _delivered(self, queue: PartitionQueue, group: Sequence[Batch], offset: int, log_append_time_ms: int) -> None:
        """From `offset` on; −1: they stand in the log, somewhere."""
        now = trio.current_time()
        queue.landed(group, now)
        if queue.numbering is not None:
            queue.numbering.is_proven = True
        offsets = accumulate((batch.records_count for batch in group), initial=offset)
        _settle_all(
            partial(self._accumulator.deliver, batch, first, log_append_time_ms, now)
            for batch, first in zip(group, offsets, strict=False)
        )

    def _failed(
        self, queue: PartitionQueue, group: Sequence[Batch], error: Exception, *, sent: bool, wait_ms: float = math.inf
    ) -> None:
        """An attempt failed. `sent`: the records may be in the log all the same. The next one waits for `wait_ms` at
        most."""
        queue.landed(group, trio.current_time())
        left = [batch for batch in group if not batch.done]
        for batch in left:
            batch.last_error = error
            batch.maybe_appended = batch.maybe_appended or sent
        retriable = getattr(error, "retriable", False)
        is_given = queue.numbering is not None and queue.numbering.is_given
        if queue.numbering is not None:
            queue.numbering.is_proven = False
            if getattr(error, "code", None) in NUMBERS_REFUSED:
                retriable = self._numbers_refused(queue, queue.numbering, group[0], error)
        over = self._over(queue)
        if over is None and len(group) == 1 and can_be_split(group[0], error) and (parts := halves(group[0])):
            self._accumulator.replace(group[0], parts)
            queue.put_back(parts, retry_at=0.0)
            return
        retriable = retriable and over is None
        if getattr(error, "invalid_metadata", False):
            self._metadata.request_update()
        if not retriable and not sent and left and len(group) > 1:
            queue.put_back(left, retry_at=0.0)
            queue.isolated = len(left)
            return
        again = [batch for batch in left if retriable and batch.attempts <= self._settings.retries]
        if again:
            wait_ms = min(wait_ms, backoff_ms(self._settings, max(1, again[0].attempts), self._links.environment))
            queue.put_back(again, trio.current_time() + wait_ms / 1000)
        lost = [batch for batch in left if batch not in again]
        _settle_all(
            partial(
                self._give_up,
                queue,
                batch,
                given_up_with(over, batch) if over else failed(batch, error, is_given=is_given),
            )
            for batch in lost
        )

    def _numbers_refused(self, queue: PartitionQueue, numbering: Numbering, batch: Batch, error: Exception) -> bool:
        """A batch was refused for its numbers: whether it may be sent again."""
        is_fenced = getattr(error, "code", None) == ErrorCode.INVALID_PRODUCER_EPOCH
        if not queue.is_first(batch):
            return not (numbering.is_given and is_fenced)  # behind the one before it
        if numbering.is_given:
            return False
        numbering.is_void = True
        if is_fenced:
            self._identity.renew(numbering.producer_id)
        return not batch.maybe_appended

    # --- Error texts ---

    def _timeout_reason(self) -> str:
        return f"not acknowledged within {self._settings.delivery_timeout_ms:g} ms (delivery_timeout_ms)"

    def waiting(self, now: float) -> dict[TopicPartition, Exception]:
        """The partitions whose records cannot be delivered now, and why."""
        hindered = {queue.topic_partition: self._hindrance(queue, now) for queue in self._accumulator.active.values()}
        return {topic_partition: why for topic_partition, why in hindered.items() if why is not None}

    def _hindrance(self, queue: PartitionQueue, now: float) -> Exception | None:
        why = self._links.hindrance(queue.topic_partition)
        oldest = next((batch for batch in (*queue.in_flight, *queue.ready) if not batch.done), None)
        if why is not None or oldest is None:
            return why
        if queue.in_flight and now >= queue.sent_at + SILENT_AFTER_S:
            return no_answer(queue.sent_to)
        return oldest.last_error or self._identity.last_error

    def last_cause(self) -> Exception | str:
        """What keeps records back, for an error about no batch in particular: of several causes the one nearest to the
        cluster, since a partition without a leader or a broker that is away stays as long as nobody looks after it."""
        view, queues = self._metadata.view, list(self._accumulator.active.values())
        if self._metadata.last_error is not None:
            return self._metadata.last_error
        leaderless = [
            queue.topic_partition
            for queue in queues
            if (known := view.partition(queue.topic_partition)) is None or known.leader == NO_BROKER
        ]
        if leaderless:
            others = len(leaderless) - 1
            more = f"; likewise {others} more partition{'' if others == 1 else 's'}" if others else ""
            return f"{view.no_leader(leaderless[0])}{more}"
        batches = [batch for queue in queues for batch in (*queue.in_flight, *queue.ready)]
        return self._links.last_error() or next(map(self._cause, batches), "the brokers are slow")

    def _cause(self, batch: Batch) -> Exception | str:
        """What keeps one batch back: that nobody leads its partition by now says more than what an attempt met."""
        view = self._metadata.view
        partition = view.partition(batch.topic_partition)
        if partition is None or partition.leader == NO_BROKER:
            return self._metadata.last_error or view.no_leader(batch.topic_partition)
        if batch.last_error is not None:
            return batch.last_error
        if self._identity.last_error is not None:
            return self._identity.last_error
        if batch.attempts:
            return f"no answer from broker {partition.leader}"
        link = self._links.known(partition.leader)
        if link is None:
            return f"it was not sent to broker {partition.leader} yet"
        return link.last_error or f"waiting for earlier requests to broker {partition.leader}"


def _has_next(queue: PartitionQueue) -> bool:
    """Something is ready, and may be sent beside what is under way."""
    numbering = queue.numbering
    if not queue.ready or not queue.in_flight:
        return bool(queue.ready)
    return (
        numbering is not None and numbering.is_proven and not numbering.is_void and len(queue.in_flight) < MAX_IN_FLIGHT
    )


def _settle_all(settlements: Iterable[Callable[[], None]]) -> None:
    """Each batch is settled that is in no queue any more, whatever goes wrong in the program that one of them belongs
    to: that is raised last."""
    mistakes: list[Exception] = []
    for settle in settlements:
        try:
            settle()
        except Exception as mistake:
            mistakes.append(mistake)
    if mistakes:
        raise mistakes[0]
