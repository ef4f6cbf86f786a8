"""The znodes of the in-memory ZooKeeper: a tree and its transactions. No time, no sessions, no network.

Every change is a transaction of one or more operations with one zxid: all of them or none. It returns what each
operation yields and the watch events that it raises, in order; whoever holds the tree delivers them.

As in ZooKeeper: the number of a sequence node counts the children ever created under its parent; `cversion` counts
creations and deletions of children; an ephemeral znode has no children.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    BadVersion,
    Check,
    CoordinationError,
    Create,
    Delete,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    SetData,
    TransactionFailed,
    WatchEvent,
    Znode,
    ZnodeStat,
)
from strandline.runtime.zookeeper.paths import parent_of


@dataclass(slots=True)
class Node:
    """children: names, as an ordered set; created_children: ever, which numbers sequence nodes."""

    data: bytes | None
    czxid: int
    mzxid: int
    pzxid: int
    ephemeral_owner: int = 0
    version: int = 0
    created_children: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> ZnodeStat:
        cversion = self.created_children * 2 - len(self.children)
        return ZnodeStat(self.version, cversion, self.czxid, self.mzxid, self.ephemeral_owner, len(self.children))


class Raised(NamedTuple):
    """A watch event: for the data watches or the child watches of a path. A deletion is raised for both."""

    path: str
    event: WatchEvent


class Applied(NamedTuple):
    results: list[OperationResult]
    raised: list[Raised]


def nobody_watches(operations: Sequence[Operation], session_id: int) -> None:
    """`ZnodeTree.on_apply` as it begins. It has a name: trees are pickled."""


class ZnodeTree:
    def __init__(self) -> None:
        self.zxid = 0
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0)}
        self.unreadable: set[str] = set()
        """Patterns of paths: their access control lists let nobody read what is there."""
        self.on_apply: Callable[[Sequence[Operation], int], None] = nobody_watches
        """Told of each transaction that was applied, and of the session that sent it."""
        self._undo: list[Callable[[], None]] = []
        self._raised: list[Raised] = []

    def snapshot(self) -> ZnodeTree:
        """A copy that no later transaction changes: what a lagging server still shows."""
        taken = copy.copy(self)
        taken.nodes = copy.deepcopy(self.nodes)
        taken.unreadable = set(self.unreadable)
        taken.on_apply = nobody_watches
        return taken

    # -- reads

    def node(self, path: str) -> Node:
        """NoNode if there is none."""
        try:
            return self.nodes[path]
        except KeyError:
            raise NoNode(f"{path}: there is no such znode") from None

    def _readable(self, path: str) -> Node:
        """NoNode, NoAuth."""
        node = self.node(path)
        if any(fnmatchcase(path, pattern) for pattern in self.unreadable):
            raise NoAuth(f"{path}: its access control list keeps this client out")
        return node

    def get(self, path: str) -> Znode:
        node = self._readable(path)
        return Znode(node.data or b"", node.stat(), node.data is None)

    def exists(self, path: str) -> ZnodeStat | None:
        return self._readable(path).stat() if path in self.nodes else None

    def children(self, path: str) -> list[str]:
        return sorted(self._readable(path).children)

    def ephemerals_of(self, session_id: int) -> list[str]:
        """In the order of their creation."""
        owned = [(node.czxid, path) for path, node in self.nodes.items() if node.ephemeral_owner == session_id]
        return [path for _, path in sorted(owned)]

    # -- transactions

    def apply_one(self, operation: Operation, session_id: int) -> Applied:
        """Raises the operation's own error; then nothing was changed."""
        try:
            return self.apply([operation], session_id)
        except TransactionFailed as failed:
            raise failed.cause from None

    def apply(self, operations: Sequence[Operation], session_id: int) -> Applied:
        """Raises TransactionFailed; then nothing was changed. session_id: owner of what is created ephemeral."""
        self.zxid += 1
        self._undo, self._raised = [], []
        results: list[OperationResult] = []
        for index, operation in enumerate(operations):
            try:
                results.append(self._apply(operation, session_id))
            except CoordinationError as error:
                for undo in reversed(self._undo):
                    undo()
                self._undo, self._raised = [], []
                raise TransactionFailed(
                    f"multi of {len(operations)}: operation {index}, {error}", index, error
                ) from None
        raised, self._undo, self._raised = self._raised, [], []
        self.on_apply(operations, session_id)
        return Applied(results, raised)

    def next_zxid(self) -> int:
        """Of a transaction that touches no znode (a new session)."""
        self.zxid += 1
        return self.zxid

    def _apply(self, operation: Operation, session_id: int) -> OperationResult:
        match operation:
            case Create(path, data, ephemeral, sequence):
                return self._create(path, data, session_id if ephemeral else 0, sequence)
            case SetData(path, data, version):
                return self._set(path, data, version)
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._check(path, version)
        return None

    def _create(self, path: str, data: bytes | None, owner: int, sequence: bool) -> str:
        if path == "/":
            raise NodeExists("create /: the znode exists already")
        parent_path = parent_of(path)
        parent = self.node(parent_path)
        if sequence:
            path = f"{path}{parent.created_children:010d}"
        if path in self.nodes:
            raise NodeExists(f"create {path}: the znode exists already")
        if parent.ephemeral_owner:
            raise CoordinationError(f"create {path}: its parent is ephemeral and has no children")
        name = path[path.rindex("/") + 1 :]
        before = (parent.created_children, parent.pzxid)
        parent.children[name] = None
        parent.created_children += 1
        parent.pzxid = self.zxid
        self.nodes[path] = Node(data, self.zxid, self.zxid, self.zxid, owner)

        def undo() -> None:
            del self.nodes[path]
            del parent.children[name]
            parent.created_children, parent.pzxid = before

        self._undo.append(undo)
        self._raised += [Raised(path, WatchEvent.CREATED), Raised(parent_path, WatchEvent.CHILDREN)]
        return path

    def _set(self, path: str, data: bytes | None, version: int) -> ZnodeStat:
        node = self._check(path, version, "set")
        before = (node.data, node.version, node.mzxid)
        node.data, node.version, node.mzxid = data, node.version + 1, self.zxid

        def undo() -> None:
            node.data, node.version, node.mzxid = before

        self._undo.append(undo)
        self._raised.append(Raised(path, WatchEvent.CHANGED))
        return node.stat()

    def _delete(self, path: str, version: int) -> None:
        if path == "/":
            raise CoordinationError("delete /: the root stays")
        node = self._check(path, version, "delete")
        if node.children:
            raise NotEmpty(f"delete {path}: the znode has children")
        parent_path, name = parent_of(path), path[path.rindex("/") + 1 :]
        parent = self.nodes[parent_path]
        pzxid_before = parent.pzxid
        del self.nodes[path]
        del parent.children[name]
        parent.pzxid = self.zxid

        def undo() -> None:
            self.nodes[path] = node
            parent.children[name], parent.pzxid = None, pzxid_before

        self._undo.append(undo)
        self._raised += [Raised(path, WatchEvent.DELETED), Raised(parent_path, WatchEvent.CHILDREN)]

    def _check(self, path: str, version: int, operation: str = "check") -> Node:
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(f"{operation} {path}: there is no such znode")
        if version not in (MATCH_ANY_VERSION, node.version):
            raise BadVersion(f"{operation} {path}: version {version} expected, the znode has {node.version}")
        return node
