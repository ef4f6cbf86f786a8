"""The source files that the house rules look at."""

from __future__ import annotations

import ast
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
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
        return "strandline." + self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


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
