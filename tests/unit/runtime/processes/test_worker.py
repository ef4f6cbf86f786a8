"""A worker's end."""

from __future__ import annotations

import subprocess
import sys

from strandline.runtime.processes.worker import frame


def test_a_worker_whose_parent_reads_no_more_ends_without_a_word() -> None:
    command = [sys.executable, "-P", "-m", "strandline.runtime.processes.worker"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert worker.stdin is not None and worker.stdout is not None and worker.stderr is not None
    with worker.stdin, worker.stderr:
        worker.stdout.close()
        worker.stdin.write(frame(["no:job", [], False]))
        worker.stdin.flush()
        assert worker.stderr.read() == b""
        assert worker.wait(30) == 0
