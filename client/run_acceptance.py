"""How records that were sent one by one are accepted together: a run of them costs about what one of them does.

Part of `TrioProducer`, for who sends from another thread (`sync_producer`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import trio

from strandline.client.accumulator import Accumulator, Header, PartitionQueue, RefusedRecord, ToSend
from strandline.client.delivery import DeliverySink
from strandline.client.errors import ClientClosed, ClientError, InvalidRecordValue, RecordTooLarge
from strandline.client.keyless import KeylessPartitions
from strandline.client.metadata import TopicView
from strandline.client.send_futures import Run, SendFuture, Where
from strandline.client.service import Service
from strandline.client.settings import Partitioner
from strandline.client.signals import Pump
from strandline.protocol.types import TopicPartition

CANCELLED = "sending was cancelled before the records were accepted"


class RunAcceptance(Service):
    """What it needs of the producer is abstract."""

    _accumulator: Accumulator
    _keyless: KeylessPartitions
    _partition_for_key: Partitioner
    _pump: Pump

    async def _accept_run(self, where: Where, run: Run) -> None:
        """As `_accept`, of records that were sent one after the other to one topic, with the same headers and
        timestamp. Each has a future of its own, and is refused by itself where nothing is wrong with the others."""
        left = [run]
        try:
            layout = await self._layout(where.topic, partition=where.partition)
            await self._checkpoint(len(run))
            parts = self._parts(where, run, layout)
            left = [part for _, part in parts]
            for number, part in parts:
                queue = (
                    self._keyless.current(layout)
                    if number is None
                    else self._accumulator.queue(TopicPartition(where.topic, number))
                )
                del left[0]
                await self._accept_part(where, part, queue, layout, is_keyless=number is None)
        except ClientError as error:
            self._refuse_runs(left, error)
        except BaseException as error:
            self._refuse_runs(left, self._reason(error))
            raise

    def _send_now(self, future: SendFuture) -> bool:
        """As `_accept_run`, of one record to which nothing unusual happens, and what can be sent leaves: all of it
        without a switch of tasks. False: it was not accepted."""
        where = future.where
        assert future.pair is not None  # it is not settled yet
        is_accepted = self._accept_now(
            where.topic, future.pair, Run([future]), where.partition, where.headers, where.timestamp_ms
        )
        if is_accepted:
            self._pump.step_now()
        return is_accepted

    def _parts(self, where: Where, run: Run, layout: TopicView) -> Sequence[tuple[int | None, Run]]:
        """By partitions, in order within each; None: of records without a key. A record for which the program's
        partitioner raises is refused."""
        if where.partition is not None:
            return [(where.partition, run)]
        if not where.is_keyed:
            return [(None, run)]
        groups: defaultdict[int, list[SendFuture]] = defaultdict(list)
        choose, count = self._partition_for_key, len(layout.partitions)
        try:
            numbers = [choose(key, count) for key, _ in run.records()]  # type: ignore[arg-type]  # each has a key
            for number, future in zip(numbers, run.futures, strict=True):
                groups[number].append(future)
        except Exception as error:
            if len(run) == 1:
                self._refuse(run, refusal(where.topic, error), 1)
                return []
            return [part for future in run.futures for part in self._parts(where, Run([future]), layout)]
        return [(number, Run(futures)) for number, futures in groups.items()]

    async def _accept_part(
        self, where: Where, part: Run, queue: PartitionQueue, layout: TopicView, *, is_keyless: bool
    ) -> None:
        """What goes to one partition, or has no key. What raises has been told to those whom it concerns here."""
        headers, start = where.headers, 0
        while start < len(part):
            part = Run(part.futures[start:]) if start else part
            records, start = part.records(), 0
            try:
                while (start := queue.extend(where.timestamp_ms, records, start, part, headers)) < len(records):
                    if is_keyless and queue.builder is not None:
                        queue = self._keyless.after_full(layout, queue)
                        self._pump.wake()
                        if queue.builder is not None:
                            continue  # another one's batch, which may have room
                    await self._take_in(partial(self._accumulator.open_batch, queue, records[start], headers))
                return
            except RecordTooLarge as error:
                refused: Exception = error
            except RefusedRecord as error:
                start, refused = error.index, refusal(where.topic, error.__cause__)
            except BaseException as error:
                self._refuse_runs([Run(part.futures[start:])], self._reason(error))
                raise
            self._refuse(Run([part.futures[start]]), refused, 1)
            start += 1

    def _reason(self, error: BaseException) -> Exception:
        """What to tell of records that are not accepted because of it; a mistake of ours ends the producer."""
        if isinstance(error, ClientError):
            return error
        if isinstance(error, trio.Cancelled):
            return self._closed_error(CANCELLED)
        reason = ClientClosed(f"the record was not accepted: {error!r} ended the producer")
        reason.__cause__ = error
        return reason

    def _refuse_runs(self, runs: Iterable[Run], error: Exception) -> None:
        for run in runs:
            self._refuse(run, error, len(run))

    def _refuse(self, sink: DeliverySink, error: Exception, count: int) -> None:
        """So many records of the sink's are not accepted."""
        self._accumulator.fail(sink, error, count, 0)

    @abstractmethod
    def _accept_now(
        self,
        topic: str,
        record: ToSend,
        sink: DeliverySink,
        partition: int | None,
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> bool:
        """Accept one record without waiting; False, and nothing happened, where that is not possible."""

    @abstractmethod
    async def _layout(self, topic: str, since: float | None = None, partition: int | None = None) -> TopicView:
        """The topic's, which has that partition; waited for `max_block_ms` from `since` (now) on. ClientError."""

    @abstractmethod
    async def _take_in(self, take: Callable[[float], bool]) -> None:
        """`take(now)`, once there is memory for it. ClientError."""

    @abstractmethod
    async def _checkpoint(self, records_count: int) -> None:
        """Let others run after so many records."""

    @abstractmethod
    def _closed_error(self, text: str) -> ClientClosed:
        """With what ended the producer, if that is why."""


def refusal(topic: str, cause: BaseException | None) -> InvalidRecordValue:
    if isinstance(cause, InvalidRecordValue):
        return cause
    error = InvalidRecordValue(f"a record for {topic!r} is refused: {cause!r}; keys and values are bytes or None")
    error.__cause__ = cause
    return error
