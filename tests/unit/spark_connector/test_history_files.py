"""What the tasks of `history` tell of files beside their lines."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from strandline.protocol.history.wanted import Wanted
from strandline.runtime import log_lines
from strandline.runtime.log_lines import pieces
from strandline.spark_connector.errors import NoChangeLogs
from strandline.spark_connector.pipelines.history_files import ReadTask
from strandline.spark_connector.pipelines.history_rows import CUT, RUN, TOO_LONG
from strandline.testkit.disk import MemoryDisk

WHOLE = b"".join(b"%d\n" % number for number in range(2000))
ALIVE = b'{"broker_id":1,"event":"broker alive","timestamp":"1970-01-01T00:00:07Z"}'


def disk_of(**files: bytes) -> MemoryDisk:
    """`a__gz` is /a.gz."""
    disk = MemoryDisk()
    for name, data in files.items():
        disk.open(f"/{name.replace('__', '.')}", create=True).pwritev([data], 0)
    return disk


def test_tasks_tell_what_they_could_not_read() -> None:
    cut = gzip.compress(ALIVE + b"\n" + WHOLE)[:-9]
    disk = disk_of(a__gz=cut, b=ALIVE + b"\n" + b"x" * (log_lines.MAX_LINE_BYTES + 1))
    task = ReadTask(disk, pieces(disk, ["/a.gz", "/b"]), Wanted())
    rows = [row for batch in task([pa.record_batch({"id": [0, 1]})]) for row in batch.to_pylist()]
    told = [(row["kind"], row["file"], row["lines"]) for row in rows if row["kind"] in (RUN, CUT, TOO_LONG)]
    assert told == [(RUN, "/a.gz", 1), (CUT, "/a.gz", 0), (RUN, "/b", 1), (TOO_LONG, "/b", 1)]


def test_a_file_that_cannot_be_read_is_named() -> None:
    disk = disk_of(a=ALIVE)
    task = ReadTask(disk, pieces(disk, ["/a"]), Wanted())
    disk.unlink("/a")
    with pytest.raises(NoChangeLogs, match="/a cannot be read"):
        list(task([pa.record_batch({"id": [0]})]))
