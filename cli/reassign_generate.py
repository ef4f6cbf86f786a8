"""`strandline reassign generate`: a plan for the whole cluster, or for some topics, which `execute` carries out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from strandline.cli.cluster_picture import ClusterPicture, figures, figures_json, look, show_figures
from strandline.cli.json_files import Assignment, assignment_json, read_topics, write_assignment
from strandline.cli.options import (
    admin_of,
    bootstrap_option,
    legal_topic,
    no_such_broker,
    output_option,
    settings_option,
    show_json,
)

TIMEOUT_MS = 60_000


@click.command(
    short_help="Plan an even distribution.",
    epilog="Examples: strandline reassign generate --all --plan-file plan.json; strandline reassign generate "
    "--topic clicks --brokers 1,2,3 --replication-factor 3",
)
@bootstrap_option
@click.option("-t", "--topic", "topics", multiple=True, metavar="NAME", help="Plan for this topic; may be repeated.")
@click.option(
    "--topics-to-move-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Topics as in Kafka's tool.",
)
@click.option("--all", "everything", is_flag=True, help="Plan for all topics, internal ones, too.")
@click.option("--brokers", "--broker-list", metavar="ID,ID…", help="Who is to hold them.  [default: all that run]")
@click.option("--replication-factor", type=click.IntRange(1, 32_767), help="Another one than now.")
@click.option("--disable-rack-aware", is_flag=True, help="Do as if brokers had no racks.")
@click.option("--fewest-moves", is_flag=True, help="Move only what lies on brokers that are not named.")
@click.option("--plan-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the plan there.")
@output_option
@settings_option
@click.pass_context
def generate(
    ctx: click.Context,
    bootstrap: str | None,
    topics: tuple[str, ...],
    topics_to_move_json_file: Path | None,
    everything: bool,
    brokers: str | None,
    replication_factor: int | None,
    disable_rack_aware: bool,
    fewest_moves: bool,
    plan_file: Path | None,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Plan which brokers should hold which partitions: as many on each, racks respected, and few bytes to move.

    Only what changes is in the plan. Nothing is changed: that is for `execute`."""
    if bool(topics) + (topics_to_move_json_file is not None) + everything != 1:
        raise click.UsageError("give one of --topic NAME, --topics-to-move-json-file FILE, --all", ctx)
    wanted = [legal_topic(name) for name in topics]
    if topics_to_move_json_file is not None:
        wanted = read_topics(topics_to_move_json_file)
    ids = None if brokers is None else broker_ids(brokers)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        picture = look(admin)
    known = {tp.topic for tp in picture.partitions}
    for name in wanted:
        if name not in known:
            raise click.UsageError(f"there is no topic {name}", ctx)
    racks = _chosen(picture, ids, ignore_racks=disable_rack_aware)
    plan = _planned(picture, None if everything else set(wanted), racks, replication_factor, fewest_moves)
    found = figures(picture, plan)
    if plan_file is not None and plan:
        write_assignment(plan_file, plan)
    if output == "json":
        show_json("reassign.generate", plan_file=str(plan_file) if plan_file and plan else None,
                  **figures_json(picture, found))  # fmt: skip
        return 0
    show_figures(picture, found)
    if not plan:
        unwritten = f", and {plan_file} was not written" if plan_file is not None else ""
        click.echo(f"It is as it should be: there is nothing to move{unwritten}.")
    elif plan_file is not None:
        click.echo(f"Wrote the plan to {plan_file}. To see it or begin: strandline reassign execute {plan_file}")
    else:  # as Kafka's tool: the last line is the plan
        click.echo(f"Current partition replica assignment\n{assignment_json(found.present)}\n")
        click.echo(f"Proposed partition reassignment configuration\n{assignment_json(plan)}")
    return 0


def broker_ids(text: str) -> list[int]:
    """`1,2,3`. UsageError."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit() and int(part) < 2**31):
            raise click.UsageError(f"--brokers '{text}' is no list of broker ids; give for example 1,2,3")
        if parts.count(part) > 1:
            raise click.UsageError(f"--brokers names {part} twice")
    return [int(part) for part in parts]


def _chosen(picture: ClusterPicture, ids: Iterable[int] | None, *, ignore_racks: bool) -> dict[int, str | None]:
    chosen: dict[int, str | None] = {}
    for broker_id in picture.racks if ids is None else ids:
        if broker_id not in picture.racks:
            raise no_such_broker("--brokers", broker_id, picture.racks)
        chosen[broker_id] = None if ignore_racks else picture.racks[broker_id]
    return chosen


def _planned(
    picture: ClusterPicture,
    topics: set[str] | None,
    racks: Mapping[int, str | None],
    factor: int | None,
    fewest_moves: bool,
) -> Assignment:
    """What changes. ClickException: there are too few brokers."""
    from strandline.client.placement import TooFewBrokers, spread

    held = picture.held()
    chosen = {tp: each for tp, each in held.items() if topics is None or tp.topic in topics}
    others = [each.replicas for tp, each in held.items() if tp not in chosen]
    try:
        plan = spread(chosen, racks, replication_factor=factor, others=others, evenly=not fewest_moves)
    except TooFewBrokers as error:
        raise click.ClickException(str(error)) from None
    return {tp: replicas for tp, replicas in plan.items() if replicas != held[tp].replicas}
