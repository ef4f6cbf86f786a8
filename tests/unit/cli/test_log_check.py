"""`strandline log-check` on folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.testkit.damage_site import DamageSite


@pytest.fixture
def site(tmp_path: Path) -> DamageSite:
    site = DamageSite.on_real_files(f"{tmp_path}/data")
    site.stop(site.build(), "clean")
    return site


def test_a_sound_folder_is_exit_code_0(shell: Any, site: DamageSite) -> None:
    ran = shell("log-check", site.root)
    assert (ran.code, ran.out, ran.err) == (0, "nothing to repair\n", "")
    assert shell("log-check", site.root, "--output", "json").out == ""


def test_what_a_start_would_do_is_told_as_table_and_json_and_not_done(shell: Any, site: DamageSite) -> None:
    torn = site.disk.read(site.path(-1)) + b"torn"
    site.disk.write(site.path(-1), torn)
    ran = shell("log-check", site.root)
    assert ran.code == 1 and "t-0" in ran.out and "dropping 4 bytes" in ran.out
    assert ran.out.endswith("1 to repair; nothing was changed\n")
    (line,) = shell("log-check", "--quick", site.root, "--output", "json").out.splitlines()
    found = json.loads(line)
    assert (found["severity"], found["event"]) == ("repair", "log-truncated")
    assert found["fields"]["dropped_bytes"] == 4 and found["where"] == site.folder
    assert site.disk.read(site.path(-1)) == torn


def test_a_running_brokers_folder_is_refused_in_one_line(shell: Any, site: DamageSite) -> None:
    manager = site.start()
    ran = shell("log-check", site.root)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "in use by another broker" in ran.err
    manager.close(clean=True)


def test_what_is_no_folder_is_named(shell: Any, tmp_path: Path) -> None:
    ran = shell("log-check", f"{tmp_path}/nowhere")
    assert (ran.code, ran.err.count("\n")) == (1, 1) and "nowhere is no folder" in ran.err
    assert shell("log-check").code == 2
