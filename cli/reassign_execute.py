"""`strandline reassign execute`: the controller is given a plan; what was there before is in a roll-back file first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.cluster_picture import (
    ClusterPicture,
    PlanFigures,
    Targets,
    figures,
    figures_json,
    look,
    named,
    refuse_unknown,
    show_figures,
    tell_failures,
)
from strandline.cli.item_errors import error_fields
from strandline.cli.json_files import one_path, plan_argument, read_assignment, write_assignment
from strandline.cli.options import admin_of, bootstrap_option, output_option, settings_option, show_json
from strandline.cli.reassign_execution import watch_plan
from strandline.cli.reassign_throttle import removed_if_idle, tell_removed, throttled
from strandline.cli.wording import counted, sized

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.protocol.types import TopicPartition

TIMEOUT_MS = 60_000
"""Writing down what thousands of partitions are to become takes the controller some seconds."""
MOST_ROLL_BACKS = 1000
ELSEWHERE = "cancelled, or sent elsewhere, before it was done"


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
    help="Where to write what is there now.  [default: beside FILE, with a new name]",
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
                _show_outcome(told, _Began(None, {}), [], done=False)
            return 0
        _refuse_overlap(picture, plan, additional)
        began, removed = _Began(None, {}), None
        if len(found.done) < len(plan):
            began = _begin(admin, picture, found, path, rollback_file, throttle)
            if output != "json":
                _tell_begun(path, found, began, throttle, wait)
        moving = {tp: replicas for tp, replicas in plan.items() if tp not in began.errors}
        is_watched = bool(moving) and (wait or len(found.done) == len(plan))
        if is_watched:
            ended = watch_plan(ctx, admin, moving, found.bytes_to_move, _verify(path))
            began.errors.update(dict.fromkeys(ended.elsewhere, click.ClickException(ELSEWHERE)))
            if output != "json":
                _tell_ended(moving, ended.elsewhere)
        if is_watched or not moving:
            removed = removed_if_idle(admin, picture, {tp.topic for tp in plan})
            if output != "json":
                tell_removed(removed, None if throttle is None else _verify(path))
    if output == "json":
        _show_outcome(told, began, removed or [], done=is_watched and not began.errors)
    return 1 if began.errors else 0


class _Began(NamedTuple):
    """`roll_back`: the file with what was there. `errors`: what the controller refused, or did not come about."""

    roll_back: Path | None
    errors: dict[TopicPartition, Exception]


def _begin(
    admin: Admin,
    picture: ClusterPicture,
    found: PlanFigures,
    path: Path,
    rollback_file: Path | None,
    throttle: int | None,
) -> _Began:
    """The way back is written first, then the throttle is set."""
    roll_back = _roll_back_path(path, rollback_file, picture, found)
    if not roll_back.exists():
        write_assignment(roll_back, found.present)
    with throttled(admin, picture, found.plan, throttle, _verify(path)):
        results = admin.alter_partition_reassignments(found.plan)
    return _Began(roll_back, {tp: error for tp, error in results.items() if error is not None})


def _show_outcome(told: Mapping[str, Any], began: _Began, removed: list[str], *, done: bool) -> None:
    rows = [{"topic": tp.topic, "partition": tp.partition, **error_fields(e)} for tp, e in began.errors.items()]
    file = None if began.roll_back is None else str(began.roll_back)
    show_json("reassign.execute", **told, rollback_file=file, errors=rows, done=done, throttles_removed=removed)


def _tell_ended(moving: Targets, elsewhere: Collection[TopicPartition]) -> None:
    if elsewhere:
        click.echo(f"strandline: {named(elsewhere)}: {ELSEWHERE}", err=True)
    if count := len(moving) - len(elsewhere):
        click.echo(f"Done: {counted(count, 'partition')} {'lies' if count == 1 else 'lie'} as planned.")
        click.echo("Preferred replicas lead before long, or at once: strandline elect-leaders --all")


def _verify(path: Path) -> str:
    return f"strandline reassign verify {path}"


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


def _roll_back_path(path: Path, given: Path | None, picture: ClusterPicture, found: PlanFigures) -> Path:
    """A file that leads back from here already, of a run before, or else a new one: none is ever written over, since
    the first one leads to the beginning. UsageError where the one that was asked for is something else."""
    if given is not None:
        if given.exists() and not _leads_back(given, picture, found):
            raise click.UsageError(f"--rollback-file {given} is there already, and has something else; name a new one")
        return given
    for number in range(1, MOST_ROLL_BACKS):
        suffix = ".rollback.json" if number == 1 else f".rollback-{number}.json"
        roll_back = path.with_name(f"{path.name.removesuffix('.json')}{suffix}")
        if not roll_back.exists() or _leads_back(roll_back, picture, found):
            return roll_back
    raise click.UsageError(f"there are {MOST_ROLL_BACKS} roll-back files beside {path}; give --rollback-file FILE")


def _leads_back(file: Path, picture: ClusterPicture, found: PlanFigures) -> bool:
    """Of the plan's partitions, those that are not done yet go back to where they were. Of one that is under way only
    the brokers are known that had it, not their order."""
    try:
        there = read_assignment(file)
    except click.UsageError:
        return False
    return there.keys() == found.plan.keys() and all(
        there[tp] == before or (tp in picture.ongoing and set(there[tp]) == set(before))
        for tp, before in found.present.items()
        if tp not in found.done
    )


def _tell_begun(path: Path, found: PlanFigures, began: _Began, throttle: int | None, wait: bool) -> None:
    click.echo(f"What was there is in {began.roll_back}; to go back: strandline reassign execute {began.roll_back}")
    tell_failures(map(str, began.errors.values()))
    at = f", at {sized(throttle)}/s" if throttle else ""
    taken = [tp for tp in found.plan if tp not in began.errors and tp not in found.done]
    if new := [tp for tp in taken if tp not in found.under_way]:
        click.echo(f"Began to move {named(new)}{at}.")
    if old := [tp for tp in taken if tp in found.under_way]:
        click.echo(f"Under way already: {named(old)}{'' if new else at}.")
    if taken and not wait:
        then = ", and remove the throttle then" if throttle else ""
        click.echo(f"To see how far it is{then}: {_verify(path)}")
