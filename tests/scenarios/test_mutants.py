"""The scripted regressions can fail: one line of ours is broken at a time, and one of them must notice.

Each mutant of the tables in `mutants/` is applied to a copy of its package; the other packages are linked.
The tests named with it run against that copy in a process of their own. Of each package one mutant that changes nothing
passes, so what fails is the mutant and not the copying.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.mutants import MUTANTS
from scenarios.mutants.mutant import Mutant
from support.mutated_sources import ROOT, copy_of_the_sources, package_of

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 600


def run(source_path: Path, tests: tuple[str, str]) -> tuple[int, str]:
    """(pytest's exit code, the last of what it printed)."""
    file, prefix = tests
    selected = [f"{HERE / file}::{name}" for name in names_of(file, prefix)]
    environment = {**os.environ, "PYTHONPATH": str(source_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--tb=line", *selected]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    return done.returncode, "\n".join(done.stdout.splitlines()[-60:])


def names_of(file: str, beginning: str) -> list[str]:
    """As pytest takes them behind the file's."""
    prefix, bracket, case = beginning.partition("[")
    found = re.findall(rf"^(?:async )?def ({re.escape(prefix)}\w*)", (HERE / file).read_text(), re.MULTILINE)
    assert found, f"{file} has no test {prefix}…"
    return [name + bracket + case for name in found]


@pytest.mark.parametrize("mutant", {package_of(mutant): mutant for mutant in MUTANTS}.values(), ids=package_of)
def test_an_unchanged_copy_passes(mutant: Mutant, tmp_path: Path) -> None:
    code, printed = run(copy_of_the_sources(tmp_path, mutant._replace(after=mutant.before)), mutant.killed_by)
    assert code == 0, printed


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_regression_test_notices(mutant: Mutant, tmp_path: Path) -> None:
    code, printed = run(copy_of_the_sources(tmp_path, mutant), mutant.killed_by)
    assert code == 1, f"no test failed (exit code {code}):\n{printed}"
    by_assertion = any(word in printed for word in ("AssertionError", "assert", "Broken(", "DID NOT RAISE"))
    assert by_assertion, f"it did not fail by its assertions:\n{printed}"
