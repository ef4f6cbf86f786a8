"""ZooKeeper without servers: sessions that read and write one tree at once, and are told of it when somebody looks.

No time passes and nothing gets lost on the way, so a session ends only when it is closed or `expire`d. Nothing of it
waits for a task, and all of it can be pickled with what holds it: that is what `bare_cluster` is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    Operation,
    OperationResult,
    SessionState,
    SetData,
    TransactionFailed,
    Watch,
    WatchEvent,
    Znode,
    ZnodeStat,
)
from strandline.runtime.recent_times import RecentTimes
from strandline.runtime.zookeeper.paths import parent_of
from strandline.testkit.zookeeper.tree import ZnodeTree

SESSION_TIMEOUT_MS = 6_000


class BareZooKeeper:
    """The tree, who watches it and whose sessions live."""

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        self.sessions = 0
        self._watches: dict[tuple[str, bool], list[tuple[int, Watch]]] = {}
        """(path, is it for the children) → who is told of the next change there."""

    def session(self) -> BareCoordination:
        self.sessions += 1
        return BareCoordination(self, self.sessions)

    def watch(self, path: str, of_children: bool, session_id: int, watch: Watch | None) -> None:
        if watch is not None:
            watches = self._watches.setdefault((path, of_children), [])
            if (session_id, watch) not in watches:
                watches.append((session_id, watch))

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[OperationResult]:
        """One transaction; whoever watches what it changed is told at once. TransactionFailed."""
        applied = self.tree.apply(operations, session_id)
        for path, event in applied.raised:
            if event is not WatchEvent.CHILDREN:
                self._tell((path, False), event)
            if event in (WatchEvent.CHILDREN, WatchEvent.DELETED):
                self._tell((path, True), event)
        return applied.results

    def _tell(self, key: tuple[str, bool], event: WatchEvent) -> None:
        for _, watch in self._watches.pop(key, ()):
            watch(event)

    def forget_watches(self, session_id: int) -> None:
        """Those that this session set: its process does not live any more."""
        kept = {key: [each for each in watches if each[0] != session_id] for key, watches in self._watches.items()}
        self._watches = {key: watches for key, watches in kept.items() if watches}

    def end(self, session_id: int) -> None:
        """The session ends, and its ephemeral znodes vanish."""
        self.forget_watches(session_id)
        for path in self.tree.ephemerals_of(session_id):
            self.apply([Delete(path)], session_id)


class BareCoordination:
    """`Coordination`, always connected."""

    state = SessionState.CONNECTED
    session_timeout_ms = SESSION_TIMEOUT_MS

    def __init__(self, zookeeper: BareZooKeeper, session_id: int) -> None:
        self._zookeeper = zookeeper
        self.session_id = session_id
        self.request_times = RecentTimes()

    def seconds_since_contact(self) -> float:
        return 0.0

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Nothing to tell: it is connected while its broker lives."""

    async def start(self) -> None: ...

    async def close(self) -> None:
        self._zookeeper.end(self.session_id)

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        znode = self._zookeeper.tree.get(path)
        self._zookeeper.watch(path, False, self.session_id, watch)
        return znode

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        self._zookeeper.watch(path, False, self.session_id, watch)
        return self._zookeeper.tree.exists(path)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = self._zookeeper.tree.children(path)
        self._zookeeper.watch(path, True, self.session_id, watch)
        return names

    async def get_each(self, paths: Sequence[str]) -> list[Znode | CoordinationError | None]:
        return [*await self.get_many(paths)]  # nothing is hidden here

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        tree = self._zookeeper.tree
        return [tree.get(path) if path in tree.nodes else None for path in paths]

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        tree = self._zookeeper.tree
        return [tree.children(path) if path in tree.nodes else None for path in paths]

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        if not sequence and path in self._zookeeper.tree.nodes:
            raise NodeExists(path)
        if parents and parent_of(path) not in self._zookeeper.tree.nodes:
            await self.create(parent_of(path), parents=True)
        [created] = await self._one(Create(path, data, ephemeral, sequence))
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes | None, version: int) -> ZnodeStat:
        [stat] = await self._one(SetData(path, data, version))
        assert isinstance(stat, ZnodeStat)
        return stat

    async def delete(self, path: str, version: int = MATCH_ANY_VERSION) -> None:
        await self._one(Delete(path, version))

    async def _one(self, operation: Operation) -> list[OperationResult]:
        try:
            return self._zookeeper.apply([operation], self.session_id)
        except TransactionFailed as failed:
            raise failed.cause from None

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        return self._zookeeper.apply(operations, self.session_id)

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | CoordinationError]:
        outcomes: list[list[OperationResult] | CoordinationError] = []
        for operations in transactions:
            try:
                outcomes.append(self._zookeeper.apply(operations, self.session_id))
            except CoordinationError as error:
                outcomes.append(error)
        return outcomes

    async def sync(self, path: str = "/") -> None: ...
