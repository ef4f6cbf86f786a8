"""docs/comparison.md says nothing of our own commands and clients that is not there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import click
import pytest

import strandline
from strandline import aio, client
from strandline.cli.main import cli
from strandline.client import errors, settings

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "comparison.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
OTHERS = {"Future", "outcome_unknown"}
"""In the column, and no names of the package: a class of Python, an attribute of an error."""


def ours(heading: str) -> list[str]:
    """What stands in code in the column `here`."""
    lines = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert {len(row) for row in rows} == {len(head)}
    return [code for row in rows for code in CODE.findall(row[head.index("here")])]


@pytest.mark.parametrize("line", ours("Commands"))
def test_every_command_and_option_exists(line: str) -> None:
    program, *words = line.split()
    assert program == "strandline"
    command: click.Command = cli
    ctx = click.Context(cli, **cli.context_settings)  # a command keeps the help option of the first one it meets
    while words and isinstance(command, click.Group):
        if words[0].startswith("-"):
            break
        found = command.get_command(ctx, words.pop(0))
        assert found is not None
        command = found
    options = {name for each in command.get_params(ctx) for name in (*each.opts, *each.secondary_opts)}
    literal = {choice for word in words if not word.startswith("-") for choice in [word]} - {"json"}
    assert not literal, "a word that is no option"
    assert {word for word in words if word.startswith("-")} <= options


@pytest.mark.parametrize("name", ours("Python clients"))
def test_every_method_exists(name: str) -> None:
    place, *attributes = name.split(".")
    if name in OTHERS:
        return
    homes = {"aio": aio, "client": client, "errors": errors, "ConsumerSettings": settings, "ProducerSettings": settings}
    found = homes.get(place) or getattr(strandline, place)
    if found is settings:
        assert attributes[0] in {each.name for each in dataclasses.fields(getattr(settings, place))}
        return
    for attribute in attributes:
        found = getattr(found, attribute)


@pytest.mark.parametrize("heading", ["Commands", "Python clients"])
def test_each_row_ends_with_a_judgement(heading: str) -> None:
    lines = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0].splitlines()
    judged = [line.rstrip("|").rpartition("|")[2].strip() for line in lines if line.startswith("|")][2:]
    assert all(re.match(r"have|better|not|$", each) for each in judged)
    assert sum(each == "" for each in judged) <= 1
    assert not any("not yet" in each for each in judged), "what is there is told, and what is not is `not`"
