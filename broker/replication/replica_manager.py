"""All partition replicas of this broker, and what happens to all of them: the ISR check, deadlines, the HW checkpoint.

It owns the dictionary of partitions, which `role_changes` fills and empties as the controller orders. The hot paths
(`produce`, `fetch`) reach a partition through `partitions` directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import structlog
import trio

from strandline.broker.handlers.conversion import Converter
from strandline.broker.handlers.delete_records import DeleteRecordsHandler
from strandline.broker.handlers.fetch import FetchHandler
from strandline.broker.handlers.produce import ProduceHandler
from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.network.regions import read_through
from strandline.broker.network.request_bounds import PARTITIONS_PER_STEP
from strandline.broker.replication.follower import Followers
from strandline.broker.replication.isr_updates import IsrOutcome, IsrUpdates
from strandline.broker.replication.leadership import IsrProposal
from strandline.broker.replication.log_starts import LogStartWrites
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import ParkedFetch
from strandline.broker.upkeep.index_rebuilds import IndexRebuilds
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import UpdateMetadataRequest
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.disk import FileRegion
from strandline.runtime.environment import Environment
from strandline.runtime.logging import RateLimited
from strandline.storage.errors import DiskFull, OutOfDescriptors
from strandline.storage.manager.log_manager import LogManager

T = TypeVar("T")

NEW_LOGS_INTERVAL_S = 0.5
"""Between two checkpoints that name new logs, while many are made: one of 10,000 logs takes some 10 ms."""
DEADLINE_CHECK_INTERVAL_S = 0.1
"""How late an expired produce or fetch may be answered: one coarse timer for all of them."""


class ReplicaManager:
    """See the module. `submit` and `flush_responses` are the request channel's, bound by the server."""

    def __init__(
        self,
        broker_id: int,
        config: CurrentConfig,
        environment: Environment,
        logs: LogManager,
        metadata: MetadataCache,
        isr_updates: IsrUpdates,
        followers: Followers,
        state_change_log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.broker_id = broker_id
        self._config = config
        self.logs = logs
        self.metadata = metadata
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.controller_epoch = -1
        self.fetch = FetchHandler(self)
        self.produce = ProduceHandler(self)
        self.delete_records = DeleteRecordsHandler(self, state_change_log)
        self.log_starts = LogStartWrites(self)
        self.converter = Converter(environment.computing, config, state_change_log)
        self.rebuilds = IndexRebuilds(self, environment.computing, state_change_log)
        self.submit: Callable[[Callable[[], Awaitable[None]]], None] = _not_running
        self.flush_responses: Callable[[], None] = _not_running
        self.logs_deleted = trio.Event()
        """Set when logs were deleted, and another takes its place. Checkpoints are written at once then: where a log of
        that name is created while they still tell of it, `LogManager.create` writes them, and the event loop waits."""
        self.logs_changed = trio.Event()
        """The same, also when logs were made. High watermarks are written then: a start misses the logs that they name,
        so a folder that vanishes is a loss from then on, and not only from the next checkpoint on."""
        self._environment = environment
        self._isr_updates = isr_updates
        self._followers = followers
        self._state_change_log = state_change_log
        self._limited = RateLimited(state_change_log)
        self._checkpoint_locks: dict[str, trio.Lock] = {}
        self._grown: dict[Partition, None] = {}
        self._committed: dict[Partition, None] = {}
        self._burst_now: float | None = None
        self._burst_wall_ms: int | None = None
        self._fetches: dict[ParkedFetch, None] = {}
        isr_updates.bind(self.isr_update_finished)
        followers.bind(self)

    @property
    def config(self) -> BrokerConfig:
        """The broker's as it is now: some keys are dynamic."""
        return self._config.value

    # --- small services for the handlers -----------------------------------------------------------------------

    def now(self) -> float:
        """Monotonic seconds."""
        return trio.current_time()

    def burst_now(self) -> float:
        """Monotonic seconds, read once per burst: reading the clock costs as much as checking a small batch."""
        if self._burst_now is None:
            self._burst_now = trio.current_time()
        return self._burst_now

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by this machine."""
        return self._environment.wall_clock.now_ms()

    def burst_wall_ms(self) -> int:
        """The same, read once per burst: where records are stamped or their timestamps bounded."""
        if self._burst_wall_ms is None:
            self._burst_wall_ms = self._environment.wall_clock.now_ms()
        return self._burst_wall_ms

    @property
    def lag_time_max_s(self) -> float:
        return self.config.replica_lag_time_max_ms / 1000

    @property
    def is_leaving(self) -> bool:
        """This broker stops, and hands its leaderships over."""
        return self._followers.leaving

    async def run_blocking(self, function: Callable[..., T], *args: object) -> T:
        return await self._environment.blocking.run(function, *args)

    async def run_on_disk(self, path: str, function: Callable[..., T], *args: object, abandon: bool = False) -> T:
        """The same for work on one log directory, in threads of that directory's own."""
        return await self._environment.blocking.run_in(path, function, *args, abandon=abandon)

    async def write_checkpoints(self, path: str, write: Callable[..., None], *args: object) -> None:
        """Write checkpoints of recovery points, log starts and compaction in one log directory. One writer at a time:
        of two, the one that looked at the logs first could be the last to replace the file."""
        lock = self._checkpoint_locks.get(path)
        if lock is None:
            lock = self._checkpoint_locks[path] = trio.Lock()
        async with lock:
            await self.run_on_disk(path, write, *args)

    async def warm(self, region: FileRegion) -> None:
        """Bring a region of a log into the page cache. OSError from the disk."""
        folder = region.file.path.rpartition("/")[0]
        await self.run_on_disk(folder.rpartition("/")[0], read_through, region)

    async def run_computing(self, job: Callable[..., T], *args: object) -> T:
        return await self._environment.computing.run(job, *args)

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

    # --- the end of a burst ------------------------------------------------------------------------------------

    def flush_appends(self) -> None:
        self.produce.flush()

    def data_arrived(self, partition: Partition) -> None:
        """Records were appended: followers that wait for them are looked at once, at the end of the burst."""
        if partition.parked_fetches:
            self._grown[partition] = None

    def high_watermark_advanced(self, partition: Partition) -> None:
        """Records were committed: the same for the consumers that wait for them."""
        if partition.parked_fetches:
            self._committed[partition] = None

    def end_of_burst(self) -> None:
        """Write what the burst produced, then serve the fetches that it woke. The channel sends the answers."""
        self.produce.flush()
        self._burst_now = self._burst_wall_ms = None
        if self._grown or self._committed:
            grown, self._grown = self._grown, {}
            committed, self._committed = self._committed, {}
            served: dict[ParkedFetch, None] = {}
            for partition in grown:
                served.update((fetch, None) for fetch, follower in partition.parked_fetches.items() if follower)
            for partition in committed:
                served.update((fetch, None) for fetch, follower in partition.parked_fetches.items() if not follower)
            for fetch in served:
                if fetch.try_complete():
                    self._fetches.pop(fetch, None)

    def log_start_moved(self, partition: Partition) -> None:
        """Something was taken off the head of its log."""
        partition.log_start_moved()
        self.delete_records.look(partition)

    def park_fetch(self, fetch: ParkedFetch) -> None:
        self._fetches[fetch] = None

    def update_metadata(self, request: UpdateMetadataRequest) -> bool:
        """Take over the controller's view; False when it comes from a controller of the past."""
        if request.controller_epoch < self.controller_epoch:
            return False
        self.controller_epoch = request.controller_epoch
        self.metadata.update(request)
        return True

    # --- role changes (`role_changes` decides them) ------------------------------------------------------------

    def partition_failed(self, partition: Partition, error: Exception) -> None:
        """A disk error on this log: it accepts nothing more, and this broker neither leads nor follows it (24). Where
        only descriptors or room are lacking nothing has failed: the request gets an error, the next one may succeed."""
        if partition.failed or isinstance(error, DiskFull):
            return
        if isinstance(error, OutOfDescriptors):
            self._limited.warning("out of descriptors", "out of descriptors", error=str(error))
            return
        partition.failed = True
        self._followers.stop(partition)
        partition.resign()
        self._isr_updates.forget(partition)
        self._isr_updates.announce_failed_logs()
        self.wake(partition)
        self._state_change_log.error("replica failed", partition=str(partition.topic_partition), error=str(error))

    async def resign_all(self) -> None:
        """This broker stops: who waits for a high watermark that no follower will raise any more is told to ask the
        next leader, whether the controller's word of that one has come or not."""
        for count, partition in enumerate(list(self.partitions.values()), 1):
            partition.resign()
            self._isr_updates.forget(partition)
            self.wake(partition)
            if count % PARTITIONS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        self.end_of_burst()
        self.flush_responses()

    def wake(self, partition: Partition) -> None:
        """The role changed: parked fetches get their (error) answer at the end of this step."""
        self.data_arrived(partition)
        self.high_watermark_advanced(partition)
        self.delete_records.look(partition)

    # --- ISR updates come back ---------------------------------------------------------------------------------

    def isr_update_finished(self, partition: Partition, proposal: IsrProposal, outcome: IsrOutcome) -> None:
        """ZooKeeper's word on a proposal; ignored if the role changed while it was on its way."""
        leadership = partition.leadership
        if leadership is None or leadership.proposal is not proposal:
            return
        if outcome.frozen:
            leadership.freeze()
            return
        if outcome.isr is None:
            advanced = partition.isr_rejected(self.now())
        else:
            advanced = partition.isr_committed(outcome.isr, outcome.eligible, outcome.zk_version, self.now())
        if advanced:
            self.high_watermark_advanced(partition)
            self.end_of_burst()
        self.flush_responses()

    # --- background --------------------------------------------------------------------------------------------

    async def run_deadlines(self) -> None:
        """Expire overdue produce requests and fetches; look after those whose role ended outside of any burst."""
        while True:
            await trio.sleep(DEADLINE_CHECK_INTERVAL_S)
            now = self.now()
            for partition in self.partitions.values():
                if len(partition.waiters):
                    partition.waiters.expire(now)
            self.delete_records.expire(now)
            overdue = [fetch for fetch in self._fetches if fetch.done or fetch.deadline <= now]
            for fetch in overdue:
                fetch.expire()
                del self._fetches[fetch]
            self.end_of_burst()
            self.flush_responses()

    async def run_isr_checks(self) -> None:
        """Look for followers that lag, twice per replica.lag.time.max.ms."""
        while True:
            await trio.sleep(self.lag_time_max_s / 2)
            now = self.now()
            for count, partition in enumerate(list(self.partitions.values())):
                if partition.check_in_sync(now):
                    self.high_watermark_advanced(partition)
                if count % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                    await trio.lowlevel.checkpoint()
            self.end_of_burst()
            self.flush_responses()

    async def run_high_watermark_checkpoints(self) -> None:
        async with trio.open_nursery() as nursery:
            for directory in self.logs.directories:
                nursery.start_soon(self._run_high_watermark_checkpoints, directory.path)

    async def _run_high_watermark_checkpoints(self, path: str) -> None:
        interval_s = self.config.replica_high_watermark_checkpoint_interval_ms / 1000
        pause_s = min(NEW_LOGS_INTERVAL_S, interval_s)
        changed = self.logs_changed
        while True:
            with trio.move_on_after(interval_s - pause_s):
                await changed.wait()
            deleted, changed = self.logs_deleted, self.logs_changed
            await self._checkpoint_high_watermarks(path)
            with trio.move_on_after(pause_s):
                await deleted.wait()

    async def repeat_checkpoint(self, interval_s: float, write: Callable[[], Awaitable[None]]) -> None:
        """Write one in this interval, and at once when logs were deleted."""
        deleted = self.logs_deleted
        while True:
            with trio.move_on_after(interval_s):
                await deleted.wait()
            deleted = self.logs_deleted  # what is deleted during the write calls for another one
            await write()

    async def _checkpoint_high_watermarks(self, path: str) -> None:
        # With the logs that they are of: where one is deleted and created anew before its turn comes in the thread,
        # the new one must not have the old one's mark, which would expose what is not committed (9).
        marks, logs = self.high_watermarks(), dict(self.logs.logs)
        await self.run_on_disk(path, self.logs.checkpoints.write_high_watermarks, marks, path, logs)

    def note_deletion(self) -> None:
        """A log was deleted: wake whoever writes checkpoints."""
        self.logs_deleted.set()
        self.logs_deleted = trio.Event()
        self.note_creation()

    def note_creation(self) -> None:
        """A log was made: wake who writes high watermarks."""
        self.logs_changed.set()
        self.logs_changed = trio.Event()

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """HW of every replica on this disk, hosted now or not yet."""
        marks = dict(self.logs.high_watermarks)
        for partition in self.partitions.values():
            marks[partition.topic_partition] = partition.high_watermark
        return marks


def _not_running(*_: object) -> None:
    raise RuntimeError("the request channel is not bound yet: this is a bug in the server's start-up order")
