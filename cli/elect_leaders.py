"""`strandline elect-leaders`: have partitions led by their preferred replicas, or those without a leader by any.

    strandline elect-leaders --all                       after a restart: leaders are even again
    strandline elect-leaders clicks views:0              some of them
    strandline elect-leaders clicks:3 --unclean          whoever lives; what only others have is lost

Kafka's options are understood, too: --election-type, --all-topic-partitions, --topic, --partition,
--path-to-json-file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.cluster_picture import named, tell_failures
from strandline.cli.item_errors import error_fields
from strandline.cli.json_files import read_partitions
from strandline.cli.options import (
    LOOK_TIMEOUT_MS,
    admin_of,
    bootstrap_option,
    legal_topic,
    output_option,
    settings_option,
    show_json,
    topic_and_partition,
)
from strandline.cli.prompts import ask_first
from strandline.cli.tables import show_table
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline.client.metadata import TopicView
    from strandline.protocol.types import TopicPartition

TIMEOUT_MS = 60_000


@click.command(
    epilog="Examples: strandline elect-leaders --all; strandline elect-leaders clicks views:0; "
    "strandline elect-leaders clicks:3 --unclean"
)
@bootstrap_option
@click.argument("targets", nargs=-1, metavar="[TOPIC[:PARTITION]]…")
@click.option("--all", "--all-topic-partitions", "everything", is_flag=True, help="Every partition of the cluster.")
@click.option("-t", "--topic", "topics", multiple=True, metavar="NAME", help="Its partitions; may be repeated.")
@click.option("-p", "--partition", type=click.IntRange(0, 2**31 - 1), help="Only this one of the --topic.")
@click.option(
    "--path-to-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Partitions as in Kafka's tool.",
)
@click.option("--preferred", "kinds", flag_value="preferred", multiple=True, help="By the first replica (the default).")
@click.option("--unclean", "kinds", flag_value="unclean", multiple=True, help="By any replica that lives.")
@click.option(
    "--election-type",
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    help="The same, as in Kafka's tool.",
)
@click.option("-y", "--yes", is_flag=True, help="Accept a loss (--unclean) without asking.")
@output_option
@settings_option
@click.pass_context
def elect_leaders(
    ctx: click.Context,
    bootstrap: str | None,
    targets: tuple[str, ...],
    everything: bool,
    topics: tuple[str, ...],
    partition: int | None,
    path_to_json_file: Path | None,
    kinds: tuple[str, ...],
    election_type: str | None,
    yes: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Have partitions led by the first of their replicas, which brokers share evenly. Exit code 1 where one of them
    cannot be."""
    found = {*kinds, *([election_type] if election_type else [])}
    if len(found) > 1:
        raise click.UsageError("give either --preferred or --unclean", ctx)
    unclean = "unclean" in found
    if bool(targets or topics) + everything + (path_to_json_file is not None) != 1:
        raise click.UsageError("give one of TOPIC[:PARTITION]…, --topic, --all, --path-to-json-file FILE", ctx)
    if partition is not None and (len(topics) != 1 or targets):
        raise click.UsageError("--partition goes with one --topic", ctx)
    asked = [topic_and_partition(text) for text in targets]
    asked += [(legal_topic(name), partition) for name in topics]
    chosen = None if path_to_json_file is None else read_partitions(path_to_json_file)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        before = admin.describe_topics(timeout_ms=LOOK_TIMEOUT_MS)  # who has a wrong address hears it soon
        if not everything and chosen is None:
            chosen = _partitions(asked, before)
        if unclean:
            _confirm(chosen, before, yes)
        results = admin.elect_leaders(chosen, unclean=unclean)
    rows = [_row(tp, result, before) for tp, result in results.items()]
    if output == "json":
        show_json("elect-leaders", election_type="unclean" if unclean else "preferred", partitions=rows)
    else:
        _show(rows, unclean)
    return 1 if any(row["error"] for row in rows) else 0


def _partitions(asked: list[tuple[str, int | None]], topics: Mapping[str, TopicView]) -> list[TopicPartition]:
    """Without a number all of the topic's; what does not exist is left to the controller to say."""
    from strandline.protocol.types import TopicPartition

    chosen: dict[TopicPartition, None] = {}
    for topic, number in asked:
        if number is None and topic not in topics:
            raise click.UsageError(f"there is no topic {topic}")
        numbers = sorted(topics[topic].partitions) if number is None else [number]
        chosen.update(dict.fromkeys(TopicPartition(topic, each) for each in numbers))
    return list(chosen)


def _confirm(chosen: list[TopicPartition] | None, topics: Mapping[str, TopicView], yes: bool) -> None:
    """Only those that nobody leads can lose something."""
    from strandline.protocol.types import TopicPartition

    leaderless = [
        tp
        for topic in topics.values()
        for tp, each in ((TopicPartition(topic.name, number), each) for number, each in topic.partitions.items())
        if each.leader < 0 and (chosen is None or tp in chosen)
    ]
    if not leaderless:
        return
    lost = f"what only replicas have that do not live, of {named(sorted(leaderless))}"
    ask_first(
        f"Lose {lost}?",
        f"this loses {lost} (strandline recover shows what each replica has)",
        yes=yes,
        declined="nothing was changed",
    )


def _row(tp: TopicPartition, result: int | Exception, topics: Mapping[str, TopicView]) -> dict[str, Any]:
    from strandline.protocol.errors import ErrorCode

    view = topics[tp.topic].partitions.get(tp.partition) if tp.topic in topics else None
    was = view.leader if view is not None and view.leader >= 0 else None
    row: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition, "leader_before": was, "leader": was}
    if not isinstance(result, Exception):
        return {**row, "leader": result if result >= 0 else None, "elected": True, **error_fields(None)}
    is_fine = getattr(result, "code", None) == ErrorCode.ELECTION_NOT_NEEDED
    return {**row, "elected": False, **error_fields(None if is_fine else result)}


def _show(rows: list[dict[str, Any]], unclean: bool) -> None:
    elected = [row for row in rows if row["elected"]]
    failed = [row for row in rows if row["error"]]
    if elected:
        cells = [
            (row["topic"], str(row["partition"]), _leader(row["leader_before"]), _leader(row["leader"]))
            for row in elected
        ]
        show_table(("topic", "partition", "led by", "now"), cells, ("partition", "led by", "now"))
    tell_failures(row["message"] for row in failed)
    rest = "is led" if unclean else "is led by its preferred replica"
    if not elected and not failed:
        click.echo(f"Nothing to do: every partition {rest}.")
    else:
        click.echo(f"Elected {counted(len(elected), 'leader')}.")


def _leader(broker_id: int | None) -> str:
    return "none" if broker_id is None else str(broker_id)
