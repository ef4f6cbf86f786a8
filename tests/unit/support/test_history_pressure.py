"""A broker that has ended gets no limit of memory, and that is no error."""

from __future__ import annotations

import resource
import subprocess
import sys

from soak.history_pressure import SPARE_MEMORY_BYTES, _limited_memory


def test_a_process_may_take_little_more_than_it_has_for_a_while() -> None:
    program = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has the memory of a program by now
        before = resource.prlimit(process.pid, resource.RLIMIT_DATA)
        with _limited_memory(process.pid):
            limit, _ = resource.prlimit(process.pid, resource.RLIMIT_DATA)
            assert SPARE_MEMORY_BYTES < limit < 2 * SPARE_MEMORY_BYTES
        assert resource.prlimit(process.pid, resource.RLIMIT_DATA) == before
        process.communicate(b"\n")


def test_one_that_ends_meanwhile_is_left_alone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with _limited_memory(process.pid):
        process.communicate(b"\n")


def test_one_that_has_ended_is_left_alone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with _limited_memory(process.pid):
        pass
