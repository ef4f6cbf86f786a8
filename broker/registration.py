"""This broker's presence in ZooKeeper: its incarnation, its ephemeral registration, its cluster's id.

A start in order, each step before the next because the next relies on it:

1. the persistent paths exist; the cluster has an id (created by whoever comes first)
2. the incarnation is bumped: fetches of an earlier start can no longer carry this broker into an ISR (KIP-903)
3. a broker that may have lost data takes itself out of every ISR that has another member (22)
4. the registration is created; its czxid is the broker epoch that fences the controller's requests (KIP-380)

After the session expired, step 4 is done again with the new session; every other znode is persistent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

import msgspec
import structlog
import trio

from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import (
    LATEST_PRODUCER_ID_BLOCK_PATH,
    PERSISTENT_PATHS,
    BrokerIdZnode,
    BrokerIncarnationZnode,
    ClusterIdZnode,
    InvalidZnode,
    PartitionStateZnode,
)
from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    BadVersion,
    Check,
    ConnectionLost,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SessionState,
    SetData,
    TransactionFailed,
    Znode,
)
from strandline.runtime.logging import RateLimited

T = TypeVar("T")

RETRY_DELAY_S = 0.2
"""Between two attempts while ZooKeeper does not answer."""
DELAY_TOLD_INTERVAL_S = 10.0
SESSIONS_AWAITED = 1.5
"""Session timeouts: a server ends a session a little late, in steps of its tick."""
TOPICS_PATH = "/brokers/topics"


class BrokerIdTaken(Exception):
    """Another broker, with another data folder, is registered under this id."""


class Registration:
    """Registers this broker and keeps it registered for as long as `run` runs."""

    def __init__(
        self, broker_id: int, directory_id: str, coordination: Coordination, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self.broker_id = broker_id
        self.incarnation = -1
        self.broker_epoch = -1
        """czxid of the registration; −1 while there is none."""
        self.undecided: list[TopicPartition] = []
        """Partitions whose only in-sync member this broker is although it may have lost data: the controller's to
        decide. Until then the loss must not be forgotten, not even by another crash."""
        self._directory_id = directory_id
        self._coordination = coordination
        self._log = log
        self._limited = RateLimited(log, interval_s=DELAY_TOLD_INTERVAL_S)
        self._znode: BrokerIdZnode | None = None
        self._changed = trio.Event()
        coordination.add_session_listener(self._session_changed)

    async def prepare(self, new_cluster_id: UUID, *, may_have_lost_data: bool) -> str:
        """Steps 1–3; returns the cluster's id."""
        for path in PERSISTENT_PATHS:
            await self._until_answered(partial(self._ensure, path))
        await self._until_answered(self._empty_producer_id_block)
        await self._until_answered(self._await_own)
        cluster_id = await self._until_answered(partial(self._ensure_cluster_id, new_cluster_id))
        self.incarnation = await self._until_answered(self._bump_incarnation)
        if may_have_lost_data:
            await self._until_answered(self._leave_isrs)
        return cluster_id

    async def register(self, znode: BrokerIdZnode) -> None:
        """Step 4. BrokerIdTaken when a foreign broker holds the id."""
        self._znode = znode
        await self._until_answered(self._register)

    async def run(self) -> None:
        """Register again whenever the session was replaced."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            while self._coordination.state is SessionState.CONNECTED and self._znode is not None:
                try:
                    await self._register()
                    break
                except (ConnectionLost, SessionExpired) as error:
                    self._limited.warning("delayed", "registration delayed", error=str(error))
                    await trio.sleep(RETRY_DELAY_S)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.broker_epoch = -1  # the ephemeral znode is gone: requests for that life are stale
        elif state is SessionState.CONNECTED and self.broker_epoch == -1:
            self._changed.set()

    async def _until_answered(self, step: Callable[[], Awaitable[T]]) -> T:
        """Repeat a step of the start while the connection breaks under it: each may be done twice, and a broker that
        starts just then must not die of it."""
        while True:
            try:
                return await step()
            except (ConnectionLost, SessionExpired) as error:
                self._limited.warning("delayed", "registration delayed", error=str(error))
                await trio.sleep(RETRY_DELAY_S)

    async def _ensure(self, path: str, data: bytes | None = None) -> None:
        try:
            await self._coordination.create(path, data, parents=True)
        except NodeExists:
            return

    async def _empty_producer_id_block(self) -> None:
        """Null is to Kafka, which may take over, the start of all producer ids. The empty string, which stood here
        once, is a block that it cannot read: its idempotent producers hang."""
        znode = await self._coordination.get(LATEST_PRODUCER_ID_BLOCK_PATH)
        if not znode.data and not znode.is_null:
            try:
                await self._coordination.set(LATEST_PRODUCER_ID_BLOCK_PATH, None, znode.stat.version)
            except BadVersion:
                return  # another broker was faster

    async def _ensure_cluster_id(self, new_cluster_id: UUID) -> str:
        znode = ClusterIdZnode.new(new_cluster_id)
        await self._ensure(ClusterIdZnode.PATH, znode.encode())
        stored = await self._coordination.get(ClusterIdZnode.PATH)
        return ClusterIdZnode.decode(ClusterIdZnode.PATH, stored.data).id

    async def _bump_incarnation(self) -> int:
        """The version of `/brokers/incarnations/<id>` after this start's own write."""
        path = BrokerIncarnationZnode.path(self.broker_id)
        await self._ensure(path)
        while True:
            stat = await self._coordination.exists(path)
            assert stat is not None, f"{path} vanished"
            try:
                return (await self._coordination.set(path, b"", stat.version)).version
            except (BadVersion, ConnectionLost):
                await trio.sleep(RETRY_DELAY_S)  # an unanswered write costs one number, nothing else

    async def _register(self) -> None:
        """Create the ephemeral znode, whatever stands there: ours is success, our own stale one is replaced, a foreign
        one is refused (29) unless its session ends soon."""
        assert self._znode is not None
        path, data = BrokerIdZnode.path(self.broker_id), self._znode.encode()
        while True:
            try:
                await self._coordination.create(path, data, ephemeral=True)
            except NodeExists:
                if not await self._take_over(path, data):
                    continue
            stat = await self._coordination.exists(path)
            if stat is not None and stat.ephemeral_owner == self._coordination.session_id:
                self.broker_epoch = stat.czxid
                if self._znode.started_epoch is None:
                    self._znode = msgspec.structs.replace(self._znode, started_epoch=stat.czxid)
                self._log.info("registered", broker_epoch=stat.czxid, incarnation=self.incarnation)
                return

    async def _take_over(self, path: str, data: bytes) -> bool:
        """Whether the znode at `path` is of this session now; False: look again."""
        found = await self._await_own()
        if found is None:
            return False
        if found.stat.ephemeral_owner == self._coordination.session_id:
            return True
        try:
            await self._coordination.multi([Delete(path, found.stat.version), Create(path, data, ephemeral=True)])
        except TransactionFailed:
            return False
        self._log.info("replaced own stale registration", old_session=f"{found.stat.ephemeral_owner:#x}")
        return True

    async def _await_own(self) -> Znode | None:
        """This broker's registration of this life or a past one, None if there is none. Before a start touches anything
        of its id it comes here: a foreign broker must not take the rightful one out of its ISRs.

        The data folder's lock is held by this process, so a registration with its directory id is a past life's. One
        with another directory id may be so, too, where the disk was replaced: its session ends then, while another
        broker keeps its own, which is BrokerIdTaken."""
        path = BrokerIdZnode.path(self.broker_id)
        patience_s = SESSIONS_AWAITED * self._coordination.session_timeout_ms / 1000
        deadline, is_told = trio.current_time() + patience_s, False
        while True:
            try:
                found = await self._coordination.get(path)
            except NoNode:
                return None
            if found.stat.ephemeral_owner == self._coordination.session_id:
                return found
            directory_id, where = _holder(path, found)
            if directory_id == self._directory_id:
                return found
            if trio.current_time() >= deadline:
                raise BrokerIdTaken(
                    f"broker.id={self.broker_id} is registered by another broker at {where}, and has been for "
                    f"{patience_s:g} s: stop that one or choose another id"
                )
            if not is_told:
                self._log.info(
                    "this broker id is registered with another data folder: waiting for the end of that session",
                    registered_at=where,
                    at_most_s=patience_s,
                )
                is_told = True
            await trio.sleep(RETRY_DELAY_S)

    # --- step 3 ------------------------------------------------------------------------------------------------

    async def _leave_isrs(self) -> None:
        """Take this broker out of every ISR that has another member; where it is the only one, it stays: nobody else
        can be elected, and the controller decides (unclean.recovery.strategy).

        Each is a new leader epoch, also under the same leader: that one would go on with an ISR that is no more, and
        never propose this broker again. The controller tells it."""
        topics = await self._coordination.children(TOPICS_PATH)
        partition_lists = await self._coordination.children_many([f"{TOPICS_PATH}/{t}/partitions" for t in topics])
        paths = [
            PartitionStateZnode.path(topic, int(index))
            for topic, indexes in zip(topics, partition_lists, strict=True)
            for index in indexes or ()
            if index.isdecimal()
        ]
        left: list[str] = []
        while paths:
            lives = await self._lives(topics)  # before the states: a topic that is made anew in between has another id
            znodes = await self._coordination.get_many(paths)
            writes = [
                (path, [*lives[path.split("/")[3]], write])
                for path, znode in zip(paths, znodes, strict=True)
                if znode is not None and (write := self._without_me(path, znode)) is not None
            ]
            results = await self._coordination.multi_many([write for _, write in writes])
            paths = [
                path for (path, _), result in zip(writes, results, strict=True) if isinstance(result, CoordinationError)
            ]
            left.extend(path for path, _ in writes if path not in paths)
            if paths:
                await trio.sleep(RETRY_DELAY_S)
        if left:
            self._log.warning("left isrs after possible data loss", partitions=len(left))

    async def _lives(self, topics: Sequence[str]) -> dict[str, list[Operation]]:
        """Topic → the check that it is still this one, by the znode named by its id. One that another tool made, and no
        controller of ours has seen yet, has none."""
        below = await self._coordination.children_many([f"{TOPICS_PATH}/{topic}" for topic in topics])
        return {
            topic: [
                Check(f"{TOPICS_PATH}/{topic}/{child}", MATCH_ANY_VERSION)
                for child in children or ()
                if child != "partitions"
            ]
            for topic, children in zip(topics, below, strict=True)
        }

    def _without_me(self, path: str, znode: Znode) -> Operation | None:
        try:
            state = PartitionStateZnode.decode(path, znode.data)
        except InvalidZnode as error:
            self._log.warning("partition state unreadable", error=str(error))
            return None
        if self.broker_id not in state.isr:
            return None
        if len(state.isr) == 1:
            _, _, _, topic, _, index, _ = path.split("/")
            self.undecided.append(TopicPartition(topic, int(index)))
            return None
        isr: Sequence[int] = [member for member in state.isr if member != self.broker_id]
        leads = state.leader == self.broker_id
        changed = PartitionStateZnode(
            controller_epoch=state.controller_epoch,
            leader=NO_BROKER if leads else state.leader,
            leader_epoch=state.leader_epoch + 1,
            isr=list(isr),
            left_isr=[*(member for member in state.left_isr or () if member != self.broker_id), self.broker_id],
        )
        return SetData(path, changed.encode(), znode.stat.version)


def _holder(path: str, found: Znode) -> tuple[str | None, str]:
    """(directory id, address) of a registration."""
    try:
        other = BrokerIdZnode.decode(path, found.data)
    except InvalidZnode:
        return None, "an unreadable address"
    return other.directory_id, f"{other.host}:{other.port}"
