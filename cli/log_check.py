"""`strandline log-check`: what a start would repair, drop or refuse in the data folders of a stopped broker.
Changes nothing. Exit code 0: nothing to do; 1: a start would repair or refuse something, or would not see damage.
`--output json` is one document, with an empty list of findings where there are none: silence would say nothing.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from strandline.cli.options import output_option, show_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.storage.inspection.log_check import Finding
    from strandline.storage.manager.loading import LoadProgress


_SEGMENT = re.compile(r"[0-9]{20}\.log")
_IDENTITY = "meta.properties"
_COLOURS = {"refuse": "bold red", "lose": "red", "repair": "yellow", "note": "dim"}


@click.command(
    "log-check",
    epilog="Examples: strandline log-check /var/lib/strandline; strandline log-check --quick --output json data1 data2",
)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER…")
@click.option("--quick", is_flag=True, help="Only what a start looks at, not every batch.")
@click.option(
    "--index-interval-bytes",
    type=click.IntRange(min=0, max=2**31 - 1),
    default=4096,
    show_default=True,
    help="As the broker has it (log.index.interval.bytes).",
)
@output_option
def log_check(folders: tuple[str, ...], quick: bool, index_interval_bytes: int, output: str) -> int:
    """Verify the data folders (log.dirs) of a stopped broker.

    Says what a start would repair, drop or refuse, and what it would not even see, without changing anything."""
    paths = [os.path.abspath(folder) for folder in folders]
    for path in paths:
        if not os.path.isdir(path):
            raise click.ClickException(f"{path} is no folder; name the folders of log.dirs")
        if any(_SEGMENT.fullmatch(name) for name in os.listdir(path)):
            raise click.ClickException(f"{path} is the folder of one partition; name the one above it, of log.dirs")
        inside = [name for name in sorted(os.listdir(path)) if os.path.exists(f"{path}/{name}/{_IDENTITY}")]
        if inside and not os.path.exists(f"{path}/{_IDENTITY}"):
            raise click.ClickException(f"{path} is no data folder, but {inside[0]} in it is; name that one")
    from strandline.runtime.clock import SystemWallClock
    from strandline.runtime.config.reading import load_broker_config
    from strandline.runtime.config.topic import topic_config
    from strandline.runtime.disk_posix import PosixDisk
    from strandline.runtime.randomness import system_random
    from strandline.storage.errors import LogDirLocked
    from strandline.storage.inspection.log_check import check_directories

    config = load_broker_config(
        {"broker.id": "0", "zookeeper.connect": "-", "log.index.interval.bytes": str(index_interval_bytes)}
    )
    with _ProgressBar(output) as on_progress:
        try:
            findings = check_directories(
                PosixDisk(),
                paths,
                topic_config(config, {}),
                SystemWallClock(),
                system_random("log-check"),
                quick=quick,
                on_progress=on_progress,
            )
        except LogDirLocked as error:
            raise click.ClickException(f"{error}: only the folders of a stopped broker can be checked") from None
    if output == "json":
        show_json("log-check", findings=[_shown(finding) for finding in findings])
    else:
        _print(findings, paths)
    return 1 if any(finding.severity != "note" for finding in findings) else 0


def _shown(finding: Finding) -> dict[str, object]:
    fields = {
        name: value if isinstance(value, int | str | None) else str(value) for name, value in finding.fields.items()
    }
    return {
        "severity": finding.severity,
        "event": finding.event,
        "where": finding.where,
        "what": finding.what,
        "fields": fields,
    }


def _print(findings: Sequence[Finding], paths: Sequence[str]) -> None:
    """A line each, however long: paths stay whole."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    if findings:
        console.print("A START WOULD", style="bold")
    for finding in findings:
        where = finding.where.removeprefix(f"{paths[0]}/") if len(paths) == 1 else finding.where
        severity = (f"{finding.severity:<6}", _COLOURS[finding.severity])
        console.print(Text.assemble(severity, "  ", where, ": ", finding.what), soft_wrap=True)
    counts = {severity: sum(finding.severity == severity for finding in findings) for severity in _COLOURS}
    if any(count for severity, count in counts.items() if severity != "note"):
        said = ", ".join(f"{count} to {severity}" for severity, count in counts.items() if count and severity != "note")
        click.echo(f"{said}; nothing was changed")
    else:
        click.echo("nothing to repair")


class _ProgressBar:
    """On stderr, where that is a terminal and text is asked for; gives the function to call on progress."""

    def __init__(self, output: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=output == "json" or not console.is_terminal,
        )

    def __enter__(self) -> Callable[[LoadProgress], None]:
        self._bar.start()
        task = self._bar.add_task("loading", total=None)

        def on_progress(progress: LoadProgress) -> None:
            if progress.bytes_total:
                self._bar.update(
                    task, description="checking", total=progress.bytes_total, completed=progress.bytes_checked
                )
            else:
                self._bar.update(task, total=progress.logs_total or None, completed=progress.logs_loaded)

        return on_progress

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
