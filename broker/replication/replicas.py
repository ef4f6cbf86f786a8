"""All partition replicas of this broker: the dictionary of them, and who hears of their roles.

`role_changes` fills and empties it as the controller orders. The hot paths (`produce`, `fetch`) reach a partition
through `partitions` directly.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from strandline.broker.metadata_cache import Deleted, MetadataCache
from strandline.broker.replication.burst import Changes
from strandline.broker.replication.change_lines import partition_fields
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.topic_counts import TopicTraffic
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import UpdateMetadataRequest
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.logging import RateLimited
from strandline.storage.errors import DiskFull, OutOfDescriptors
from strandline.storage.segments.indexes import IndexLost


class Replicas:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        config: CurrentConfig,
        metadata: MetadataCache,
        changes: Changes,
        state_change_log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.broker_id = broker_id
        self._config = config
        self.metadata = metadata
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.traffic = TopicTraffic()
        self.maybe_lagging: dict[Partition, None] = {}
        """Those led here in which somebody may lag or is about to join: `isr_checks` look at no others. A partition
        enters by itself, whatever happens to it."""
        self.controller_epoch = -1
        self.is_leaving = False
        """This broker stops, and hands its leaderships over."""
        self._changes = changes
        self._listeners: list[Callable[[Partition], None]] = []
        self._told_of_deletions: list[Callable[[Deleted], None]] = []
        self._told_of_metadata: list[Callable[[UpdateMetadataRequest], None]] = []
        self._builders: list[Callable[[Partition, IndexLost], None]] = []
        self._state_change_log = state_change_log
        self._limited = RateLimited(state_change_log)

    @property
    def config(self) -> BrokerConfig:
        """The broker's as it is now: some keys are dynamic."""
        return self._config.value

    def why_not_leading(self, topic: str, index: int, partition: Partition | None) -> tuple[ErrorCode, int, int]:
        """(error, who leads, its epoch) for a request about a partition that this broker does not lead."""
        if partition is not None and partition.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR, -1, -1
        known = self.metadata.partition(topic, index)
        if known is None and partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1
        if known is not None and (partition is None or known.leader_epoch > partition.leader_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, known.leader, known.leader_epoch
        assert partition is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, partition.leader_id, partition.leader_epoch

    def update_metadata(self, request: UpdateMetadataRequest) -> None:
        """Take over the view of a controller whose epoch was checked."""
        self.controller_epoch = request.controller_epoch
        deleted = self.metadata.update(request)
        for told in self._told_of_deletions if deleted else ():
            told(deleted)
        for partition in self.partitions.values():
            if partition.deletions.waiting:  # who died is waited for no longer
                partition.complete_deletions()
        for hears in self._told_of_metadata:
            hears(request)

    def on_metadata(self, listener: Callable[[UpdateMetadataRequest], None]) -> None:
        """Have `listener` called with what was taken over into `metadata`. It neither waits nor raises."""
        self._told_of_metadata.append(listener)

    def on_deletion(self, listener: Callable[[Deleted], None]) -> None:
        """Have `listener` called with partitions of the cluster that are deleted, right after `metadata` lost them or
        has the topics that were made anew. It neither waits nor raises."""
        self._told_of_deletions.append(listener)

    # --- roles -------------------------------------------------------------------------------------------------

    def on_role_change(self, listener: Callable[[Partition], None]) -> None:
        """Have `listener` called each time that a partition begins or ceases to be led or followed here, or fails,
        right after it did. It looks at the partition to see which; it neither waits nor raises."""
        self._listeners.append(listener)

    def on_lost_index(self, builder: Callable[[Partition, IndexLost], None]) -> None:
        """Have `builder` called each time that somebody needs an index that is lost."""
        self._builders.append(builder)

    def role_changed(self, partition: Partition) -> None:
        """Tell who listens, and let parked fetches get their (error) answer at the end of this burst."""
        for listener in self._listeners:
            listener(partition)
        self._changes.wake(partition)

    def resign(self, partition: Partition) -> None:
        """This broker neither leads nor follows it any more."""
        partition.resign()
        self.role_changed(partition)

    def partition_failed(self, partition: Partition, error: Exception) -> None:
        """A disk error on this log: it accepts nothing more, and this broker neither leads nor follows it
        (invariant 24). Where only descriptors, room or an index are lacking nothing has failed: the request gets an
        error, a later one may succeed. A replica that was deleted while the caller waited for the disk is left alone:
        errors of its closed log mean nothing."""
        is_hosted = self.partitions.get(partition.topic_partition) is partition
        if partition.failed or not is_hosted or isinstance(error, DiskFull):
            return
        if isinstance(error, IndexLost):
            for build in self._builders:
                build(partition, error)
            return
        if isinstance(error, OutOfDescriptors):
            self._limited.warning("out of descriptors", "out of descriptors", error=str(error))
            return
        partition.failed = True
        self.resign(partition)
        self._state_change_log.error("replica failed", **partition_fields(partition), error=str(error))

    def contact_lost(self, leader_id: int, error: Exception) -> None:
        """The connection to that broker broke while this one followed it: until now it was alive."""
        self._state_change_log.info("contact lost", leader=leader_id, error=str(error))

    def show_life(self) -> None:
        """So that the logs of a broker that was killed tell until when it was there, whoever else was."""
        leading = sum(partition.leadership is not None for partition in self.partitions.values())
        self._state_change_log.info("broker alive", leading=leading, following=len(self.partitions) - leading)
