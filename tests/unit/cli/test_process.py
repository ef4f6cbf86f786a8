"""Processes are recognised by pid and start, signalled exactly, and their end is explained."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from strandline.cli.process import Daemon, ProcessFailed, ProcessId, identify

PATIENCE_S = 60
SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture
def daemon(tmp_path: Path):
    daemon = Daemon("the sleeper", tmp_path / "sleeper.log")
    daemon.start(SLEEPER, folder=tmp_path)
    yield daemon
    daemon.kill()


def test_a_running_process_is_recognised_again(daemon: Daemon) -> None:
    assert daemon.id is not None
    assert identify(daemon.id.pid) == daemon.id
    assert daemon.is_alive


def test_a_recycled_pid_is_neither_alive_nor_signalled(daemon: Daemon) -> None:
    assert daemon.id is not None
    earlier = ProcessId(daemon.id.pid, "the boot before:1")
    assert not earlier.is_alive
    assert not earlier.send(signal.SIGKILL)
    assert daemon.is_alive


def test_a_zombie_counts_as_gone(daemon: Daemon) -> None:
    assert daemon.id is not None
    daemon.id.send(signal.SIGKILL)
    # Nobody has collected its exit code yet.
    assert daemon.id.wait_gone(PATIENCE_S)
    assert daemon.exit_code == -signal.SIGKILL


def test_stop_reaches_a_paused_process(daemon: Daemon) -> None:
    daemon.signal(signal.SIGSTOP)
    assert daemon.stop(PATIENCE_S) == -signal.SIGTERM
    assert not daemon.is_alive


def test_stop_kills_a_process_that_ignores_it(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    daemon = Daemon("the deaf one", tmp_path / "deaf.log")
    daemon.start([sys.executable, "-c", code], folder=tmp_path)
    while "deaf" not in daemon.last_log_line():
        daemon.require_alive()
    assert daemon.stop(0.05) == -signal.SIGKILL


def test_an_adopted_process_is_stopped_like_a_child(daemon: Daemon) -> None:
    assert daemon.id is not None
    adopted = Daemon("the same", daemon.log_path)
    adopted.adopt(daemon.id)
    assert adopted.is_alive
    adopted.stop(PATIENCE_S)
    assert not daemon.is_alive


def test_the_end_of_a_process_is_told_with_its_last_words(tmp_path: Path) -> None:
    daemon = Daemon("the short one", tmp_path / "short.log")
    daemon.start([sys.executable, "-c", "import sys; print('no room'); print(); sys.exit(3)"], folder=tmp_path)
    daemon.wait(PATIENCE_S)
    with pytest.raises(ProcessFailed, match=r"the short one ended with exit code 3: no room \(log: .*short.log\)"):
        daemon.require_alive()


def test_a_process_whose_first_thread_alone_has_ended_still_runs_and_its_exit_code_is_told(tmp_path: Path) -> None:
    code = (
        "import ctypes, os, threading\n"
        "threading.Thread(target=lambda: (os.read(0, 1), os._exit(3))).start()\n"
        "print('its first thread ends', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    held_open = tmp_path / "stdin"
    os.mkfifo(held_open)
    shell = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(code)} < {shlex.quote(str(held_open))}"
    daemon = Daemon("the headless one", tmp_path / "headless.log")
    daemon.start(["sh", "-c", shell], folder=tmp_path)
    assert daemon.id is not None
    with held_open.open("wb"):
        deadline = time.monotonic() + PATIENCE_S
        stat = Path(f"/proc/{daemon.id.pid}/stat")
        while (state := stat.read_text().rpartition(")")[2].split()[0]) != "Z" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert state == "Z" and identify(daemon.id.pid) == daemon.id
        daemon.require_alive()
    assert daemon.wait(PATIENCE_S) == 3
    with pytest.raises(ProcessFailed, match="ended with exit code 3: its first thread ends"):
        daemon.require_alive()


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    daemon = Daemon("nothing", tmp_path / "nothing.log")
    with pytest.raises(ProcessFailed, match="nothing cannot be started \\(/no/such/command"):
        daemon.start(["/no/such/command"], folder=tmp_path)
    assert not daemon.is_alive
