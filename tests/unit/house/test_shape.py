"""Sizes, docstrings, links: what keeps files readable and the package whole."""

from __future__ import annotations

import ast
import os
import re

MAX_CODE_LINES = 400
"""Of a module that is shipped. Docstrings, comments and blank lines do not count: nobody shall save on words."""
MAX_LINES = 600
"""Of any file, in all: beyond that nobody finds anything."""
MAX_FUNCTION_LINES = 70
"""Of code, as above."""
TAKEN_AS_IT_IS = {"tests/benchmarks/ceiling.py"}
"""The reference program that benchmarks are quoted against stays comparable, so it is not reshaped."""


def test_files_stay_under_the_limits(sources, test_sources) -> None:
    measured = [(source.name, len(source.code), MAX_CODE_LINES, "lines of code") for source in sources]
    measured += [(each.name, each.text.count("\n"), MAX_LINES, "lines") for each in (*sources, *test_sources)]
    too_long = [
        f"{name}: {lines} {what} (limit {limit}); it holds two ideas"
        for name, lines, limit, what in measured
        if lines >= limit and name not in TAKEN_AS_IT_IS
    ]
    assert not too_long, "\n".join(too_long)


def test_functions_stay_under_the_limit(sources) -> None:
    too_long = []
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = len(source.code.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
                if lines >= MAX_FUNCTION_LINES:
                    too_long.append(f"{source.name}:{node.lineno} {node.name}: {lines} lines of code")
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


def test_no_table_of_a_document_is_broken_off(root) -> None:
    """Rows that do not begin with a head and a line of dashes are shown as text full of bars."""
    broken = []
    for path in (*root.glob("*.md"), *root.glob("docs/*.md")):
        lines = [*re.sub(r"^```.*?^```", _as_blank_lines, path.read_text(), flags=re.M | re.S).split("\n"), ""]
        rows = [line.startswith("|") for line in lines]
        for number, line in enumerate(lines):
            begins = rows[number] and not (number and rows[number - 1])
            if begins and not re.fullmatch(r"\|(?: *:?-+:? *\|)+", lines[number + 1]):
                broken.append(f"{path.name}:{number + 1}: {line[:80]}")
    assert not broken, "\n".join(broken)


def _as_blank_lines(code: re.Match[str]) -> str:
    return "\n" * code[0].count("\n")
