"""This broker's presence in ZooKeeper: its incarnation, its ephemeral registration.

A start in order, each step before the next because the next relies on it:

1. nobody else holds the id
2. the incarnation is bumped, first on the disk: fetches of an earlier start can no longer carry this broker into an ISR
   (KIP-903), and a folder that missed a life of this broker (an old backup) counts as one that lost data
3. a broker that may have lost data says so in the state of every partition that credits it with data (`loss_reports`,
   invariant 22)
4. the registration is created; its czxid is the broker epoch that fences the controller's requests (KIP-380)

After the session expired, step 4 is done again with the new session; every other znode is persistent. What the
registration says may change while it stands (`change`): it is written over, which makes no new broker epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog
import trio

from strandline.broker.membership.loss_reports import paths_of_states, renounce_claims
from strandline.broker.patience import DELAY_TOLD_INTERVAL_S, RETRY_DELAY_S, until_answered
from strandline.protocol.znodes import (
    CONTROLLER_EPOCH_PATH,
    OUR_CONTROLLER_EPOCH_PATH,
    BrokerIdZnode,
    BrokerIncarnationZnode,
    InvalidZnode,
)
from strandline.runtime.coordination import (
    BadVersion,
    ConnectionLost,
    Coordination,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    TransactionFailed,
    Znode,
)
from strandline.runtime.logging import RateLimited

SESSIONS_AWAITED = 1.5
"""Session timeouts: a server ends a session a little late, in steps of its tick."""


BeginLife = Callable[[int, bool], Awaitable[bool]]


class BrokerIdTaken(Exception):
    """Another broker, with another data folder or a copy of this one's, is registered under this id."""


