"""`strandline load`: how evenly the cluster's load lies on its brokers, and what to move where it does not.

    strandline load                                                  table, alarm, what to move
    strandline load --reassignment-file even.json --page load.html   and the plan, and a picture

Two looks at each broker's `/metrics`, some seconds apart; `client/balance` makes a figure of them. Nothing is changed:
the file is for `strandline reassign execute`, and the commands to run next are printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.admin_ports import (
    admin_ports,
    admin_ports_option,
    check_named,
    from_each,
    named_ports,
    scraped,
    status_of,
)
from strandline.cli.cluster_picture import ClusterPicture, PlanFigures, figures, look
from strandline.cli.json_files import write_assignment
from strandline.cli.load_text import can_be_judged, indicators_of_weights, next_commands, percent, show_load
from strandline.cli.options import (
    DAY_S,
    admin_of,
    bootstrap_option,
    named_alike,
    output_option,
    page_option,
    settings_option,
    show_json,
)
from strandline.cli.session import Session, session_of
from strandline.cli.wording import printable

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.balance.indicators import Look, Passed
    from strandline.client.balance.load import Load
    from strandline.client.balance.moves import Placed, Plan
    from strandline.protocol.types import TopicPartition
    from strandline.runtime.network import Address

TIMEOUT_MS = 30_000


@click.command(
    epilog="Examples: strandline load; strandline load --threshold 20% --weights cpu=2,fd=0 "
    "--reassignment-file even.json --page load.html"
)
@bootstrap_option
@click.option("--interval", default="5s", show_default=True, metavar="TIME", help="Between the two looks at a broker.")
@click.option(
    "--threshold",
    default="10%",
    show_default=True,
    metavar="PERCENT",
    help="So much more or less than the mean a broker may have.",
)
@click.option(
    "--weights",
    "weights_text",
    default="",
    metavar="NAME=NUMBER,…",
    help="How much indicators count, 1 unless named; 0 leaves one out. A beginning of a name will do: cpu=2.",
)
@admin_ports_option
@click.option(
    "--reassignment-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what to move there, for `strandline reassign execute`; an old file is removed where nothing is.",
)
@page_option
@output_option
@settings_option
@click.pass_context
def load(
    ctx: click.Context,
    bootstrap: str | None,
    interval: str,
    threshold: str,
    weights_text: str,
    told: tuple[str, ...],
    reassignment_file: Path | None,
    page: Path | None,
    output: str,
    settings: tuple[str, ...],
) -> int:
    """Show each broker's share of the load, by processors, network, disks, memory, descriptors, partitions and leaders.

    Exit code 1 where a broker deviates by more than the threshold, or does not tell its figures."""
    from strandline.client.balance.indicators import IDLE_BELOW
    from strandline.client.balance.load import load_of
    from strandline.client.balance.moves import planned

    interval_s, limit = _interval_s(interval), percent(threshold)
    weights, ports = indicators_of_weights(weights_text), named_ports(told)
    with admin_of(ctx, bootstrap, settings, TIMEOUT_MS) as admin:
        seen = _observed(session_of(ctx), admin, ports, interval_s)
    if not seen.passed:
        raise click.ClickException(f"no broker tells its figures: {_untold(seen.untold)}")
    try:
        found = load_of(_readings(seen), weights, limit, IDLE_BELOW)
    except ValueError as error:
        raise click.ClickException(f"{error}: every one is 0 or idle, or has no weight") from None
    placed = seen.placed()
    plan = planned(found, placed, _traffic(seen, placed), seen.picture.racks)
    assignment = plan.assignment(placed)
    is_planned = not seen.picture.ongoing_untold
    no_file = "" if reassignment_file is None else _keep_plan(reassignment_file, assignment, is_planned=is_planned)
    if page is not None:
        from strandline.cli.load_page import load_page

        page.write_text(load_page(found, plan, seen.untold, interval_s), encoding="utf-8")
    commands = next_commands(plan, assignment, reassignment_file, named_alike(ctx, bootstrap, settings))
    copies = figures(seen.picture, assignment)
    if output == "json":
        written = None if reassignment_file is None or no_file else str(reassignment_file)
        told_of_it = _json(found, plan, seen, interval_s) | _json_of_plan(plan, copies, written, commands)
        show_json("load", **told_of_it)
    else:
        show_load(found, plan, copies, commands, reassignment_file, no_file, is_planned=is_planned)
        if page is not None:
            click.echo(f"page: {page}")
    for broker_id, why in seen.untold.items():
        click.echo(f"strandline: broker {broker_id} is left out: {printable(why)}", err=True)
    if seen.picture.ongoing_untold:
        why = printable(seen.picture.ongoing_untold)
        click.echo(f"strandline: what to move is not said: what is under way is not known: {why}", err=True)
    return 0 if found.is_even and not seen.untold else 1


def _keep_plan(path: Path, assignment: Mapping[TopicPartition, tuple[int, ...]], *, is_planned: bool) -> str:
    """Write it; where it is empty, say so. An older plan in the file is nothing to carry out any more, unless nobody
    could say what may be moved."""
    if not is_planned:
        return f"What may be moved is not known: {path} is as it was."
    if assignment:
        write_assignment(path, assignment)
        return ""
    was_there = path.exists()
    path.unlink(missing_ok=True)
    return f"Nothing to reassign: no file written{f', the old {path} is removed' if was_there else ''}."


@dataclass(frozen=True, slots=True)
class Observed:
    """passed: of each broker that told its figures twice; untold: of each other, why not."""

    picture: ClusterPicture
    passed: Mapping[int, Passed]
    untold: Mapping[int, str]

    def placed(self) -> dict[TopicPartition, Placed]:
        """Every partition that may be moved: what is under way somewhere is left alone, and all where that is not
        known. Who just does not answer counts as out of sync: the cluster may not have seen yet that it is gone."""
        from strandline.client.balance.moves import Placed

        if self.picture.ongoing_untold:
            return {}
        silent = self.picture.unheard
        return {
            tp: Placed(
                view.leader,
                view.replicas,
                tuple(each for each in view.in_sync_replicas if each == view.leader or each not in silent),
            )
            for tp, view in sorted(self.picture.partitions.items())
            if tp not in self.picture.ongoing
        }


def _observed(session: Session, admin: Admin, named: Mapping[int, Address], interval_s: float) -> Observed:
    from strandline.client.balance.indicators import Passed

    picture = look(admin, needs_controller=False)
    cluster = admin.describe_cluster()
    check_named(named, picture.racks)
    holders = {broker_id for view in picture.partitions.values() for broker_id in view.replicas}
    away = {broker_id: "it does not run" for broker_id in sorted(holders) if broker_id not in picture.racks}
    brokers = {broker_id: cluster.brokers[broker_id] for broker_id in picture.racks if broker_id in cluster.brokers}
    ports, unknown = admin_ports(admin, brokers, named)

    def first(broker_id: int) -> Look:
        status_of(ports[broker_id], broker_id, cluster.cluster_id, named=broker_id in named)
        return scraped(ports[broker_id], session.monotonic())

    before, silent = from_each(ports, first)
    if before:
        session.sleep(interval_s)
    passed, lost = from_each(before, lambda each: Passed(before[each], scraped(ports[each], session.monotonic())))
    return Observed(picture, passed, away | unknown | silent | lost)


def _readings(seen: Observed) -> dict[str, dict[int, float | None]]:
    """Indicator → broker → figure."""
    from strandline.client.balance.indicators import LEADERS, PARTITIONS, indicators_of

    views = seen.picture.partitions.values()
    found: dict[str, dict[int, float | None]] = {
        PARTITIONS: {each: sum(each in view.replicas for view in views) for each in seen.passed},
        LEADERS: {each: sum(each == view.leader for view in views) for each in seen.passed},
    }
    return found | indicators_of(seen.passed)


def _traffic(seen: Observed, placed: Mapping[TopicPartition, Placed]) -> dict[TopicPartition, Any]:
    from strandline.client.balance.indicators import traffic_of

    led: dict[int, list[TopicPartition]] = {}
    for tp, view in sorted(seen.picture.partitions.items()):
        led.setdefault(view.leader, []).append(tp)
    found: dict[TopicPartition, Any] = {}
    for broker_id, passed in seen.passed.items():
        found.update(traffic_of(passed, led.get(broker_id, [])))
    return found


def _json(found: Load, plan: Plan, seen: Observed, interval_s: float) -> dict[str, Any]:
    return {
        "even": found.is_even if can_be_judged(found) else None,
        "threshold": found.threshold,
        "sigma": found.sigma,
        "sigma_bound": found.sigma_bound,
        "interval_s": interval_s,
        "weights": dict(found.weights),
        "left_out": dict(found.left_out),
        "brokers": [
            {
                "broker": broker_id,
                "rack": seen.picture.racks.get(broker_id),
                "share": found.shares[broker_id],
                "deviation": found.deviations[broker_id],
                "expected_deviation": plan.deviations[broker_id],
                "uneven": broker_id in found.uneven,
                "indicators": {name: of_each[broker_id] for name, of_each in found.readings.items()},
                "shares": {name: found.share_of(name, broker_id) for name in found.readings},
            }
            for broker_id in found.heaviest_first
        ],
        "untold": [{"broker": broker_id, "message": why} for broker_id, why in seen.untold.items()],
    }


def _json_of_plan(plan: Plan, copies: PlanFigures, written: str | None, commands: list[str]) -> dict[str, Any]:
    """written: the file that has the plan."""
    return {
        "moves": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "from": each.source,
                "to": each.target,
                "what": "replica" if each.copies else "leader",
                "replicas": list(each.replicas),
            }
            for each in plan.moves
        ],
        "held_up": [
            {"topic": tp.topic, "partition": tp.partition, "brokers": list(away)} for tp, away in plan.held_up.items()
        ],
        "replicas_to_move": copies.replicas_to_move,
        "bytes_to_move": copies.bytes_to_move,
        "reassignment_file": written,
        "next": commands,
    }


def _untold(untold: Mapping[int, str]) -> str:
    return "; ".join(f"broker {broker_id}: {why}" for broker_id, why in untold.items()) or "there is none"


def _interval_s(text: str) -> float:
    from strandline.cli.offset_range import InvalidOffset, duration_ms

    try:
        interval_ms = duration_ms(text if not text.isdigit() else f"{text}s")
    except InvalidOffset as error:
        raise click.UsageError(f"--interval {error}") from None
    if interval_ms < 100:
        raise click.UsageError(f"--interval '{text}' is too short to see anything; give 100ms or more")
    if interval_ms > DAY_S * 1000:
        raise click.UsageError(f"--interval '{text}' is longer than a day; a few seconds or minutes do")
    return interval_ms / 1000
