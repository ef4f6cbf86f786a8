"""The source files that the house rules look at."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = (
    "protocol",
    "runtime",
    "storage",
    "controller",
    "broker",
    "client",
    "spark_connector",
    "cli",
    "testkit",
)


@dataclass(frozen=True)
class Source:
    """One module of ours: `name` is its path from the root, `module` its dotted name, `package` the folder."""

    name: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name.split("/")[0]

    @property
    def module(self) -> str:
        dotted = self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return dotted.removeprefix("tests.") if self.package == "tests" else "strandline." + dotted

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """Dotted names of everything that is imported, also inside functions and for type checking only."""
        names: list[str] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: relative imports hide who imports whom"
                names += [f"{node.module}.{alias.name}" for alias in node.names]
        return tuple(names)

    @cached_property
    def code(self) -> frozenset[int]:
        """The numbers of the lines that hold code: no docstrings (also those below an attribute), comments, blanks."""
        text = {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        lines = enumerate(map(str.strip, self.text.splitlines()), 1)
        return frozenset(number for number, line in lines if line and line[0] != "#" and number not in text)


def parse(path: Path) -> Source:
    text = path.read_text()
    return Source(path.relative_to(ROOT).as_posix(), text, ast.parse(text))


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def packages() -> tuple[str, ...]:
    return PACKAGES


@pytest.fixture(scope="session")
def sources() -> list[Source]:
    """Every module of the packages."""
    return [parse(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.fixture(scope="session")
def test_sources() -> list[Source]:
    """Every test module."""
    return [parse(path) for path in sorted((ROOT / "tests").rglob("*.py"))]