class Registration:
    """Registers this broker and keeps it registered for as long as `run` runs."""

    def __init__(
        self,
        broker_id: int,
        lock_id: str,
        coordination: Coordination,
        log: structlog.typing.FilteringBoundLogger,
        broker_key: str = "",
    ) -> None:
        """broker_key: by which this broker knows the others of its cluster, see `broker_key`; "": by nothing."""
        self.broker_id = broker_id
        self.incarnation = -1
        self.broker_epoch = -1
        """czxid of the registration; −1 while there is none."""
        self.unsaid: dict[str, str] = {}
        """Paths of states that may still credit this broker with what it lost, and why that could not be said there;
        until they do not, the disk must not forget the loss."""
        self.lock_id = lock_id
        self.broker_key = broker_key
        self._coordination = coordination
        self._log = log
        self._limited = RateLimited(log, interval_s=DELAY_TOLD_INTERVAL_S)
        self._znode: BrokerIdZnode | None = None
        self._changed = trio.Event()
        self.on_registered: Callable[[int], None] = _nobody_listens
        """Told the broker epoch of each registration of this session or a later one."""
        coordination.add_session_listener(self._session_changed)

    async def prepare(self, begin_life: BeginLife) -> None:
        """Steps 1–3, where `find_cluster` found the cluster to be this broker's. `begin_life` is told how often this
        broker was started before, and whether no other kind of controller was in charge since; it notes on the disk
        that one more life begins, and says whether data may have been lost. BrokerIdTaken."""
        await until_answered(self._await_own, self._limited)
        bump = partial(self._bump_incarnation, begin_life)
        self.incarnation, may_have_lost_data = await until_answered(bump, self._limited)
        if may_have_lost_data:
            await self._renounce(await until_answered(partial(paths_of_states, self._coordination), self._limited))
            for error in self.unsaid.values():
                self._log.warning("partition state unreadable", error=error)

    async def renounce_rest(self) -> None:
        """Say of a loss what could not be said yet."""
        await self._renounce(list(self.unsaid))

    async def _renounce(self, paths: Sequence[str]) -> None:
        step = partial(renounce_claims, self._coordination, self.broker_id, paths, self._log)
        self.unsaid = await until_answered(step, self._limited)

    async def register(self, znode: BrokerIdZnode) -> None:
        """Step 4. BrokerIdTaken when a foreign broker holds the id."""
        self._znode = znode
        await until_answered(self._register, self._limited)

    @property
    def is_announced(self) -> bool:
        """Whether step 4 has begun: others may know of this broker."""
        return self._znode is not None

    def change(self, znode: BrokerIdZnode) -> None:
        """This is what counts from now on; `run` writes it. For one that is announced."""
        assert self.is_announced
        self._znode = znode
        self._changed.set()

    async def run(self) -> None:
        """Register again whenever the session was replaced, or what is said has changed."""
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

    async def _bump_incarnation(self, begin_life: BeginLife) -> tuple[int, bool]:
        """(the version of `/brokers/incarnations/<id>` after this start's own write, what `begin_life` says).

        The disk comes first: a folder that knows of fewer lives than ZooKeeper has was not there in the last of them. A
        crash in between leaves one that knows of more, which proves nothing and harms nobody."""
        path = BrokerIncarnationZnode.path(self.broker_id)
        with suppress(NodeExists):
            await self._coordination.create(path, parents=True)
        epoch, ours = await self._coordination.get_many([CONTROLLER_EPOCH_PATH, OUR_CONTROLLER_EPOCH_PATH])
        was_ours = epoch is None or (ours is not None and ours.data == epoch.data)
        while True:
            stat = await self._coordination.exists(path)
            assert stat is not None, f"{path} vanished"
            may_have_lost_data = await begin_life(stat.version, was_ours)
            try:
                return (await self._coordination.set(path, b"", stat.version)).version, may_have_lost_data
            except (BadVersion, ConnectionLost):
                await trio.sleep(RETRY_DELAY_S)  # an unanswered write costs one number, nothing else

    async def _register(self) -> None:
        """Create the ephemeral znode, whatever stands there: ours is success, our own stale one is replaced, a foreign
        one is refused (invariant 29) unless its session ends soon."""
        while True:
            assert self._znode is not None
            path, data = BrokerIdZnode.path(self.broker_id), self._znode.encode()
            try:
                await self._coordination.create(path, data, ephemeral=True)
            except NodeExists:
                if not await self._take_over(path, data):
                    continue
            stat = await self._coordination.exists(path)
            if stat is not None and stat.ephemeral_owner == self._coordination.session_id:
                if stat.czxid == self.broker_epoch:
                    return
                self.broker_epoch = stat.czxid
                self._log.info("registered", broker_epoch=stat.czxid, incarnation=self.incarnation)
                self.on_registered(stat.czxid)
                return

    async def _take_over(self, path: str, data: bytes) -> bool:
        """Whether the znode at `path` is of this session now; False: look again."""
        found = await self._await_own()
        if found is None:
            return False
        if found.stat.ephemeral_owner == self._coordination.session_id:
            return found.data == data or await self._write_over(path, data, found.stat.version)
        try:
            await self._coordination.multi([Delete(path, found.stat.version), Create(path, data, ephemeral=True)])
        except TransactionFailed:
            return False
        self._log.info("replaced own stale registration", old_session=f"{found.stat.ephemeral_owner:#x}")
        return True

    async def _write_over(self, path: str, data: bytes, version: int) -> bool:
        """Whether this session's registration says something else now; False: look again."""
        try:
            await self._coordination.set(path, data, version)
        except (BadVersion, NoNode):
            return False
        self._log.info("registration changed", broker_epoch=self.broker_epoch)
        return True

    async def _await_own(self) -> Znode | None:
        """This broker's registration of this life or a past one, None if there is none. Before a start touches anything
        of its id it comes here: a foreign broker must not take the rightful one out of its ISRs.

        The lock on the data folder is held by this process, so a registration under the same lock is a past life's. One
        under another may be so, too, where the machine was started again or the disk replaced: its session ends then,
        while another broker keeps its own, which is BrokerIdTaken. That may be one with a copy of this folder."""
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
            lock_id, where = _holder(path, found)
            if lock_id and lock_id == self.lock_id:
                return found
            if trio.current_time() >= deadline:
                raise BrokerIdTaken(
                    f"broker.id={self.broker_id} is registered by another broker at {where}, and has been for "
                    f"{patience_s:g} s: stop that one or choose another id"
                )
            if not is_told:
                self._log.info(
                    "this broker id is registered with another data folder, or from before a start of the machine: "
                    "waiting for the end of that session",
                    registered_at=where,
                    at_most_s=patience_s,
                )
                is_told = True
            await trio.sleep(RETRY_DELAY_S)


def _nobody_listens(_: int) -> None: ...


def _holder(path: str, found: Znode) -> tuple[str, str]:
    """(lock id, address) of a registration."""
    try:
        other = BrokerIdZnode.decode(path, found.data)
    except InvalidZnode:
        return "", "an unreadable address"
    return other.lock_id, f"{other.host}:{other.port}"
