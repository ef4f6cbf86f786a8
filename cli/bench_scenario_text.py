"""What is said of the six scenarios: a table for each, printed figures beside ours, and the same for programs. Pure.

Machines differ, so absolute figures cannot be compared. What can is how the rows of a table differ from its first one:
both have that ratio. (Of latencies it is that to their average.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.cli.bench_measure import PERCENTILES
from strandline.cli.bench_scenario_runs import Landed, Outcome
from strandline.cli.bench_scenario_tables import (
    ACKS,
    FAULT,
    LATENCY_FIGURES,
    MIN_INSYNC,
    PARTITIONS,
    READER_MS,
    REPLICAS,
    RETRIES,
    SENDER_MS,
    Row,
    Scenario,
)
from strandline.runtime.histogram import Histogram

COMPARED = ("text TPS", "our TPS", "text ratio", "our ratio")
FAULTS = ("text: landed", "landed here", "text: errors", "errors here", "longest pause")
Table = tuple[tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]
"""Columns, rows, and which columns are numbers."""


def setting(row: Row, column: str) -> str:
    """What stands in one of the columns that are set."""
    fault = ""
    if row.killed:
        fault = f"{row.killed} of {row.replicas} brokers killed" + (", started again" if row.is_restarted else "")
    return {
        ACKS: row.acks,
        REPLICAS: str(row.replicas),
        MIN_INSYNC: "N/A" if row.min_insync is None else str(row.min_insync),
        RETRIES: "" if row.retries is None else str(row.retries),
        PARTITIONS: str(row.partitions),
        FAULT: fault,
    }[column]


def label(scenario: Scenario, row: Row) -> str:
    """Under a bar: the settings, short."""
    if row.killed:
        return f"{row.killed} killed, {'retries' if row.retries else 'no retries'}"
    return "/".join(setting(row, column) for column in scenario.columns if column not in (RETRIES, FAULT))


def table_of(scenario: Scenario, outcomes: Sequence[Outcome]) -> Table:
    """Rows that have not been run because of Ctrl-C are left out."""
    if scenario.number == 6:
        return _latencies(outcomes)
    faults = FAULTS if FAULT in scenario.columns else ()
    columns = (*scenario.columns, *COMPARED, *faults, "note")
    rows = []
    for outcome, (theirs, ours) in zip(outcomes, ratios(outcomes), strict=True):
        settings = [setting(outcome.row, column) for column in scenario.columns]
        compared = [_tps(outcome.row.tps), _tps(outcome.tps), _ratio(theirs), _ratio(ours)]
        rows.append((*settings, *compared, *(_faults(outcome) if faults else ()), note(outcome)))
    return columns, rows, (*(each for each in scenario.columns if each != FAULT), *COMPARED, "longest pause")


def ratios(outcomes: Sequence[Outcome]) -> list[tuple[float | None, float | None]]:
    """Of each row: what is printed, and what was measured, to the same of the first row."""
    first = outcomes[0] if outcomes else None
    return [(_to(each.row.tps, first and first.row.tps), _to(each.tps, first and first.tps)) for each in outcomes]


def _to(value: float | None, first: float | None) -> float | None:
    return value / first if value is not None and first else None


def _tps(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def note(outcome: Outcome) -> str:
    """What hindered it."""
    if outcome.skipped:
        return f"not run: {outcome.skipped}"
    if outcome.error:
        return f"ended: {outcome.error}"
    return "" if outcome.landed is not None or not errors(outcome) else f"failed: {errors(outcome)}"


def errors(outcome: Outcome) -> str:
    """`120 x NotEnoughReplicas`, or nothing."""
    failures = {} if outcome.result is None else outcome.result.failures
    return ", ".join(f"{each.records} x {kind}" for kind, each in sorted(failures.items()))


def _faults(outcome: Outcome) -> tuple[str, ...]:
    """What stands in FAULTS."""
    row, landed, told, pause = outcome.row, "", "", ""
    if outcome.landed is not None:
        landed, told = landed_text(outcome.landed), errors(outcome) or "none"
        pause = "" if outcome.pause_s is None else f"{outcome.pause_s:.1f} s"
    return row.landed, landed, row.errors, told, pause


def landed_text(landed: Landed) -> str:
    """Whether what was acknowledged is there, and what else is."""
    if landed.unread:
        return f"not known: partitions {', '.join(map(str, landed.unread))} could not be read to their ends"
    whole = "all acknowledged" if landed.acknowledged else "0 acknowledged"
    parts = [f"{landed.lost} of {landed.acknowledged} acknowledged are LOST" if landed.lost else whole]
    parts += [f"{landed.doubled} twice"] if landed.doubled else ["none twice"]
    parts += [f"{landed.unacknowledged} that were not acknowledged"] if landed.unacknowledged else []
    return ", ".join(parts)


# --- Scenario 6 ------------------------------------------------------------------------------------------------


def latencies_ms(histogram: Histogram) -> tuple[float, ...]:
    """In the order of LATENCY_FIGURES."""
    figures = (histogram.mean_us, *(histogram.percentile_us(percent) for percent in (0, 100, 99, 99.99)))
    return tuple(each / 1000 for each in figures)


def _latencies(outcomes: Sequence[Outcome]) -> Table:
    columns = ("latency", "text ms", "our ms", "text ratio", "our ratio", "note")
    rows: list[tuple[str, ...]] = []
    for outcome in outcomes:
        if outcome.result is None or outcome.acknowledgements is None:
            rows.append(("", "", "", "", "", note(outcome)))
            continue
        end_to_end = outcome.result.total.latencies
        both = (("sender", SENDER_MS, outcome.acknowledgements), ("end to end", READER_MS, end_to_end))
        for who, theirs, histogram in both:
            ours = latencies_ms(histogram)
            rows += [
                (
                    f"{who}: {name}",
                    f"{theirs[place]:g}",
                    f"{ours[place]:.3f}",
                    _ratio(theirs[place] / theirs[0]),
                    _ratio(_to(ours[place], ours[0])),
                    note(outcome),
                )
                for place, name in enumerate(LATENCY_FIGURES)
            ]
    return columns, rows, columns[1:5]


# --- Programs --------------------------------------------------------------------------------------------------


def scenario_fields(scenario: Scenario, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """As JSON."""
    rows = []
    for outcome, (theirs, ours) in zip(outcomes, ratios(outcomes), strict=True):
        row = outcome.row
        rows.append(
            {
                "acks": row.acks,
                "replicas": row.replicas,
                "min_insync_replicas": row.min_insync,
                "partitions": row.partitions,
                "retries": row.retries,
                "killed": outcome.killed,
                "restarted": outcome.is_restarted,
                "text_landed": row.landed or None,
                "text_errors": row.errors or None,
                "text_tps": row.tps,
                "tps": outcome.tps,
                "text_to_first": theirs,
                "to_first": ours,
                "skipped": outcome.skipped or None,
                "error": outcome.error or None,
                **_measured(outcome),
            }
        )
    return {"scenario": scenario.number, "title": scenario.title, "text_lines": scenario.lines, "rows": rows}


def _measured(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {"landed": None if outcome.landed is None else outcome.landed._asdict()}
    found["longest_pause_s"] = outcome.pause_s
    if outcome.result is not None:
        total = outcome.result.total
        found |= {"records": total.records, "seconds": total.length_s, "failed": outcome.result.failed}
        found["errors"] = {kind: each.records for kind, each in outcome.result.failures.items()}
        found["latency_ms"] = _latency_fields(total.latencies)
    if outcome.acknowledgements is not None:
        found["acknowledgement_ms"] = _latency_fields(outcome.acknowledgements)
        found["text_acknowledgement_ms"] = dict(zip(LATENCY_FIGURES, SENDER_MS, strict=True))
        found["text_latency_ms"] = dict(zip(LATENCY_FIGURES, READER_MS, strict=True))
    return found


def _latency_fields(histogram: Histogram) -> dict[str, float]:
    shares = {f"p{percent:g}": histogram.percentile_us(percent) / 1000 for percent in (*PERCENTILES, 99.99)}
    return {"avg": histogram.mean_us / 1000, "min": histogram.percentile_us(0) / 1000, **shares,
            "max": histogram.max_us / 1000}  # fmt: skip
