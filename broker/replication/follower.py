"""Following: one fetcher per (leader broker, fetcher id) pulls what this broker replicates from there.

    fetch from LEO, with the epochs ─> answer ─> 1 divergence: truncate and stop   2 append   3 hw = min(leader's, LEO)

* The next fetch goes out right after the append returned, never before: its offset is the acknowledgement.
* An answer counts only for partitions that still follow that leader at the epoch the fetch named (invariant 14).
* What may not be cut before a checkpoint was written (`cuts`) is fetched again then; the others go on.
* A partition that gets an error waits a little by itself (`replica.fetch.backoff.ms` at most); the others go on.
* Partitions that are behind and throttled here are asked for as far as the rate allows (`held_fetches`).
* Where nothing is to be told or heard the fetch waits long at the leader: idle partitions cost nothing.
* Following is a cancel scope: a fetcher without partitions ends, and its connection with it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import structlog
import trio

from strandline.broker.replication.burst import Burst
from strandline.broker.replication.cuts import CutCheckpoints
from strandline.broker.replication.follower_fetch import Asked, build_fetch
from strandline.broker.replication.held_fetches import FetchPlan, HeldFetches
from strandline.broker.replication.log_starts import LogStartWrites
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.replication_quota import ReplicationQuota
from strandline.client.connection import Connection
from strandline.client.errors import CannotReachBroker, ClientError
from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.messages import FetchPartitionData, FetchRequest, FetchResponse, LiveLeader
from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.native.frame import cut_records
from strandline.protocol.records import InvalidBatch
from strandline.protocol.types import TopicPartition
from strandline.runtime.beats import next_beat
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.environment import Environment
from strandline.runtime.network import Address
from strandline.storage.errors import LogStorageError
from strandline.storage.log.truncation_guard import CheckpointFirst

FIRST_BACKOFF_S = 0.02
"""A partition's first wait after an error: a follower is often told of a new epoch a moment before its leader is."""
DEADLINE_CHECK_INTERVAL_S = 1.0
"""How late an overdue answer is noticed: one coarse timer for all fetchers."""
HEAD_ROOM_BYTES = 2**20
"""What an answer may hold beyond its batches."""
MAX_FETCHED = MAX_NAMED // 2
"""Partitions in one fetch; however long their topics' names are, the leader takes it (`request_bounds`). More take
turns."""
TURN_WAIT_MS = 50
"""How long a fetch may wait for data while others wait for their turn, or a log start for being told."""


class FetcherKey(NamedTuple):
    leader_id: int
    fetcher_id: int


