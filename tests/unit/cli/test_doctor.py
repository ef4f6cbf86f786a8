"""`strandline doctor` names what is missing and how to get it."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.cli import doctor
from strandline.runtime.coordination import CoordinationError

NOBODY = doctor.Target("", None)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The checks of this run, quick ones instead of the real."""
    table: dict[str, Any] = {"first": lambda session, target: f"fine at {target.bootstrap}"}
    monkeypatch.setattr(doctor, "CHECKS", table)
    return table


def test_a_healthy_machine_exits_0(shell: Any, checks: dict[str, Any]) -> None:
    assert shell("doctor", "-b", "b:1") == (0, "ok    first: fine at b:1\n", "")


def test_a_failed_check_is_one_line_with_its_remedy_and_the_others_still_run(
    shell: Any, checks: dict[str, Any]
) -> None:
    def broken(session: Any, target: Any) -> str:
        raise doctor.Unfit("not there;\ninstall it")

    checks["second"] = broken
    checks["third"] = lambda session, target: "fine"
    ran = shell("doctor")
    assert (ran.code, ran.out.splitlines()[1:]) == (1, ["FAIL  second: not there; install it", "ok    third: fine"])
    shown = json.loads(shell("doctor", "--output", "json").out)
    assert [each["ok"] for each in shown["checks"]] == [True, False, True]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is said of Spark's interpreter where these variables are set, and Spark's others are not."""

    def say(*, is_at_work: bool = False, **variables: str) -> str:
        monkeypatch.setattr("strandline_driver_python.is_at_work", lambda: is_at_work)
        for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        session: Any = None
        return doctor.source_python(session, NOBODY)

    return say


def test_spark_needs_the_interpreter_that_has_strandline(asked: Any) -> None:
    assert asked(PYSPARK_PYTHON=sys.executable) == sys.executable
    with pytest.raises(doctor.Unfit, match="started with /bin/sh, which may lack strandline; export PYSPARK_PYTHON="):
        asked(PYSPARK_PYTHON="/bin/sh", is_at_work=True)
    with pytest.raises(doctor.Unfit, match="export PYSPARK_DRIVER_PYTHON="):
        asked(PYSPARK_DRIVER_PYTHON="/bin/sh", PYSPARK_PYTHON=sys.executable)
    assert asked(PYSPARK_DRIVER_PYTHON=sys.executable, PYSPARK_PYTHON="/bin/sh") == sys.executable


def test_programs_of_this_interpreter_need_no_variable_and_spark_submit_does(asked: Any, tmp_path: Path) -> None:
    nowhere = str(tmp_path)
    told = asked(PATH=nowhere, is_at_work=True)
    assert told.startswith(
        f"{sys.executable}, for programs that it runs; for spark-submit and the pyspark shell: export"
    )
    with pytest.raises(doctor.Unfit, match="started with python3, which is not there; export PYSPARK_PYTHON="):
        asked(PATH=nowhere)


@pytest.mark.parametrize(
    ("arguments", "flag", "is_slow"),
    [
        ("'--prefix=/opt' '--enable-shared'", "-fprofile-use -fprofile-correction", True),
        ("'--prefix=/opt' '--enable-optimizations'", "-fprofile-use -fprofile-correction", False),
        ("'--prefix=/usr' '--with-dtrace'", "", False),
    ],
    ids=["plain configure", "optimised", "Debian's"],
)
def test_an_interpreter_that_was_built_without_a_profile_is_told_with_what_helps(
    arguments: str, flag: str, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = None
    variables = {"CONFIG_ARGS": arguments, "PGO_PROF_USE_FLAG": flag}
    monkeypatch.setattr("sysconfig.get_config_vars", lambda: variables)
    told = doctor.interpreter(session, NOBODY)
    assert ("--enable-optimizations" in told) == is_slow
    assert platform.python_version() in told


def test_the_codecs_of_this_installation_work() -> None:
    session: Any = None
    assert "crecords" in doctor.record_codec(session, NOBODY)
    assert doctor.compression(session, NOBODY) == "gzip, snappy, lz4, zstd"


class FakeSession:
    """Its wall clock shows `wall_ms`, and goes at `rate` times the right speed."""

    def __init__(self, wall_ms: int, rate: float = 1.0, registered: dict[int, int] | None = None) -> None:
        self.wall_ms, self.rate, self.slept_s = wall_ms, rate, 0.0
        self.registered = registered

    def now_ms(self) -> int:
        return self.wall_ms + int(self.slept_s * 1000 * self.rate)

    def monotonic(self) -> float:
        return self.slept_s

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds

    def registered_brokers(self, zookeeper_connect: str, timeout_ms: int) -> dict[int, int]:
        if self.registered is None:
            raise CoordinationError(f"no ZooKeeper server of {zookeeper_connect} answered")
        return self.registered


NOW_MS = doctor.RELEASED_MS + 86_400_000
ZOOKEEPER = doctor.Target("", "z:2181")


@pytest.mark.parametrize(
    ("session", "found"),
    [
        (FakeSession(3_600_000), "1970-01-01 01:00:00 UTC by this machine's clock; set the machine's clock"),
        (FakeSession(NOW_MS, rate=100), "the clock moved by 20000 ms within 200 ms"),
        (FakeSession(NOW_MS, registered={1: NOW_MS - 5, 2: NOW_MS + 90_000}), "broker 2 registered 90 s ahead"),
    ],
)
def test_a_clock_that_cannot_be_right_is_found(session: Any, found: str) -> None:
    with pytest.raises(doctor.Unfit, match=found):
        doctor.clock(session, ZOOKEEPER)


def test_a_clock_that_may_be_right_is_shown() -> None:
    session: Any = FakeSession(NOW_MS)
    assert doctor.clock(session, ZOOKEEPER) == doctor.clock(session, NOBODY) == "2026-01-02 00:00:00 UTC"


def test_zookeeper_is_asked_where_somebody_said_where_it_is() -> None:
    session: Any = FakeSession(NOW_MS, registered={2: NOW_MS, 1: NOW_MS})
    assert doctor.zookeeper(session, ZOOKEEPER) == "z:2181: registered brokers 1, 2"
    assert "--zookeeper" in doctor.zookeeper(session, NOBODY)
    session.registered = None
    with pytest.raises(CoordinationError, match="no ZooKeeper server of z:2181 answered"):
        doctor.zookeeper(session, ZOOKEEPER)
