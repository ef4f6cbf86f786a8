"""Sets are not iterated bare where their order can be seen: it differs from run to run, and a seed no longer replays.

Write `sorted(…)`, keep a dict's keys, or feed what does not care (`sum`, `any`, `len`, another set). The rule knows a
set when it is written as one, or when the same module annotates or makes the name as one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

RULED = ("protocol", "storage", "controller", "broker", "client", "testkit")
SET_TYPES = ("set[", "frozenset[", "AbstractSet[", "MutableSet[")
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}
ORDER_BLIND = {"sorted", "sum", "any", "all", "min", "max", "len", "set", "frozenset"}
ORDER_SHOWING = {"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "reversed"}


def name_of(node: ast.expr) -> str | None:
    """`x` and `self.x`; nothing else can be followed."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return None


def is_set(node: ast.expr, known: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in ("set", "frozenset")
        return isinstance(node.func, ast.Attribute) and (
            node.func.attr in SET_METHODS and is_set(node.func.value, known)
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitOr | ast.BitAnd | ast.BitXor):
        return is_set(node.left, known) or is_set(node.right, known) or is_key_view(node.left)
    return name_of(node) in known


def is_key_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def sets_of(scope: ast.AST) -> set[str]:
    """Names that this scope annotates or assigns as sets."""
    known: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            if ast.unparse(node.annotation).split(".")[-1].startswith(SET_TYPES):
                target = ast.Name(node.arg) if isinstance(node, ast.arg) else node.target
                known.add(name_of(target) or "")
        elif isinstance(node, ast.Assign) and is_set(node.value, set()):
            known |= {name_of(target) or "" for target in node.targets}
    return known - {""}


def iterations(scope: ast.AST) -> Iterator[ast.expr]:
    """What is iterated where the order can be seen."""
    blind: set[int] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ORDER_BLIND:
                blind |= {id(argument) for argument in node.args}
            elif node.func.id in ORDER_SHOWING:
                yield from node.args
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield node.iter
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp) and id(node) not in blind:
            yield from (generator.iter for generator in node.generators)


def bare_set_iterations(tree: ast.Module) -> list[int]:
    """Line numbers. Attributes count for their class, plain names for their function."""
    found: set[int] = set()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    attributes = {name for name in sets_of(tree) if name.startswith("self.")}
    for function in functions:
        known = sets_of(function) | attributes
        found |= {node.lineno for node in iterations(function) if is_set(node, known)}
    return sorted(found)


def test_no_bare_set_is_iterated_where_the_order_shows(sources) -> None:
    wrong = [
        f"{source.name}:{line}"
        for source in sources
        if source.package in RULED
        for line in bare_set_iterations(source.tree)
    ]
    assert not wrong, "iterates a set; write sorted(…):\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("body", "is_seen"),
    [
        ("for x in {1, 2}: pass", True),
        ("for x in set(y): pass", True),
        ("s: set[int] = set()\n    for x in s: pass", True),
        ("return list(set(y))", True),
        ("return [x for x in {1} | y]", True),
        ("for x in a.keys() - b: pass", True),
        ("for x in sorted(set(y)): pass", False),
        ("return sum(x for x in {1})", False),
        ("for x in {1: 2}: pass", False),
        ("return {x for x in set(y)}", False),
        ("for x in a.keys(): pass", False),
    ],
)
def test_the_rule_sees_sets(body: str, is_seen: bool) -> None:
    assert bool(bare_set_iterations(ast.parse(f"def f(a, b, y):\n    {body}"))) is is_seen