class Followers:
    """All fetchers of this broker. What changes them is plain functions; `run` holds the tasks."""

    def __init__(
        self,
        replicas: Replicas,
        incarnation: int,
        environment: Environment,
        burst: Burst,
        cuts: CutCheckpoints,
        log_starts: LogStartWrites,
        quota: ReplicationQuota,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        """incarnation: version of this broker's `/brokers/incarnations` znode; travels in every fetch (KIP-903). quota:
        of what is fetched for replicas that are throttled."""
        self.replicas = replicas
        self.incarnation = incarnation
        self.environment = environment
        self.burst = burst
        self.log_starts = log_starts
        self.quota = quota
        self.log = log
        self.leaders: dict[int, LiveLeader] = {}
        """Where each is reached, by its id."""
        self._fetchers: dict[FetcherKey, Fetcher] = {}
        self._nursery: trio.Nursery | None = None
        self._cuts = cuts
        replicas.on_role_change(self._stop_unless_followed)

    @property
    def config(self) -> BrokerConfig:
        """The broker's as it is now."""
        return self.replicas.config

    def set_leaders(self, leaders: Iterable[LiveLeader]) -> None:
        """Where leaders are reached now, and by which key they know this broker. Nobody goes on to wait for an answer
        from where one was before, or from an earlier start of it."""
        for leader in leaders:
            before, self.leaders[leader.broker_id] = self.leaders.get(leader.broker_id), leader
            if before not in (None, leader):
                for key, fetcher in self._fetchers.items():
                    if key.leader_id == leader.broker_id:
                        fetcher.reconnect()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for key, fetcher in self._fetchers.items():
                nursery.start_soon(self._run_fetcher, key, fetcher)
            task_status.started()
            while True:
                await next_beat(DEADLINE_CHECK_INTERVAL_S)
                now = trio.current_time()
                for fetcher in self._fetchers.values():
                    fetcher.give_up_if_late(now)

    def update(self, partitions: Iterable[Partition]) -> None:
        """The roles of these partitions changed: each is fetched from its leader, or from nobody."""
        for partition in partitions:
            key = self._key(partition)
            for other_key, fetcher in self._fetchers.items():
                if other_key != key:
                    fetcher.remove(partition)
            if partition.leadership is None and partition.leader_id >= 0 and not partition.failed:
                # What a leaving broker led until now it does not follow any more, or the new leaders would take it back
                # into the ISRs that it has just been taken out of (invariant 38).
                if not self.replicas.is_leaving:
                    self._fetcher(key).add(partition)
            elif key in self._fetchers:
                self._fetchers[key].remove(partition)
        self._drop_idle()

    def _stop_unless_followed(self, partition: Partition) -> None:
        """Who is followed from now on is told by `update`, for many partitions at once."""
        if partition.leader_id >= 0 and partition.leadership is None:
            return
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)
        self._drop_idle()

    def spread_anew(self) -> None:
        """Another number of fetchers counts: each partition moves to the one that it has now. What is on its way to the
        one before is not taken over; it is fetched again."""
        self.update([partition for fetcher in self._fetchers.values() for partition in fetcher.partitions])

    def stop_all(self) -> None:
        """Follow nothing any more."""
        for fetcher in self._fetchers.values():
            fetcher.partitions.clear()
            fetcher.lags.clear()
        self._drop_idle()

    def lags(self) -> Iterator[tuple[Partition, int]]:
        """Those that are behind, with how far: what their leaders had committed, and was not here, after the last
        fetch."""
        for fetcher in self._fetchers.values():
            yield from fetcher.lags.items()

    @property
    def failing(self) -> int:
        """How many partitions wait a little after an error."""
        return sum(fetcher.failing for fetcher in self._fetchers.values())

    def checkpoint_first(self, partition: Partition, fetcher: Fetcher) -> None:
        """A cut of this partition waits for a checkpoint; the fetcher is told when it is written."""
        assert self._nursery is not None
        self._cuts.add(self._nursery, partition, fetcher.resume)

    def _key(self, partition: Partition) -> FetcherKey:
        spread = zlib.crc32(str(partition.topic_partition).encode()) % self.config.num_replica_fetchers
        return FetcherKey(partition.leader_id, spread)

    def _fetcher(self, key: FetcherKey) -> Fetcher:
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = Fetcher(self, key)
            if self._nursery is not None:
                self._nursery.start_soon(self._run_fetcher, key, fetcher)
        return fetcher

    def _drop_idle(self) -> None:
        for key, fetcher in list(self._fetchers.items()):
            if not fetcher.partitions:
                del self._fetchers[key]
                fetcher.scope.cancel()

    async def _run_fetcher(self, key: FetcherKey, fetcher: Fetcher) -> None:
        with fetcher.scope:
            await fetcher.run()
        if self._fetchers.get(key) is fetcher:
            del self._fetchers[key]


