"""What the dashboard shows of a broker that tells nothing of its partitions (`metrics.per.partition=false`)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trio.testing import MockClock

from strandline.protocol.messages import ConfigResource
from strandline.testkit.cluster import MemoryCluster
from support.scraping import Scrape, scrape

FAMILY = re.compile(r"\b(?:kafka|strandline|redpanda|process)_\w+")
OF_LABEL = re.compile(r"label_values\((?P<family>\w+)(\{(?P<matchers>.*)\})?, (?P<label>\w+)\)")
ADDED = {"job": "strandline", "instance": "broker-1:9644"}
"""By Prometheus, to each series."""


def dashboard() -> dict[str, Any]:
    return json.loads((Path(__file__).parents[4] / "deploy/grafana/strandline.json").read_text())


def values_of(query: str, found: Scrape) -> set[str]:
    """What Grafana offers for a variable."""
    parsed = OF_LABEL.fullmatch(query)
    assert parsed is not None, query
    matchers = re.findall(r'(\w+)(!?=)"(.*?)"', (parsed["matchers"] or "").replace("$job", ADDED["job"]))
    values = set()
    for name, own in found.samples:
        labels = {**ADDED, **dict(own)}
        if name == parsed["family"] and all(
            (labels.get(label, "") == value) == (sign == "=") for label, sign, value in matchers
        ):
            values.add(labels.get(parsed["label"], ""))
    return values


async def test_without_series_of_partitions_it_lists_brokers_and_topics_and_lacks_what_it_says(
    autojump_clock: MockClock,
) -> None:
    async with MemoryCluster(1).running() as cluster, cluster.admin() as admin:
        for name in ("clicks", "orders"):
            await admin.create_topic(name, 2, 1)
        before = await scrape(cluster, 1)
        await admin.alter_configs(ConfigResource.BROKER, "", {"metrics.per.partition": "false"})
        config = cluster.broker(1).config_changes.config
        await cluster.until(lambda: not config.value.metrics_per_partition, "it counts")
        found = await scrape(cluster, 1)
    variables = {each["name"]: each for each in dashboard()["templating"]["list"]}
    queries = {name: variables[name]["query"]["query"] for name in ("job", "broker", "topic")}
    assert all(variables[name]["definition"] == query for name, query in queries.items())
    assert values_of(queries["job"], found) == {ADDED["job"]}
    assert values_of(queries["broker"], found) == {ADDED["instance"]}
    assert values_of(queries["topic"], found) == values_of(queries["topic"], before) == {"clicks", "orders"}
    gone = {name for name, _ in before.samples} - {name for name, _ in found.samples}
    lacking = [
        panel
        for panel in dashboard()["panels"]
        if any(gone & set(FAMILY.findall(target["expr"])) for target in panel.get("targets", ()))
    ]
    assert [panel["title"] for panel in lacking] == ["Log size"]
    assert all("metrics.per.partition" in panel["description"] for panel in lacking)
