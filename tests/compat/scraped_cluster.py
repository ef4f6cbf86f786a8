"""Brokers in memory, scraped on the virtual clock as a Prometheus would: what their `/metrics` say becomes the series
of a test for `promtool test rules`.

Rules:
* Each sample stands for `SCRAPE_S`. What a target does not tell any more is stale, as Prometheus has it.
* A broker is a target while its discovery finds it (`forget`), and answers (`up`) once its listeners are bound, as its
  admin port would be. The text is the one of the admin port, of the families that the rules look at.
* All brokers are one process here: when it started is told by the lives of each, on the virtual clock.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import trio
import yaml
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from strandline.broker.metrics.exposition import Exposition
from strandline.broker.metrics.sources import MetricSources
from strandline.broker.server import Broker
from strandline.testkit.cluster import MemoryCluster

RULES = Path(__file__).parents[2] / "deploy/prometheus/rules.yml"
SCRAPE_S = 30
JOB = "strandline"
STARTED = "process_start_time_seconds"
FIRING = 'ALERTS{alertstate="firing"}'
_NAME = re.compile(r"\b(?:kafka|strandline|process)_\w+")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def shipped_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def names_in(expressions: Iterable[str]) -> frozenset[str]:
    """Of the figures that these queries look at."""
    return frozenset(name for expression in expressions for name in _NAME.findall(expression))


class Scraper:
    """names: of the figures that are kept. `series`: samples so far, one per scrape, as promtool writes them."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.scrapes = 0
        self.series: dict[str, list[str]] = {}
        self._targets: dict[str, tuple[MemoryCluster, int]] = {}
        self._told: dict[str, set[str]] = {}
        """Instance → series that it had in the last scrape."""

    @property
    def last_s(self) -> int:
        """When the last scrape was; the first is of second 0."""
        return (self.scrapes - 1) * SCRAPE_S

    def find(self, cluster: MemoryCluster, *broker_ids: int, prefix: str = "broker") -> None:
        """Its brokers (with `broker_ids`: only these) are targets from now on. prefix: of their instances' names."""
        for broker_id in broker_ids or cluster.nodes:
            self._targets[f"{prefix}-{broker_id}:9644"] = cluster, broker_id

    def forget(self, cluster: MemoryCluster, *broker_ids: int) -> None:
        """They are no targets any more (with no `broker_ids`: none of the cluster)."""
        for instance, (where, broker_id) in list(self._targets.items()):
            if where is cluster and broker_id in (broker_ids or cluster.nodes):
                del self._targets[instance]

    async def scrape(self, times: int) -> None:
        """So often, after `SCRAPE_S` each."""
        for _ in range(times):
            await trio.sleep(SCRAPE_S)
            for instance in {**self._told, **self._targets}:
                target = self._targets.get(instance)
                self._take(instance, {} if target is None else await self._ask(*target))
            self.scrapes += 1

    async def _ask(self, cluster: MemoryCluster, broker_id: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        broker = cluster.broker(broker_id)
        up = ("up", frozenset[tuple[str, str]]())
        if not cluster.nodes[broker_id].is_up or not _serves(broker):
            return {up: 0.0}
        body = Exposition(lambda: _only(broker.metrics, self.names)).answer({}).body
        assert not isinstance(body, bytes)
        text = b"".join([piece async for piece in body]).decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        lives = float(cluster.nodes[broker_id].lives)
        return {up: 1.0} | {
            (each.name, frozenset(each.labels.items())): lives if each.name == STARTED else each.value
            for each in samples
        }

    def _take(self, instance: str, samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]) -> None:
        told = {
            _as_series(name, labels | {("job", JOB), ("instance", instance)}): value
            for (name, labels), value in samples.items()
        }
        for name in self._told.get(instance, set()) - told.keys():
            self._add(name, "stale")
        for name, value in told.items():
            self._add(name, _as_number(value))
        self._told[instance] = set(told)

    def _add(self, name: str, value: str) -> None:
        values = self.series.setdefault(name, [])
        values += ["_"] * (self.scrapes - len(values)) + [value]


def _serves(broker: Broker) -> bool:
    listeners = getattr(broker, "listeners", None)  # it has none before its start has come so far
    return listeners is not None and bool(listeners.addresses)


def _only(sources: MetricSources, names: frozenset[str]) -> Generator[Metric, None, None]:
    for family in sources.collect():
        if family.name in names or f"{family.name}_total" in names:
            yield family


def _as_series(name: str, labels: Iterable[tuple[str, str]]) -> str:
    told = ", ".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sorted(labels))
    return f"{name}{{{told}}}"


def _as_number(value: float) -> str:
    return str(value) if value != value or value in (float("inf"), -float("inf")) else format(Decimal(repr(value)), "f")


def promtool_test(
    series: Mapping[str, list[str]], alerts: Mapping[str, tuple[float, frozenset[str]]]
) -> dict[str, Any]:
    """For `promtool test rules`, with the rules as they are shipped. alerts: query → when it is asked, in seconds, and
    the names of the alerts that it gives then."""
    return {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{SCRAPE_S}s",
        "tests": [
            {
                "interval": f"{SCRAPE_S}s",
                "input_series": [{"series": name, "values": " ".join(values)} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": f"{at_s:.0f}s",
                        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
                    }
                    for query, (at_s, names) in alerts.items()
                ],
            }
        ],
    }
