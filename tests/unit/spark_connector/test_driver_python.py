"""A program of an environment that was not activated has Spark look for sources with its own interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline_driver_python import DRIVER, WORKERS, name_interpreter

LINE = Path(__file__).resolve().parents[3] / "src" / "strandline_driver_python.pth"
SHOW = "import sys, os; before = os.environ.get('PYSPARK_DRIVER_PYTHON'); import pyspark; print(before, "
SHOW += "os.environ.get('PYSPARK_DRIVER_PYTHON'))"


def interpreter(folder: Path, target: str | None = None) -> Path:
    """`folder/python3`, a program of its own or another name for one."""
    folder.mkdir()
    place = folder / "python3"
    if target is None:
        place.write_text("#!/bin/sh\n")
        place.chmod(0o755)
    else:
        place.symlink_to(target)
    return place


def test_it_is_named_where_spark_would_take_another_one(tmp_path: Path) -> None:
    environment = {"PATH": str(interpreter(tmp_path / "bin").parent)}
    name_interpreter(environment)
    assert environment[DRIVER] == sys.executable
    assert WORKERS not in environment, "on the machines of a cluster it may be elsewhere"


def test_it_is_named_where_python3_is_that_from_which_the_environment_was_made(tmp_path: Path) -> None:
    environment = {"PATH": str(interpreter(tmp_path / "bin", os.path.realpath(sys.executable)).parent)}
    name_interpreter(environment)
    assert environment[DRIVER] == sys.executable


@pytest.mark.parametrize("variable", [DRIVER, WORKERS])
def test_what_somebody_set_counts(variable: str, tmp_path: Path) -> None:
    before = {"PATH": str(tmp_path), variable: "python3"}
    environment = dict(before)
    name_interpreter(environment)
    assert environment == before


def test_nothing_is_set_where_the_environment_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = interpreter(tmp_path / "bin", sys.executable)
    other_name = own.with_name("python3.99")
    other_name.symlink_to("python3")
    (tmp_path / "link").symlink_to("bin")
    monkeypatch.setattr(sys, "executable", str(other_name))
    environment = {"PATH": str(tmp_path / "link")}
    name_interpreter(environment)
    assert DRIVER not in environment


def run(program: str, folder: Path, **variables: str) -> str:
    """In an interpreter of this environment for which a package in `folder` is pyspark, and which finds no python3."""
    (folder / "pyspark").mkdir(exist_ok=True)
    (folder / "pyspark" / "__init__.py").touch()
    environment = {"PATH": str(folder), "PYTHONPATH": str(folder), **variables}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert not done.stderr
    return done.stdout.strip()


def test_the_environment_is_as_it_was_until_pyspark_is_imported(tmp_path: Path) -> None:
    assert run(SHOW, tmp_path) == f"None {sys.executable}"
    assert run(SHOW, tmp_path, PYSPARK_PYTHON="python3") == "None None"


def test_the_line_is_installed_as_it_stands_here_and_imports_nothing(tmp_path: Path) -> None:
    program = "import sys; print('strandline_driver_python' in sys.modules, 'shutil' in sys.modules, end=' '); "
    program += "import sysconfig; print(open(sysconfig.get_path('purelib') + '/strandline_driver_python.pth').read())"
    assert run(program, tmp_path) == f"False False {LINE.read_text()}".strip()


def test_an_interpreter_that_has_the_line_and_not_the_module_says_nothing(tmp_path: Path) -> None:
    """As in an environment whose checkout was moved."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    program = f"import site; exec({LINE.read_text()!r}, vars(site)); {SHOW}"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "None None\n", "")
