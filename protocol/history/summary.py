"""What a history amounts to: times in milliseconds since 1970, None where something goes on still. Pure.

Who holds all histories in one place has them added up here (`summarised`); a Spark job adds up in its own tasks and
makes the same summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from strandline.protocol.history.figures import BrokerFigures, Range, broker_figures, figures
from strandline.protocol.history.lives import Lives, Run
from strandline.protocol.history.timeline import PartitionHistory
from strandline.protocol.topic_name import INTERNAL_TOPICS

MOST_SHOWN_INTERVALS = 300
"""Of one partition, the newest: a million changes of one partition are no picture any more."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all partitions together: times are partition times, `longest_…` the longest of one."""

    partitions: int
    elections: int
    leader_changes: int
    isr_shrinks: int
    isr_expansions: int
    outages_count: int
    unavailable_ms: int
    longest_outage_ms: int
    under_replicated_ms: int
    under_min_isr_ms: int
    hand_overs: int
    longest_hand_over_ms: int
    unknown_changes: int
    """State changes that no log tells of."""
    clock_skew_ms: int


@dataclass(frozen=True, slots=True)
class Controller:
    """One term; acting_ms None: its fail-over never ended."""

    broker_id: int
    controller_epoch: int
    from_ms: int
    acting_ms: int | None
    to_ms: int | None
    ended: str


@dataclass(frozen=True, slots=True)
class Absence:
    """A broker was away; in_order: it had said good-bye."""

    from_ms: int
    to_ms: int | None
    in_order: bool


@dataclass(frozen=True, slots=True)
class BrokerSummary:
    """lines 0: no logs of it were found. led_ms: partition time that it led; elections that it won; how often it left
    and joined the ISR of a partition."""

    broker_id: int
    lines: int
    first_line_ms: int | None
    last_line_ms: int | None
    led_ms: int
    elections: int
    left_isr: int
    joined_isr: int
    away_ms: int
    away: tuple[Absence, ...]


@dataclass(frozen=True, slots=True)
class PartitionOutage:
    topic: str
    topic_id: str
    partition: int
    from_ms: int
    to_ms: int | None
    why: str
    leader_before: int
    leader_after: int
    length_ms: int
    """As far as the logs go, where it goes on."""


@dataclass(frozen=True, slots=True)
class State:
    """How a partition stood in [from_ms, to_ms)."""

    from_ms: int
    to_ms: int | None
    leader: int
    leader_epoch: int
    zk_version: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    min_isr: int


