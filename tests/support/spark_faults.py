"""Faults that strike a process of Spark once, at points of source and sink (`faulty_worker/` does the striking)."""

from __future__ import annotations

import json
import os
from pathlib import Path

POINTS = (
    ("before set_marks", 1),
    ("after set_marks", 1),
    ("before send", 2),
    ("after send", 1),
    ("after send", 4),
    ("before _settle", 2),
    ("after _settle", 1),
    ("before finish", 1),
    ("after finish", 1),
    ("after finish", 2),
)
"""(point, how often it has to be come by before the fault strikes): between the first word to the cluster and what the
task reports."""

SOURCE_POINTS = {
    "after initial": "it is known where the query begins, nothing is written down",
    "after latest": "it is known where the batch ends, the offset log is not written",
    "after plan": "the offset log is written, no task has begun",
    "after take": "a task has read some rows",
    "before completed": "the commit log is written, the next batch is being looked for",
}
"""Of a micro-batch, as the source sees it."""

SINK_POINTS = {
    "after set_marks": "a task has begun to write",
    "after send": "a task has sent some rows",
    "after finish": "a task has written all of its rows, the driver does not know",
    "before check_division": "all tasks have written, the sink has not committed",
    "after check_division": "the sink has committed, the commit log is not written",
}
"""As the sink sees it."""

RESTORE_CASES = (
    ("after append", 2, "worker"),
    ("after append", 1, "jvm"),
)
"""Of a task that restores: it has written some records. Attempts that live at the same time have a test without Spark
(`test_spark_restore`)."""

CASES = {
    "short": (
        ("after set_marks", 1, "worker"),
        ("after send", 4, "worker"),
        ("after finish", 1, "worker"),
        ("after send", 1, "jvm"),
        ("after finish", 2, "jvm"),
        ("after send", 2, "stall"),
    ),
    "long": (
        *((point, times, kind) for kind in ("worker", "jvm") for point, times in POINTS),
        ("after send", 2, "stall"),
        ("after finish", 1, "stall"),
    ),
}
"""Faults of a task, with their kind (see `Faults.arm`)."""


class Faults:
    """`folder`: of its own, shared by who arms and who is struck."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def environment(self) -> dict[str, str]:
        """Of whoever starts Spark's workers."""
        code = str(Path(__file__).parent / "faulty_worker")
        others = os.environ.get("PYTHONPATH")
        return {"STRANDLINE_FAULTS": str(self.folder), "PYTHONPATH": f"{code}:{others}" if others else code}

    def arm(self, point: str, times: int, kind: str) -> None:
        """kind: 'worker' (the Python process dies), 'jvm' (its executor, or in local mode the driver), 'stall' (it
        waits until `release`)."""
        for name in ("taken", "passed", "release"):
            (self.folder / name).unlink(missing_ok=True)
        new = self.folder / "fault.new"
        new.write_text(json.dumps({"point": point, "times": times, "kind": kind}))
        new.rename(self.folder / "fault")

    @property
    def has_struck(self) -> bool:
        return (self.folder / "taken").exists()

    def disarm(self) -> None:
        (self.folder / "fault").unlink(missing_ok=True)

    def release(self) -> None:
        """Let who waits go on."""
        (self.folder / "release").touch()
