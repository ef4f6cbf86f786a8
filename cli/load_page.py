"""The page about the load of a cluster: who has how much of it, how far that is from the mean, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.cli.load_text import deviation_text, expected, held_up, shown_figure, verdict, what
from strandline.client.balance.indicators import INDICATORS
from strandline.client.balance.load import Load
from strandline.client.balance.moves import Plan
from strandline.spark_connector.pipelines.pictures import (
    about_zero,
    broker_colour,
    figures,
    page,
    pie,
    section,
    table,
)

MOST_SHOWN = 200
"""Of the moves."""


def load_page(load: Load, plan: Plan, untold: Mapping[int, str], interval_s: float) -> str:
    """untold: brokers that are left out, and why."""
    names = {broker_id: f"broker {broker_id}" for broker_id in sorted(load.shares)}
    sections = [
        figures(
            [
                ("brokers", str(len(load.shares))),
                ("beyond the threshold", str(len(load.uneven))),
                (f"σ, at most {load.sigma_bound:.4f}", f"{load.sigma:.4f}"),
                ("partitions to change", str(len(plan.partitions))),
            ]
        ),
        section(
            "Share of the load",
            pie(
                {name: load.shares[broker_id] for broker_id, name in names.items()},
                label="share of the load",
                colours={name: broker_colour(broker_id) for broker_id, name in names.items()},
            ),
        ),
        section(
            "Deviation from the mean",
            about_zero(
                {name: load.deviations[broker_id] for broker_id, name in names.items()},
                limit=load.threshold,
                unit="deviation",
                shown=deviation_text,
            ),
            note="The dashed lines are the threshold.",
        ),
        section("Indicators", _indicators(load), note="The figure, and the broker's share of the sum over all."),
        section("What they mean", _meanings(load)),
    ]
    if untold:
        rows = [(str(broker_id), why) for broker_id, why in untold.items()]
        sections.insert(1, section("Brokers that are left out", table(("broker", "why"), rows)))
    if plan.moves:
        sections.insert(
            -2,
            section("What to move", _moves(plan), note=f"To be expected then: {expected(load, plan)}."),
        )
    if plan.held_up:
        sections.insert(-2, section("What stays where it is", note=held_up(plan)))
    subtitle = f"{verdict(load)} Rates are those of {interval_s:g} s."
    return page("Load of the cluster", sections, subtitle=subtitle)


def _indicators(load: Load) -> str:
    columns = ("broker", *load.readings, "share of the load", "deviation")
    rows = [
        (
            str(broker_id),
            *(
                f"{shown_figure(name, of_each[broker_id])} ({load.share_of(name, broker_id):.1%})"
                for name, of_each in load.readings.items()
            ),
            f"{load.shares[broker_id]:.1%}",
            deviation_text(load.deviations[broker_id]),
        )
        for broker_id in load.heaviest_first
    ]
    return table(columns, rows, columns)


def _meanings(load: Load) -> str:
    rows = [
        (
            each.name,
            each.meaning,
            f"{load.weights[each.name]:g}" if each.name in load.weights else "",
            load.left_out.get(each.name, ""),
        )
        for each in INDICATORS
    ]
    return table(("indicator", "meaning", "weight", "left out"), rows, ("weight",))


def _moves(plan: Plan) -> str:
    shown = [(str(each.partition), what(each), str(each.source), str(each.target)) for each in plan.moves[:MOST_SHOWN]]
    rest = len(plan.moves) - len(shown)
    return table(("partition", "what", "from", "to"), shown, ("from", "to")) + (
        f"<p>and {rest} more</p>" if rest > 0 else ""
    )
