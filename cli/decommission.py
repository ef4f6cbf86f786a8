"""`strandline broker-decommission`: move everything off a broker, and say when it may be stopped.

    strandline broker-decommission 3 --dry-run        where its replicas would go, how many bytes that is
    strandline broker-decommission 3                  moves them, and waits

Whatever lies on other brokers stays there. Everything is found out anew at each start, so a command that was ended is
run again and goes on. It works for a broker that is dead, too, as long as others have what it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from strandline.cli.cluster_picture import (
    ClusterPicture,
    Targets,
    figures,
    figures_json,
    look,
    named,
    show_figures,
)
from strandline.cli.options import admin_of, bootstrap_option, output_option, settings_option, show_json
from strandline.cli.reassign_execution import Progress, watch_plan
from strandline.cli.reassign_throttle import removed_if_idle, tell_removed, throttled
from strandline.cli.session import session_of
from strandline.cli.wording import counted, printable
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Admin

TIMEOUT_MS = 60_000
STUCK_AFTER_S = 60.0
MOST_REASONS = 3
MOST_ROUNDS = 10
"""New topics may choose the broker meanwhile. Who creates them that fast has to stop first."""


@click.command(
    epilog="Examples: strandline broker-decommission 3 --dry-run; strandline broker-decommission 3 --throttle 50000000"
)
@bootstrap_option
@click.argument("broker_id", type=click.IntRange(0, 2**31 - 1), metavar="ID")
@click.option("--dry-run", is_flag=True, help="Show where its replicas would go.")
@click.option("--throttle", type=click.IntRange(1, 2**63 - 1), metavar="BYTES/S", help="For each broker, in and out.")
@output_option
@settings_option
@click.pass_context
def decommission(
    ctx: click.Context,
    bootstrap: str | None,
    broker_id: int,
    dry_run: bool,
    throttle: int | None,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Move every replica off broker ID, wait until that is done, and say whether it may be stopped.

    Exit code 0: it holds and leads nothing any more. 1: something keeps it, which is named. Ctrl-C ends the waiting
    only; run it again to go on. Topics that are created before the broker is stopped may choose it: then run it again.
    """
    as_json = output == "json"
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        picture = look(admin)
        first = figures(picture, _plan(picture, broker_id))
        told: dict[str, Any] = {"broker": broker_id, "dry_run": dry_run, **figures_json(picture, first)}
        if first.plan and not as_json:
            show_figures(picture, first)
        if dry_run:
            if as_json:
                show_json("broker-decommission", **told, done=not _kept(picture, broker_id), kept=[], message="")
            else:
                _tell_dry(picture, broker_id, first.plan)
            return 0
        emptying = _Emptying(ctx, admin, broker_id, throttle, is_quiet=as_json)
        keeps = emptying.run()
        picture = look(admin)
        # Of all topics: some may have been done when this command was ended and run again.
        removed = removed_if_idle(admin, picture, {tp.topic for tp in picture.partitions})
        if not as_json:
            tell_removed(removed, None if throttle is None else _again(broker_id))
    kept = _kept(picture, broker_id)
    text = _done_text(picture, broker_id) if not kept else _kept_text(broker_id, kept, keeps)
    if as_json:
        rows = [{"topic": tp.topic, "partition": tp.partition} for tp in kept]
        show_json("broker-decommission", **told, done=not kept, kept=rows, message=text)
    else:
        click.echo(f"strandline: {printable(text)}" if kept else text, err=bool(kept))
    return 1 if kept else 0


def _tell_dry(picture: ClusterPicture, broker_id: int, plan: Targets) -> None:
    kept = _kept(picture, broker_id)
    if under_way := [tp for tp in kept if tp not in plan]:
        click.echo(f"Under way already: {named(under_way)}.")
    if not kept:
        click.echo(_done_text(picture, broker_id))


