"""What commands that read change logs have in common: which files, which time, which partitions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from strandline.cli.cluster_commands import data_option
from strandline.cli.cluster_state import DATA_VARIABLE

F = TypeVar("F", bound=Callable[..., Any])


def change_log_options(function: F) -> F:
    """`[FOLDER|FILE]… --logs --data --since --until --topics --partitions`; `files_of`, `moment_ms` and
    `partition_numbers` make sense of them."""
    existing = click.Path(exists=True, path_type=Path)
    for option in (
        click.option("--partitions", "--partition", default="", metavar="0,3-5", help="Partitions with these numbers."),
        click.option(
            *("-t", "--topics", "--topic"),
            default="",
            metavar="PATTERN",
            help="Topics whose whole name this pattern matches.",
        ),
        click.option(
            *("--until", "--to"), metavar="TIME", help="As --since; without it, up to the last line of the logs."
        ),
        click.option(
            *("--since", "--from"),
            metavar="TIME",
            help="-2h (ago), 2024-02-14, 2024-02-14T10:00:00Z or ms since 1970.",
        ),
        data_option,
        click.option(
            "--logs", multiple=True, type=existing, metavar="FOLDER|FILE", help="As the argument; may be repeated."
        ),
        click.argument("paths", nargs=-1, type=existing, metavar="[FOLDER|FILE]…"),
    ):
        function = option(function)
    return function


def files_of(paths: tuple[Path, ...], data_dir: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Change logs, without symbolic links, and those that should be there and are not. UsageError: none are named, and
    there is no cluster."""
    from strandline.runtime.disk_posix import PosixDisk
    from strandline.runtime.log_files import find_change_logs

    if not paths and not data_dir.is_dir():
        raise click.UsageError(
            f"there is no cluster in {data_dir}: name the folders of the brokers' logs, or a cluster's with --data "
            f"(${DATA_VARIABLE})"
        )
    found = find_change_logs(PosixDisk(), [str(path.expanduser().absolute()) for path in paths or (data_dir,)])
    return tuple(dict.fromkeys(os.path.realpath(file) for file in found.files)), found.missing
