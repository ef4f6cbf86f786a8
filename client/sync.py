"""The synchronous front: `Producer`, `Consumer`, `Admin` for scripts, over the trio-native clients.

One background thread per process runs the event loop (`runtime.processes.portal`); calls cross into it once per batch
of records, not once per record. Every blocking call has a deadline; Ctrl-C interrupts it. The objects may be used by
several threads, but not by a forked child and not through pickle: each process makes its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from strandline.client.admin import CreatedTopic, NewTopic, RecoveredPartition, TrioAdmin
from strandline.client.assignment import ConsumerRecord, FetchedBatches
from strandline.client.consumer import TrioConsumer
from strandline.client.errors import AnsweredError, ClientClosed, ClientError
from strandline.client.groups.administration import GroupListing, GroupOffset, GroupView
from strandline.client.groups.group import DueCall, GroupMetadata, OnCommit, OnPartitions
from strandline.client.groups.offsets import GivenOffsets, OffsetAndMetadata
from strandline.client.log_dirs import LogDirs
from strandline.client.lookup import FoundOffset
from strandline.client.metadata import ClusterView, TopicView
from strandline.client.producer_states import KnownProducers
from strandline.client.reassignments import OngoingReassignment
from strandline.client.replicas.reading import READ_BYTES, Replica, ReplicaOffsets, ReplicaPart
from strandline.client.sync_client import GRACE_S, Front
from strandline.protocol.messages import LATEST_TIMESTAMP, ConfigResource, DescribeConfigsResourceResult
from strandline.protocol.types import NO_EPOCH, TopicId, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.processes.portal import ForkedPortal, PortalClosed

T = TypeVar("T")


class Consumer(Front[TrioConsumer]):
    """`TrioConsumer` for scripts; settings as there. Timeouts are in milliseconds. Callbacks are plain functions; they
    are called in the thread that polls (or closes), and may use the consumer, but not poll."""

    def __init__(
        self, bootstrap_servers: str, *, environment: ClientEnvironment | None = None, **settings: Any
    ) -> None:
        super().__init__(lambda: TrioConsumer(bootstrap_servers, environment=environment, **settings))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions from now on; see `TrioConsumer.assign`."""
        self._call(self._client.assign, list(partitions), timeout_s=self._api_timeout_ms / 1000 + GRACE_S)

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._client.assignment

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> None:
        """Read what the group gives this consumer of these topics; see `TrioConsumer.subscribe`."""
        call = partial(self._client.subscribe, topics, pattern=pattern)
        self._now(partial(call, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost))

    @property
    def subscription(self) -> list[str]:
        """The topics that are subscribed to, or match the pattern."""
        return self._now(lambda: self._client.subscription)

    def unsubscribe(self) -> None:
        """Give up all partitions and leave the group; see `TrioConsumer.unsubscribe`."""
        try:
            self._call_all(self._client._leave_step, timeout_ms=None)
        except BaseException:
            with suppress(ClientError):
                self._call(self._client._give_up_leaving, timeout_s=GRACE_S)
            raise

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._now(self._client.seek, partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._now(self._client.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._now(self._client.seek_to_end, *partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        self._now(self._client.pause, *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._now(self._client.resume, *partitions)

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        return self._ask(self._client.position, partition, timeout_ms=timeout_ms)

    def high_watermark(self, partition: TopicPartition) -> int:
        """As of the last fetch, −1 before it."""
        return self._now(self._client.high_watermark, partition)

    def waiting(self) -> dict[TopicPartition, Exception]:
        """See `TrioConsumer.waiting`."""
        return self._now(self._client.waiting)

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """See `TrioConsumer.poll`."""
        return self._call_all(self._client._poll_step, max_records, timeout_ms=timeout_ms)

    def fetch_batches(self, timeout_ms: float = 0) -> list[FetchedBatches]:
        """See `TrioConsumer.fetch_batches`."""
        return self._call_all(self._client._fetch_step, timeout_ms=timeout_ms)

    def _call_all(self, step: Callable[..., Awaitable[T | DueCall]], *args: Any, timeout_ms: float | None) -> T:
        """Run the callbacks that are due before `step` has a result, in this thread. TypeError for async functions."""
        after: DueCall | None = None
        while isinstance(result := self._take(step, *args, timeout_ms=timeout_ms, after=after), DueCall):
            after = result
            try:
                result.begin()
                if inspect.iscoroutine(told := result.run()):
                    told.close()
                    raise TypeError("callbacks of a Consumer are plain functions; AsyncConsumer takes async ones")
            finally:
                self._now(result.finish)
        return result

    def _take(self, step: Callable[..., Awaitable[T]], *args: Any, timeout_ms: float | None, **options: Any) -> T:
        """As `_ask`. Where this thread is interrupted, what the loop had for it by then is given back: a later commit
        would count it as read."""
        had: list[T] = []
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

    def commit(
        self,
        offsets: GivenOffsets = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Have the group remember these positions; see `TrioConsumer.commit`."""
        self._ask(self._client.commit, offsets, timeout_ms=timeout_ms)

    def commit_nowait(
        self,
        offsets: GivenOffsets = None,
        on_done: OnCommit | None = None,
    ) -> None:
        """As `commit`, without waiting; see `TrioConsumer.commit_nowait`."""
        self._now(self._client.commit_nowait, offsets, on_done)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None for nothing."""
        return self._ask(self._client.committed, list(partitions), timeout_ms=timeout_ms)

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group."""
        return self._now(lambda: self._client.group_metadata)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._ask(self._client.beginning_offsets, list(partitions), timeout_ms=timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._ask(self._client.end_offsets, list(partitions), timeout_ms=timeout_ms)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        return self._ask(self._client.offsets_for_times, dict(timestamps_ms), timeout_ms=timeout_ms)

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> list[int]:
        return self._ask(self._client.partitions_for_topic, topic, timeout_ms=timeout_ms)

    def topic_id(self, topic: str, timeout_ms: float | None = None) -> TopicId:
        return self._ask(self._client.topic_id, topic, timeout_ms=timeout_ms)

    def leaders_for_topic(self, topic: str, timeout_ms: float | None = None) -> dict[int, int]:
        return self._ask(self._client.leaders_for_topic, topic, timeout_ms=timeout_ms)

    def __exit__(self, *raised: object) -> None:
        """After an error what the last poll gave is not committed: it may not have been worked on."""
        if raised[0] is None:
            self.close()
        else:
            self.stop()

    def close(self) -> None:
        """`unsubscribe`, then stop; idempotent."""
        try:
            if self.can_leave:
                with suppress(ClientClosed):  # by another thread, meanwhile
                    self.unsubscribe()
        finally:
            self.stop()

    @property
    def can_leave(self) -> bool:
        """It is open, in this process, and works."""
        return not self._closed and not self._portal.is_foreign and self.failure is None

    def stop(self) -> None:
        """Without `unsubscribe`: nothing is committed, nobody called. Idempotent."""
        super().close()

    def _close_unasked(self) -> None:
        self.stop()


class Admin(Front[TrioAdmin]):
    """`TrioAdmin` for scripts; settings as there. Timeouts are in milliseconds."""

    def __init__(
        self, bootstrap_servers: str, *, environment: ClientEnvironment | None = None, **settings: Any
    ) -> None:
        super().__init__(lambda: TrioAdmin(bootstrap_servers, environment=environment, **settings))

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> CreatedTopic:
        """See `TrioAdmin.create_topic`."""
        return self._ask(
            self._client.create_topic,
            name,
            num_partitions,
            replication_factor,
            configs,
            assignments=assignments,
            validate_only=validate_only,
            timeout_ms=timeout_ms,
        )

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: float | None = None
    ) -> dict[str, CreatedTopic | AnsweredError]:
        """See `TrioAdmin.create_topics`."""
        return self._ask(self._client.create_topics, list(topics), validate_only=validate_only, timeout_ms=timeout_ms)

    def delete_topic(self, name: str, *, timeout_ms: float | None = None) -> None:
        """See `TrioAdmin.delete_topic`."""
        self._ask(self._client.delete_topic, name, timeout_ms=timeout_ms)

    def delete_topics(
        self, names: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, AnsweredError | None]:
        """See `TrioAdmin.delete_topics`."""
        return self._ask(self._client.delete_topics, list(names), timeout_ms=timeout_ms)

    def create_partitions(
        self,
        name: str,
        count: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """See `TrioAdmin.create_partitions`."""
        self._ask(
            self._client.create_partitions,
            name,
            count,
            assignments=assignments,
            validate_only=validate_only,
            timeout_ms=timeout_ms,
        )

    def describe_configs(
        self, kind: ConfigResource, name: str = "", *, timeout_ms: float | None = None
    ) -> list[DescribeConfigsResourceResult]:
        """See `TrioAdmin.describe_configs`."""
        return self._ask(self._client.describe_configs, kind, name, timeout_ms=timeout_ms)

    def describe_topic_configs(
        self, names: Iterable[str], keys: Sequence[str] = (), *, timeout_ms: float | None = None
    ) -> dict[str, list[DescribeConfigsResourceResult] | ClientError]:
        """See `TrioAdmin.describe_topic_configs`."""
        return self._ask(self._client.describe_topic_configs, list(names), keys, timeout_ms=timeout_ms)

    def alter_configs(
        self,
        kind: ConfigResource,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """See `TrioAdmin.alter_configs`."""
        self._ask(
            self._client.alter_configs, kind, name, dict(changes), validate_only=validate_only, timeout_ms=timeout_ms
        )

    def recover(
        self, partition: TopicPartition, *, accept_loss: bool = False, timeout_ms: float | None = None
    ) -> RecoveredPartition:
        """See `TrioAdmin.recover`."""
        return self._ask(self._client.recover, partition, accept_loss=accept_loss, timeout_ms=timeout_ms)

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int | ClientError]:
        """See `TrioAdmin.delete_records`."""
        return self._ask(self._client.delete_records, dict(offsets), timeout_ms=timeout_ms)

    def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        producer_ids: Iterable[int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> KnownProducers:
        """See `TrioAdmin.describe_producers`."""
        ids = None if producer_ids is None else list(producer_ids)
        return self._ask(self._client.describe_producers, list(partitions), ids, timeout_ms=timeout_ms)

    def replica_offsets(
        self, epochs: Mapping[Replica, int], timestamp: int = LATEST_TIMESTAMP, *, timeout_ms: float | None = None
    ) -> ReplicaOffsets:
        """See `TrioAdmin.replica_offsets`."""
        return self._ask(self._client.replica_offsets, dict(epochs), timestamp, timeout_ms=timeout_ms)

    def read_replica(
        self,
        replica: Replica,
        offset: int,
        *,
        leader_epoch: int = NO_EPOCH,
        max_bytes: int = READ_BYTES,
        max_wait_ms: int = 0,
        timeout_ms: float | None = None,
    ) -> ReplicaPart:
        """See `TrioAdmin.read_replica`."""
        read, epoch = self._client.read_replica, leader_epoch
        limits = {"max_bytes": max_bytes, "max_wait_ms": max_wait_ms, "timeout_ms": timeout_ms}
        return self._ask(read, replica, offset, leader_epoch=epoch, **limits)

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ClientError | None]:
        """See `TrioAdmin.alter_partition_reassignments`."""
        return self._ask(self._client.alter_partition_reassignments, dict(targets), timeout_ms=timeout_ms)

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """See `TrioAdmin.list_partition_reassignments`."""
        listed = None if partitions is None else list(partitions)
        return self._ask(self._client.list_partition_reassignments, listed, timeout_ms=timeout_ms)

    def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        unclean: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, int | ClientError]:
        """See `TrioAdmin.elect_leaders`."""
        listed = None if partitions is None else list(partitions)
        return self._ask(self._client.elect_leaders, listed, unclean=unclean, timeout_ms=timeout_ms)

    def describe_log_dirs(
        self,
        brokers: Iterable[int],
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> LogDirs:
        """See `TrioAdmin.describe_log_dirs`."""
        listed = None if partitions is None else list(partitions)
        return self._ask(self._client.describe_log_dirs, list(brokers), listed, timeout_ms=timeout_ms)

    def list_topics(self, *, timeout_ms: float | None = None) -> list[str]:
        return self._ask(self._client.list_topics, timeout_ms=timeout_ms)

    def describe_topics(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicView]:
        """See `TrioAdmin.describe_topics`."""
        listed = None if names is None else list(names)
        return self._ask(self._client.describe_topics, listed, timeout_ms=timeout_ms)

    def describe_cluster(self, *, timeout_ms: float | None = None) -> ClusterView:
        return self._ask(self._client.describe_cluster, timeout_ms=timeout_ms)

    def list_groups(self, states: Iterable[str] = (), *, timeout_ms: float | None = None) -> GroupListing:
        """See `TrioAdmin.list_groups`."""
        return self._ask(self._client.list_groups, list(states), timeout_ms=timeout_ms)

    def describe_groups(
        self, groups: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupView | ClientError]:
        """See `TrioAdmin.describe_groups`."""
        return self._ask(self._client.describe_groups, list(groups), timeout_ms=timeout_ms)

    def delete_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> dict[str, ClientError | None]:
        """See `TrioAdmin.delete_groups`."""
        return self._ask(self._client.delete_groups, list(groups), timeout_ms=timeout_ms)

    def remove_members(
        self, group: str, instances: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, ClientError | None]:
        """See `TrioAdmin.remove_members`."""
        listed = None if instances is None else list(instances)
        return self._ask(self._client.remove_members, group, listed, timeout_ms=timeout_ms)

    def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """See `TrioAdmin.list_group_offsets`."""
        listed = None if partitions is None else list(partitions)
        return self._ask(self._client.list_group_offsets, group, listed, timeout_ms=timeout_ms)

    def list_offsets_of_groups(
        self, groups: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, dict[TopicPartition, GroupOffset] | ClientError]:
        """See `TrioAdmin.list_offsets_of_groups`."""
        return self._ask(self._client.list_offsets_of_groups, list(groups), timeout_ms=timeout_ms)

    def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, GroupOffset],
        *,
        retention_time_ms: int = -1,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, ClientError | None]:
        """See `TrioAdmin.alter_group_offsets`."""
        alter, limit_ms = self._client.alter_group_offsets, timeout_ms
        return self._ask(alter, group, dict(offsets), retention_time_ms=retention_time_ms, timeout_ms=limit_ms)

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ClientError | None]:
        """See `TrioAdmin.delete_group_offsets`."""
        return self._ask(self._client.delete_group_offsets, group, list(partitions), timeout_ms=timeout_ms)
