"""What `history` answers: times in milliseconds since 1970, None where something goes on still."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


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
