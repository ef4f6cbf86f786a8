"""Sizes, docstrings, links: what keeps files readable and the package whole."""

from __future__ import annotations

import ast
import os
import re

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
MAX_TEST_FILE_LINES = 600
TAKEN_AS_IT_IS = {"tests/benchmarks/ceiling.py"}
"""The reference program that benchmarks are quoted against stays comparable, so it is not reshaped."""


def test_files_stay_under_the_limit(sources, test_sources) -> None:
    too_long = []
    for files, limit in ((sources, MAX_FILE_LINES), (test_sources, MAX_TEST_FILE_LINES)):
        for source in files:
            lines = source.text.count("\n")
            if lines >= limit and source.name not in TAKEN_AS_IT_IS:
                too_long.append(f"{source.name}: {lines} lines (limit {limit}); it holds two ideas")
    assert not too_long, "\n".join(too_long)


def test_functions_stay_under_the_limit(sources) -> None:
    too_long = []
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines >= MAX_FUNCTION_LINES:
                    too_long.append(f"{source.name}:{node.lineno} {node.name}: {lines} lines")
    assert not too_long, "\n".join(too_long)


def test_every_module_says_what_it_is_for(sources, test_sources) -> None:
    silent = [
        source.name
        for source in (*sources, *test_sources)
        if source.name not in TAKEN_AS_IT_IS and not ast.get_docstring(source.tree)
    ]
    assert not silent, "no module docstring: " + ", ".join(silent)


def test_nothing_is_left_for_later(sources, test_sources) -> None:
    # In brackets so that this file does not name itself.
    marks = re.compile("[T]ODO|[F]IXME|[N]otImplementedError")
    left = [
        f"{source.name}:{number}: {line.strip()}"
        for source in (*sources, *test_sources)
        for number, line in enumerate(source.text.splitlines(), 1)
        if marks.search(line)
    ]
    assert not left, "\n".join(left)


def test_each_package_is_linked_under_src_and_nothing_else_is(root, packages) -> None:
    house = root / "src" / "strandline"
    links = sorted(entry.name for entry in house.iterdir() if entry.is_symlink())
    assert links == sorted(packages)
    for package in packages:
        # Relative, so that a clone works anywhere.
        assert os.readlink(house / package) == f"../../{package}"
        assert (house / package / "__init__.py").is_file()


def test_every_folder_with_modules_is_a_package(root, packages) -> None:
    bare = [
        folder.relative_to(root).as_posix()
        for package in packages
        for folder in (root / package).rglob("*")
        if folder.is_dir() and any(folder.glob("*.py")) and not (folder / "__init__.py").exists()
    ]
    assert not bare, f"the wheel would lack {bare}"
