"""`strandline delete-records`: delete what lies before an offset, with the JSON file and the lines of Kafka's tool.

    strandline delete-records clicks:0 --before 42        one partition
    strandline delete-records clicks --all                every partition, everything that is committed
    strandline delete-records --offset-json-file FILE     what Kafka's tool takes

The file is {"partitions": [{"topic", "partition", "offset"}], "version": 1}. An offset of −1 means
everything that is committed. Deletion asks first, or takes --yes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.item_errors import error_fields
from strandline.cli.json_files import read_json
from strandline.cli.options import (
    admin_of,
    bootstrap_option,
    legal_topic,
    output_option,
    partitions_of,
    settings_option,
    show_json,
    topic_and_partition,
)
from strandline.cli.prompts import ask_first

if TYPE_CHECKING:
    from strandline.protocol.types import TopicPartition

ALL = -1
FILE_VERSION = 1
TIMEOUT_MS = 30_000
_PARTITION_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1


@click.command(
    epilog="Examples: strandline delete-records clicks:0 --before 42; strandline delete-records clicks --all --yes"
)
@bootstrap_option
@click.argument("targets", nargs=-1, metavar="[TOPIC[:PARTITION]]…")
@click.option("--before", type=click.IntRange(0, _OFFSET_MAX), metavar="OFFSET", help="Delete what lies before it.")
@click.option("--all", "everything", is_flag=True, help="Delete everything that is committed.")
@click.option(
    "--offset-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Partitions and offsets as in Kafka's tool; -1 is everything.",
)
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
@output_option
@settings_option
@click.pass_context
def delete_records(
    ctx: click.Context,
    bootstrap: str | None,
    targets: tuple[str, ...],
    before: int | None,
    everything: bool,
    offset_json_file: Path | None,
    yes: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Delete the records before an offset, for good, on every replica."""
    if (offset_json_file is not None) == bool(targets):
        raise click.UsageError("give either TOPIC[:PARTITION] or --offset-json-file FILE", ctx)
    if offset_json_file is not None and (before is not None or everything):
        raise click.UsageError("--before and --all go with TOPIC[:PARTITION]; the file has its own offsets", ctx)
    if targets and (before is not None) == everything:
        raise click.UsageError("give either --before OFFSET or --all", ctx)
    named = [topic_and_partition(text) for text in targets]
    asked = _from_file(offset_json_file) if offset_json_file is not None else {}
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        for topic, partition in named:
            for tp in partitions_of(admin, topic, partition):
                asked[tp] = ALL if before is None else before
        _confirm(asked, yes)
        return _report(admin.delete_records(asked), as_json=output == "json")


def _from_file(path: Path) -> dict[TopicPartition, int]:
    """UsageError naming what is wrong with the file."""
    from strandline.protocol.types import TopicPartition

    content: Any = read_json(path)
    entries = content.get("partitions") if isinstance(content, dict) else None
    if not isinstance(entries, list) or content.get("version", FILE_VERSION) != FILE_VERSION:
        raise click.UsageError(f'{path} is not {{"partitions": [{{"topic", "partition", "offset"}}], "version": 1}}')
    asked: dict[TopicPartition, int] = {}
    for entry in entries:
        fields = entry if isinstance(entry, dict) else {}
        topic, partition, offset = (fields.get(name) for name in ("topic", "partition", "offset"))
        if (
            not isinstance(topic, str)
            or type(partition) is not int
            or type(offset) is not int
            or not 0 <= partition <= _PARTITION_MAX
            or not ALL <= offset <= _OFFSET_MAX
        ):
            raise click.UsageError(f"{path}: {json.dumps(entry)[:200]} lacks a topic, a partition or an offset")
        tp = TopicPartition(legal_topic(topic), partition)
        if tp in asked:
            raise click.UsageError(f"{path} names {tp} twice")
        asked[tp] = offset
    return asked


def _confirm(asked: dict[TopicPartition, int], yes: bool) -> None:
    if not asked:
        return
    named = [f"{tp} before {'the end' if offset == ALL else offset}" for tp, offset in asked.items()]
    shown = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
    ask_first(f"Delete the records of {shown}?", f"this deletes the records of {shown} for good", yes=yes)


def _report(results: dict[TopicPartition, Any], *, as_json: bool) -> int:
    """Show what became of each partition; 1 if any failed."""
    rows: list[dict[str, Any]] = []
    for tp, result in results.items():
        error = result if isinstance(result, Exception) else None
        low_watermark = None if error is not None else result
        where = {"topic": tp.topic, "partition": tp.partition, "low_watermark": low_watermark}
        rows.append({**where, **error_fields(error)})
        if as_json:
            continue
        if error is not None:
            click.echo(f"strandline: {error}", err=True)
        else:
            click.echo(f"partition: {tp}\tlow_watermark: {low_watermark}")
    if as_json:
        show_json("delete-records", partitions=rows)
    return 1 if any(row["error"] for row in rows) else 0
