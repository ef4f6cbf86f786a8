"""The coordination seam: what the system uses ZooKeeper for. Production: `runtime/zookeeper/client.py`; tests:
`strandline.testkit.zookeeper.server`. One contract suite runs against both.

Asynchronous and pipelined: operations issued together travel together; `get_each`, `get_many` and those of children
read in waves (MultiRead). Paths are absolute below the chroot of `zookeeper.connect`.

Watches are one-shot and level triggered: the callback says only *that* something may have changed. Set the watch with
the read, at processing time. On a loss of the connection every watch callback fires once with `CONNECTION` and is gone:
re-arm by reading again once CONNECTED. Callbacks run on the event loop and must not block.

Ambiguity: `ConnectionLost` means that a write may or may not have been applied. Repeat a *conditional* write as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from strandline.runtime.recent_times import RecentTimes

MATCH_ANY_VERSION = -1
"""Forbidden for partition states (invariant 12); allowed where nobody competes."""


class ZnodeStat(NamedTuple):
    """version: of the data; cversion: of the children; czxid: transaction that created it (the broker epoch);
    ephemeral_owner: session id, 0 for a persistent znode."""

    version: int
    cversion: int
    czxid: int
    mzxid: int
    ephemeral_owner: int
    num_children: int


class Znode(NamedTuple):
    """is_null: it holds no data, which ZooKeeper, and Kafka with it, tells from empty data; `data` is empty then."""

    data: bytes
    stat: ZnodeStat
    is_null: bool = False


class SessionState(enum.Enum):
    """CONNECTED: usable. SUSPENDED: no server answers, the session may still live. EXPIRED: the session is gone with
    its ephemeral znodes; a new session follows with CONNECTED."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class WatchEvent(enum.Enum):
    """Why a watch fired; only a hint (level triggered)."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"
    CONNECTION = "connection"


class CoordinationError(Exception):
    """Base; the text names the operation and the path."""


class NoNode(CoordinationError): ...


class NodeExists(CoordinationError): ...


class BadVersion(CoordinationError): ...


class NotEmpty(CoordinationError): ...


class ConnectionLost(CoordinationError):
    """No answer; a write may have been applied."""


class SessionExpired(CoordinationError):
    """The session that issued the operation is gone."""


class NoAuth(CoordinationError):
    """An access control list keeps this client from it."""


class RequestTooLarge(CoordinationError):
    """Data over ZooKeeper's limit (1 MiB)."""


@dataclass(frozen=True, slots=True)
class Create:
    """data: None makes a null znode, as Kafka's are that hold nothing."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = MATCH_ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Operation = Create | SetData | Delete | Check
OperationResult = str | ZnodeStat | None
"""Of a successful operation: the created path, the new stat after SetData, None for Delete and Check."""


class TransactionFailed(CoordinationError):
    """Nothing was applied. `index`: the first operation that failed; `cause`: its typed error."""

    def __init__(self, message: str, index: int, cause: CoordinationError) -> None:
        super().__init__(message)
        self.index = index
        self.cause = cause


Watch = Callable[[WatchEvent], None]


class Coordination(Protocol):
    """One session with ZooKeeper."""

    @property
    def session_id(self) -> int:
        """Id of the current session, 0 before the first."""

    @property
    def session_timeout_ms(self) -> int:
        """After so long a silence a server ends the session: as granted, before the first connection as asked for."""

    @property
    def state(self) -> SessionState: ...

    @property
    def request_times(self) -> RecentTimes:
        """How long requests took, from when they were sent to their answers or their failure."""

    def seconds_since_contact(self) -> float:
        """Since a server last answered anything (pings included): kazoo reports a lost session only when it
        reconnects, so whoever acts on a session keeps this clock itself."""

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Called on the event loop at each change of state, in order."""

    async def start(self) -> None:
        """Connect; returns when CONNECTED. CoordinationError naming the servers after the connection timeout."""

    async def close(self) -> None:
        """End the session: its ephemeral znodes vanish at once. Idempotent."""

    async def get(self, path: str, watch: Watch | None = None) -> Znode: ...

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None: ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, sorted."""

    async def get_each(self, paths: Sequence[str]) -> list[Znode | CoordinationError | None]:
        """None where there is no such znode, its error where ZooKeeper refuses one (NoAuth). Pipelined in waves; order
        as asked. ConnectionLost, SessionExpired."""

    async def children_each(self, paths: Sequence[str]) -> list[list[str] | CoordinationError | None]: ...

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """As `get_each` where all may be read, else the first error."""

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]: ...

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        """Returns the path (with its number when `sequence`). parents: create missing ones, persistent and null."""

    async def set(self, path: str, data: bytes | None, version: int) -> ZnodeStat: ...

    async def delete(self, path: str, version: int = MATCH_ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """All or nothing; TransactionFailed names the operation at fault."""

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | CoordinationError]:
        """Independent transactions, pipelined; each ends by itself with its results or its error."""

    async def sync(self, path: str = "/") -> None:
        """The following reads see everything that was written before this call."""


R = TypeVar("R")


def all_shown(results: Sequence[R | CoordinationError]) -> list[R]:
    """What was read of each. Raises the error of the first that was refused."""
    shown: list[R] = []
    for result in results:
        if isinstance(result, CoordinationError):
            raise result
        shown.append(result)
    return shown
