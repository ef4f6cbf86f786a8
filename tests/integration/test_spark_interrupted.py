"""Ctrl-C while a command starts its Spark: one line, and no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from integration.real_time import PATIENCE_S, off_loop, until

pytestmark = pytest.mark.spark


def processes_of(group: int) -> list[str]:
    """The names of those that live in a process group."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                name, _, fields = (folder / "stat").read_text().partition(" (")[2].rpartition(") ")
            except OSError:
                continue
            state, _, its_group = fields.split()[:3]
            found += [name] if int(its_group) == group and state != "Z" else []
    return found


async def test_ctrl_c_while_spark_starts_leaves_no_java_behind(tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text("no line of a broker\n")
    command = [sys.executable, "-m", "strandline.cli", "history", str(tmp_path)]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        await until(lambda: "java" in processes_of(process.pid), "Java runs")
        os.killpg(process.pid, signal.SIGINT)
        with trio.fail_after(PATIENCE_S):
            code = await off_loop(process.wait, PATIENCE_S)
        told = (tmp_path / "errors").read_text()
        assert code == 130 and told.splitlines()[-1] == "strandline: interrupted" and "Traceback" not in told
        await until(lambda: not processes_of(process.pid), "no process is left")
    finally:
        if processes_of(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
