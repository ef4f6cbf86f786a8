"""Which Java is taken, and the wrapper for runtimes that lack the module which Spark asks for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from strandline.cli.java import JavaNotFound, find_java, spark_environment, spark_java_home, wrapped_java_home
from strandline.cli.spark_session import spark_of_command

FULL = 'echo "openjdk version \\"{version}\\" 2025-01-01" >&2'
TRIMMED = 'case "$*" in *jdk.incubator.vector*) echo "Module not found" >&2; exit 1;; esac\n' + FULL
BROKEN = "exit 1"
SHOW_ARGUMENTS = 'case "$*" in *-version*) ;; *) printf "<%s>" "$@";; esac'


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Java but the ones of the test, and no answer of an earlier test."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda _command: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def install(folder: Path, script: str, version: str = "17.0.15") -> Path:
    """A pretended Java home whose `bin/java` is a shell script."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n" + script.format(version=version) + "\n")
    command.chmod(0o755)
    return folder


def on_path(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda _command: str(home / "bin" / "java"))


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "home", FULL)))
    on_path(monkeypatch, install(tmp_path / "path", FULL))
    assert find_java().home == tmp_path / "home"


def test_a_runtime_that_spark_can_use_comes_before_a_trimmed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "trimmed", TRIMMED, "25.0.2")))
    on_path(monkeypatch, install(tmp_path / "full", FULL))
    found = find_java()
    assert (found.home, found.version, found.runs_spark) == (tmp_path / "full", 17, True)


@pytest.mark.parametrize(("script", "version"), [(BROKEN, ""), (FULL, "11.0.2"), (FULL, "1.8.0_292")])
def test_a_broken_or_old_one_is_passed_over_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, version: str
) -> None:
    on_path(monkeypatch, install(tmp_path / "bad", script, version))
    with pytest.raises(JavaNotFound, match=r"tried PATH \(.*bad\).*pip install '\.\[local\]'"):
        find_java()


def test_spark_uses_a_full_runtime_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, install(tmp_path / "full", FULL))
    assert spark_java_home(tmp_path / "cache") == tmp_path / "full"
    assert not (tmp_path / "cache").exists()


def test_for_a_trimmed_runtime_spark_gets_a_wrapper_that_drops_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(monkeypatch, install(tmp_path / 'trimmed with space, $HOME, "`é', TRIMMED + "\n" + SHOW_ARGUMENTS))
    assert arguments_behind(spark_java_home(tmp_path / "cache")) == "<-Xmx1g><-Da=b c><Main><>"


def test_commands_get_the_wrapper_for_a_full_runtime_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java warns of the module on stderr."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "full", FULL + "\n" + SHOW_ARGUMENTS)))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("pyspark.sql.SparkSession", MagicMock())
    with spark_of_command("audit"):
        assert arguments_behind(Path(os.environ["JAVA_HOME"])) == "<-Xmx1g><-Da=b c><Main><>"
    find_java.cache_clear()  # a child has the variable, and no memory
    assert wrapped_java_home() == Path(os.environ["JAVA_HOME"])
    assert arguments_behind(wrapped_java_home()) == "<-Xmx1g><-Da=b c><Main><>"


def arguments_behind(home: Path) -> str:
    command = [str(home / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "Main", ""]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_wrapper_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, install(tmp_path / "trimmed", TRIMMED))
    made = (spark_java_home(tmp_path / "cache") / "bin" / "java").stat()
    again = (spark_java_home(tmp_path / "cache") / "bin" / "java").stat()
    assert (made.st_ino, made.st_mtime_ns) == (again.st_ino, again.st_mtime_ns)


def test_spark_workers_run_on_this_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, install(tmp_path / "full", FULL))
    environment = spark_environment(tmp_path / "cache")
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["JAVA_HOME"] == str(tmp_path / "full")
