"""What a soak tells: a table and lines for people, everything for programs."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from soak.soak_load import LATEST, NUMBERS
from soak.soak_run import show_verdicts
from soak.soak_samples import Bound, Sample, thirds

if TYPE_CHECKING:
    from soak.cluster_soak import Soak

MB = 1e6


def document(soak: Soak, bounds: list[Bound], *, judged: bool) -> dict[str, Any]:
    """JSON. judged: a bound that does not hold is a broken promise."""
    load = soak.load
    return {
        "minutes": round(soak.seconds / 60, 2),
        "load_average": [round(each, 1) for each in os.getloadavg()],
        "cores": os.cpu_count(),
        "acknowledged": {NUMBERS: load.acked_numbers, LATEST: load.acked_latest},
        "given_up": len(load.errors),
        "given_up_because": load.errors[:3],
        "faults": soak.faults,
        "promises": [verdict.as_json() for verdict in soak.verdicts],
        "bounds": [bound.as_json() for bound in bounds],
        "bounds_judged": judged,
        "samples": [asdict(sample) for sample in soak.samples],
    }


def show(console: Console, soak: Soak, bounds: list[Bound], *, judged: bool) -> None:
    load = soak.load
    kills = sum(fault["how"] == "SIGKILL" for fault in soak.faults)
    console.print(
        f"{soak.seconds / 60:.1f} min, {kills} brokers killed, {len(soak.faults) - kills} terminated; acknowledged "
        f"{load.acked_numbers:,} + {load.acked_latest:,} records, {len(load.errors)} given up; "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    console.print(means(soak))
    show_verdicts(console, soak.verdicts)
    for bound in bounds:
        scale, unit = (MB, "MB") if bound.unit == "bytes" else (1.0, bound.unit)
        word = "[green]within[/]" if bound.holds else "[red]BROKEN[/]" if judged else "[yellow]above [/]"
        figures = f"{bound.value / scale:.1f} of {bound.limit / scale:.1f} {unit}".rstrip()
        console.print(f"{word} {bound.name}: {figures} ({bound.text})")


def means(soak: Soak) -> Table:
    table = Table(title="means per broker and third of the run, after the warm-up")
    for column in ("broker", "third", "descriptors", "RSS MB", "workers MB", "segments", "log dir MB", "put aside MB"):
        table.add_column(column, justify="right")
    for broker_id in soak.cluster.broker_ids:
        for number, samples in enumerate(thirds(soak.samples, soak.seconds), 1):
            rows = [_figures(sample) for sample in samples if sample.broker_id == broker_id]
            if rows:
                columns = [statistics.fmean(column) for column in zip(*rows, strict=True)]
                table.add_row(str(broker_id), str(number), *(f"{figure:.1f}" for figure in columns))
    return table


def _figures(sample: Sample) -> tuple[float, ...]:
    return (
        sample.descriptors,
        sample.rss_bytes / MB,
        sample.worker_rss_bytes / MB,
        sample.segments,
        sample.log_dir_bytes / MB,
        sample.put_aside_bytes / MB,
    )
