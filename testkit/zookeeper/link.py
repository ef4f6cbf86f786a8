"""What travels between the in-memory ZooKeeper and its clients: requests, the connections that carry them,
and what the server keeps of a session and of a client."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.runtime.coordination import Watch
from strandline.testkit.zookeeper.tree import Raised, ZnodeTree

if TYPE_CHECKING:
    from strandline.testkit.zookeeper.client import MemoryCoordination
    from strandline.testkit.zookeeper.server import MemoryZooKeeper


class WatchKind(enum.Enum):
    DATA = "data"
    CHILDREN = "children"


@dataclass(slots=True)
class Box:
    """Messages under way in one direction; owed: deliveries that fell due while the client was out of reach."""

    messages: deque[Callable[[], None]] = field(default_factory=deque)
    owed: int = 0


class Link:
    """One connection between a client and the server, and the client's watches, which live as long as it does."""

    def __init__(self, client: MemoryCoordination, session_id: int) -> None:
        self.client = client
        self.session_id = session_id
        self.open = True
        self.to_server = Box()
        self.to_client = Box()
        self.pending: deque[Request] = deque()
        self.watches: dict[tuple[WatchKind, str], dict[Watch, None]] = {}


@dataclass(eq=False, slots=True)
class Request:
    """One request. `act` runs on the server and returns the result or raises a CoordinationError. `watch`: set when
    the reply arrives, where there is something to watch."""

    name: str
    path: str
    act: Callable[[MemoryZooKeeper, Link], Any]
    writes: bool = False
    syncs: bool = False
    watch: tuple[WatchKind, Watch] | None = None
    session_id: int = 0
    result: Any = None
    abandoned: bool = False
    done: Callable[[], None] = lambda: None

    def finish(self, result: Any) -> None:
        self.result = result
        self.done()


class Reach(enum.Enum):
    """UP: messages flow. CUT: no connection can be made. SILENT: as CUT, and the client has not noticed yet; messages
    wait. HELD: as if the client's process were stopped: messages wait, nothing is noticed until it is released."""

    UP = "up"
    CUT = "cut"
    SILENT = "silent"
    HELD = "held"


@dataclass(slots=True)
class Session:
    session_id: int
    timeout_s: float
    link: Link | None = None
    timer: int = 0
    """Number of the expiry timer that counts; those before it are void."""


@dataclass(slots=True)
class ClientSide:
    """What the server object knows of one client: faults, and the view of the server that it is connected to."""

    reach: Reach = Reach.UP
    reach_changes: int = 0
    view: ZnodeTree | None = None
    """Of a lagging server; None when it is up to date."""
    withheld: list[tuple[WatchKind, Raised]] = field(default_factory=list)
