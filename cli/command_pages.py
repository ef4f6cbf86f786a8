"""The pages of `docs/commands`: what `--help` says of every command, made from the commands themselves.

    python -m strandline.cli.command_pages docs/commands     what `make docs` runs

A page for each command with a section for each subcommand, and an index. `pages` is pure but for importing the
commands; a test holds the folder against it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from strandline.cli.help_format import examples_of
from strandline.cli.main import COMMANDS, EXIT_CODES, cli

INDEX = "README.md"
MADE = "Made by `make docs` from `--help`; changes belong into the command."


def write(folder: Path) -> None:
    """The pages into that folder, and nothing else: pages of commands that are gone are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.name not in made:
            path.unlink()


def pages() -> dict[str, str]:
    """File name → its text."""
    root = click.Context(cli, info_name="strandline", **cli.context_settings)
    found = {}
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        sections = list(_sections(command, click.Context(command, parent=root, info_name=name), 1))
        found[f"{name}.md"] = "\n\n".join([*sections, f"[All commands]({INDEX}). {MADE}"]) + "\n"
    return {INDEX: _index(root), **found}


def _index(root: click.Context) -> str:
    rows = []
    for name, entry in COMMANDS.items():
        command = cli.get_command(root, name)
        below = ", ".join(sorted(command.commands)) if isinstance(command, click.Group) else ""
        rows.append((f"[{name}]({name}.md)", entry.help, below))
    codes = [(str(code), meaning) for code, meaning in EXIT_CODES.items()]
    return (
        "\n\n".join(
            [
                "# Commands",
                "Every command of `strandline`, as `strandline COMMAND --help` describes it.",
                _table(("command", "what it does", "subcommands"), rows),
                _table(("exit code", "meaning"), codes),
                MADE,
            ]
        )
        + "\n"
    )


def _sections(command: click.Command, ctx: click.Context, level: int) -> Iterator[str]:
    """The command and what is below it: heading, usage, text, options, examples."""
    yield f"{'#' * level} {ctx.command_path}"
    yield _fence(" ".join([ctx.command_path, *command.collect_usage_pieces(ctx)]))
    yield from _paragraphs(command.help or "")
    records = [record for each in command.get_params(ctx) if (record := each.get_help_record(ctx)) is not None]
    if records:
        rows = [(f"`{names}`", shown_as_it_is(text)) for names, text in records]
        yield _table(("option", "meaning"), rows)
    if examples := examples_of(command.epilog or ""):
        yield _fence("\n".join(examples))
    elif command.epilog:
        yield from _paragraphs(inspect.cleandoc(command.epilog))
    if isinstance(command, click.Group):
        for name, below in sorted(command.commands.items()):
            yield from _sections(below, click.Context(below, parent=ctx, info_name=name), level + 1)


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph:
            yield _fence(paragraph.replace("\b\n", "", 1)) if "\b" in paragraph else shown_as_it_is(paragraph)


def shown_as_it_is(text: str) -> str:
    """As one line of text that Markdown shows as it is; what stands in backticks stays code."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(each if each.startswith("`") else re.sub(r"([<>*_\\])", r"\\\1", each) for each in pieces)


def _fence(text: str) -> str:
    return f"```\n{text}\n```"


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
