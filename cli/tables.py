"""Rows under headings: a table for a terminal, aligned columns of plain text for everything else."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

import click

from strandline.cli.wording import printable


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> None:
    """`numbers`: the columns that stand to the right. Plain text has its headings in capitals, as Kafka's tools have
    them, and no cell is empty, so that fields can be counted. Cells may hold anything: it is shown as one line."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _show_to_people(columns, rows, numbers)
        return
    filled = [[cell or "-" for cell in row] for row in rows]
    lines = [[column.upper().replace(" ", "-") for column in columns], *filled]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        click.echo(" ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _show_to_people(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
