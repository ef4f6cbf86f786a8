"""The tests' own engine where there is none to be had, or where it must not be started: they need no Docker."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from docker import engine
from docker.engine import Engine, Failed, LeftOver, NotHere


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of PATH: an engine that runs and a client that gets no answer from it."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("dockerd", "docker", "docker-compose"):
        (folder / name).write_text("#!/bin/sh\nexec sleep 600\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STRANDLINE_DOCKER_BESIDE", "1")
    monkeypatch.setattr(engine, "ANSWER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(engine, "START_TIMEOUT_S", 0.2)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return folder


def process(proc: Path, pid: int, words: str, parent: int, network: str = "net:[1]") -> None:
    folder = proc / str(pid)
    (folder / "ns").mkdir(parents=True)
    (folder / "comm").write_text(Path(words.split()[0]).name + "\n")
    (folder / "cmdline").write_text("\0".join(words.split()))
    (folder / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    (folder / "ns/net").symlink_to(network)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    process(folder, 10, "python -m pytest", 1)
    process(folder, 11, "/bin/sh dockerd", 1)
    (folder / "self").symlink_to("10")
    return folder


def test_an_engine_is_started_where_no_other_one_has_the_network(proc: Path) -> None:
    process(proc, 20, "dockerd -H x", 1, network="net:[2]")
    engine.refuse_beside_others(proc)


def test_nothing_is_started_beside_an_engine_of_the_machine(proc: Path) -> None:
    process(proc, 20, "/usr/sbin/dockerd -H fd://", 1)
    with pytest.raises(NotHere, match=r"another Docker engine runs here \(pid 20\).*STRANDLINE_DOCKER_BESIDE=1"):
        engine.refuse_beside_others(proc)


def test_an_engine_of_another_run_and_one_that_is_left_over_are_told_apart(proc: Path) -> None:
    words = "dockerd --exec-root /tmp/strandline-engine-x/exec"
    process(proc, 20, words, 10)
    with pytest.raises(NotHere, match=r"another run of these tests .*pid 20"):
        engine.refuse_beside_others(proc)
    (proc / "20/status").write_text("PPid:\t0\n")
    with pytest.raises(LeftOver, match="end it by kill 20"):
        engine.refuse_beside_others(proc)


def test_an_engine_that_does_not_answer_is_taken_down_with_its_folders(programs: Path, tmp_path: Path) -> None:
    with pytest.raises(NotHere, match="no Docker engine can be started here"), engine.running_engine():
        pass
    assert list((tmp_path / "temporary").iterdir()) == []


def test_an_interrupt_while_it_starts_takes_it_down(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs / "docker").write_text("#!/bin/sh\nkill -INT $PPID\nexec sleep 600\n")
    monkeypatch.setattr(engine, "ANSWER_TIMEOUT_S", 60)
    monkeypatch.setattr(engine, "START_TIMEOUT_S", 60)
    with pytest.raises(KeyboardInterrupt), engine.running_engine():
        pass
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_machine_without_the_client_is_told_so(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    (programs / "docker").unlink()
    with pytest.raises(NotHere, match="there is no docker on this machine"), engine.running_engine():
        pass


def test_the_engine_ends_with_a_run_that_is_killed(programs: Path, tmp_path: Path) -> None:
    (programs / "dockerd").write_text(f"#!/bin/sh\ntouch {programs}/started\nexec sleep 600\n")
    (programs / "docker").write_text(f"#!/bin/sh\ntest -e {programs}/started\n")
    program = (
        "import sys, time; from pathlib import Path; from docker.engine import Engine\n"
        "engine = Engine(Path(sys.argv[1])); engine.start(); print(engine._process.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "state")]
    paths = {"PYTHONPATH": str(Path(engine.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **paths}) as run:
        try:
            assert run.stdout is not None
            watched = os.pidfd_open(int(run.stdout.readline()))
        finally:
            run.kill()
    assert select.select([watched], [], [], 60)[0] == [watched]
    os.close(watched)


# --- what steers it, and builds that fail ----------------------------------------------------------------------------


def test_variables_that_the_compose_files_or_docker_act_on_stay_with_the_caller() -> None:
    steering = ("TOPIC", "ZOOKEEPER_VERSION", "STRANDLINE_VERSION", "BASE_IMAGE", "BROKER_1_PORT", "COMPOSE_PROFILES")
    kept = {"PATH": "/bin", "HTTPS_PROXY": "http://proxy", "DOCKER_CONFIG": "/home/ann/.docker"}
    given = dict.fromkeys((*steering, "DOCKER_CONTEXT"), "x") | kept
    assert engine.without_what_steers_docker(given) == kept


UNREACHED = """exit code 1: docker-compose build
Step 4/9 : RUN pip install
WARNING: Retrying after connection broken by 'NewConnectionError(': Failed to establish a new connection: [Errno 101]
ERROR: No matching distribution found for trio
"""
OURS = """exit code 1: docker-compose build
Step 3/9 : RUN apt-get update
W: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  Temporary failure resolving
Step 4/9 : RUN pip install
ERROR: No matching distribution found for trioo
"""


def failing(texts: list[str]) -> tuple[list[tuple[str, ...]], Callable[..., object]]:
    calls: list[tuple[str, ...]] = []

    def compose(*words: str, timeout_s: float) -> None:
        calls.append(words)
        if texts:
            raise Failed(texts.pop(0))

    return calls, compose


def test_a_build_that_does_not_reach_a_server_is_tried_twice_and_is_no_failure_of_ours() -> None:
    calls, compose = failing([UNREACHED])
    engine.build(compose, "spark")
    assert calls == [("build", "spark")] * 2
    with pytest.raises(NotHere, match="Failed to establish a new connection"):
        engine.build(failing([UNREACHED, UNREACHED])[1])


@pytest.mark.parametrize("texts", [[OURS], [UNREACHED, OURS]])
def test_a_build_that_fails_for_another_reason_is_a_failure(texts: list[str]) -> None:
    with pytest.raises(Failed, match="trioo"):
        engine.build(failing(texts)[1])
    assert texts == []


def test_images_that_do_not_stand_on_each_other_are_made_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def be_made() -> None:
        both.wait(60)

    engine.at_once(be_made, be_made)


def test_an_image_that_cannot_be_made_is_told_of_while_another_is_being_made() -> None:
    is_told = threading.Event()

    def fail() -> None:
        raise NotHere("no server is reached")

    def be_made() -> None:
        assert is_told.wait(60)

    try:
        with pytest.raises(NotHere, match="no server is reached"):
            engine.at_once(be_made, fail)
    finally:
        is_told.set()


def test_the_engines_environment_is_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere")
    monkeypatch.setenv("TOPIC", "other")
    found = Engine(tmp_path).environment
    assert found["DOCKER_HOST"].startswith("unix://") and "TOPIC" not in found
