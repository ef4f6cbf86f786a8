"""The clock, randomness, sockets, files, threads and kazoo are touched in runtime/ only; everything else is given them.

So a whole cluster runs in one event loop with a virtual clock, and a seed replays it. The command line tool stands
outside: it may start processes, read files and look at the clock, but has no sockets, threads or randomness either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

MODULES = {
    "socket": "network",
    "ssl": "network",
    "select": "network",
    "selectors": "network",
    "time": "clock",
    "secrets": "randomness",
    "kazoo": "ZooKeeper",
    "threading": "threads",
    "multiprocessing": "threads",
    "concurrent": "threads",
    "asyncio": "another event loop",
    "subprocess": "processes",
    "tempfile": "files",
    "shutil": "files",
    "mmap": "files",
    "fcntl": "files",
    "glob": "files",
}
CALLS = {
    "open": "files",
    "random.": "randomness",
    "uuid.uuid1": "randomness",
    "uuid.uuid4": "randomness",
    "datetime.now": "clock",
    "datetime.utcnow": "clock",
    "datetime.today": "clock",
    "datetime.datetime.now": "clock",
    "date.today": "clock",
    "trio.open_tcp": "network",
    "trio.serve_tcp": "network",
    "trio.socket.": "network",
    "trio.to_thread.": "threads",
    "trio.from_thread.": "threads",
    "trio.run_process": "processes",
    "trio.open_file": "files",
    "trio.Path": "files",
}
"""Dotted name of a call, or its beginning where it ends in a dot or names a family."""

HARMLESS_OF_OS = {"PathLike", "fsdecode", "fsencode", "fspath", "strerror"}
HARMLESS_OF_OS_PATH = {"basename", "commonprefix", "dirname", "join", "normpath", "split", "splitext"}
PURE_PATHS = {"PurePath", "PurePosixPath"}
CLI_MAY_TOUCH = {"clock", "files", "processes"}
ALSO_MAY_TOUCH = {
    "tests/support/coordination_sites.py": {"network", "threads"},
    "tests/support/trial_search.py": {"files"},
    "tests/support/bare_search.py": {"threads"},
    "tests/support/lock_step.py": {"threads"},
}
"""The contract suite's stand beside a *real* ZooKeeper: it cuts its connections and stops its process. The search over
trials copies its own process at each of their branches. Plain code of commands has a thread beside the loop."""


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def touched_by_import(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if module == "pathlib":
            yield from (("files", f"pathlib.{alias.name}") for alias in node.names if alias.name not in PURE_PATHS)
        elif module in ("os", "os.path", "random", "uuid") and [alias.name for alias in node.names] != ["UUID"]:
            yield "files" if module.startswith("os") else "randomness", f"from {module} import … (say {module}.…)"
        names = [module]
    else:
        names = [alias.name for alias in node.names]
        if "pathlib" in names:
            yield "files", "pathlib"
    for name in names:
        if (seam := MODULES.get(name.split(".")[0])) is not None:
            yield seam, name


def touched_by(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(seam, what) of one syntax node."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from touched_by_import(node)
    elif isinstance(node, ast.Call):
        name = dotted(node.func)
        for pattern, seam in CALLS.items():
            if name == pattern or (pattern not in ("open", "trio.Path") and name.startswith(pattern)):
                yield seam, f"{name}()"
    elif isinstance(node, ast.Attribute):
        name = dotted(node)
        if name.startswith("os.path."):
            if node.attr not in HARMLESS_OF_OS_PATH:
                yield "files", name
        elif name.startswith("os.") and name.count(".") == 1 and node.attr not in {"path", *HARMLESS_OF_OS}:
            yield "files", name


def is_seeded(node: ast.AST) -> bool:
    """`random.Random(seed)`: the test kit makes its own streams from the seed of a run."""
    return isinstance(node, ast.Call) and dotted(node.func) == "random.Random" and bool(node.args)


def is_given(tree: ast.Module) -> set[int]:
    """ids of calls on a parameter that is called like the module: `def roll(self, random: Random)`."""
    given: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = function.args
            names = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
            given |= {
                id(node)
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and dotted(node.func).split(".")[0] in names
            }
    return given


def test_only_the_runtime_touches_the_world(sources) -> None:
    wrong = []
    for source in sources:
        if source.package == "runtime":
            continue
        allowed = CLI_MAY_TOUCH if source.package == "cli" else ALSO_MAY_TOUCH.get(source.name, set())
        given = is_given(source.tree)
        for node in ast.walk(source.tree):
            if id(node) in given or (source.package == "testkit" and is_seeded(node)):
                continue
            wrong += [
                f"{source.name}:{getattr(node, 'lineno', 0)} {seam}: {what}"
                for seam, what in touched_by(node)
                if seam not in allowed
            ]
    assert not wrong, "take it from the environment instead:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "seam"),
    [
        ("import socket", "network"),
        ("from time import monotonic", "clock"),
        ("from kazoo.client import KazooClient", "ZooKeeper"),
        ("x = random.randrange(3)", "randomness"),
        ("x = uuid.uuid4()", "randomness"),
        ("x = datetime.now(UTC)", "clock"),
        ("open('x')", "files"),
        ("os.fsync(1)", "files"),
        ("os.path.exists('x')", "files"),
        ("from pathlib import Path", "files"),
        ("trio.to_thread.run_sync(f)", "threads"),
    ],
)
def test_the_rule_sees(text: str, seam: str) -> None:
    assert seam in [found for node in ast.walk(ast.parse(text)) for found, _ in touched_by(node)]


def test_a_generator_that_is_handed_in_may_be_called_like_the_module() -> None:
    tree = ast.parse("def roll(random): return random.random()")
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    assert is_given(tree) == {id(call)}


@pytest.mark.parametrize(
    "text",
    [
        "def f(generator: random.Random) -> None: generator.random()",
        "disk.open(path)",
        "os.path.join('a', 'b')",
        "from pathlib import PurePosixPath",
        "trio.current_time()",
        "from uuid import UUID",
    ],
)
def test_the_rule_leaves_alone(text: str) -> None:
    assert [found for node in ast.walk(ast.parse(text)) for found in touched_by(node)] == []
