"""What an earlier life of this broker left behind: data that it may have lost.

A loss is dealt with once this broker has left every ISR that has another member (`registration`), and the controller
has decided about the partitions that only this broker had in sync. Until then not even a crash makes it forgotten.
"""

from __future__ import annotations

import trio

from strandline.broker.registration import Registration
from strandline.broker.replica_manager import ReplicaManager
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.storage.log_manager import LogManager

CHECK_INTERVAL_S = 1.0


class Leftovers:
    def __init__(
        self,
        logs: LogManager,
        registration: Registration,
        replicas: ReplicaManager,
    ) -> None:
        self._logs = logs
        self._registration = registration
        self._replicas = replicas

    async def run(self) -> None:
        """Ends when nothing is left."""
        if self._logs.may_have_lost_data:
            await self._settle_loss()

    def _is_decided(self, topic_partition: TopicPartition) -> bool:
        """Somebody leads it, or its topic is gone."""
        partition = self._replicas.partitions.get(topic_partition)
        if partition is not None:
            return partition.leader_id != NO_BROKER
        metadata = self._replicas.metadata
        return metadata.version > 0 and topic_partition.topic not in metadata.topics

    async def _settle_loss(self) -> None:
        undecided = self._registration.undecided
        while undecided:
            await trio.sleep(CHECK_INTERVAL_S)
            undecided = [tp for tp in undecided if not self._is_decided(tp)]
        await self._replicas.run_blocking(self._logs.mark_loss_handled)