class Fetcher:
    """Pulls some partitions from one leader broker, in lock step, over one connection."""

    def __init__(self, followers: Followers, key: FetcherKey) -> None:
        self._followers = followers
        self._leader_id = key.leader_id
        self._client_id = f"broker-{followers.replicas.broker_id}-fetcher-{key.fetcher_id}"
        self.partitions: dict[Partition, None] = {}
        self.scope = trio.CancelScope()
        self.lags: dict[Partition, int] = {}
        """Of those that are behind."""
        self._refused: dict[int, list[TopicPartition]] = {}
        """By error, of the answer in hand."""
        self._resume_at: dict[Partition, float] = {}
        self._backoff_s: dict[Partition, float] = {}
        self._held = HeldFetches(followers.quota)
        self._changed = trio.Event()
        self._connecting = trio.CancelScope()
        self._polling: Connection | None = None
        """The connection of the poll that waits for its answer, which is late after `_answer_due_at`."""
        self._answer_due_at = 0.0

    @property
    def _config(self) -> BrokerConfig:
        return self._followers.config

    def add(self, partition: Partition) -> None:
        """Fetch it from now on. A poll that waits for data of other partitions is given up: the leader may have
        records of this one that producers wait for."""
        self.partitions[partition] = None
        self._resume_at.pop(partition, None)
        self._backoff_s.pop(partition, None)
        self._held.forget(partition)
        self._changed.set()
        if self._polling is not None:
            self._polling.close()

    @property
    def failing(self) -> int:
        """How many partitions wait a little after an error."""
        return len(self._backoff_s)

    def reconnect(self) -> None:
        """The leader is somewhere else now: connect there at once, whatever is under way."""
        self._changed.set()
        self._connecting.cancel()
        if self._polling is not None:
            self._polling.close()

    def give_up_if_late(self, now: float) -> None:
        """End a poll whose answer is overdue: the connection is taken as dead, and made anew."""
        if self._polling is not None and now > self._answer_due_at:
            self._followers.log.warning("fetch answer overdue", leader=self._leader_id)
            self._polling.close()

    def remove(self, partition: Partition) -> None:
        self.partitions.pop(partition, None)
        self.lags.pop(partition, None)
        self._resume_at.pop(partition, None)
        self._backoff_s.pop(partition, None)
        self._held.forget(partition)

    def resume(self, partitions: Iterable[Partition], is_good: bool) -> None:
        """These were left out until now. Not good: a little longer."""
        for partition in partitions:
            if partition in self.partitions and is_good:
                self.add(partition)
            elif partition in self.partitions:
                self._back_off(partition)
                self._changed.set()

    async def run(self) -> None:
        """Connect, fetch for ever; after an error, connect again."""
        backoff_s = FIRST_BACKOFF_S
        while True:
            began_at, has_contact = trio.current_time(), False
            try:
                connection = await self._connect()
                try:
                    while True:
                        self._changed = trio.Event() if self._changed.is_set() else self._changed
                        await self._fetch_once(connection)
                        backoff_s = FIRST_BACKOFF_S  # an answer, not a connection, is what ends the growth
                        has_contact = True
                finally:
                    connection.close()
            except (ClientError, RemoteProtocolError) as error:
                if self._changed.is_set():  # perhaps our own doing, for new partitions or an address: at once
                    self._changed = trio.Event()
                    continue
                self._followers.log.info("fetcher disconnected", leader=self._leader_id, error=str(error))
                if has_contact:
                    self._followers.replicas.contact_lost(self._leader_id, error)
                # From its beginning: who has waited in vain for an answer has backed off long enough.
                with trio.move_on_at(began_at + backoff_s):
                    await self._changed.wait()
                backoff_s = min(backoff_s * 2, self._config.replica_fetch_backoff_ms / 1000)

    async def _connect(self) -> Connection:
        while self._leader_id not in self._followers.leaders:  # noqa: ASYNC110 (rare: metadata is behind an order)
            await trio.sleep(FIRST_BACKOFF_S)
        leader = self._followers.leaders[self._leader_id]
        with trio.CancelScope() as self._connecting:
            return await Connection.open(
                self._followers.environment.network,
                Address(leader.host_name, leader.port),
                client_id=self._client_id,
                broker_id=self._leader_id,
                broker_key=leader.broker_key,
                timeout_ms=self._config.replica_socket_timeout_ms,
                # A first batch is sent whole, however large its topic lets it be: a request could bring it there.
                max_frame_bytes=self._config.replica_fetch_response_max_bytes
                + self._config.socket_request_max_bytes
                + HEAD_ROOM_BYTES,
            )
        raise CannotReachBroker(f"broker {self._leader_id} is at another address now, or was started anew")

    async def _fetch_once(self, connection: Connection) -> None:
        now = trio.current_time()
        asked = [p for p in self.partitions if self._resume_at.get(p, 0.0) <= now]
        plan = FetchPlan(asked)
        if self._held.is_on:
            plan = self._held.plan(asked, self._config.replica_fetch_max_bytes, now)
        if not plan.asked:
            await self._wait_for_work(now, plan.resume_at)
            return
        try:
            await self._exchange(connection, plan, now)
        finally:
            if self._held.is_on:
                self._held.settle(plan, trio.current_time())

    async def _exchange(self, connection: Connection, plan: FetchPlan, now: float) -> None:
        request, epochs = self._request(plan, now)
        # These come last next time: nobody starves behind a full or failed answer, or beyond what one fetch may name.
        last = plan.asked[:MAX_FETCHED] if len(plan.asked) > MAX_FETCHED else (next(iter(self.partitions)), *plan.first)
        for partition in dict.fromkeys(last):
            del self.partitions[partition]
            self.partitions[partition] = None
        self._polling = connection
        self._answer_due_at = now + (self._config.replica_socket_timeout_ms + request.max_wait_ms) / 1000
        try:
            response, attachments = await connection.exchange(request)
        finally:
            self._polling = None
        assert isinstance(response, FetchResponse)
        if response.error_code:
            raise RemoteProtocolError(
                f"broker {self._leader_id} refuses fetches: {ErrorCode(response.error_code).name}"
            )
        self._process(response, attachments, epochs)

    async def _wait_for_work(self, now: float, held_until: float) -> None:
        """Every partition backs off or is held back (or there is none): wait for the first of them, or for a new one.
        What is held back is looked at now and then, since it may not be throttled any more."""
        resume_at = min((self._resume_at.get(p, now) for p in self.partitions), default=now + 1.0)
        if held_until < math.inf:
            resume_at = min(
                held_until,
                now + self._config.replica_fetch_wait_max_ms / 1000,
                *(at for at in self._resume_at.values() if at > now),
            )
        with trio.move_on_after(max(resume_at - now, 0.001)):
            await self._changed.wait()

    def _request(self, plan: FetchPlan, now: float) -> tuple[FetchRequest, Asked]:
        """The next fetch, and what it asks for. It waits at the leader no longer than until a back-off ends, or until
        what a throttle held back may come."""
        config, followers, partitions = self._config, self._followers, plan.asked
        is_idle = self._is_idle(partitions)
        max_wait_ms = self._idle_wait_ms() if is_idle else config.replica_fetch_wait_max_ms
        if len(partitions) < len(self.partitions):
            resume_at = min((at for at in self._resume_at.values() if at > now), default=math.inf)
            if plan.resume_at < math.inf:
                max_wait_ms = min(max_wait_ms, config.replica_fetch_wait_max_ms)
            max_wait_ms = int(min(max_wait_ms, (min(resume_at, plan.resume_at) - now) * 1000))
        if len(partitions) > MAX_FETCHED or followers.log_starts.are_due_soon:
            partitions, max_wait_ms = partitions[:MAX_FETCHED], min(max_wait_ms, TURN_WAIT_MS)
        replica_id, incarnation = followers.replicas.broker_id, followers.incarnation
        return build_fetch(partitions, config, replica_id, incarnation, max_wait_ms, is_idle, plan.max_bytes)

    def _is_idle(self, partitions: Iterable[Partition]) -> bool:
        """Nothing is to be told or heard before more is appended, so this fetch may wait long, and idle partitions cost
        next to nothing: all of each log is committed, which this broker knows. A leader answers at once what changes
        without an append: its role, its log start. Nobody has an error to forget, since an answer to this may be
        empty."""
        if self._followers.log_starts.are_due or self._config.replica_fetch_min_bytes > 1 or self._backoff_s:
            return False
        return all(partition.high_watermark == partition.log.log_end_offset for partition in partitions)

    def _idle_wait_ms(self) -> int:
        """A connection that has died unnoticed is to be found out well before the leader counts this one as lagging."""
        return max(self._config.replica_fetch_wait_max_ms, self._config.replica_lag_time_max_ms // 3)

    def _process(
        self,
        response: FetchResponse,
        attachments: memoryview,
        asked: Asked,
    ) -> None:
        views = iter(cut_records(response, attachments))
        is_throttled = self._held.is_on
        for topic in response.responses:
            for data in topic.partitions:
                records = next(views)
                entry = asked.get((topic.topic, data.partition_index))
                if entry is None:
                    raise RemoteProtocolError(f"{topic.topic}-{data.partition_index} was not asked for")
                partition, epoch, offset = entry
                if (
                    partition not in self.partitions
                    or partition.leader_epoch != epoch
                    or partition.log.log_end_offset != offset
                ):
                    continue  # the role changed while the answer was on its way
                self._process_partition(partition, data, records)
                if is_throttled:
                    self._held.answered(partition, offset, data.high_watermark, len(records or ()))
        self._report_refusals()
        self._followers.burst.end()

    def _process_partition(self, partition: Partition, data: FetchPartitionData, records: memoryview | None) -> None:
        """The order matters: divergence before anything else may move (invariant 7), then the append, then HW."""
        followers = self._followers
        try:
            if data.error_code:
                self._handle_error(partition, data)
                return
            # 1 divergence: truncate and stop
            if data.diverging_epoch is not None:
                before, high_watermark = partition.log.log_end_offset, partition.high_watermark
                end = partition.truncate_to_divergence(data.diverging_epoch, data.log_start_offset)
                report = self._followers.log.error if end < high_watermark else self._followers.log.info
                report(
                    "truncated below high watermark" if end < high_watermark else "truncated",
                    partition=str(partition.topic_partition),
                    from_offset=before,
                    to_offset=end,
                    high_watermark=high_watermark,
                    diverging_epoch=data.diverging_epoch.epoch,
                )
                return
            # 2 append, 3 HW
            high_watermark = partition.high_watermark
            if records:
                partition.append_fetched(records, data.high_watermark, data.log_start_offset)
                followers.replicas.traffic.replication_bytes_in += len(records)
            else:
                partition.learn_high_watermark(min(data.high_watermark, partition.log.log_end_offset))
            if data.high_watermark > partition.log.log_end_offset:
                self.lags[partition] = data.high_watermark - partition.log.log_end_offset
            elif self.lags:
                self.lags.pop(partition, None)
            if partition.high_watermark > high_watermark:
                followers.burst.changes.committed(partition)  # consumers may read here
            if data.log_start_offset > partition.log.durable_log_start_offset:
                partition.learn_log_start(data.log_start_offset)
                followers.log_starts.add(partition)
            if self._backoff_s:
                self._backoff_s.pop(partition, None)
                self._resume_at.pop(partition, None)
        except CheckpointFirst:
            self._resume_at[partition] = math.inf
            self._followers.checkpoint_first(partition, self)
        except InvalidBatch as error:
            self._followers.log.error(
                "fetched batch refused", partition=str(partition.topic_partition), error=str(error)
            )
            self._back_off(partition)
        except (LogStorageError, OSError) as error:
            followers.replicas.partition_failed(partition, error)
            if not partition.failed:  # only descriptors are lacking
                self._back_off(partition)

    def _handle_error(self, partition: Partition, data: FetchPartitionData) -> None:
        code, log, start = data.error_code, partition.log, data.log_start_offset
        is_above = 0 <= start < log.log_end_offset == log.log_start_offset  # empty: it has no epoch that could diverge
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and (log.log_end_offset < start or is_above):
            self._followers.log.warning(
                "restarted at leaders log start",
                partition=str(partition.topic_partition),
                log_end_offset=log.log_end_offset,
                leader_log_start_offset=start,
            )
            partition.restart_at(start)
            return
        self._refused.setdefault(code, []).append(partition.topic_partition)
        if code == ErrorCode.FENCED_LEADER_EPOCH and self._followers.replicas.is_leaving:
            self.remove(partition)  # it was handed over: of its next role this broker hears, and does not play it
        else:
            self._back_off(partition)

    def _report_refusals(self) -> None:
        """One line for all: each change of leaders has thousands refused for a moment."""
        for code, partitions in self._refused.items():
            self._followers.log.info(
                "fetch refused",
                leader=self._leader_id,
                error=ErrorCode(code).name,
                partitions=len(partitions),
                first=str(partitions[0]),
            )
        self._refused.clear()

    def _back_off(self, partition: Partition) -> None:
        wait_s = self._backoff_s.get(partition, FIRST_BACKOFF_S)
        self._resume_at[partition] = trio.current_time() + wait_s
        self._backoff_s[partition] = min(wait_s * 2, self._config.replica_fetch_backoff_ms / 1000)
