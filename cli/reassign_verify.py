"""`strandline reassign verify` and `cancel`: how far a plan is, and back from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.cluster_picture import ClusterPicture, look, named, tell_failures
from strandline.cli.item_errors import error_fields
from strandline.cli.json_files import Assignment, one_path, plan_argument, read_assignment
from strandline.cli.options import admin_of, bootstrap_option, output_option, settings_option, show_json
from strandline.cli.reassign_execution import SETTLING_LOOKS, SETTLING_S, Progress, progress
from strandline.cli.reassign_throttle import removed_if_idle, tell_left, tell_removed, throttle_kept_option
from strandline.cli.session import session_of
from strandline.cli.tables import show_table
from strandline.cli.wording import counted, printable, sized

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.protocol.types import TopicPartition

TIMEOUT_MS = 60_000
LATE = "cancelled, and not done with before somebody leads it; to look again: strandline reassign verify"


class StillUnderWay(Exception):
    """It was cancelled, and is not done with."""


DONE, UNDER_WAY, ELSEWHERE, GONE = "done", "under way", "elsewhere", "gone"
"""What is said of a partition of a plan. ELSEWHERE: nothing is under way, and it does not lie as the plan says."""


@click.command(
    short_help="How far a plan is.",
    epilog="Examples: strandline reassign verify plan.json; strandline reassign verify (whatever is under way)",
)
@bootstrap_option
@plan_argument
@throttle_kept_option
@output_option
@settings_option
@click.pass_context
def verify(
    ctx: click.Context,
    bootstrap: str | None,
    path: Path | None,
    option_path: Path | None,
    preserve_throttles: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Show what of FILE is done and how far the rest is; without FILE, whatever is under way. Exit code 1 while
    something is not done. When nothing in the cluster is under way any more, the throttle of FILE's topics and of all
    brokers is removed; without FILE it is only said that one is set."""
    path = one_path(path, option_path)
    plan = None if path is None else read_assignment(path)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        now = progress(admin, None)  # first, since what is done meanwhile lies in the picture as it was to
        picture = look(admin)
        rows = _rows(picture, plan, now)
        topics = {tp.topic for tp in plan or {}}
        removed = removed_if_idle(admin, picture, topics) if topics and not preserve_throttles else []
        if output == "json":
            show_json("reassign.verify", partitions=rows, waits=now.waits, throttles_removed=removed or [])
        else:
            _show_rows(rows)
            for text in now.waits:
                click.echo(f"strandline: {printable(text)}", err=True)
            tell_removed(removed)
            if not rows and not preserve_throttles:
                tell_left(admin, picture.racks)
    return 0 if all(row["status"] == DONE for row in rows) else 1


def _rows(picture: ClusterPicture, plan: Assignment | None, now: Progress) -> list[dict[str, Any]]:
    rows = []
    for tp in now.left if plan is None else plan:
        target = picture.target(tp) if plan is None and tp in picture.partitions else tuple((plan or {}).get(tp, ()))
        if tp in now.left:
            status = UNDER_WAY
        elif tp not in picture.partitions:
            status = GONE
        else:
            status = DONE if picture.partitions[tp].replicas == target else ELSEWHERE
        copies = now.left.get(tp, [])
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "status": status,
                "target": list(target),
                "replicas": list(picture.partitions[tp].replicas) if tp in picture.partitions else [],
                "copies": [
                    {
                        "broker": each.broker_id,
                        "bytes": each.bytes_there,
                        "of_bytes": each.bytes_in_all,
                        "in_sync": each.is_in_sync,
                    }
                    for each in copies
                ],
            }
        )
    return rows


def _show_rows(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("Nothing is under way.")
        return
    cells = []
    for row in rows:
        copies = "; ".join(
            f"broker {each['broker']}: {sized(each['bytes'])} of {sized(each['of_bytes'])}"
            + (" in sync" if each["in_sync"] else "")
            for each in row["copies"]
        )
        ids = [",".join(map(str, row[name])) for name in ("replicas", "target")]
        cells.append((row["topic"], str(row["partition"]), row["status"], *ids, copies))
    show_table(("topic", "partition", "status", "replicas", "target", "copies"), cells, ("partition",))
    done = sum(row["status"] == DONE for row in rows)
    click.echo(f"{done} of {counted(len(rows), 'partition')} done")


@click.command(
    short_help="Back to where it was.",
    epilog="Examples: strandline reassign cancel plan.json; strandline reassign cancel --all",
)
@bootstrap_option
@plan_argument
@click.option("--all", "everything", is_flag=True, help="Whatever is under way.")
@throttle_kept_option
@output_option
@settings_option
@click.pass_context
def cancel(
    ctx: click.Context,
    bootstrap: str | None,
    path: Path | None,
    option_path: Path | None,
    everything: bool,
    preserve_throttles: bool,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """End what is under way of FILE: those partitions stay where they were. What is done already stays done (the
    roll-back file leads back from there)."""
    path = one_path(path, option_path)
    if (path is None) != everything:
        raise click.UsageError("give either FILE or --all", ctx)
    plan = None if path is None else read_assignment(path)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        picture = look(admin)
        wanted = [tp for tp in picture.ongoing if plan is None or tp in plan]
        results = admin.alter_partition_reassignments(dict.fromkeys(wanted))
        errors = {tp: error for tp, error in results.items() if error is not None and not _is_done(error)}
        late = _still_under_way(ctx, admin, [tp for tp in wanted if results[tp] is None])
        topics = {tp.topic for tp in (picture.partitions if plan is None else plan)}
        removed = [] if preserve_throttles else removed_if_idle(admin, picture, topics)
    if output == "json":
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(picture.original(tp)),
                **error_fields(errors.get(tp) or (StillUnderWay(LATE) if tp in late else None)),
            }
            for tp in wanted
        ]
        show_json("reassign.cancel", partitions=rows, throttles_removed=removed or [])
        return 1 if errors or late else 0
    tell_failures(map(str, errors.values()))
    if late:
        click.echo(f"strandline: {named(late)}: {LATE}", err=True)
    ended = [tp for tp in wanted if tp not in errors and tp not in late]
    if ended:
        stay = "it stays where it was" if len(ended) == 1 else "they stay where they were"
        click.echo(f"Cancelled the move of {named(ended)}: {stay}.")
    elif not wanted:
        click.echo("Nothing of it is under way.")
    tell_removed(removed)
    return 1 if errors or late else 0


def _still_under_way(ctx: click.Context, admin: Admin, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The controller answers before old and new replicas are apart again, and takes a moment for that; a partition that
    nobody leads waits for a leader."""
    left = list(partitions)
    for _ in range(SETTLING_LOOKS):
        if not left:
            break
        ongoing = admin.list_partition_reassignments(left)
        left = [tp for tp in left if tp in ongoing]
        if left:
            session_of(ctx).sleep(SETTLING_S)
    return left


def _is_done(error: Exception) -> bool:
    """It was done before it could be cancelled."""
    from strandline.protocol.errors import ErrorCode

    return getattr(error, "code", None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
