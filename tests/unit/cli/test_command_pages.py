"""The pages about commands are those of the commands as they are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from strandline.cli.command_pages import pages, shown_as_it_is, write
from strandline.cli.help_format import examples_of
from strandline.cli.main import COMMANDS, cli

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "commands"


def test_the_folder_has_the_pages_as_they_are_made() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert found == pages(), "run 'make docs'"


def options_of(command: click.Command) -> set[str]:
    names = {
        name for each in command.params if isinstance(each, click.Option) and not each.hidden for name in each.opts
    }
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return names.union(*map(options_of, below))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_names_every_option_of_its_command_and_has_examples(name: str) -> None:
    command = cli.get_command(click.Context(cli, **cli.context_settings), name)
    page = pages()[f"{name}.md"]
    missing = {option for option in options_of(command) if option not in page}
    assert not missing
    assert "-h, --help" in page
    assert all(each.isprintable() or each == "\n" for each in page)
    examples = [line for line in page.splitlines() if re.match(r"(Examples?: +|  +)?(\w+ .*\| )?strandline ", line)]
    assert len(examples) > 1, "one is the usage"


def test_examples_are_cut_where_a_command_begins_and_not_at_every_semicolon() -> None:
    assert examples_of("Examples: strandline a 'x; y' | z;\n strandline b") == [
        "strandline a 'x; y' | z",
        "strandline b",
    ]
    assert examples_of("Example: printf 'k:v' | strandline c") == ["printf 'k:v' | strandline c"]
    assert examples_of("See elsewhere.") == []


def test_help_reads_as_it_was_written_and_code_in_it_stays_code() -> None:
    assert shown_as_it_is("a_b <c> \\n `x_y *` __z__") == r"a\_b \<c\> \\n `x_y *` \_\_z\_\_"


def test_pages_of_commands_that_are_gone_are_removed(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("x")
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(pages())
