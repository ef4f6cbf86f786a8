"""`strandline doctor` names what is missing and how to get it."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from strandline.cli import doctor


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The checks of this run, quick ones instead of the real."""
    table: dict[str, Any] = {"first": lambda session, bootstrap: f"fine at {bootstrap}"}
    monkeypatch.setattr(doctor, "CHECKS", table)
    return table


def test_a_healthy_machine_exits_0(shell: Any, checks: dict[str, Any]) -> None:
    assert shell("doctor", "-b", "b:1") == (0, "ok    first: fine at b:1\n", "")


def test_a_failed_check_is_one_line_with_its_remedy_and_the_others_still_run(
    shell: Any, checks: dict[str, Any]
) -> None:
    def broken(session: Any, bootstrap: str) -> str:
        raise doctor.Unfit("not there;\ninstall it")

    checks["second"] = broken
    checks["third"] = lambda session, bootstrap: "fine"
    ran = shell("doctor")
    assert (ran.code, ran.out.splitlines()[1:]) == (1, ["FAIL  second: not there; install it", "ok    third: fine"])
    shown = json.loads(shell("doctor", "--output", "json").out)
    assert [each["ok"] for each in shown["checks"]] == [True, False, True]


def test_sparks_workers_need_the_interpreter_that_has_strandline(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = None
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert doctor.worker_python(session, "") == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/sh")
    with pytest.raises(doctor.Unfit, match="export PYSPARK_PYTHON="):
        doctor.worker_python(session, "")


def test_the_codecs_of_this_installation_work() -> None:
    session: Any = None
    assert "crecords" in doctor.record_codec(session, "")
    assert doctor.compression(session, "") == "gzip, snappy, lz4, zstd"
