"""A simulated run as a transcript: what was done to the cluster, what brokers said, what clients were refused. Pure.

    19.482              STRUCK kill 2 for 1.91
    19.906 broker-1     broker 2 refuses connections, 300 ms late at most
    19.910 broker-1     all-0: the controller wrote: leader 1, epoch 3, version 5, ISR 1,3 of 1,2,3, …
    21.460              undone kill 2 for 1.91
    36.667 producer-all all-0: write unknown: DeliveryTimeout: … (×5 until 37.102)

Left out is what follows from what is told anyway (`ROUTINE`); whatever else brokers log is shown, known here or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.cli.simulate_lines import Spoken, spoken
from strandline.cli.state_change_text import event_what
from strandline.cli.wording import printable
from strandline.protocol.history.lines import Kind

if TYPE_CHECKING:
    from strandline.testkit.simulation.driver import Report

ROUTINE = frozenset(
    {
        *("admin port", "listening", "registered", "loading logs", "logs loaded", "broker alive"),
        *("fetch refused", "fetcher disconnected", "topics found"),
    }
)
"""Events that follow from others."""
ROUTINE_KINDS = frozenset({Kind.TOLD, Kind.LOST})
"""Each follower is told of each change, and each loses its connections."""
SAID_ELSEWHERE = frozenset({"event", "level", "timestamp", "broker_id"})
BURST_S = 2.0
"""The same that comes again within that time is told together."""
LONGEST_VALUE = 200


def transcript(report: Report) -> list[str]:
    """Lines in the order of the virtual time."""
    entries = sorted([*_faults(report), *_brokers(report), *_clients(report)], key=lambda entry: entry.at_s)
    width = max((len(entry.who) for entry in entries), default=0)
    return [f"{entry.at_s:9.3f} {entry.who:<{width}} {printable(entry.what)}" for entry in entries]


class Entry(NamedTuple):
    at_s: float
    who: str
    what: str


def _faults(report: Report) -> Iterator[Entry]:
    for struck in report.struck:
        what = str(struck.fault).split(maxsplit=1)[1]
        yield Entry(struck.from_s, "", f"STRUCK {what}")
        if struck.from_s < struck.to_s <= report.virtual_s:
            yield Entry(struck.to_s, "", f"undone {what}")


def _brokers(report: Report) -> Iterator[Entry]:
    for said in spoken(report.lines):
        if said.line is not None and said.line.events:
            for event in said.line.events:
                if event.kind not in ROUTINE_KINDS:
                    yield Entry(said.at_s, said.node, event_what(event))
        elif said.fields.get("event") not in ROUTINE:
            yield Entry(said.at_s, said.node, _in_words(said))


def _in_words(said: Spoken) -> str:
    if not said.fields:
        return said.text
    told = ", ".join(f"{key}={_short(value)}" for key, value in said.fields.items() if key not in SAID_ELSEWHERE)
    return f"{said.fields['event']}: {told}" if told else str(said.fields["event"])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _clients(report: Report) -> Iterator[Entry]:
    """What was not as it was asked for; the same again and again is one line."""
    repeats: dict[tuple[str, str, str], list[float]] = {}
    everything: Iterator[Any] = report.history.all()
    for done in everything:
        outcome = getattr(done, "outcome", None)
        if outcome is None or outcome.value == "ok":
            continue
        ended_s = min(done.ended_s, report.virtual_s)
        why = getattr(done, "why", "")
        what = f"{type(done).__name__.lower()} {outcome.value}" + (f": {why}" if why else "")
        repeats.setdefault((done.process, str(done.stream), what), []).append(ended_s)
    for (process, stream, what), times in repeats.items():
        for first_s, last_s, count in _bursts(sorted(times)):
            many = f" (×{count} until {last_s:.3f})" if count > 1 else ""
            yield Entry(first_s, process, f"{stream}: {what}{many}")


def _bursts(times: list[float]) -> Iterator[tuple[float, float, int]]:
    """(first, last, how many) of times without a pause of BURST_S between them."""
    first = last = times[0]
    count = 0
    for at_s in times:
        if at_s - last > BURST_S:
            yield first, last, count
            first, count = at_s, 0
        last = at_s
        count += 1
    yield first, last, count
