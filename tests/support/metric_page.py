"""docs/metrics.md: every family that a broker may tell, read from a loaded cluster. Written anew by

    PYTHONPATH=tests .venv/bin/python -m support.metric_page

which keeps the column `told`, the only one that people write: a new line has `?` there until somebody has said when it
is told, and a test holds it to what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from strandline.broker.metrics.bounds import MAX_LABEL_CHARACTERS, MAX_SERIES
from strandline.broker.metrics.end_offsets import MAX_PARTITIONS as MAX_ENDS
from strandline.broker.metrics.of_machine import OfProcess
from strandline.broker.metrics.of_quotas import MAX_SENSORS_TOLD
from strandline.broker.network.request_counts import QUICK_S
from strandline.runtime.machine import OwnDiskBytes
from support.loaded_cluster import CONTROLLER, COORDINATOR, Story, story
from support.scraping import Shape, shapes

PAGE = Path(__file__).parents[2] / "docs/metrics.md"
COMMAND = "PYTHONPATH=tests .venv/bin/python -m support.metric_page"
QUICK_MS = round(QUICK_S * 1000)
HEAD = f"""# Metrics

Every family of a broker's `/metrics`, by who documents its name. A family with several sets of labels has a line for
each. `told`: when there is a series, where that is not always so. With `metrics.per.partition=false` there is none
with the label `partition`. Histograms have `_bucket`, `_sum` and `_count`; what else ends in `_count` and only grows is
a gauge by its kind (a counter's name would end in `_total`, which dashboards of Kafka do not know), and `rate()` counts
for it all the same.

A family has at most {MAX_SERIES:,} series of topics, partitions and groups, and {MAX_SENSORS_TOLD:,} of each resource
that quotas are of, those first that hold somebody. A group or client whose name is longer than {MAX_LABEL_CHARACTERS}
characters has none. How many rows a family lacks for that is told by `strandline_metrics_left_out`. Series without
these labels count all there are, and the sum of a group in a topic is that of all partitions. Lags are known in at most
{MAX_ENDS:,} partitions that other brokers lead.

All requests are counted. Each that takes {QUICK_MS} ms or more, or waits for a handler, is timed as well. Of quicker
ones those are that come together as the first ones of {QUICK_MS} ms, and stand for the others: {1000 // QUICK_MS} times
in a second for each API.
"""
SECTIONS = {
    "Kafka, by jmx_exporter's rule": r"kafka_(cluster|controller|coordinator|log|network|server)_",
    "kafka_exporter": r"kafka_(brokers$|broker_info$|topic_|consumergroup_)",
    "Redpanda": "redpanda_",
    "Prometheus' clients": "process_",
    "Strandline": "strandline_",
}
NOT_SAID = "?"
IS_TOLD: Mapping[str, Callable[[Story, str, int], bool] | None] = {
    "": lambda told, moment, broker: True,
    "by the controller": lambda told, moment, broker: broker == CONTROLLER,
    "by the controller, of topics": lambda told, moment, broker: broker == CONTROLLER and moment != "idle",
    "of replicas here": lambda told, moment, broker: moment != "idle",
    "by leaders": lambda told, moment, broker: broker in told.leaders[moment],
    "by leaders, else the controller": lambda told, moment, broker: broker in told.leaders[moment],
    "by a group's coordinator": lambda told, moment, broker: (
        broker == COORDINATOR and moment not in ("idle", "catching up", "after")
    ),
    "by a group's coordinator, where ends are known": None,
    "of clients with a quota": None,
    "of addresses with a quota": None,
    "while behind": None,
    "after a first scrape": None,
    "on Linux": None,
}
"""What the column may say → whether such a family is told at a moment by a broker of the story (None: not always)."""


def all_shapes(played: Story) -> set[Shape]:
    found = set(shapes(OfProcess(lambda: OwnDiskBytes(1, 1))()))
    for brokers in played.told.values():
        for told in brokers.values():
            found |= told.shapes
    return found


def told_by_page(text: str) -> dict[tuple[str, str], str]:
    """(name, labels) → what the page says of when it is told."""
    rows = re.findall(r"^\| `(.*?)` \| \w+ \| (.*?) ?\| (.*?) ?\| .*\|$", text, re.MULTILINE)
    return {(name, labels): told for name, labels, told in rows}


def page(found: Iterable[Shape], told: Mapping[tuple[str, str], str]) -> str:
    """told: what was said so far. AssertionError for a name that no section is for."""
    sections: dict[str, list[str]] = {title: [] for title in SECTIONS}
    for shape in sorted(found):
        [title] = [title for title, pattern in SECTIONS.items() if re.match(pattern, shape.name)]
        name, labels = name_of(shape), ", ".join(shape.labels)
        when = told.get((name, labels), NOT_SAID)
        sections[title].append(f"| `{name}` | {shape.kind} | {labels} | {when} | {shape.help_text} |")
    text = HEAD
    for title, lines in sections.items():
        if lines:
            text += f"\n## {title}\n\n| name | kind | labels | told | what |\n|---|---|---|---|---|\n"
            text += "\n".join(lines) + "\n"
    return text


def name_of(shape: Shape) -> str:
    """What its samples are called."""
    return shape.name + "_total" if shape.kind == "counter" else shape.name


if __name__ == "__main__":
    said = told_by_page(PAGE.read_text()) if PAGE.exists() else {}
    PAGE.write_text(page(all_shapes(story()), said))