@dataclass(frozen=True, slots=True)
class Outage:
    from_ms: int
    to_ms: int | None
    why: str
    leader_before: int
    leader_after: int
    length_ms: int


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition of one topic id. intervals: its states, the newest of `intervals_count`."""

    topic: str
    topic_id: str
    partition: int
    elections: int
    leader_changes: int
    isr_shrinks: int
    isr_expansions: int
    outages_count: int
    unavailable_ms: int
    longest_outage_ms: int
    under_replicated_ms: int
    under_min_isr_ms: int
    hand_overs: int
    longest_hand_over_ms: int
    unknown_changes: int
    clock_skew_ms: int
    intervals_count: int
    intervals: tuple[State, ...]
    outages: tuple[Outage, ...]

    @classmethod
    def of_history(cls, history: PartitionHistory, span: Range) -> PartitionSummary:
        """Of one that was cut to `span`."""
        newest = slice(-MOST_SHOWN_INTERVALS, None)
        return cls(
            history.topic,
            history.topic_id,
            history.partition,
            *figures(history, span),
            history.unknown_changes,
            history.clock_skew_ms,
            len(history.intervals),
            tuple(State(*each) for each in history.intervals[newest]),
            tuple(Outage(*each, span.length_ms(each)) for each in history.outages[newest]),
        )

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> PartitionSummary:
        """From a row of `history_rows.HISTORIES`."""
        known = {field.name: row[field.name] for field in fields(cls)}
        intervals = tuple(
            State(**{**each, "isr": tuple(each["isr"]), "replicas": tuple(each["replicas"])})
            for each in row["intervals"]
        )
        return cls(**{**known, "intervals": intervals, "outages": tuple(Outage(**each) for each in row["outages"])})


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """[since_ms, until_ms): what is told of. lines: those that were understood; lines_too_long were skipped. cut_files
    were read as far as they go. outages, partitions: the worst first, no more than was asked for; `totals` has all."""

    since_ms: int
    until_ms: int
    files: int
    lines: int
    unreadable_lines: int
    lines_too_long: int
    cut_files: tuple[str, ...]
    totals: Totals
    controllers: tuple[Controller, ...]
    brokers: tuple[BrokerSummary, ...]
    outages: tuple[PartitionOutage, ...]
    partitions: tuple[PartitionSummary, ...]

    @property
    def sources(self) -> str:
        """`1,200 lines of 2 files (1 cut, 3 lines too long)`"""
        missing = [f"{len(self.cut_files)} cut"] if self.cut_files else []
        missing += [f"{self.lines_too_long:,} lines too long"] if self.lines_too_long else []
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{self.lines:,} lines of {files}" + (f" ({', '.join(missing)})" if missing else "")


@dataclass(frozen=True, slots=True)
class Sources:
    """What was read."""

    files: int
    unreadable_lines: int = 0
    lines_too_long: int = 0
    cut_files: tuple[str, ...] = ()


def summarised(
    histories: Sequence[PartitionHistory], lives: Lives, runs: Sequence[Run], span: Range, sources: Sources, shown: int
) -> HistorySummary:
    """histories: cut to `span`. shown: so many partitions and outages, the worst first."""
    partitions = sorted((PartitionSummary.of_history(each, span) for each in histories), key=_worst_first)
    of_brokers: dict[int, BrokerFigures] = {}
    for history in histories:
        for broker_id, own in broker_figures(history, span).items():
            so_far = of_brokers.get(broker_id, BrokerFigures())
            of_brokers[broker_id] = BrokerFigures(*(a + b for a, b in zip(so_far, own, strict=True)))
    outages = [
        PartitionOutage(each.topic, each.topic_id, each.partition, *outage, span.length_ms(outage))
        for each in histories
        for outage in each.outages
    ]
    outages.sort(key=lambda each: (-each.length_ms, each.from_ms, each.topic, each.partition))
    return HistorySummary(
        since_ms=span.since_ms,
        until_ms=min(span.until_ms, span.last_ms),
        files=sources.files,
        lines=sum(run.lines for run in runs),
        unreadable_lines=sources.unreadable_lines,
        lines_too_long=sources.lines_too_long,
        cut_files=sources.cut_files,
        totals=_totals(partitions),
        controllers=controllers_in(lives, span),
        brokers=broker_summaries(of_brokers, lives, runs, span),
        outages=tuple(outages[:shown]),
        partitions=tuple(partitions[:shown]),
    )


def _worst_first(each: PartitionSummary) -> tuple[object, ...]:
    """Where all are well, by name. Internal topics last: they have so many partitions that nobody would find his
    own."""
    worst = (-each.unavailable_ms, -each.under_min_isr_ms, -each.under_replicated_ms, -each.elections)
    return each.topic in INTERNAL_TOPICS, *worst, each.topic, each.partition, each.topic_id


def _totals(partitions: Sequence[PartitionSummary]) -> Totals:
    def total(name: str) -> int:
        values = [getattr(each, name) for each in partitions]
        return max(values, default=0) if name.startswith(("longest", "clock_skew")) else sum(values)

    return Totals(len(partitions), *(total(field.name) for field in fields(Totals)[1:]))


def controllers_in(lives: Lives, span: Range) -> tuple[Controller, ...]:
    """The terms that touch it."""
    return tuple(
        Controller(*reign)
        for reign in lives.reigns
        if reign.from_ms < span.until_ms and (reign.to_ms is None or reign.to_ms > span.since_ms)
    )


def broker_summaries(
    of_brokers: Mapping[int, BrokerFigures], lives: Lives, runs: Iterable[Run], span: Range
) -> tuple[BrokerSummary, ...]:
    """of_brokers: what each was to all partitions; who was nothing to any may be left out."""
    lines: dict[int, int] = {}
    for run in runs:
        lines[run.broker_id] = lines.get(run.broker_id, 0) + run.lines
    known = sorted({*of_brokers, *lines, *lives.downtimes, *(reign.broker_id for reign in lives.reigns)})
    summaries = []
    for broker_id in known:
        away = span.cut(lives.downtimes.get(broker_id, ()))
        summaries.append(
            BrokerSummary(
                broker_id=broker_id,
                lines=lines.get(broker_id, 0),
                first_line_ms=lives.first_line_ms.get(broker_id),
                last_line_ms=lives.last_line_ms.get(broker_id),
                **of_brokers.get(broker_id, BrokerFigures())._asdict(),
                away_ms=sum(span.length_ms(each) for each in away),
                away=tuple(Absence(each.from_ms, each.to_ms, each.in_order) for each in away),
            )
        )
    return tuple(summaries)
