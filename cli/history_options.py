"""What commands that read change logs have in common: which files, which time, which partitions, what is missing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.cluster_commands import data_option
from strandline.cli.cluster_state import DATA_VARIABLE
from strandline.cli.options import moment_ms
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline.protocol.history.gaps import Gap, Unheard
    from strandline.runtime.log_merge import LogMerge

F = TypeVar("F", bound=Callable[..., Any])

MOST_NAMED = 20
"""Damaged lines and gaps as text; JSON has more."""


def change_log_options(function: F) -> F:
    """`[FOLDER|FILE]… --logs --data --since --until --topics --partitions`; `files_of`, `time_range`,
    `check_pattern` and `partition_numbers` make sense of them."""
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


def merge_of(paths: tuple[Path, ...], data_dir: Path) -> tuple[LogMerge, int, tuple[str, ...]]:
    """The lines of these logs by time, of how many files, and which files are missing. UsageError as `files_of`;
    ClickException where there is no log."""
    from strandline.runtime.disk_posix import PosixDisk
    from strandline.runtime.log_merge import LogMerge

    files, missing = files_of(paths, data_dir)
    if not files:
        raise click.ClickException(
            "there is no change log to read; name the folders of brokers (log.folder), or state-change.log and "
            "controller.log"
        )
    return LogMerge(PosixDisk(), files), len(files), missing


def time_range(since: str | None, until: str | None, now_ms: int) -> tuple[int | None, int | None]:
    """Milliseconds since 1970. UsageError, also where it ends before it begins."""
    since_ms, until_ms = moment_ms("--since", since, now_ms), moment_ms("--until", until, now_ms)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError("the range of time ends before it begins; give an earlier --since, or a later --until")
    return since_ms, until_ms


def check_pattern(topics: str) -> None:
    """UsageError."""
    try:
        re.compile(topics)
    except re.error as error:
        raise click.UsageError(
            f"--topics '{topics}' is no pattern: {error}; give for example clicks|orders.*"
        ) from None


def unread_texts(merge: LogMerge, missing: Sequence[str]) -> list[str]:
    """What is not in the lines that were read, after the last one."""
    texts = [f"{each.file}:{each.number}: damaged line, passed over: {each.why}" for each in merge.damaged[:MOST_NAMED]]
    if merge.damaged_lines > MOST_NAMED:
        texts.append(f"{merge.damaged_lines:,} damaged lines, of which the first {MOST_NAMED} are named")
    if merge.lines_too_long:
        texts.append(f"{counted(merge.lines_too_long, 'line')} too long to be read, and left out")
    texts += [f"{file} is cut or damaged and was read as far as it goes" for file in sorted(merge.cut_files)]
    texts += [f"{file} could not be read: {why}" for file, why in sorted(merge.failed.items())]
    texts += [f"{file} is missing: what it would tell is left out" for file in missing]
    return texts


def gap_texts(gaps: Sequence[Gap], unheard: Sequence[Unheard]) -> list[str]:
    """Where lines must be missing. Of brokers without any there is one text for all: whoever reads one broker's log on
    purpose knows."""
    texts = [f"gap: {gap.text}" for gap in gaps[:MOST_NAMED]]
    if len(gaps) > MOST_NAMED:
        texts.append(f"{len(gaps):,} gaps, of which the first {MOST_NAMED} are named")
    if unheard:
        numbers = ", ".join(str(each.broker_id) for each in unheard[:MOST_NAMED])
        if len(unheard) > MOST_NAMED:
            numbers += f" and {len(unheard) - MOST_NAMED:,} more"
        whose, as_what = (
            ("broker", "it as leader or replica") if len(unheard) == 1 else ("brokers", "them as leaders or replicas")
        )
        first = min(each.first for each in unheard)
        texts.append(f"gap: no log has a line of {whose} {numbers}, though others name {as_what}, first {first}")
    return texts
