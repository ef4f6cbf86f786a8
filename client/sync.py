"""The synchronous front: `Producer`, `Consumer`, `Admin` for scripts, over the trio-native clients.

One background thread per process runs the event loop (`runtime.processes.portal`); calls cross into it once per batch
of records, not once per record. Every blocking call has a deadline; Ctrl-C interrupts it. The objects may be used by
several threads, but not by a forked child and not through pickle: each process makes its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from strandline.client.admin import TrioAdmin
from strandline.client.assignment import FetchedBatches
from strandline.client.carried import blocking, plain, told
from strandline.client.consumer import TrioConsumer
from strandline.client.elsewhere import OF_ADMINS, OF_CLIENTS, OF_CONSUMERS, answers_names_of_others
from strandline.client.errors import ClientClosed, ClientError
from strandline.client.groups.group import DueCall, GroupMetadata
from strandline.client.loans import Reader
from strandline.client.options import AdminOptions, ConsumerOptions
from strandline.client.record import ConsumerRecord
from strandline.client.settings import AdminSettings, ConsumerSettings
from strandline.client.settings_help import shows_settings
from strandline.client.sync_client import GRACE_S, Front
from strandline.protocol.types import TopicPartition
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.processes.portal import ForkedPortal, PortalClosed
from strandline.runtime.processes.stopwatch import now_s

if TYPE_CHECKING:
    from strandline.client.columns import FetchedColumns

T = TypeVar("T")


@answers_names_of_others(OF_CLIENTS, OF_CONSUMERS)
@shows_settings(ConsumerSettings, ConsumerOptions)
class Consumer(Front[TrioConsumer]):
    """Reads records, for scripts. Timeouts are in milliseconds. Callbacks are plain functions; they
    are called in the thread that polls (or closes), and may use the consumer, but not poll."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        environment: ClientEnvironment | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        super().__init__(lambda: TrioConsumer(bootstrap_servers, environment=environment, **settings))

    @property
    def _reader(self) -> Reader:
        return self._client._reader

    assign = blocking(TrioConsumer.assign)
    subscribe = plain(TrioConsumer.subscribe)
    seek = plain(TrioConsumer.seek)
    seek_to_beginning = plain(TrioConsumer.seek_to_beginning)
    seek_to_end = plain(TrioConsumer.seek_to_end)
    pause = plain(TrioConsumer.pause)
    resume = plain(TrioConsumer.resume)
    position = blocking(TrioConsumer.position)
    high_watermark = plain(TrioConsumer.high_watermark)
    waiting = plain(TrioConsumer.waiting)
    metrics = told(TrioConsumer.metrics)
    commit = blocking(TrioConsumer.commit)
    commit_nowait = plain(TrioConsumer.commit_nowait)
    committed = blocking(TrioConsumer.committed)
    beginning_offsets = blocking(TrioConsumer.beginning_offsets)
    end_offsets = blocking(TrioConsumer.end_offsets)
    offsets_for_times = blocking(TrioConsumer.offsets_for_times)
    partitions_for_topic = blocking(TrioConsumer.partitions_for_topic)
    topic_id = blocking(TrioConsumer.topic_id)
    leaders_for_topic = blocking(TrioConsumer.leaders_for_topic)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it reads now."""
        return self._client.assignment

    @property
    def subscription(self) -> list[str]:
        """The topics that are subscribed to, or match the pattern as far as this consumer knows."""
        return self._now(lambda: self._client.subscription)

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group. NoGroup."""
        return self._now(lambda: self._client.group_metadata)

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The next records, as soon as there are any; {} after `timeout_ms`. At most `max_records` (default:
        `max_poll_records`), partitions taking turns.

        Errors, once nothing else is left to hand out: OffsetOutOfRange, LogTruncated (both until a seek),
        CorruptRecords, AnsweredError. That a commit failed which `enable_auto_commit` asked for is only warned of.
        DeserializationFailed: records before that one have been handed out, and it is the next one until a seek.
        TypeError for callbacks that are async functions."""
        failure = self._reader.take_failure()
        if failure is not None and self._now(self._client._is_next, failure.topic_partition, failure.offset):
            raise failure
        had: list[object] = []
        try:
            polled = self._call_all(self._client._poll_step, max_records, timeout_ms=timeout_ms, had=had)
            good, rest = self._reader.deserialized(polled)
            if rest:
                self._now(self._client._give_back, rest)
            if not good and (failure := self._reader.take_failure()) is not None:
                raise failure
            return good
        except BaseException:
            self._give_all_back(had)
            raise

    def __iter__(self) -> Self:
        """Records one by one, for as long as the program likes, or until none has come for `consumer_timeout_ms`. Each
        counts as read, for commits and `position`, once it is handed out; each step is a poll, with the errors of one.
        After the loop the next poll, or loop, goes on behind the last record that was handed out."""
        return self

    def __next__(self) -> ConsumerRecord:
        reader = self._reader
        if reader.is_due(now_s()):
            self._call_all(self._client._touch_step, timeout_ms=reader.touch_ms)
        while (record := reader.next()) is None:
            loans = self._call_all(self._client._lend_step, timeout_ms=reader.wait_ms)
            if not loans:
                raise StopIteration
            reader.add(loans, now_s())
        return record

    def fetch_batches(self, timeout_ms: float = 0) -> list[FetchedBatches]:
        """As `poll`, but whole record batches, not decoded: everything that is buffered, one item per fetch and
        partition; [] after `timeout_ms`. Positions move behind them; CRCs are left to whoever decodes."""
        return self._call_all(self._client._fetch_step, timeout_ms=timeout_ms)

    def unsubscribe(self) -> None:
        """Give up all partitions, as in a rebalance (commit, `on_revoked`), and leave the group at once; a static
        member stays in it until its session ends. What cannot be committed within `default_api_timeout_ms` is not.
        Where a callback fails, or this is interrupted, the rest of it is left out, but it leaves."""
        try:
            self._call_all(self._client._leave_step, timeout_ms=None)
        except BaseException:
            with suppress(ClientError):
                self._call(self._client._give_up_leaving, timeout_s=GRACE_S)
            raise

    def poll_columns(self, timeout_ms: float = 0) -> list[FetchedColumns]:
        """As `poll`, but as columns of offsets, timestamps, keys and values: several times as fast. Everything that is
        buffered, one item per fetch and partition; [] after `timeout_ms`. Positions, commits, CRC checks and errors are
        those of `poll`; keys and values are bytes, whatever the deserializers."""
        return self._call_all(self._client._columns_step, timeout_ms=timeout_ms)

    def _call_all(
        self,
        step: Callable[..., Awaitable[T | DueCall]],
        *args: Any,
        timeout_ms: float | None,
        had: list[object] | None = None,
    ) -> T:
        """Run the callbacks that are due before `step` has a result, in this thread. TypeError for async functions,
        RuntimeError within a callback. `had` is for who may have to give back what came of it."""
        self._client._refuse_within_callback()
        after: DueCall | None = None
        had = [] if had is None else had
        try:
            while isinstance(result := self._take(step, had, *args, timeout_ms=timeout_ms, after=after), DueCall):
                after = result
                try:
                    result.begin()
                    if inspect.iscoroutine(told := result.run()):
                        told.close()
                        raise TypeError("callbacks of a Consumer are plain functions; AioConsumer takes async ones")
                finally:
                    self._now(result.finish)
            return result
        except BaseException:
            if after is not None:  # an interrupt may have come right behind the callback
                with suppress(PortalClosed, ForkedPortal):
                    self._portal.post(after.finish)
            self._give_all_back(had)
            raise

    def _give_all_back(self, had: list[object]) -> None:
        """The program will not get these: it was interrupted on the way."""

        def give_back() -> None:
            while had:
                self._client._give_back(had.pop())

        with suppress(PortalClosed, ForkedPortal):
            self._portal.post(give_back)

    def _take(
        self,
        step: Callable[..., Awaitable[T]],
        had: list[object],
        *args: Any,
        timeout_ms: float | None,
        **options: Any,
    ) -> T:
        """As `_ask`. Where this thread is interrupted, what the loop had for it by then is given back: a later commit
        would count it as read."""
        is_refused = False

        async def hand_over(*args: Any, **options: Any) -> T:
            result = await step(*args, **options)
            had.append(result)
            if is_refused:
                give_back()
            return result

        def give_back() -> None:
            nonlocal is_refused
            is_refused = True
            while had:
                self._client._give_back(had.pop())

        try:
            return self._ask(hand_over, *args, timeout_ms=timeout_ms, **options)
        except BaseException:
            with suppress(PortalClosed, ForkedPortal):
                self._portal.post(give_back)
            raise

    def __exit__(self, *raised: object) -> None:
        """After an error what the last poll gave is not committed: it may not have been worked on."""
        if raised[0] is None:
            self.close()
        else:
            self._stop()

    def close(self) -> None:
        """`unsubscribe`, then stop; idempotent."""
        try:
            if self._can_leave:
                with suppress(ClientClosed):  # by another thread, meanwhile
                    self.unsubscribe()
        finally:
            self._stop()

    @property
    def _can_leave(self) -> bool:
        """It is open, in this process, and works."""
        return not self._closed and not self._portal.is_foreign and self._failure is None

    def _stop(self) -> None:
        """Without `unsubscribe`: nothing is committed, nobody called. Idempotent."""
        self._reader.end()
        super().close()

    def _close_unasked(self) -> None:
        self._stop()


@answers_names_of_others(OF_CLIENTS, OF_ADMINS)
@shows_settings(AdminSettings, AdminOptions)
class Admin(Front[TrioAdmin]):
    """Topics, groups and the cluster, for scripts. Timeouts are in milliseconds."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        environment: ClientEnvironment | None = None,
        **settings: Unpack[AdminOptions],
    ) -> None:
        super().__init__(lambda: TrioAdmin(bootstrap_servers, environment=environment, **settings))

    metrics = told(TrioAdmin.metrics)
    was_reached = told(TrioAdmin.was_reached)
    create_topic = blocking(TrioAdmin.create_topic)
    create_topics = blocking(TrioAdmin.create_topics)
    delete_topic = blocking(TrioAdmin.delete_topic)
    delete_topics = blocking(TrioAdmin.delete_topics)
    create_partitions = blocking(TrioAdmin.create_partitions)
    describe_configs = blocking(TrioAdmin.describe_configs)
    describe_topic_configs = blocking(TrioAdmin.describe_topic_configs)
    alter_configs = blocking(TrioAdmin.alter_configs)
    describe_quotas = blocking(TrioAdmin.describe_quotas)
    alter_quotas = blocking(TrioAdmin.alter_quotas)
    recover = blocking(TrioAdmin.recover)
    delete_records = blocking(TrioAdmin.delete_records)
    describe_producers = blocking(TrioAdmin.describe_producers)
    replica_offsets = blocking(TrioAdmin.replica_offsets)
    read_replica = blocking(TrioAdmin.read_replica)
    alter_partition_reassignments = blocking(TrioAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(TrioAdmin.list_partition_reassignments)
    elect_leaders = blocking(TrioAdmin.elect_leaders)
    describe_log_dirs = blocking(TrioAdmin.describe_log_dirs)
    list_topics = blocking(TrioAdmin.list_topics)
    describe_topics = blocking(TrioAdmin.describe_topics)
    describe_cluster = blocking(TrioAdmin.describe_cluster)
    list_groups = blocking(TrioAdmin.list_groups)
    describe_groups = blocking(TrioAdmin.describe_groups)
    delete_groups = blocking(TrioAdmin.delete_groups)
    remove_members = blocking(TrioAdmin.remove_members)
    list_group_offsets = blocking(TrioAdmin.list_group_offsets)
    list_offsets_of_groups = blocking(TrioAdmin.list_offsets_of_groups)
    alter_group_offsets = blocking(TrioAdmin.alter_group_offsets)
    delete_group_offsets = blocking(TrioAdmin.delete_group_offsets)