def _plan(picture: ClusterPicture, broker_id: int) -> dict[TopicPartition, tuple[int, ...]]:
    """Where its replicas go; what is on its way elsewhere already goes on. ClickException: too few brokers are left."""
    from strandline.client.placement import Held, TooFewBrokers, spread

    racks = {each: rack for each, rack in picture.racks.items() if each != broker_id}
    held = picture.held()
    # What another broker has that does not run stays there: that one is not to go.
    away = {tp: tuple(r for r in each.replicas if r not in racks and r != broker_id) for tp, each in held.items()}
    present = {
        tp: Held(tuple(r for r in each.replicas if r not in away[tp]), each.size_bytes) for tp, each in held.items()
    }
    try:
        planned = spread(present, racks, evenly=False)
    except TooFewBrokers as error:
        raise click.ClickException(
            f"without broker {broker_id} there are {error}; start another broker, or give them fewer replicas "
            "(strandline reassign generate --topic NAME --replication-factor N)"
        ) from None
    return {tp: (*planned[tp], *away[tp]) for tp, each in held.items() if broker_id in each.replicas}


def _kept(picture: ClusterPicture, broker_id: int) -> list[TopicPartition]:
    """What lies on it, also where that is about to go."""
    return [tp for tp, view in sorted(picture.partitions.items()) if broker_id in view.replicas]


class _Emptying:
    """Moves what lies on a broker, as often as there is something."""

    def __init__(
        self, ctx: click.Context, admin: Admin, broker_id: int, throttle: int | None, *, is_quiet: bool
    ) -> None:
        self._ctx = ctx
        self._admin = admin
        self._broker_id = broker_id
        self._throttle = throttle
        self._is_quiet = is_quiet
        self._session = session_of(ctx)
        self._stuck_since: float | None = None

    def run(self) -> list[str]:
        """Why something is left, if it is."""
        for _ in range(MOST_ROUNDS):
            picture = look(self._admin)
            if not (left := _kept(picture, self._broker_id)):
                return []
            plan = _plan(picture, self._broker_id)
            if not self._is_quiet and (under_way := [tp for tp in left if tp not in plan]):
                click.echo(f"Under way already: {named(under_way)}.")
            targets = {tp: plan.get(tp, picture.target(tp)) for tp in left}
            errors = self._begin(picture, plan, targets)
            targets = {tp: target for tp, target in targets.items() if tp not in errors}
            if targets:
                again = _again(self._broker_id)
                all_bytes = figures(picture, targets).bytes_to_move
                ended = watch_plan(self._ctx, self._admin, targets, all_bytes, again, self._is_stuck)
                if ended.left:
                    return ended.waits
            if errors:
                return [str(error) for error in list(errors.values())[:MOST_REASONS]]
        return ["topics that choose it are created as fast as they are moved"]

    def _begin(self, picture: ClusterPicture, plan: Targets, targets: Targets) -> dict[TopicPartition, Exception]:
        """What the controller refuses. The throttle is for all `targets`, also those that are under way already."""
        with throttled(self._admin, picture, targets, self._throttle, _again(self._broker_id)):
            results = self._admin.alter_partition_reassignments(plan) if plan else {}
        errors: dict[TopicPartition, Exception] = {tp: error for tp, error in results.items() if error is not None}
        if not self._is_quiet and len(errors) < len(plan):
            click.echo(f"Began to move {named(tp for tp in plan if tp not in errors)}.")
        return errors

    def _is_stuck(self, found: Progress) -> bool:
        """Nothing of what is left can get on, and has not for a while: brokers that are restarted come back."""
        if not found.stuck >= set(found.left):
            self._stuck_since = None
            return False
        now = self._session.monotonic()
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        return now - self._stuck_since >= STUCK_AFTER_S


def _again(broker_id: int) -> str:
    return f"strandline broker-decommission {broker_id}"


def _done_text(picture: ClusterPicture, broker_id: int) -> str:
    if broker_id not in picture.racks:
        return f"Broker {broker_id} holds nothing, and does not run."
    return (
        f"Broker {broker_id} holds nothing and leads nothing: it may be stopped. Topics that are created before that "
        "may choose it; then run this again."
    )


def _kept_text(broker_id: int, kept: list[TopicPartition], why: list[str]) -> str:
    text = f"broker {broker_id} cannot go yet, it has {counted(len(kept), 'partition')}: {named(kept)}"
    return "; ".join([text, *why])
