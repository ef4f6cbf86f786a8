"""`strandline dump-log`: what the files of a data folder hold, in the lines of Kafka's DumpLogSegments, or as JSON.

Works on the files of a running broker too: it only reads. Exit code 1 if any file is damaged.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import click

from strandline.cli.options import output_option


@click.command(
    "dump-log",
    epilog="Examples: strandline dump-log --files data/clicks-0/00000000000000000000.log --print-data-log; "
    "strandline dump-log --verify-index-only data/clicks-0",
)
@click.argument("paths", nargs=-1, metavar="[FILE|FOLDER]…")
@click.option(
    "--files",
    "listed",
    multiple=True,
    metavar="FILE[,FILE]…",
    help="Segments, indexes, .snapshot, checkpoints, meta.properties, partition.metadata, or a folder of them.",
)
@click.option("--print-data-log", is_flag=True, help="Every record with its key and value.")
@click.option("--deep-iteration", is_flag=True, help="Every record, without key and value.")
@click.option("--index-sanity-check", is_flag=True, help="Of indexes: only whether a broker would take them.")
@click.option("--verify-index-only", is_flag=True, help="Of indexes: only what does not agree with the log.")
@click.option(
    "--max-bytes", type=click.IntRange(min=0), metavar="N", help="Of segments: stop behind so many bytes of batches."
)
@output_option
def dump_log(
    paths: tuple[str, ...],
    listed: tuple[str, ...],
    print_data_log: bool,
    deep_iteration: bool,
    index_sanity_check: bool,
    verify_index_only: bool,
    max_bytes: int | None,
    output: str,
) -> int:
    """Show what segments, indexes, snapshots and checkpoints hold."""
    files = [path for text in listed for path in text.split(",") if path] + list(paths)
    if not files:
        raise click.UsageError("give the files: --files 00000000000000000000.log[,…]")
    from strandline.runtime.disk_posix import PosixDisk
    from strandline.storage.inspection.dump import DumpOptions, NotASegmentFile, dump_file

    options = DumpOptions(
        deep_iteration=deep_iteration,
        print_data_log=print_data_log,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
    )
    damaged = False
    for path in files:
        if not os.path.lexists(path):  # first: what is wrong with it is not its name
            raise click.ClickException(f"{path} does not exist; name a file of a partition's folder, or that folder")
        try:
            for entry in dump_file(PosixDisk(), str(Path(path).absolute()), options):
                damaged = damaged or entry.is_damage
                click.echo(json_line(entry.kind, entry.fields, entry.is_damage) if output == "json" else entry.line)
        except NotASegmentFile as error:
            raise click.UsageError(str(error)) from None
        except BrokenPipeError:
            raise  # the reader of our output has left: no fault of this file
        except OSError as error:
            raise click.ClickException(
                f"{error.filename or path}: {error.strerror or os.strerror(error.errno or 0)}"
            ) from None
    return 1 if damaged else 0


def json_line(kind: str, fields: dict[str, Any], is_damage: bool) -> str:
    """One object; bytes that are not UTF-8 are base64 under `<name>_base64`."""
    shown: dict[str, Any] = {"kind": kind, "damage": is_damage}
    for name, value in fields.items():
        if isinstance(value, bytes):
            try:
                shown[name] = value.decode()
            except UnicodeDecodeError:
                shown[f"{name}_base64"] = base64.b64encode(value).decode()
        else:
            shown[name] = value
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
