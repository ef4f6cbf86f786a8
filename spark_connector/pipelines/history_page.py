"""The page about a history: brokers, controllers, leaders and ISRs over time, and the outages. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.protocol.history.summary import HistorySummary, PartitionSummary, State
from strandline.protocol.topic_name import INTERNAL_TOPICS
from strandline.spark_connector.pipelines.pictures import (
    MOST_MARKS,
    Span,
    broker_colour,
    duration_text,
    figures,
    page,
    section,
    table,
    time_text,
    timeline,
)

MOST_ROWS = 60
"""Of a picture: what is below is not looked at any more."""
MOST_OUTAGES = 50
DAY_MS = 86_400_000

OUT, AWAY, STOPPED = "#b00020", "#b00020", "#e0a3ac"
UP, ALL_IN_SYNC, FEWER, TOO_FEW = "#c9cdd4", "#3ca951", "#efb118", "#ff725c"
_NOBODY, _AWAY, _STOPPED, _UP = "nobody led", "gone", "stopped", "up"
_ALL, _FEWER, _TOO_FEW = "all in sync", "fewer", "fewer than min ISR"


def history_page(summary: HistorySummary) -> str:
    """The whole page; partitions and outages are those of the summary, as many as fit."""
    subtitle = f"{time_text(summary.since_ms)} to {time_text(summary.until_ms)} UTC; told by {summary.sources}"
    return page("History of the cluster", history_sections(summary), subtitle=subtitle)


def history_sections(summary: HistorySummary) -> list[str]:
    """What stands on it."""
    totals = summary.totals
    colours = {f"broker {each.broker_id}": broker_colour(each.broker_id) for each in summary.brokers}
    shown = _shown(summary.partitions)
    rest = totals.partitions - len(shown)
    order = "with the longest outages, internal topics last" if totals.outages_count else "first, internal topics last"
    note = f"The {len(shown)} {order}; {rest:,} more are not shown." if rest > 0 else ""
    return [
        figures(
            [
                ("partitions", f"{totals.partitions:,}"),
                ("outages", f"{totals.outages_count:,}"),
                ("longest outage", duration_text(totals.longest_outage_ms)),
                ("partition time without a leader", duration_text(totals.unavailable_ms)),
                ("partition time under-replicated", duration_text(totals.under_replicated_ms)),
                ("elections", f"{totals.elections:,}"),
                ("controllers", str(len(summary.controllers))),
            ]
        ),
        section("Brokers and controller", _of_brokers(summary, colours)),
        section("Who led", _leaders(summary, shown, colours), note=note),
        section("In-sync replicas", _in_sync(summary, shown)),
        section("Outages, the longest first", _outages(summary), note=_left_out(summary)),
        section("Terms of controllers", _controllers(summary)),
        section("Brokers", _brokers(summary)),
        section("Partitions", _partitions(shown)),
    ]


def _shown(partitions: Sequence[PartitionSummary]) -> list[PartitionSummary]:
    """Those that fit, by name, internal topics last; there may be several of one name, one after the other."""
    chosen: list[PartitionSummary] = []
    names: set[tuple[str, int]] = set()
    marks = 0
    for partition in partitions:
        names.add((partition.topic, partition.partition))
        marks += len(partition.intervals) + len(partition.outages)
        if chosen and (len(names) > MOST_ROWS or marks > MOST_MARKS):
            break
        chosen.append(partition)
    return sorted(chosen, key=_place)


def _place(partition: PartitionSummary) -> tuple[bool, str, int, int]:
    topic = partition.topic
    return topic in INTERNAL_TOPICS, topic, partition.partition, partition.intervals[0].from_ms


# --- Pictures --------------------------------------------------------------------------------------------------


def drawn(summary: HistorySummary, rows: dict[str, list[Span]], colours: dict[str, str]) -> str:
    """A timeline with the axis of all pictures of that summary."""
    part = slice(11, 19) if _is_short(summary) else slice(0, 16)
    axis = (summary.since_ms, max(summary.until_ms, summary.since_ms + 1))
    return timeline(rows, colours=colours, shown=lambda moment: time_text(moment)[part], axis=axis)


def _of_brokers(summary: HistorySummary, colours: dict[str, str]) -> str:
    since_ms, until_ms = summary.since_ms, summary.until_ms
    rows: dict[str, list[Span]] = {"controller": []}
    for term in summary.controllers:
        end_ms = until_ms if term.to_ms is None else min(term.to_ms, until_ms)
        title = (
            f"controller epoch {term.controller_epoch}: broker {term.broker_id}, {_stretch(term.from_ms, term.to_ms)}"
        )
        rows["controller"].append(Span(max(term.from_ms, since_ms), end_ms, f"broker {term.broker_id}", title))
    for broker in summary.brokers:
        name = f"broker {broker.broker_id}"
        rows[name] = [Span(since_ms, until_ms, _UP, f"{name}: up where nothing else is shown")]
        for away in broker.away:
            kind = _STOPPED if away.in_order else _AWAY
            title = f"{name} {kind}: {_stretch(away.from_ms, away.to_ms)}"
            rows[name].append(Span(away.from_ms, until_ms if away.to_ms is None else away.to_ms, kind, title))
    return drawn(summary, rows, {**colours, _UP: UP, _AWAY: AWAY, _STOPPED: STOPPED})


def _leaders(summary: HistorySummary, partitions: Sequence[PartitionSummary], colours: dict[str, str]) -> str:
    rows: dict[str, list[Span]] = {}
    for partition in partitions:
        name = f"{partition.topic}-{partition.partition}"
        row = rows.setdefault(name, [])
        for states in _runs(partition.intervals, lambda state: state.leader):
            first, last = states[0], states[-1]
            kind = _NOBODY if first.leader < 0 else f"broker {first.leader}"
            epochs = sorted({state.leader_epoch for state in states})
            told = f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}"
            title = f"{name}: {kind}, {told}, {_stretch(first.from_ms, last.to_ms)}"
            row.append(Span(first.from_ms, summary.until_ms if last.to_ms is None else last.to_ms, kind, title))
        for outage in partition.outages:
            title = f"{name}: {_NOBODY} for {duration_text(outage.length_ms)}: {outage.why}, "
            title += _stretch(outage.from_ms, outage.to_ms)
            end_ms = summary.until_ms if outage.to_ms is None else outage.to_ms
            row.append(Span(outage.from_ms, end_ms, _NOBODY, title))
    return drawn(summary, rows, {**colours, _NOBODY: OUT})


def _in_sync(summary: HistorySummary, partitions: Sequence[PartitionSummary]) -> str:
    rows: dict[str, list[Span]] = {}
    for partition in partitions:
        name = f"{partition.topic}-{partition.partition}"
        for states in _runs(partition.intervals, lambda state: (state.isr, state.replicas, state.min_isr)):
            first, last = states[0], states[-1]
            kind = _ALL
            if len(first.isr) < len(first.replicas):
                kind = _TOO_FEW if len(first.isr) < first.min_isr else _FEWER
            of = f" of {len(first.replicas)}" if first.replicas else ""
            isr = ", ".join(map(str, first.isr))
            title = f"{name}: {len(first.isr)}{of} in sync ({isr}), {_stretch(first.from_ms, last.to_ms)}"
            end_ms = summary.until_ms if last.to_ms is None else last.to_ms
            rows.setdefault(name, []).append(Span(first.from_ms, end_ms, kind, title))
    return drawn(summary, rows, {_ALL: ALL_IN_SYNC, _FEWER: FEWER, _TOO_FEW: TOO_FEW})


def _runs(states: Sequence[State], what: object) -> list[list[State]]:
    """States that follow one another and are alike in what a picture shows of them."""
    assert callable(what)
    runs: list[list[State]] = []
    for state in states:
        if runs and what(runs[-1][-1]) == what(state):
            runs[-1].append(state)
        else:
            runs.append([state])
    return runs


def _stretch(from_ms: int, to_ms: int | None) -> str:
    if to_ms is None:
        return f"since {time_text(from_ms)}"
    return f"{time_text(from_ms)} to {time_text(to_ms)} ({duration_text(to_ms - from_ms)})"


# --- Tables ----------------------------------------------------------------------------------------------------


def _outages(summary: HistorySummary) -> str:
    columns = ("partition", "from", "until", "length", "leader", "why")
    rows = [
        [
            f"{each.topic}-{each.partition}",
            _moment(summary, each.from_ms),
            _moment(summary, each.to_ms),
            duration_text(each.length_ms),
            f"{_broker(each.leader_before)} → {_broker(each.leader_after)}",
            each.why,
        ]
        for each in summary.outages[:MOST_OUTAGES]
    ]
    return table(columns, rows, ("length",)) if rows else "<p>there was none</p>"


def _left_out(summary: HistorySummary) -> str:
    left_out = summary.totals.outages_count - min(len(summary.outages), MOST_OUTAGES)
    return f"{left_out:,} shorter ones are left out." if left_out > 0 else ""


def _controllers(summary: HistorySummary) -> str:
    columns = ("epoch", "broker", "from", "until", "fail-over took", "ended")
    rows = [
        [
            str(term.controller_epoch),
            str(term.broker_id),
            _moment(summary, term.from_ms),
            _moment(summary, term.to_ms),
            "never done" if term.acting_ms is None else duration_text(term.acting_ms - term.from_ms),
            term.ended,
        ]
        for term in summary.controllers
    ]
    return table(columns, rows, ("epoch", "broker", "fail-over took"))


def _brokers(summary: HistorySummary) -> str:
    columns = ("broker", "led (partition time)", "elections won", "left ISRs", "joined ISRs", "away", "log lines")
    rows = [
        [
            str(each.broker_id),
            duration_text(each.led_ms),
            f"{each.elections:,}",
            f"{each.left_isr:,}",
            f"{each.joined_isr:,}",
            f"{len(each.away)}x, {duration_text(each.away_ms)}" if each.away else "",
            f"{each.lines:,}" if each.lines else "no logs",
        ]
        for each in summary.brokers
    ]
    return table(columns, rows, columns)


def _partitions(partitions: Sequence[PartitionSummary]) -> str:
    columns = ("partition", "topic id", "elections", "left ISR", "joined", "outages", "no leader", "under-replicated")
    rows = [
        [
            f"{each.topic}-{each.partition}",
            each.topic_id,
            f"{each.elections:,}",
            f"{each.isr_shrinks:,}",
            f"{each.isr_expansions:,}",
            f"{each.outages_count:,}",
            duration_text(each.unavailable_ms),
            duration_text(each.under_replicated_ms),
        ]
        for each in partitions
    ]
    return table(columns, rows, columns[2:])


def _moment(summary: HistorySummary, time_ms: int | None) -> str:
    if time_ms is None:
        return "still"
    return time_text(time_ms)[11:] if _is_short(summary) else time_text(time_ms)


def _is_short(summary: HistorySummary) -> bool:
    """No time of day comes twice, and the days stand under the title."""
    return summary.until_ms - summary.since_ms < DAY_MS


def _broker(broker_id: int) -> str:
    return str(broker_id) if broker_id >= 0 else "none"
