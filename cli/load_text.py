"""What `strandline load` is told, and what it says: weights, percent, the tables, the commands to run next."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strandline.cli.cluster_picture import named
from strandline.cli.tables import show_table
from strandline.cli.wording import counted, sized

if TYPE_CHECKING:
    from strandline.cli.cluster_picture import PlanFigures
    from strandline.client.balance.load import Load
    from strandline.client.balance.moves import Move, Plan
    from strandline.protocol.types import TopicPartition

MOST_SHOWN = 20
"""Of moves, as text; the file and JSON have all."""
MOST_ELECTED = 20
"""Partitions that are named in one command."""
A_FILE = "even.json"


def percent(text: str) -> float:
    """`10%` or `10` → 0.1. UsageError."""
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = math.nan
    if not 0 < value <= 100:
        raise click.UsageError(f"--threshold '{text}' is no share in percent; give for example 10%")
    return value


def indicators_of_weights(text: str) -> dict[str, float]:
    """`cpu=2,fd=0` → by whole names. UsageError."""
    from strandline.client.balance.indicators import INDICATORS

    names = [each.name for each in INDICATORS]
    found: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = part.partition("=")
        exact = [each for each in names if each.lower() == name.strip().lower()]
        meant = exact or [each for each in names if name.strip() and each.lower().startswith(name.strip().lower())]
        if len(meant) != 1:
            what = f"may be {' or '.join(meant)}" if meant else f"is none of {', '.join(names)}"
            raise click.UsageError(f"--weights '{part}': {name.strip() or 'an empty name'} {what}")
        try:
            weight = float(value)
        except ValueError:
            weight = math.nan
        if not 0 <= weight <= 1e6:
            raise click.UsageError(f"--weights '{part}' has no number from 0 on; give for example {meant[0]}=2")
        if meant[0] in found:
            raise click.UsageError(f"--weights names {meant[0]} twice")
        found[meant[0]] = weight
    return found


def shown_figure(indicator: str, figure: float) -> str:
    """With its unit."""
    from strandline.client.balance.indicators import INDICATORS

    unit = next(each.unit for each in INDICATORS if each.name == indicator)
    if unit == "share":
        return f"{figure:.1%}"
    if unit.startswith("bytes"):
        return sized(figure) + unit.removeprefix("bytes")
    return f"{figure:.0f}" if figure == int(figure) else f"{figure:.2f}"


def show_load(
    load: Load,
    plan: Plan,
    copies: PlanFigures,
    commands: Sequence[str],
    reassignment_file: Path | None,
    no_file: str,
    *,
    is_planned: bool,
) -> None:
    """All of it, the broker with the largest share first. no_file: what is said where the file is not written.
    is_planned False: nobody could say what may be moved."""
    columns = ("broker", "share", "deviation", *load.readings)
    rows = [
        (
            str(broker_id),
            f"{load.shares[broker_id]:.1%}",
            deviation_text(load.deviations[broker_id]),
            *(shown_figure(name, of_each[broker_id]) for name, of_each in load.readings.items()),
        )
        for broker_id in load.heaviest_first
    ]
    show_table(columns, rows, columns)
    for name, why in load.left_out.items():
        click.echo(f"left out: {name}, {why}")
    click.echo(verdict(load))
    if not plan.moves:
        if is_planned and not load.is_even:
            click.echo("Nothing that can be moved makes it more even.")
            click.echo(held_up(plan) or "What differs does not come with partitions.")
        if no_file:
            click.echo(no_file)
        return
    click.echo()
    show_table(
        ("partition", "what", "from", "to"),
        [(str(each.partition), what(each), str(each.source), str(each.target)) for each in plan.moves[:MOST_SHOWN]],
        ("from", "to"),
    )
    if len(plan.moves) > MOST_SHOWN:
        click.echo(f"and {len(plan.moves) - MOST_SHOWN} more; --reassignment-file and --output json have all")
    changed, copied = counted(len(plan.partitions), "partition"), counted(copies.replicas_to_move, "replica")
    size = sized(copies.bytes_to_move)
    click.echo(f"{changed} to change, {copied} to copy: {size}; then {expected(load, plan)}")
    if plan.held_up:
        click.echo(held_up(plan))
    if no_file:
        click.echo(no_file)
    if copies.plan and reassignment_file is not None:
        click.echo(f"Wrote what to move to {reassignment_file}. To do it:")
    elif copies.plan:
        click.echo(f"To do it, run this again with --reassignment-file {A_FILE}, then:")
    else:
        click.echo("To do it:")
    for command in commands:
        click.echo(f"  {command}")


def what(move: Move) -> str:
    """What goes there, in words."""
    if not move.copies:
        return "leader" if move.source != move.target else "leader stays, preferred"
    return "replica and leader" if move.leads else "replica"


def deviation_text(deviation: float) -> str:
    return f"{round(deviation, 3) + 0.0:+.1%}"  # never −0.0


def verdict(load: Load) -> str:
    """One line."""
    if not can_be_judged(load):
        only = ", ".join(f"broker {each}" for each in load.shares)
        return f"No verdict: only {only} tells its figures, and there is nothing to compare it with."
    threshold = f"{load.threshold * 100:.4g} %"
    spread = f"σ {load.sigma:.4f}, at most {load.sigma_bound:.4f}"
    if load.is_even:
        return f"The load is even: no broker deviates by more than {threshold} ({spread})."
    named = ", ".join(f"broker {each} {deviation_text(load.deviations[each])}" for each in load.uneven)
    return f"The load is UNEVEN: {named}; {threshold} is allowed ({spread})."


def can_be_judged(load: Load) -> bool:
    """One broker is always as even as itself."""
    return len(load.shares) > 1


def expected(load: Load, plan: Plan) -> str:
    """What is left of the deviations after the moves."""
    broker_id = max(plan.deviations, key=lambda each: abs(plan.deviations[each]))
    return f"the farthest from the mean is broker {broker_id}, {deviation_text(plan.deviations[broker_id])}"


def held_up(plan: Plan) -> str:
    """Why some replicas stay where they are; "" where all may move."""
    if not plan.held_up:
        return ""
    away = sorted({each for of_partition in plan.held_up.values() for each in of_partition})
    who = f"broker {away[0]} is" if len(away) == 1 else f"brokers {', '.join(map(str, away))} are"
    which = f"{counted(len(plan.held_up), 'partition')} ({named(plan.held_up)})"
    return f"Replicas of {which} stay where they are: no move of them ends before {who} in sync again."


def next_commands(
    plan: Plan, assignment: Mapping[TopicPartition, object], reassignment_file: Path | None, cluster: str
) -> list[str]:
    """What to run, one after the other. cluster: the options that name it."""
    commands = []
    if assignment:
        path = shlex.quote(str(reassignment_file or A_FILE))
        commands.append(f"strandline reassign execute {path} --wait{cluster}")
    elected = plan.elections
    if elected:
        named = " ".join(f"{tp.topic}:{tp.partition}" for tp in elected)
        commands.append(f"strandline elect-leaders {named if len(elected) <= MOST_ELECTED else '--all'}{cluster}")
    return commands
