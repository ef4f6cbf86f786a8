"""What a broker does when a log directory goes offline (S10, 24): it gives up every replica that lives there.

A directory fails in whatever thread met the error (`storage/directory_health`). Here that is seen soon after, and then

1. each replica of the directory resigns: its clients and followers are answered, the controller is told
   (`/log_dir_event_notification`) and moves leadership away;
2. where it was the last directory, the broker ends;
3. the directory notes for the next start that its page cache proves nothing.
"""

from __future__ import annotations

import structlog
import trio

from strandline.broker.breadth import PARTITIONS_PER_STEP
from strandline.broker.replica_manager import ReplicaManager
from strandline.storage.log_manager import LogManager

CHECK_INTERVAL_S = 0.1


class DiskFailures:
    def __init__(self, logs: LogManager, replicas: ReplicaManager, log: structlog.typing.FilteringBoundLogger) -> None:
        self._logs = logs
        self._replicas = replicas
        self._log = log

    async def run(self) -> None:
        """NoLogDirLeft ends it, and the broker."""
        offline: list[str] = []
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(CHECK_INTERVAL_S)
                before, offline = offline, self._logs.directories.offline_paths
                if offline == before:
                    continue
                for path in offline:
                    if path not in before:
                        self._log.error("log directory offline", path=path, online=self._online())
                # 1
                await self._resign()
                # 2
                self._logs.directories.check()
                # 3, beside: a disk that does not answer must not hold up what else there is to see
                nursery.start_soon(self._replicas.run_on_disk, "suspects", self._logs.directories.mark_suspects)

    def _online(self) -> list[str]:
        return [directory.path for directory in self._logs.directories.online()]

    async def _resign(self) -> None:
        for count, partition in enumerate(list(self._replicas.partitions.values()), 1):
            failure = partition.log.failure
            if failure is not None and not partition.failed:
                self._replicas.partition_failed(partition, failure)
            if count % PARTITIONS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        self._replicas.end_of_burst()
        self._replicas.flush_responses()
