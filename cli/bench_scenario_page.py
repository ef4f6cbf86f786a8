"""The page about the six scenarios: of each the table, and a picture of our figures and of both shapes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.cli.bench_page import latency_by_share
from strandline.cli.bench_scenario_runs import Outcome
from strandline.cli.bench_scenario_tables import Scenario
from strandline.cli.bench_scenario_text import label, ratios, table_of
from strandline.spark_connector.pipelines.pictures import bars, curves, page, section, table

Done = Sequence[tuple[Scenario, Sequence[Outcome]]]


def scenarios_page(done: Done, settings: Mapping[str, str]) -> str:
    """settings: what was measured, and where."""
    sections = [_section(scenario, outcomes) for scenario, outcomes in done]
    sections.append(section("What was measured", table(("setting", "value"), list(settings.items()))))
    return page("Six scenarios, as printed and here", sections)


def _section(scenario: Scenario, outcomes: Sequence[Outcome]) -> str:
    columns, rows, numbers = table_of(scenario, outcomes)
    pictures = _latencies(outcomes) if scenario.number == 6 else _throughput(scenario, outcomes)
    finding = f"The text (lines {scenario.lines}) finds: {scenario.finding}"
    return section(f"{scenario.number}. {scenario.title}", *pictures, table(columns, rows, numbers), note=finding)


def _throughput(scenario: Scenario, outcomes: Sequence[Outcome]) -> list[str]:
    measured = [each for each in outcomes if each.tps is not None]
    labels = [label(scenario, each.row) for each in measured]
    pieces = [bars(labels, {"records per second, here": [each.tps or 0.0 for each in measured]}, unit="records/s")]
    both = ratios(outcomes)
    lines = {
        "as printed, to its first row": [
            (float(n), 100 * text) for n, (text, _) in enumerate(both) if text is not None
        ],
        "here, to its first row": [(float(n), 100 * ours) for n, (_, ours) in enumerate(both) if ours is not None],
    }
    lines = {name: points for name, points in lines.items() if points}
    if len(outcomes) > 1 and lines:
        ticks = {float(n): label(scenario, each.row) for n, each in enumerate(outcomes)}
        pieces.append(curves(lines, unit="", shown=lambda value: f"{value:.0f} %", ticks=ticks))
    return pieces


def _latencies(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        latency_by_share({"sender": outcome.acknowledgements, "end to end": outcome.result.total.latencies})
        for outcome in outcomes
        if outcome.result is not None and outcome.acknowledgements is not None
    ]
