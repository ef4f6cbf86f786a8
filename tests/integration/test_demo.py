"""`strandline demo` on a few files: it proves what it says, keeps the cluster when asked, cleans up when stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from strandline.cli.cluster_state import read_state

STRANDLINE = [sys.executable, "-m", "strandline.cli"]
FILES = "80"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STRANDLINE, *words], capture_output=True, text=True, timeout=300, check=False)


def test_it_survives_the_kill_proves_every_file_and_keeps_the_cluster_when_asked(tmp_path: Path) -> None:
    data = str(tmp_path / "demo")
    try:
        shown = run("demo", "--data", data, "--files", FILES, "--no-spark", "--keep")
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert "with SIGKILL" in shown.stdout and "is in every ISR again" in shown.stdout
        assert f"records of {FILES} files came back complete, in order, unaltered" in shown.stdout
        assert json.loads(run("status", "--data", data, "--output", "json").stdout)["healthy"]
        again = run("demo", "--data", data)
        assert again.returncode == 1
        assert again.stderr.startswith("strandline: a cluster is up in") and again.stderr.count("\n") == 1
    finally:
        run("down", "--data", data)


def test_interrupted_it_leaves_nothing_running(tmp_path: Path) -> None:
    data = tmp_path / "demo"
    command = [*STRANDLINE, "demo", "--data", str(data), "--no-spark"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None and demo.stderr is not None
        while not (line := demo.stdout.readline()).startswith("3/7"):
            assert line, demo.stderr.read()
        members = read_state(data)
        assert members is not None and len(members) == 4
        os.kill(demo.pid, signal.SIGINT)
        assert demo.wait(180) == 130
        assert demo.stderr.read().strip() == "strandline: interrupted"
    assert [name for name, member in members.items() if member.process.is_alive] == []
    assert read_state(data) is None
