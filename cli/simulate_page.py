"""The page about a simulated run: its findings, who was struck when, and what became of leaders and ISRs. Pure.

Below the faults stands what `strandline state-changes --page` draws of a cluster's logs, made from the run's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cli.simulate_lines import spoken
from strandline.cli.state_changes import MOST_EVENTS_DRAWN, PARTITIONS_DRAWN
from strandline.protocol.history.gathering import Gathering
from strandline.protocol.history.merging import Told
from strandline.protocol.history.summary import HistorySummary, Sources
from strandline.spark_connector.pipelines.history_page import drawn, history_sections
from strandline.spark_connector.pipelines.pictures import Span, broker_colour, figures, page, section, table

if TYPE_CHECKING:
    from strandline.testkit.simulation.driver import Report
    from strandline.testkit.simulation.script import Struck


def simulate_page(report: Report) -> str:
    """Times of day are virtual times. TooManyEvents: more than can be drawn."""
    summary = _summary(report)
    findings = table(("finding",), [(each,) for each in report.findings]) if report.findings else "<p>none</p>"
    sections = [
        figures(
            [
                ("findings", str(len(report.findings))),
                ("faults", str(len(report.struck))),
                ("virtual seconds", f"{report.virtual_s:.1f}"),
                ("digest", report.digest),
            ]
        ),
        section("Findings", findings),
        section("Options", table(("drawn from the seed",), [(line,) for line in report.options.lines()])),
    ]
    if summary is not None:
        sections[2:2] = [section("Faults", _faults(report, summary)), *history_sections(summary)]
    return page(f"Simulation of seed {report.options.seed}", sections)


def _summary(report: Report) -> HistorySummary | None:
    """From the beginning of the run to the last line; None: nobody said anything."""
    gathering = Gathering(MOST_EVENTS_DRAWN, since_ms=0)
    count = 0
    for count, said in enumerate(spoken(report.lines), 1):
        if said.line is not None:
            gathering.add(Told(said.line.broker_id, False, said.node, count, said.line), said.line.events)
    return gathering.summary(Sources(report.options.brokers), PARTITIONS_DRAWN) if count else None


def _faults(report: Report, summary: HistorySummary) -> str:
    """A row for each kind, in the colour of the broker that was struck."""
    rows: dict[str, list[Span]] = {}
    for struck in report.struck:
        from_ms, to_ms = (min(at_s * 1000, summary.until_ms) for at_s in (struck.from_s, struck.to_s))
        span = Span(from_ms, to_ms, _whom(struck), str(struck.fault).strip())
        rows.setdefault(struck.fault.kind, []).append(span)
    brokers = range(1, report.options.brokers + 1)
    return drawn(summary, rows, {f"broker {broker}": broker_colour(broker) for broker in brokers})


def _whom(struck: Struck) -> str:
    """Of a link its beginning; of what is no broker's its name."""
    target = struck.fault.target.replace("-", ">").partition(">")[0]
    return f"broker {target}" if target.isdigit() else target or "ZooKeeper"
