"""What a broker does when a log directory goes offline (invariant 24): it gives up every replica that lives there.

A directory fails in whatever thread met the error (`storage/disk/directory_health`). Here that is seen soon after, and
then
1. each replica of the directory resigns: its clients and followers are answered, the controller is told
   (`/log_dir_event_notification`) and moves leadership away;
2. where it was the last directory, the broker ends;
3. the directory notes for the next start that its page cache proves nothing.

One that is full has not failed. Its replicas keep their roles: leaders serve what is there and refuse appends
(KAFKA_STORAGE_ERROR), followers leave the in-sync sets by their lag, retention goes on making room. (Leaders elsewhere
may be as full, and nothing that was acknowledged depends on who leads.) Each second it is tried whether there is room.
"""

from __future__ import annotations

import structlog
import trio

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.runtime.beats import next_beat
from strandline.runtime.environment import Blocking
from strandline.storage.manager.log_directory import LogDirectory
from strandline.storage.manager.log_manager import LogManager

CHECK_INTERVAL_S = 0.1
ROOM_CHECK_INTERVAL_S = 1.0


class DiskFailures:
    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        burst: Burst,
        blocking: Blocking,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._burst = burst
        self._blocking = blocking
        self._log = log

    async def run(self) -> None:
        """NoLogDirLeft ends it, and the broker."""
        offline: list[str] = []
        async with trio.open_nursery() as nursery:
            for directory in self._logs.directories:
                nursery.start_soon(self._look_for_room, directory)
            while True:
                await next_beat(CHECK_INTERVAL_S)
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
                nursery.start_soon(self._blocking.run_in, "unsynced", self._logs.directories.mark_unsynced)

    async def _look_for_room(self, directory: LogDirectory) -> None:
        while True:
            await next_beat(ROOM_CHECK_INTERVAL_S)
            path, look = directory.path, self._logs.directories.look_for_room
            is_full = directory.health.full is not None and directory.health.failure is None
            if is_full and await self._blocking.run_in(path, look, path):
                self._log.info("log directory has room again", path=path)

    def _online(self) -> list[str]:
        return [directory.path for directory in self._logs.directories.online()]

    async def _resign(self) -> None:
        for count, partition in enumerate(list(self._replicas.partitions.values()), 1):
            failure = partition.log.failure
            if failure is not None and not partition.failed:
                self._replicas.partition_failed(partition, failure)
            if count % PARTITIONS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        self._burst.end()
