"""`make test` in several processes, some of which die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parents[2]
CONFTEST = """
from support.scheduling import RealProcessesApart

def pytest_xdist_make_scheduler(config, log):
    return RealProcessesApart(config, log)
"""
FINE = """
def test_fine():
    with open(__file__ + ".ran", "a") as ran:
        ran.write(".")
"""
DEADLY = """
def test_deadly():
    import os
    os._exit(1)
"""


def test_whoever_dies_of_a_test_everything_else_runs_once_and_the_run_ends(tmp_path: Path) -> None:
    files = {
        "integration/test_a": [FINE],
        "unit/test_b": [FINE],
        "unit/test_c": [FINE],
        "unit/test_d": [DEADLY, FINE],
        "unit/test_e": [FINE],
        "unit/test_f": [DEADLY],
        "unit/test_g": [FINE, DEADLY],
    }
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, tests in files.items():
        path = tmp_path / "tests" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(tests))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "tests"],
        cwd=tmp_path,
        env={**env, "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert " 3 failed, 6 passed in " in run.stdout, run.stdout + run.stderr
    for name, tests in files.items():
        assert f"crashed while running 'tests/{name}.py::test_deadly'" in run.stdout or DEADLY not in tests, run.stdout
    assert [path.read_text() for path in tmp_path.rglob("*.ran")] == ["."] * 6
