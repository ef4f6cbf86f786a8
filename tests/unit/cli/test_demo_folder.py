"""The demo clears away what an earlier demo left, and touches nobody else's cluster or files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.cluster import ClusterAlreadyUp
from strandline.cli.cluster_state import Member, read_state, write_state
from strandline.cli.demo import MARKER_FILE, Demo
from strandline.cli.process import identify

RECORDS = Path("broker-1") / "data" / "clicks-0" / "00000000000000000000.log"


def demo_in(folder: Path) -> Demo:
    return Demo(folder, keep=False, with_spark=False, limit=6)


def fill(folder: Path) -> Path:
    records = folder / RECORDS
    records.parent.mkdir(parents=True)
    records.write_bytes(b"precious")
    return records


def test_a_running_cluster_is_refused_and_stays_recorded(tmp_path: Path) -> None:
    records = fill(tmp_path)
    (tmp_path / MARKER_FILE).touch()
    myself = identify(os.getpid())
    assert myself is not None
    members = {"broker-1": Member("broker-1", myself, 9092)}
    write_state(tmp_path, members)
    with pytest.raises(ClusterAlreadyUp, match="stop it first: strandline down --data"):
        demo_in(tmp_path).run()
    assert read_state(tmp_path) == members
    assert records.read_bytes() == b"precious"


def test_a_folder_that_no_demo_made_is_refused_with_exit_code_2(shell: Any, tmp_path: Path) -> None:
    records = fill(tmp_path)
    ran = shell("demo", "--data", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "name another folder with --data" in ran.err
    assert records.read_bytes() == b"precious"


def test_an_earlier_demos_cluster_is_removed_and_other_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    demo_in(folder).prepare_folder()
    records = fill(folder)
    (folder / "notes").touch()
    demo_in(folder).prepare_folder()
    assert not records.exists()
    assert (folder / "notes").exists()
