"""Makes Spark's processes of Python die, or wait, at one point of source or sink: a folder with this file is on their
path.

STRANDLINE_FAULTS names a folder; a file `fault` there says where and what, and is taken by the first worker that comes
by, so that each fault strikes once. See `support.spark_faults`.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

_FOLDER = Path(os.environ["STRANDLINE_FAULTS"])
_RELEASE_S = 60


def _strike_at(point: str) -> None:
    try:
        fault = json.loads((_FOLDER / "fault").read_text())
    except OSError:
        return
    if fault["point"] != point:
        return
    passed = _FOLDER / "passed"
    with passed.open("ab") as file:  # how often any worker came by
        file.write(b"x")
    if passed.stat().st_size < fault["times"]:
        return
    try:
        (_FOLDER / "fault").rename(_FOLDER / "taken")
    except OSError:
        return
    if fault["kind"] == "worker":
        os._exit(3)
    if fault["kind"] == "jvm":  # an executor, or in local mode the driver
        os.kill(_jvm(), signal.SIGKILL)
    deadline = time.monotonic() + _RELEASE_S
    while not (_FOLDER / "release").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _jvm() -> int:
    """The nearest one: workers are children of a daemon of Spark's and that one of the JVM, readers of streams the
    JVM's own."""
    pid = os.getppid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def _wrap(owner: Any, name: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **options: Any) -> Any:
        _strike_at(f"before {name}")
        result = original(*args, **options)
        _strike_at(f"after {name}")
        return result

    setattr(owner, name, wrapped)


def _prepare() -> None:
    from strandline.spark_connector.pipelines import restore_task
    from strandline.spark_connector.reading.arrow import RowBuffer
    from strandline.spark_connector.streaming.query import StreamQuery
    from strandline.spark_connector.writing import sink
    from strandline.spark_connector.writing.cluster import SinkClusterClient
    from strandline.spark_connector.writing.once import OnceWriter

    for name in ("set_marks", "send"):
        _wrap(SinkClusterClient, name)
    for name in ("_settle", "finish"):
        _wrap(OnceWriter, name)
    _wrap(sink, "check_division")
    for name in ("initial", "latest", "plan", "completed"):
        _wrap(StreamQuery, name)
    _wrap(RowBuffer, "take")
    _wrap(restore_task.TopicLog, "append")
    restore_task.RECORDS_PER_CHUNK = 50  # many points to die at


_prepare()
