"""`strandline reassign execute`: the controller is given a plan; what was there before is in a roll-back file first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.cluster_picture import (
    ClusterPicture,
    Targets,
    figures,
    figures_json,
    look,
    named,
    refuse_unknown,
    show_figures,
)
from strandline.cli.json_files import one_path, plan_argument, read_assignment, write_assignment
from strandline.cli.options import admin_of, bootstrap_option, output_option, settings_option, show_json
from strandline.cli.reassign_execution import watch_plan
from strandline.cli.reassign_throttle import removed_if_idle, set_throttle, tell_removed, throttle_of
from strandline.cli.wording import counted, printable, sized

if TYPE_CHECKING:
    from strandline.protocol.types import TopicPartition

TIMEOUT_MS = 60_000
"""Writing down what thousands of partitions are to become takes the controller some seconds."""
MOST_ROLL_BACKS = 1000


@click.command(
    short_help="Carry a plan out.",
    epilog="Examples: strandline reassign execute plan.json --dry-run; "
    "strandline reassign execute plan.json --throttle 50000000 --wait",
)
@bootstrap_option
@plan_argument
@click.option("--dry-run", is_flag=True, help="Show what it would do.")
@click.option("--throttle", type=click.IntRange(1, 2**63 - 1), metavar="BYTES/S", help="For each broker, in and out.")
@click.option("--wait", is_flag=True, help="Show how far it is until it is done, then remove the throttle.")
@click.option("--additional", is_flag=True, help="Also where such a partition is on its way to somewhere else.")
@click.option(
    "--rollback-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write what is there now.  [default: beside FILE, a new name each time]",
)
@output_option
@settings_option
@click.pass_context
def execute(
    ctx: click.Context,
    bootstrap: str | None,
    path: Path | None,
    option_path: Path | None,
    dry_run: bool,
    throttle: int | None,
    wait: bool,
    additional: bool,
    rollback_file: Path | None,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Have the controller move partitions as FILE says. Exit code 1 where it refuses one of them.

    Running it again, after Ctrl-C or a failure, goes on."""
    path = one_path(path, option_path)
    if path is None:
        raise click.UsageError("give the plan's FILE, as `strandline reassign generate --plan-file` writes it", ctx)
    plan = read_assignment(path)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        picture = look(admin)
        refuse_unknown(picture, plan, str(path))
        found = figures(picture, plan)
        told: dict[str, Any] = {"dry_run": dry_run, **figures_json(picture, found)}
        if output != "json":
            show_figures(picture, found)
        if dry_run:
            if output == "json":
                show_json("reassign.execute", **told, errors=[], done=False)
            return 0
        _refuse_overlap(picture, plan, additional)
        roll_back = rollback_file or _free_name(path)
        write_assignment(roll_back, found.present)
        if throttle is not None:
            set_throttle(admin, picture, throttle_of(picture, plan), throttle)
        errors = {tp: error for tp, error in admin.alter_partition_reassignments(plan).items() if error is not None}
        began = [tp for tp in plan if tp not in errors]
        if output != "json":
            _tell_begun(path, roll_back, began, errors, throttle, wait)
        done = False
        if wait and began:
            watch_plan(
                ctx, admin, {tp: plan[tp] for tp in began}, found.bytes_to_move, f"strandline reassign verify {path}"
            )
            done = not errors
            removed = removed_if_idle(admin, picture, plan, keep=throttle is None)
            if output != "json":
                click.echo(f"Done: {_lie(len(began))} as planned.")
                click.echo("Preferred replicas lead before long, or at once: strandline elect-leaders --all")
                tell_removed(removed)
    if output == "json":
        rows = [{"topic": tp.topic, "partition": tp.partition, "message": str(e)} for tp, e in errors.items()]
        show_json("reassign.execute", **told, rollback_file=str(roll_back), errors=rows, done=done)
    return 1 if errors else 0


def _lie(count: int) -> str:
    return f"{counted(count, 'partition')} {'lies' if count == 1 else 'lie'}"


def _refuse_overlap(picture: ClusterPicture, plan: Targets, additional: bool) -> None:
    others = [
        tp
        for tp, replicas in plan.items()
        if tp in picture.ongoing and set(picture.ongoing[tp].target) != set(replicas)
    ]
    if others and not additional:
        raise click.ClickException(
            f"{named(others)} {'is' if len(others) == 1 else 'are'} on the way to other brokers; --additional has this "
            "plan take over, strandline reassign cancel ends that one"
        )


def _free_name(path: Path) -> Path:
    """Beside the plan, and new: the first roll-back is the one that leads to the beginning."""
    for number in range(1, MOST_ROLL_BACKS):
        suffix = ".rollback.json" if number == 1 else f".rollback-{number}.json"
        found = path.with_name(f"{path.name.removesuffix('.json')}{suffix}")
        if not found.exists():
            return found
    raise click.UsageError(f"there are {MOST_ROLL_BACKS} roll-back files beside {path}; give --rollback-file FILE")


def _tell_begun(
    path: Path,
    roll_back: Path,
    began: list[TopicPartition],
    errors: Mapping[TopicPartition, Exception],
    throttle: int | None,
    wait: bool,
) -> None:
    click.echo(f"Wrote what is there now to {roll_back}; to go back: strandline reassign execute {roll_back}")
    for error in errors.values():
        click.echo(f"strandline: {printable(str(error))}", err=True)
    if began:
        click.echo(f"Began to move {named(began)}" + (f", at {sized(throttle)}/s" if throttle else "") + ".")
    if began and not wait:
        then = ", and remove the throttle then" if throttle else ""
        click.echo(f"To see how far it is{then}: strandline reassign verify {path}")
