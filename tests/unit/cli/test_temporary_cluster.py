"""A cluster that a command starts for itself goes with it: interrupted meanwhile, interrupted again, or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from strandline.cli.cluster_state import Member, write_state
from strandline.cli.process import Daemon, ProcessId
from strandline.cli.temporary_cluster import temporary_cluster
from strandline.runtime.processes.interrupts import held_back

PATIENCE_S = 60
TESTS = Path(__file__).parents[2]
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


class OneSleeper:
    """In place of an EmbeddedCluster: one process, which is interrupted before and after it is killed."""

    def __init__(self, folder: Path, brokers: int, *, properties: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.daemon = Daemon("broker 1", folder / "broker.log")

    def start(self) -> None:
        self.folder.mkdir()
        write_state(self.folder, {"broker-1": Member("broker-1", self.daemon.start(SLEEPER, folder=self.folder), 1)})

    def kill(self) -> None:
        signal.raise_signal(signal.SIGINT)
        self.daemon.kill()
        signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _sleepers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("strandline.cli.cluster.EmbeddedCluster", OneSleeper)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_second_interrupt_leaves_neither_a_process_nor_the_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), temporary_cluster(1) as cluster:
        signal.raise_signal(signal.SIGINT)
    assert not cluster.daemon.is_alive  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_what_was_done_before_an_interrupt_at_the_end_is_still_told(tmp_path: Path) -> None:
    with temporary_cluster(1) as cluster:
        pass
    assert not cluster.daemon.is_alive  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


IS_KILLED = """
import json, os, signal, sys, tempfile
import strandline.cli.cluster
from strandline.cli.temporary_cluster import temporary_cluster
from unit.cli.test_temporary_cluster import OneSleeper

strandline.cli.cluster.EmbeddedCluster = OneSleeper
tempfile.tempdir = sys.argv[1]
with temporary_cluster(1) as cluster:
    print(json.dumps([cluster.daemon.id.pid, cluster.daemon.id.started]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_command_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IS_KILLED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    killed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert killed.returncode == -signal.SIGKILL
    assert ProcessId(*json.loads(killed.stdout)).wait_gone(PATIENCE_S)


def test_its_keeper_ends_what_is_recorded_and_removes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "strandline-x"
    folder.mkdir()
    keeper = [sys.executable, "-P", "-m", "strandline.cli.temporary_cluster", str(folder)]
    left = OneSleeper(folder / "cluster", 1)
    left.start()
    subprocess.run(keeper, stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE_S)
    assert not left.daemon.is_alive and not folder.exists()
    folder.mkdir()  # of a command that was killed before it started anything
    subprocess.run(keeper, stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE_S)
    assert not folder.exists()


def test_a_process_that_was_started_is_known_when_its_start_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedAtOnce(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **given: object) -> None:
            super().__init__(*args, **given)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("strandline.cli.process.subprocess.Popen", InterruptedAtOnce)
    daemon = Daemon("the sleeper", tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        daemon.start(SLEEPER, folder=tmp_path)
    assert daemon.is_alive
    daemon.kill()


def test_interrupts_wait_and_are_answered_once_unless_nothing_is_left_to_end() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("to its end")
    assert done and signal.getsignal(signal.SIGINT) is before
    with held_back() as came:
        signal.raise_signal(signal.SIGINT)
        came.clear()
    with pytest.raises(KeyboardInterrupt), held_back(), held_back():
        signal.raise_signal(signal.SIGINT)
