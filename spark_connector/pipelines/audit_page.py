"""The page of an audit: who holds what, and where it differs. Strings only; the pieces are `pictures`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from strandline.client.replicas.audit import (
    BEHIND,
    DIFFERS,
    EQUAL,
    STATES,
    AuditedPartition,
    AuditedReplica,
    AuditSummary,
    why,
)
from strandline.spark_connector.pipelines.pictures import (
    Span,
    bars,
    broker_colour,
    figures,
    grid,
    page,
    section,
    size_text,
    table,
    timeline,
)

STATE_COLOURS = {EQUAL: "#3ca951", BEHIND: "#efb118", "offline": "#9498a0", "unread": "#6c4a9e", DIFFERS: "#d62f2f"}
KIND_COLOURS = {
    EQUAL: "#97d8a5",
    "damaged": "#d62f2f",
    "missing": "#ff725c",
    "different": "#a463f2",
    "ahead": "#4269d0",
    "unread": "#6c4a9e",
    "offline": "#9498a0",
    "not reached": "#efb118",
}
MOST_ROWS = 100
"""Of the grid by partition; beyond that it has a row per topic."""
MOST_PARTITIONS_DRAWN = 50
MOST_FINDINGS_DRAWN = 500
"""Of one replica."""
MOST_FINDINGS_LISTED = 2000


def audit_page(summary: AuditSummary, *, cluster: str) -> str:
    """cluster: how the audited cluster is called."""
    states = summary.replicas_by_state
    per = "A row per partition, or per topic; a column per broker."
    if summary.internal_left_out:
        per += f" Left out, being internal: {', '.join(summary.internal_left_out)}."
    wrong = [each for each in summary.partitions if each.state != EQUAL]
    wrong.sort(key=lambda each: STATES.index(each.state), reverse=True)  # where not all can be shown, the worst are
    sections = [
        figures(
            [
                ("verdict", "all equal" if summary.is_equal else "not equal"),
                ("topics", f"{summary.topics:,}"),
                ("partitions", f"{len(summary.partitions):,}"),
                ("replicas", f"{summary.replicas:,}"),
                *((f"replicas {state}", f"{states[state]:,}") for state in STATES if states[state] and state != EQUAL),
                ("batches compared", f"{summary.batches:,}"),
                ("bytes compared", size_text(summary.size_bytes)),
            ]
        ),
        section("Replicas", _grid(summary.partitions), note=per),
    ]
    if wrong:
        shown = wrong[:MOST_PARTITIONS_DRAWN]
        more = f" The first {len(shown)} of {len(wrong)} partitions." if len(wrong) > len(shown) else ""
        note = f"Offsets of each replica of what is not equal, the worst first, as far as it was compared.{more}"
        sections.append(section("What differs", note=note))
        sections += [section(f"{each.topic}-{each.partition}", _drawn(each)) for each in shown]
        columns = ("partition", "broker", "finding", "from offset", "to (without)", "count", "why")
        findings = list(_findings(wrong))
        listed = findings[:MOST_FINDINGS_LISTED]
        note = f"The first {len(listed)} of {len(findings)}." if len(findings) > len(listed) else ""
        sections.append(section("Findings", table(columns, listed, columns[3:6]), note=note))
    sections.append(section("Bytes compared per topic and broker", _volume(summary.partitions)))
    parts = ("partition", "leader", "state", "from offset", "to (without)", "batches", "bytes", "compared")
    rows = [_row(partition) for partition in summary.partitions]
    note = "Batches and bytes: of all replicas."
    sections.append(section("Partitions", table(parts, rows, parts[3:7]), note=note))
    subtitle = f"{cluster}; every replica below the high watermark, by CRC-32C of each batch"
    return page("Audit of replicas", sections, subtitle=subtitle)


def _grid(partitions: Iterable[AuditedPartition]) -> str:
    """Colours by the worst state of what is in a cell."""
    by_partition = len(list(partitions)) <= MOST_ROWS
    cells: dict[tuple[str, str], list[AuditedReplica]] = {}
    for partition in partitions:
        row = f"{partition.topic}-{partition.partition}" if by_partition else partition.topic
        for replica in partition.replicas:
            cells.setdefault((row, f"broker {replica.broker_id}"), []).append(replica)
    filled = {}
    for place, replicas in cells.items():
        worst = max((replica.state for replica in replicas), key=STATES.index)
        count = sum(replica.state == worst for replica in replicas)
        text = (
            worst if by_partition else f"{count} {worst}" + ("" if count == len(replicas) else f" of {len(replicas)}")
        )
        leads = " (leader)" if by_partition and replicas[0].is_leader else ""
        filled[place] = text + leads, worst
    rows = dict.fromkeys(row for row, _ in cells)
    if not by_partition:  # thousands of topics perhaps: who looks for what is wrong finds it on top
        worst_of = dict.fromkeys(rows, 0)
        for (row, _), (_, kind) in filled.items():
            worst_of[row] = max(worst_of[row], STATES.index(kind))
        rows = dict.fromkeys(sorted(rows, key=worst_of.__getitem__, reverse=True))
    columns = sorted({column for _, column in cells}, key=lambda name: int(name.split()[1]))
    return grid(list(rows), columns, filled, STATE_COLOURS)


def _drawn(partition: AuditedPartition) -> str:
    committed = max((replica.end for replica in partition.replicas), default=0)
    rows = {
        f"broker {replica.broker_id}" + (" (leader)" if replica.is_leader else ""): list(_spans(replica, committed))
        for replica in partition.replicas
    }
    return timeline(rows, colours=KIND_COLOURS, shown=lambda offset: f"{offset:,.0f}", unit="offsets")


def _spans(replica: AuditedReplica, committed: int) -> Iterator[Span]:
    """What was equal in the back, the findings on it."""
    if replica.end > replica.start:
        title = f"compared [{replica.start}, {replica.end})"
        yield Span(replica.start, replica.end, EQUAL, title)
    if replica.lag:
        yield Span(
            replica.end, committed, "not reached", f"{replica.lag} offsets that it does not know to be committed"
        )
    for finding in replica.findings[:MOST_FINDINGS_DRAWN]:
        title = f"{finding.kind} [{finding.start}, {finding.end}): {why(finding)}"
        end = finding.end if finding.end > finding.start else max(committed, finding.start + 1)
        yield Span(finding.start, end, finding.kind, title)


def _findings(partitions: Iterable[AuditedPartition]) -> Iterator[list[str]]:
    for partition in partitions:
        for replica in partition.replicas:
            for finding in replica.findings:
                yield [
                    f"{partition.topic}-{partition.partition}",
                    str(replica.broker_id),
                    finding.kind,
                    str(finding.start),
                    str(finding.end),
                    str(finding.count),
                    why(finding),
                ]


def _volume(partitions: Sequence[AuditedPartition]) -> str:
    topics = list(dict.fromkeys(partition.topic for partition in partitions))
    brokers = sorted({replica.broker_id for partition in partitions for replica in partition.replicas})
    colours = {f"broker {broker_id}": broker_colour(broker_id) for broker_id in brokers}
    series: dict[str, list[float]] = {name: [0.0] * len(topics) for name in colours}
    for partition in partitions:
        for replica in partition.replicas:
            series[f"broker {replica.broker_id}"][topics.index(partition.topic)] += replica.size_bytes
    return bars(topics, series, unit="", shown=size_text, colours=colours)


def _row(partition: AuditedPartition) -> list[str]:
    replicas = partition.replicas
    return [
        f"{partition.topic}-{partition.partition}",
        str(partition.leader),
        partition.state,
        str(min((each.start for each in replicas if each.batches), default=0)),
        str(max((each.end for each in replicas), default=0)),
        f"{sum(each.batches for each in replicas):,}",
        size_text(sum(each.size_bytes for each in replicas)),
        "compacted, by records" if partition.is_compacted else "by batches",
    ]
