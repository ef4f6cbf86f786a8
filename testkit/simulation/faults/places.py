"""Where something happens to a process, by name: at which change of its disk, at which write to ZooKeeper."""

from __future__ import annotations

import re
from dataclasses import dataclass

from strandline.protocol.znodes import CONTROLLER_PATH, ControllerEpochZnode
from strandline.testkit.zookeeper.client import Request

ANYWHERE = "anywhere"
CHANGES = frozenset(["pwritev", "truncate", "fsync", "rename", "unlink", "makedirs", "fsync_dir", "open", "reserve"])
"""Between two others of a disk's operations a crash finds what the first one left."""
OPERATIONS_PASSED_MAX, WRITES_PASSED_MAX = 39, 3
PASSED_MAX = 1
"""Go well before: of all, and of those that are named."""
WAITED_S = 10.0
"""For what is named, longer than the fault lasts."""


@dataclass(frozen=True)
class Place:
    """Operations on files whose path has `pattern`; of a rename that is the old name."""

    pattern: re.Pattern[str]
    operations: frozenset[str] = CHANGES

    def has(self, operation: str, path: str) -> bool:
        return operation in self.operations and self.pattern.search(path) is not None


def _place(pattern: str, *operations: str) -> Place:
    return Place(re.compile(pattern), frozenset(operations) or CHANGES)


DISK_PLACES = {
    ANYWHERE: _place(""),
    "append": _place(r"\.log$", "pwritev"),
    "flush": _place(r"\.log$", "fsync"),
    "truncation": _place(r"\.log$", "truncate"),
    "roll": _place(r"\.log$", "reserve", "open"),
    "index": _place(r"index$"),
    "snapshot": _place(r"\.snapshot"),
    "epochs": _place(r"/leader-epoch-checkpoint"),
    "checkpoint": _place(r"-offset-checkpoint"),
    "cleaning": _place(r"\.(cleaned|swap)"),
    "deletion": _place(r"\.deleted|-delete|-stray|\.log$", "rename", "unlink"),
    "folder": _place(r"-\d+$|/(partition\.metadata|meta\.properties)"),
    "marker": _place(r"/\.(kafka_cleanshutdown|strandline_state|strandline_segments)"),
}
"""Name → what happens there. `anywhere` is where nothing else is said."""


_STATE = re.compile(r"/brokers/topics/[^/]+/partitions/\d+/state")
_TOPIC = re.compile(r"/brokers/topics/[^/]+|/config/.*|/admin/.*|/brokers/topics/[^/]+/partitions.*")
_REGISTRATION = re.compile(r"/brokers/(ids|incarnations)/.*")
OF_SESSIONS = ("registration", "seat of the controller")
WRITES = (ANYWHERE, "isr", "roles", "topic", *OF_SESSIONS)
"""Of partition states: the leader writes its `isr`, the controller `roles`."""


def is_write(request: Request, name: str) -> bool:
    """Whether that request is one that is named so."""
    paths = request.paths or (request.path,)
    if name == ANYWHERE:
        return True
    by_controller = ControllerEpochZnode.PATH in paths
    if name in ("isr", "roles"):
        return any(map(_STATE.fullmatch, paths)) and by_controller == (name == "roles")
    if name == "topic":
        return any(map(_TOPIC.fullmatch, paths)) and not any(map(_STATE.fullmatch, paths))
    if name == "registration":
        return any(map(_REGISTRATION.fullmatch, paths)) and not any(map(_STATE.fullmatch, paths))
    return CONTROLLER_PATH in paths
