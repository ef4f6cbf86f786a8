"""A test whose fixtures need a virtual clock asks for the clock itself.

pytest-trio runs a test on the clock among the test's own arguments. One that only a fixture or a mark asks for is made,
and drives nothing: the test passes on real time, which takes minutes where it waits for a deadline.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import pytest

FROM_PYTEST_TRIO = {"autojump_clock", "mock_clock"}
CLOCK = re.compile(r"\b(MockClock|trio\.abc\.Clock)\b")
"""What a fixture returns that is such a clock; a wall clock is another thing."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(module: ast.Module) -> Iterator[Function]:
    return (node for node in module.body if isinstance(node, Function))


def arguments_of(function: Function) -> set[str]:
    return {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}


def decorations(function: Function, name: str) -> list[ast.expr]:
    return [each for each in function.decorator_list if f"pytest.{name}" in ast.unparse(each)]


def named_by_marks(marks: Iterable[ast.expr]) -> set[str]:
    """The fixtures that `usefixtures` names in them."""
    return {
        str(argument.value)
        for mark in marks
        for call in ast.walk(mark)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.usefixtures"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }


def all_used(names: Iterable[str], fixtures: dict[str, Function]) -> set[str]:
    """These fixtures, and those that they ask for."""
    used: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += arguments_of(fixtures[name]) if name in fixtures else ()
    return used


def on_real_time(module: ast.Module, conftests: Iterable[ast.Module] = ()) -> Iterator[Function]:
    """The tests of the module for which a clock is made that they do not ask for. conftests: those of its folders, the
    outermost first."""
    functions = [function for tree in (*conftests, module) for function in functions_of(tree)]
    fixtures = {function.name: function for function in functions if decorations(function, "fixture")}
    clocks = FROM_PYTEST_TRIO | {
        name for name, each in fixtures.items() if each.returns is not None and CLOCK.search(ast.unparse(each.returns))
    }
    by_all = {
        name
        for name, each in fixtures.items()
        if any("autouse=True" in ast.unparse(made) for made in decorations(each, "fixture"))
    }
    by_all |= named_by_marks(
        node.value for node in module.body if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "pytestmark"
    )
    for test in functions_of(module):
        if isinstance(test, ast.AsyncFunctionDef) and test.name.startswith("test_"):
            own = arguments_of(test)
            used = all_used(own | by_all | named_by_marks(test.decorator_list), fixtures)
            if used & clocks and not own & clocks:
                yield test


def test_a_test_asks_itself_for_the_clock_that_its_fixtures_need(test_sources) -> None:
    trees = {PurePosixPath(source.name): source.tree for source in test_sources}
    wrong = [
        f"{path}:{test.lineno} {test.name}"
        for path, tree in trees.items()
        for test in on_real_time(
            tree,
            [trees[folder / "conftest.py"] for folder in reversed(path.parents) if folder / "conftest.py" in trees],
        )
    ]
    assert not wrong, "runs on real time; add the argument autojump_clock:\n" + "\n".join(wrong)


CONFTEST = """
@pytest.fixture
async def site(autojump_clock): ...
@pytest.fixture
def clock() -> MockClock: ...
@pytest.fixture
def wall_clock() -> VirtualWallClock: ...
@pytest.fixture
def ticking(clock): ...
"""


@pytest.mark.parametrize(
    ("text", "is_seen"),
    [
        ("async def test_it(site): ...", True),
        ("async def test_it(site, autojump_clock): ...", False),
        ("async def test_it(site, *, mock_clock): ...", False),
        ("async def test_it(ticking): ...", True),
        ("async def test_it(ticking, clock): ...", False),
        ("async def test_it(wall_clock, tmp_path): ...", False),
        ("def test_it(clock): ...", False),
        ("@pytest.fixture\nasync def upper(site): ...\nasync def test_it(upper): ...", True),
        ("@pytest.fixture\nasync def site(): ...\nasync def test_it(site): ...", False),
        ("@pytest.fixture(autouse=True)\ndef _always(site): ...\nasync def test_it(): ...", True),
        ("@pytest.mark.usefixtures('site')\nasync def test_it(): ...", True),
        ("pytestmark = pytest.mark.usefixtures('autojump_clock')\nasync def test_it(): ...", True),
        ("pytestmark = [pytest.mark.usefixtures('mock_clock')]\nasync def test_it(autojump_clock): ...", False),
    ],
)
def test_the_rule_sees_clocks_that_drive_nothing(text: str, is_seen: bool) -> None:
    assert any(on_real_time(ast.parse(text), [ast.parse(CONFTEST)])) is is_seen
