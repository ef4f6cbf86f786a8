"""`docs/invariants.md` and the code speak of the same rules, and what it says to show them is there."""

from __future__ import annotations

import re

import pytest

RULE = re.compile(r"^(\d+)\. \*\*.*\n(?: .*\n)*", re.MULTILINE)
NAMED = re.compile(r"\binvariants?\s+(\d+(?:,\s+\d+)*)", re.IGNORECASE)


@pytest.fixture(scope="module")
def rules(root) -> dict[int, str]:
    """Number → text."""
    return {int(rule[1]): rule[0] for rule in RULE.finditer((root / "docs/invariants.md").read_text())}


def named(sources) -> dict[int, list[str]]:
    """Number → the files that name it."""
    found: dict[int, list[str]] = {}
    for source in sources:
        for match in NAMED.finditer(source.text):
            for number in re.findall(r"\d+", match[1]):
                found.setdefault(int(number), []).append(source.name)
    return found


def test_whatever_names_a_rule_names_one_of_the_book(rules, sources, test_sources) -> None:
    unknown = {number: files for number, files in named([*sources, *test_sources]).items() if number not in rules}
    assert not unknown


def test_the_code_says_of_each_rule_who_keeps_it(rules, sources) -> None:
    assert not [number for number in rules if number not in named(sources)]


def test_each_rule_names_tests_that_are_there(rules, root) -> None:
    for number, text in rules.items():
        shown_by = re.findall(r"`([\w/]+\.(?:py|txt))`", text.partition("Shown by")[2])
        assert shown_by and all((root / "tests" / file).is_file() for file in shown_by), number
